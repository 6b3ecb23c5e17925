"""Verifies the protocols of ring, board, claim and BEGIN exhaustively with Spin, and that each planted mutant
is caught.

One test is one exhaustive search: `spin -a`, gcc, `pan`. A search that was cut short (depth, memory) fails.
How many states it stored is recorded: the report (tests/evidence_report.py) asks for at least as many as
there are. How long that takes is nowhere asserted: `pan` knows only the time on the clock, and that is the
machine's; the report shows it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent
DEPTH = 100_000  # the deepest search needs under 1,000; a search that reaches it fails the test
MEMORY_MB = 2048
SECONDS = 360  # only a hang gets there

pytestmark = pytest.mark.skipif(shutil.which("spin") is None, reason="spin is not installed: apt-get install spin")

# The variants of each model that must hold.
RIGHT: dict[str, list[list[str]]] = {
    "board": [[], ["ONE"]],
    "commit": [[]],
    "pin": [[]],
    "wake": [[], ["FENCED"], ["TWO_WAITERS"], ["TWO_WAITERS", "FENCED"], ["DOZES"], ["DOZES", "FENCED"]],
    "begin": [[], ["THREE"]],
    "claim": [[], ["WIPE"]],
    "register": [
        ["LIVES=2"],
        ["WIPES=0"],
        ["SEATS"],
        ["SEATS", "DAMAGE"],
        ["PAIRS", "NUMBERS=2", "WIPES=2"],
        ["PAIRS", "DAMAGE"],
        ["BACKUP", "LIVES=2"],
    ],
}

# The mutants that must be caught, and the variant that catches them.
MUTANTS: dict[str, list[list[str]]] = {
    "board": [
        ["MUT_NO_TURN"],
        ["MUT_TURN_PLAIN"],
        ["MUT_TURN_FOR_EVER"],
        ["MUT_STEAL_ALIVE"],
        ["MUT_FREE_FOR_OWN"],
        ["ONE", "MUT_ALWAYS_CLOSED"],
        ["ONE", "MUT_STATE_FIRST"],
        ["ONE", "MUT_SINCE_FIRST"],
        ["ONE", "MUT_KEEP_OTHERS"],
        ["ONE", "MUT_NO_SINCE"],
        ["ONE", "MUT_NO_RECHECK"],
        ["ONE", "MUT_RELEASE_OWNER_FIRST"],
    ],
    "commit": [
        ["MUT_NO_ZERO"],
        ["MUT_ZERO_AFTER_COMMIT"],
        ["MUT_COMMIT_FIRST"],
        ["MUT_COMMIT_BEFORE_PAYLOAD"],
        ["MUT_TIGHT_ADMIT"],
        ["MUT_TRAIL_LATE"],
        ["MUT_NO_TRAIL_CHECK"],
        ["MUT_TRAIL_BEFORE_COPY"],
        ["MUT_NO_TRAIL_ON_ZERO"],
        ["MUT_TAIL_BEFORE_COMMIT"],
    ],
    "pin": [
        ["MUT_PIN_AFTER_TRAIL"],
        ["MUT_SCAN_FIRST"],
        ["MUT_NO_SCAN"],
        ["MUT_NO_RELEASE_CHECK"],
        ["MUT_CHECK_BEFORE_USE"],
        ["MUT_CACHED_TRAIL"],
        ["MUT_STREAM_AFTER_CHECK"],
        ["MUT_RETRY_FORGETS"],
        ["MUT_KEEP_DEAD_PIN"],
        ["MUT_UNPIN_ALL"],
    ],
    "wake": [
        ["MUT_NO_BARRIER"],
        ["MUT_SOURCE_NO_BARRIER"],
        ["MUT_PLAIN_CLEAR"],
        ["MUT_CLEAR_AFTER_SCAN"],
        ["MUT_HINT_FIRST"],
        ["MUT_NO_RECHECK"],
        ["MUT_BELL_READ_LATE"],
        ["MUT_RING_BEFORE_COMMIT"],
        ["MUT_ACK_AFTER_RING"],
        ["FENCED", "MUT_NO_BARRIER"],
        ["FENCED", "MUT_WAKER_NO_FENCE"],
        ["TWO_WAITERS", "MUT_WAITER_CLEARS"],
        ["DOZES", "MUT_NO_BARRIER"],
        ["DOZES", "MUT_NO_RECHECK"],
        ["DOZES", "MUT_BELL_READ_LATE"],
        ["DOZES", "MUT_DOZE_RUNG"],
        ["DOZES", "MUT_DOZE_BY_HINT"],
    ],
    "begin": [
        ["MUT_ANSWER_BEFORE_DRAIN"],
        ["MUT_NO_BEGIN"],
        ["MUT_LAST_BEGIN_ONLY"],
        ["MUT_NO_ACK_CLAMP"],
        ["MUT_CLAMP_LAST_ONLY"],
        ["MUT_ACK_BEFORE_LOG"],
        ["THREE", "MUT_ANSWER_BEFORE_DRAIN"],
        ["THREE", "MUT_OWN_LOG_ONLY"],
        ["THREE", "MUT_NO_BEGIN"],
        ["THREE", "MUT_ACK_BEFORE_LOG"],
        ["THREE", "UNREADABLE"],  # without promises: claim.pml has them
    ],
    "claim": [
        ["MUT_UNKNOWN_EMPTY"],
        ["MUT_NO_PROMISE"],
        ["MUT_ONE_QUESTION"],
        ["MUT_LAZY_PROMISE"],
        ["WIPE", "MUT_FORGETFUL_ZERO"],
        ["WIPE", "MUT_FORGETFUL_VOTES"],
    ],
    "register": [
        ["SEATS", "MUT_BACKUPS_IGNORED"],
        ["BACKUP", "LIVES=2", "MUT_BACKUPS_IGNORED"],
        ["LIVES=2", "MUT_EARLIER_LIST"],
        ["PAIRS", "MUT_EARLIER_LIST"],
        ["PAIRS", "MUT_LINE_LATE"],
        ["WIPES=0", "MUT_LINE_LATE"],
        ["PAIRS", "DAMAGE", "MUT_RESTORED_BELIEVED"],
        ["SEATS", "DAMAGE", "MUT_RESTORED_BELIEVED"],
        ["SEATS", "MUT_SEAT_UNWRITTEN"],
        ["SEATS", "MUT_SETTLED_WITHOUT_REGISTER"],
        ["LIVES=2", "MUT_REJOINS_WHOLE"],
        ["LIVES=2", "MUT_FORGETFUL_ZERO"],
        ["SEATS", "MUT_FORGETFUL_FOR_EVER"],
        ["LIVES=2", "MUT_UNREADABLE_EMPTY"],
    ],
}


def cases(table: dict[str, list[list[str]]]) -> list[object]:
    return [
        pytest.param(model, defines, id="-".join([model, *defines]))
        for model, rows in table.items()
        for defines in rows
    ]


def search(model: str, defines: list[str], scratch: Path, optimise: str) -> str:
    flags = [f"-D{name}" for name in defines]

    def run(*command: str) -> str:
        done = subprocess.run(
            command,
            cwd=scratch,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        # pan's exit code tells nothing about errors found; spin and gcc fail with one.
        assert done.returncode == 0 or command[0] == "./pan", done.stdout
        return done.stdout

    run("spin", "-a", *flags, str(HERE / f"{model}.pml"))
    run("gcc", optimise, "-w", "-DSAFETY", f"-DMEMLIM={MEMORY_MB}", "-DVECTORSZ=1024", "-o", "pan", "pan.c")
    return run("./pan", f"-m{DEPTH}", "-w22")


def errors(report: str) -> int:
    found = re.search(r"errors: (\d+)", report)
    assert found is not None, report
    return int(found.group(1))


def states(report: str) -> int:
    """All different ones that the search came to."""
    found = re.search(r"(\d+) states, stored", report)
    assert found is not None, report
    return int(found.group(1))


@pytest.mark.parametrize(("model", "defines"), cases(RIGHT))
def test_the_protocol_holds_in_every_interleaving(
    model: str, defines: list[str], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    report = search(model, defines, tmp_path, "-O2")
    assert errors(report) == 0, report
    for cut_short in ("Search not completed", "max search depth too small", "out of memory", "memory limit"):
        assert cut_short not in report, report
    record_property("states", states(report))


@pytest.mark.parametrize(("model", "defines"), cases(MUTANTS))
def test_a_broken_protocol_is_caught(model: str, defines: list[str], tmp_path: Path) -> None:
    report = search(model, defines, tmp_path, "-O0")  # found early: compiling is most of the time
    assert errors(report) == 1, report
    assert "assertion violated" in report or "invalid end state" in report, report
    assert "max search depth too small" not in report, report


@pytest.mark.parametrize("model", sorted(RIGHT))
def test_every_mutant_in_a_model_is_listed_here(model: str) -> None:
    text = (HERE / f"{model}.pml").read_text(encoding="utf-8")
    text += "".join((HERE / name).read_text(encoding="utf-8") for name in re.findall(r'#include "(.+)"', text))
    planted = set(re.findall(r"MUT_[A-Z_]+", text))
    assert planted == {name for row in MUTANTS[model] for name in row if name.startswith("MUT_")}
