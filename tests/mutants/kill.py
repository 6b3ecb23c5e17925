"""What kills a mutant: the unit tests of the rules, those of its own module first; else the seeds of the
simulator that find planted bugs.

Each tries it in a process of its own, a fork of one that has imported what all of them need and nothing of
holdfast. So the tests find the mutated text when they import it, and no file is changed.
"""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import resource
import signal
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import greenlet  # noqa: F401  # what takes time to import is here before the fork, as the next ones
import hypothesis
import msgspec  # noqa: F401
import numba  # noqa: F401
import pytest
import table
from mutants.mutate import RULES
from simulator import planting
from simulator.hunt import KILLING, TESTS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from simulator.planting import Patch

__all__ = ["SURVIVES", "killed_by", "suites"]

CPU_S = 20
"""What one test or seed may take of a core. A mutant that takes more hangs. It is no time by the clock: a
machine that is busy kills nothing."""
MEMORY = 8 * 2**30
"""Address space of the unit tests: a list that grows without end ends before the machine does. The simulator
reserves more than a machine has."""
SURVIVES = ""
LIMIT = "limit"


@cache
def suites(path: str) -> tuple[list[str], list[str]]:
    """Test files that have this module, and all others that have rules. That of its own name comes first,
    then those that have the fewest: what has many plays long histories."""
    having: dict[str, set[str]] = {}
    for test in sorted((TESTS / "unit").rglob("test_*.py")):
        rules = {each for each in table.imported(test) if each.startswith(RULES)}
        if rules or test.parent.name == "rules":
            having[str(test)] = rules
    named = f"/test_{Path(path).name}"
    order = sorted(having, key=lambda test: (not test.endswith(named), len(having[test])))
    return [test for test in order if path in having[test]], [test for test in order if path not in having[test]]


def killed_by(patch: Patch) -> str:
    """Who notices it: "units", "seeds", or the limit of time; empty: nobody."""
    own, others = suites(patch.path)
    units = _ended(lambda: _fails(own, patch)) or _ended(lambda: _fails(others, patch))
    if units:
        return "units" if units > 0 else LIMIT
    seeds = _ended(lambda: _breaks(patch))
    return "seeds" if seeds > 0 else LIMIT if seeds < 0 else SURVIVES


def _ended(noticed: Callable[[], bool]) -> int:
    """In a process of its own: 0 it noticed nothing, 1 something, -1 it took too long."""
    child = os.fork()
    if child == 0:
        status = 1
        with contextlib.suppress(BaseException):
            nowhere = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(nowhere, descriptor)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            _begin()
            status = int(noticed())
        os._exit(status)
    _, status = os.waitpid(child, 0)
    hangs = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU
    return -1 if hangs else int(status != 0)


def _begin() -> None:
    """The limit counts from now on."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(used.ru_utime + used.ru_stime) + CPU_S
    resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.RLIM_INFINITY))


class _Limited:
    """Gives each test the same time."""

    def pytest_runtest_logstart(self) -> None:
        """As pytest."""
        _begin()


def _fails(tests: Collection[str], patch: Patch) -> bool:
    """A test fails."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    planting.plant("", [patch])
    hypothesis.settings.register_profile(
        "mutants", deadline=None, derandomize=True, database=None
    )  # each has the same examples
    hypothesis.settings.load_profile("mutants")
    quiet = ["-q", "-x", "--tb=no", "-n0", "--no-cov", "--assert=plain", "-o", "cache_dir=build/mutants"]
    return bool(tests) and pytest.main([*quiet, *tests], plugins=[_Limited()]) != pytest.ExitCode.OK


def _breaks(patch: Patch) -> bool:
    """A seed finds something that does not hold."""
    planting.plant("", [patch])
    import simulator.boot  # noqa: F401  # the simulated world below the engine
    from simulator.play import play

    logging.disable(logging.CRITICAL)
    gc.disable()
    for seed in sorted(set(json.loads(KILLING.read_text()).values())):
        _begin()
        play(seed)
    return False
