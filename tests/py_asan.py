"""Tests of receiving, with the extension modules under AddressSanitizer and UBSan; then each planted bug,
which they must catch.

csrc/python counts references and lends memory to views by hand: a mistake there passes a test whose memory
nobody has used since. What is given back too early is seen here. What never is given back (a reference too
many) is not: leaks are not looked for, since Python itself ends with memory that it has kept.

The modules are built by the Makefile (py-asan) and found before the installed ones, in a package that is all
links except for them. With PYTHONMALLOC=malloc Python's own objects are seen, too. Reports go to files: who
dies of one may be a process that a test expects to die.

``--core MODULE``: writes down the C source of the module that wraps csrc. ``--receive BUG``: csrc/python,
with that bug or none.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from evidence import record
from support.leftovers import remove_objects

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "py-asan"
TESTS = [
    f"tests/{name}.py"
    for name in (
        "process/client/test_api", "process/client/test_waits", "process/receiver/test_arrival",
        "process/receiver/test_feed", "process/receiver/test_flow", "process/receiver/test_iteration",
        "process/receiver/test_lane", "process/receiver/test_pool", "process/receiver/test_recycling",
        "unit/bindings/test_misuse", "unit/receiver/test_ack_window",
    )
]  # fmt: skip


class Bug(NamedTuple):
    """``right`` stands once in ``file`` and becomes ``wrong``; the sanitizer calls that ``error``."""

    file: str
    right: str
    wrong: str
    error: str


PLANTED = {
    "past_the_end": Bug(
        "slot.c",
        "(char *)s->block->bytes, (Py_ssize_t)s->entry.length)",
        "(char *)s->block->bytes, s->block->capacity + 1)",
        "heap-buffer-overflow",
    ),
    "after_free": Bug(
        "flow.c",
        "        Py_INCREF(*message);\n        f->current = (struct slot *)*message;",
        "        f->current = (struct slot *)*message;",
        "heap-use-after-free",
    ),
}
SHOWS = "tests/process/receiver/test_flow.py"
"""Catches each of them."""


def write_receive(bug: str) -> None:
    """csrc/python, below the build directory. Raises ValueError where what is right was changed, so the bug
    must be."""
    (BUILD / bug).mkdir(exist_ok=True)
    for old in (BUILD / bug).glob("*.c"):  # the Makefile compiles all that lie there
        old.unlink()
    for path in map(ROOT.joinpath, _build_core().sources("_receive")):
        text = path.read_text()
        if bug in PLANTED and PLANTED[bug].file == path.name:
            if text.count(PLANTED[bug].right) != 1:
                raise ValueError(f"{path} lacks {PLANTED[bug].right!r}: give {__file__} another bug")
            text = text.replace(PLANTED[bug].right, PLANTED[bug].wrong)
        (BUILD / bug / path.name).write_text(text)


def write_core(module: str) -> None:
    """Below the build directory."""
    _build_core().emit(f"holdfast.{module}", BUILD / f"{module}.c")


def _build_core() -> ModuleType:
    sys.path.append(str(ROOT / "csrc"))
    return importlib.import_module("build_core")


def _package(bug: str) -> Path:
    """A directory for PYTHONPATH."""
    package = BUILD / bug / "path" / "holdfast"
    shutil.rmtree(package, ignore_errors=True)
    package.mkdir(parents=True)
    modules = [*BUILD.glob("*.so"), BUILD / bug / "_receive.abi3.so"]
    names = {path.name for path in modules}
    sources = [path for path in (ROOT / "bindings").iterdir() if path.name not in names]
    for path in (*modules, *sources, ROOT / "engine"):
        (package / path.name).symlink_to(path)
    return package.parent


PASSED = re.compile(r"^(\d+) passed", re.MULTILINE)


def _run(bug: str, tests: list[str]) -> tuple[int, str]:
    """How many tests passed, 0 if not all did; and what the sanitizers had to say."""
    for old in (BUILD / bug).glob("report.*"):
        old.unlink()
    compiler = os.environ.get("CC", "gcc")
    named = subprocess.run([compiler, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    logs = f"log_path={BUILD / bug / 'report'}"
    environment = {
        **os.environ,
        "PYTHONPATH": str(_package(bug)),
        "PYTHONMALLOC": "malloc",
        "LD_PRELOAD": os.path.realpath(named.stdout.strip()),
        "ASAN_OPTIONS": f"detect_leaks=0:{logs}",
        "UBSAN_OPTIONS": f"print_stacktrace=1:{logs}",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-n0", *tests]
    with tempfile.TemporaryDirectory(prefix="hfa", dir="/tmp") as root:
        environment["HOLDFAST_TESTS_IN"] = root
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        for domain in Path(root).glob("*/run/[!.]*"):  # of a session that died
            remove_objects(domain)
    if bug == "none":
        print(done.stdout, done.stderr, sep="", end="")
    passed = PASSED.search(done.stdout) if done.returncode == 0 else None
    return int(passed[1]) if passed else 0, "".join(path.read_text() for path in (BUILD / bug).glob("report.*"))


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--core", metavar="MODULE")
    parser.add_argument("--receive", metavar="BUG")
    asked = parser.parse_args()
    if asked.core:
        write_core(asked.core)
        return 0
    if asked.receive:
        write_receive(asked.receive)
        return 0
    begun = time.monotonic()
    passed, reports = _run("none", TESTS)
    caught = 0
    for name, bug in PLANTED.items():
        seen = bug.error in _run(name, [SHOWS])[1]
        caught += seen
        print(f"  planted {name}: {'caught' if seen else 'NOT CAUGHT'}")
    print(reports, end="")
    findings = int(not passed or bool(reports))
    seconds = time.monotonic() - begun
    print(f"py-asan: {findings} findings, planted bugs caught {caught} of {len(PLANTED)}; {seconds:.0f} s")
    record("py-asan", counts={"tests": passed}, findings=findings, planted=(caught, len(PLANTED)), seconds=seconds)
    return int(findings or caught < len(PLANTED))


if __name__ == "__main__":
    sys.exit(main())
