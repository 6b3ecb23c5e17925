"""A test session lives in a directory of its own: domains, caches, temporary files. It leaves nothing in
/dev/shm."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

# Short, because a Unix socket's path takes 107 bytes. Set before anything of holdfast or numba is imported,
# and inherited by every process that a test starts. Who expects that the session dies (py_asan.py) says
# where, and clears up.
ROOT = Path(tempfile.mkdtemp(prefix="hf", dir=os.environ.get("HOLDFAST_TESTS_IN", "/tmp")))
os.environ["HOLDFAST_DIR"] = str(ROOT / "run")
os.environ["XDG_CACHE_HOME"] = str(ROOT / "cache")
os.environ["NUMBA_CACHE_DIR"] = str(ROOT / "cache" / "numba")
for variable in ("HOLDFAST_DOMAIN", "LBM_DEFAULT_CONFIG_FILE", "LBM_XML_CONFIG_FILENAME", "LBM_XML_CONFIG_APPNAME"):
    os.environ.pop(variable, None)

# Whoever starts the tests in the background has SIGINT ignored, and so would every process that a test starts
# and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# An example is not wrong because the machine has stood still.
hypothesis.settings.register_profile(
    "patient", hypothesis.settings.default, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("patient")

UNMEASURED = {Path(__file__).parent / name for name in ("model", "simulator")}

_numbers = itertools.count()


def pytest_configure(config: pytest.Config) -> None:
    """Puts tmp_path below ROOT, unless --basetemp says otherwise."""
    if config.option.basetemp is None:
        config.option.basetemp = str(ROOT / "t")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keeps the long loops over seeds out of what is measured: they would take longer by half, and reach
    hardly a line more."""
    for item in items:
        if item.path.parent in UNMEASURED:
            item.add_marker("no_cover")


def pytest_unconfigure() -> None:
    shutil.rmtree(ROOT, ignore_errors=True)


@pytest.fixture
def domain() -> Iterator[str]:
    """Name of a domain that no other test uses. Its objects in shared memory outlive their processes, not the
    test."""
    name = f"d{next(_numbers)}"
    yield name
    directory = Path(os.environ["HOLDFAST_DIR"]) / name
    if directory.exists():
        from support.leftovers import remove_objects

        remove_objects(directory)
        shutil.rmtree(directory, ignore_errors=True)  # this process forgets it then: it may join 1,024


@pytest.fixture(scope="session", autouse=True)
def nothing_left_in_shared_memory() -> Iterator[None]:
    """Fails the session if a test used a domain of its own and left objects of it behind; removes them all
    the same."""
    yield
    from support.leftovers import remove_objects

    domains = [path.parent for path in ROOT.rglob("processes") if path.is_dir()]
    left = {str(path.relative_to(ROOT)): names for path in domains if (names := remove_objects(path))}
    assert not left, f"left in /dev/shm: {left}"
