"""The house's rules about itself (docs/design.md B): how long a file is, what is tested, what stays out
(imports: test_rooms.py)."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from package import ROOT, import_statements, modules

if TYPE_CHECKING:
    from pathlib import Path

SLOW = {"google_crc32c", "lxml", "matplotlib", "numba", "psutil", "pyarrow", "pyspark", "rich", "typer"}
BANNED_MODULES = {"bindings", "engine", "marshal", "multiprocessing.shared_memory", "pickle"}
LINES_MAX = 500
FOLDERS = ("bindings", "engine", "csrc", "tests", "perf")


def python_files() -> list[Path]:
    return [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]


def imports(name: str, source: str) -> set[str]:
    """Absolute names that a module imports; ``from a import b`` gives both ``a`` and ``a.b``."""
    statements = list(import_statements(name, source))
    return {base for base, _ in statements} | {f"{base}.{one}" for base, names in statements for one in names}


def test_nobody_imports_a_banned_module() -> None:
    broken = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in python_files()
        for name in imports("w.x.y.z", path.read_text())
        if any(name == banned or name.startswith(f"{banned}.") for banned in BANNED_MODULES)
        and (name, path.name) != ("pickle", "test_misuse.py")  # which shows that handles refuse it
    }
    assert broken == set()


def test_nobody_waits_by_select() -> None:
    """It refuses descriptors from 1,024 on (engine/native/waiting.py: readable)."""
    call = "select." + "select("
    assert [str(path.relative_to(ROOT)) for path in python_files() if call in path.read_text()] == []


def test_importing_holdfast_is_light() -> None:
    code = f"import sys, holdfast; print(*sorted({SLOW!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_no_file_holds_two_ideas() -> None:
    sources = [*python_files(), *(p for f in ("csrc", "tests", "perf") for p in (ROOT / f).rglob("*.[ch]"))]
    long = {str(path.relative_to(ROOT)): n for path in sources if (n := len(path.read_text().splitlines())) > LINES_MAX}
    assert long == {}


def test_every_interface_of_the_core_has_a_c_test() -> None:
    folders = (ROOT / "csrc", ROOT / "tests" / "c")
    files = {path.relative_to(folder).as_posix(): path for folder in folders for path in folder.rglob("*.h")}
    waiting = sorted((ROOT / "tests" / "c").glob("test_*.c"))
    included: set[str] = set()
    while waiting:  # what a test includes, and what that includes
        names = set(re.findall(r'^#include "([a-z0-9_/]+\.h)"', waiting.pop().read_text(), re.MULTILINE))
        waiting += [files[name] for name in names - included if name in files]
        included |= names
    interfaces = {name for name, path in files.items() if "/* cffi: begin */" in path.read_text()}
    assert len(interfaces) > 8
    assert sorted(interfaces - included) == []


SYNCS = re.compile(
    r"\b(fsync|fdatasync|sync_file_range|msync|syncfs)\s*\(|\bos\.(sync|fsync|fdatasync)\b|\bO_D?SYNC\b|\blib\.hf_sync\b"
)


def syncs(source: str) -> list[str]:
    """What asks the kernel for durability in C or Python; comments and names that end so do not."""
    code = re.sub(r"/\*.*?\*/", "", source, flags=re.DOTALL)
    return [found.group() for line in code.splitlines() for found in SYNCS.finditer(line.partition("#")[0])]


@pytest.mark.parametrize(
    "source",
    [
        "if (fdatasync(fd) != 0) {", "fsync (log->dir);", "sync_file_range(fd, 0, 0, 7);", "os.fsync(fd)",
        "os.open(path, os.O_SYNC)", "msync(map, n, MS_SYNC);", "self._sync(os.fdatasync, fd)", "lib.hf_sync(fd, 0)",
    ],
)  # fmt: skip
def test_a_planted_sync_is_found(source: str) -> None:
    assert syncs(source)


def test_one_place_makes_durable() -> None:
    """What failed is never asked again: so nobody syncs by himself (csrc/base/sync.h,
    engine/native/sync.py)."""
    assert syncs("hf_sync(fd, HF_SYNC_DATA); /* fsync() */\nself._sync(sync_data, fd)  # os.fsync(fd)") == []
    python = list(modules().values())
    assert {path.relative_to(ROOT).parts[0] for path in python} == {"engine", "bindings"}
    files = [*sorted((ROOT / "csrc").rglob("*.[ch]")), *python]
    broken = {str(path.relative_to(ROOT)) for path in files if syncs(path.read_text())}
    assert broken == {"csrc/base/sync.c", "engine/native/sync.py"}


MAPS = re.compile(r"\b(mmap|mmap64|mremap|hf_map_attach)\s*\(")
MAPPERS = {
    "base/map.c": "the first page of a ring, a board or the bells, which lie in shared memory",
    "base/pages.c": "all of them",
    "base/process.c": "a page of nobody's file",
    "log/head.c": "a head, by the one who writes it; what may not be there is read first",
    "log/spare.c": "a segment of the memory level, by the one who writes it",
}
"""Who may map a file. A log is never read through a map: a page that the disk does not give would be a
SIGBUS, also in a program that holds a message of it. Readers copy into private memory."""


def maps(source: str) -> list[str]:
    """Calls that map a file, in C; comments do not."""
    code = re.sub(r"/\*.*?\*/", "", source, flags=re.DOTALL)
    return [found.group() for found in MAPS.finditer(code)]


def test_no_segment_of_a_log_is_read_through_a_map() -> None:
    assert maps("base = mmap (NULL, n, PROT_READ, MAP_SHARED, fd, 0);") != []
    assert maps("/* mmap(fd) */ munmap(base, n); hf_head_map(dir);") == []
    files = sorted((ROOT / "csrc").rglob("*.[ch]"))
    found = {path.relative_to(ROOT / "csrc").as_posix() for path in files if maps(path.read_text())}
    assert found == {*MAPPERS, "base/map.h"}, "base/map.h: its prototype"
    engine = {path.name for path in sorted((ROOT / "engine").rglob("*.py")) if "import mmap" in path.read_text()}
    assert engine == {"ack_window.py"}, "which maps no file"


def test_the_changelog_names_the_layout_version() -> None:
    layout = (ROOT / "csrc" / "base" / "layout.h").read_text()
    found = re.search(r"HF_LAYOUT_VERSION = (\d+)", layout)
    assert found
    assert re.search(rf"^- Layout version {found[1]}:", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


# Written in pieces, so that this file does not contain them.
BANNED_WORDS = re.compile("|".join([r"\bTO" + r"DO\b", r"\bFIX" + r"ME\b", r"\bXX" + r"X\b", r"mark\.skip" + r"\("]))
PHRASES = re.compile("|".join([r"\bso " + r"many\b", r"\bbut " + r"for\b", r"\bwho " + r"never\b"]), re.IGNORECASE)
"""Idioms that a reader with another first language stumbles over: this many, except for, whoever does not."""
NO_SLEEP = ["tests/unit", "tests/model"]


def written() -> dict[str, str]:
    """Whatever somebody reads, by its name."""
    kinds = {".py", ".c", ".h", ".md", ".mk", ".pml", ".sh"}
    folders = (*FOLDERS, "docs")
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*")) if path.suffix in kinds]
    paths += [ROOT / name for name in ("README.md", "CHANGELOG.md", "Makefile", "pyproject.toml")]
    return {str(path.relative_to(ROOT)): path.read_text() for path in paths}


@pytest.mark.parametrize("banned", [BANNED_WORDS, PHRASES], ids=["words", "idioms"])
def test_banned_words_stay_out(banned: re.Pattern[str]) -> None:
    found = {name: banned.findall(text) for name, text in written().items()}
    assert {name: words for name, words in found.items() if words} == {}


def test_unit_and_model_tests_do_not_sleep() -> None:
    paths = [path for folder in NO_SLEEP for path in sorted((ROOT / folder).rglob("*.py"))]
    assert [str(path.relative_to(ROOT)) for path in paths if "time." + "sleep(" in path.read_text()] == []


CLOCKS = {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"}


def reads_a_clock(tree: ast.AST) -> bool:
    """It is a difference, and a clock is read for it."""
    return (
        isinstance(tree, ast.BinOp)
        and isinstance(tree.op, ast.Sub)
        and bool(CLOCKS & {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)})
    )


def upper_bounds_of_time(function: ast.AST) -> list[int]:
    """Lines of a function that assert that something took less time than so much."""
    spans = {
        target.id
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and reads_a_clock(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }

    def is_span(tree: ast.AST) -> bool:
        return reads_a_clock(tree) or (isinstance(tree, ast.Name) and tree.id in spans)

    return [
        node.lineno
        for each in ast.walk(function)
        if isinstance(each, ast.Assert)
        for node in ast.walk(each.test)
        if isinstance(node, ast.Compare)
        for op, left, right in zip(node.ops, [node.left, *node.comparators], node.comparators, strict=False)
        if (isinstance(op, (ast.Lt, ast.LtE)) and is_span(left))
        or (isinstance(op, (ast.Gt, ast.GtE)) and is_span(right))
    ]


def test_no_test_has_an_upper_bound_of_time_in_it() -> None:
    """A busy machine, or a stopped one, makes it as long as it likes."""
    found = {
        f"{path.relative_to(ROOT)}:{line}"
        for path in (ROOT / "tests").rglob("*.py")
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for line in upper_bounds_of_time(function)
    }
    assert found == set()
    planted = (
        "def test():\n took = time.monotonic() - begun\n assert took < 5\n assert 3 >= perf.perf_counter() - begun\n"
    )
    assert upper_bounds_of_time(ast.parse(planted)) == [3, 4]
