"""The rooms of the house: a folder of the package imports only folders below it, and no circle exists, types
included.

    bindings -> engine: client -> source, receiver -> log -> control -> memory -> options -> rules; store and
                        tools above log native is the only way to the compiled modules

Nothing here is a list that somebody keeps: the order is what the imports are, and a circle is what is
refused.
"""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

import pytest
from package import ROOT, import_statements, modules

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

COMPILED = {"holdfast._core", "holdfast._core_fp", "holdfast._receive"}
NATIVE = "holdfast.engine.native"
BELOW_ALL = {"holdfast.engine"}
"""errors and printable: closed sets, at the top of the folder and at the bottom of the house."""
PURE = {"holdfast.engine.rules", "holdfast.engine.options", "holdfast.engine.events"}
"""Values in, values out: no clock, no file, no socket, and nothing of C."""
IMPURE = {"asyncio", "fcntl", "io", "mmap", "os", "pathlib", "posix_ipc", "select", "shutil", "signal", "socket"}
IMPURE |= {"subprocess", "tempfile", "threading", "time"}
HANDS_OUT = {"holdfast", "holdfast.cli", "holdfast.config", "holdfast.spark", "holdfast.spark.pipeline"}
"""Packages whose ``__init__`` is what a user imports."""
ROOMS_MAX = 15


def imports(name: str, source: str, known: set[str], *, package: bool = False) -> set[str]:
    """Modules of ``known`` (and compiled ones) that a module imports, for types too."""
    found: set[str] = set()
    for base, names in import_statements(name, source, package=package):
        found |= {one if one in known | COMPILED else base for one in (f"{base}.{each}" for each in names)} or {base}
    return {one for one in found if one in known | COMPILED and one != name}


def everything() -> dict[str, set[str]]:
    """Module -> what it imports."""
    files = modules()
    known = set(files)
    return {
        name: imports(name, path.read_text(), known, package=path.name == "__init__.py") for name, path in files.items()
    }


def room_of(name: str, files: Mapping[str, Path]) -> str:
    """The folder that a module lies in."""
    return name if files[name].name == "__init__.py" else name.rpartition(".")[0]


def rooms(graph: Mapping[str, set[str]], files: Mapping[str, Path]) -> dict[str, set[str]]:
    """Folder -> folders that it imports. What a user imports at the top of the package is no folder: it hands
    out."""
    found: dict[str, set[str]] = {}
    for name, wanted in graph.items():
        own = room_of(name, files)
        others = {room_of(one, files) for one in wanted if one in files and one not in HANDS_OUT}
        if name not in HANDS_OUT:
            found.setdefault(own, set()).update(others - {own})
    return found


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """One circle, or nothing."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_circle_among_files() -> None:
    assert circle(everything()) == []


def test_no_circle_among_folders() -> None:
    assert circle(rooms(everything(), modules())) == []


def test_the_engine_has_so_many_rooms_that_one_can_keep_them_in_mind() -> None:
    found = {room for room in rooms(everything(), modules()) if room.startswith("holdfast.engine.")}
    assert found >= PURE | {NATIVE}
    assert len(found) <= ROOMS_MAX


def test_a_room_hands_nothing_on() -> None:
    """An ``__init__`` that re-exports is the next circle."""
    full = [
        str(path)
        for path in (ROOT / "engine").glob("*/__init__.py")
        if path.parent.name != "events" and path.read_text()
    ]
    assert full == []


def test_the_engine_never_looks_up() -> None:
    up = {
        f"{name} imports {one}"
        for name, wanted in everything().items()
        if name.startswith("holdfast.engine")
        for one in wanted
        if not one.startswith("holdfast.engine") and one not in COMPILED
    }
    assert up == set()


def test_one_way_to_c() -> None:
    broken = {
        f"{name} imports {one}"
        for name, wanted in everything().items()
        for one in wanted & COMPILED
        if name != f"{NATIVE}.core"
    }
    assert broken == set()
    below = {f"{NATIVE}.core", f"{NATIVE}.layout", f"{NATIVE}.kernels", f"{NATIVE}.status"}
    reach = {name for name, wanted in everything().items() if not name.startswith("holdfast.engine") and wanted & below}
    assert reach == set(), "bindings reach down to the core"


def impure(source: str) -> set[str]:
    """Modules that do I/O or read a clock, among what a module imports."""
    roots: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            roots |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            roots.add(node.module.partition(".")[0])
    return roots & IMPURE


def drives(name: str, wanted: set[str], source: str, files: Mapping[str, Path]) -> list[str]:
    """What a pure module imports and should not."""
    allowed = PURE | BELOW_ALL
    down = {one for one in wanted if (room_of(one, files) if one in files else one) not in allowed}
    return sorted(f"{name} imports {one}" for one in down | impure(source))


def test_rules_and_options_import_no_driver() -> None:
    files = modules()
    graph = everything()
    pure = [name for name in files if room_of(name, files) in PURE]
    assert len(pure) > 30
    broken = [line for name in pure for line in drives(name, graph[name], files[name].read_text(), files)]
    assert broken == []


PLANTED = [
    ("holdfast.engine.rules.quorum", "from ..source import source"),
    ("holdfast.engine.rules.quorum", "from ..source.source import Source"),
    ("holdfast.engine.rules.quorum", "if TYPE_CHECKING:\n    from ..source.source import Source"),
    ("holdfast.engine.events.source", "from ..native.core import lib"),
    ("holdfast.engine.rules.retention", "import time"),
    ("holdfast.engine.rules.start_and_gap", "def f():\n    from os import path"),
    ("holdfast.engine.options.resolve", "import mmap"),
]


@pytest.mark.parametrize(("name", "source"), PLANTED)
def test_a_planted_driver_is_found(name: str, source: str) -> None:
    files = modules()
    assert drives(name, imports(name, source, set(files)), source, files)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("holdfast.engine.native.layout", "from ..memory.domain import Domain"),  # memory imports native
        ("holdfast.engine.log.reader", "def f() -> None:\n    from ..store.repository import Repository"),
        ("holdfast.engine.memory.discovery", "if TYPE_CHECKING:\n    from ..client.context import Context"),
        ("holdfast.engine.errors", "from .memory import domain"),
    ],
)
def test_a_planted_import_closes_a_circle(name: str, source: str) -> None:
    files = modules()
    graph = everything()
    graph[name] |= imports(name, source, set(files))
    assert circle(graph) or circle(rooms(graph, files))
    assert circle(rooms(graph, files)), "the folders, too"
