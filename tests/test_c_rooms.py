"""The rooms of csrc: who includes and who calls whom (csrc/README.md).

Includes alone do not show a circle of sources, since headers stand between them: so the calls are followed,
too.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CSRC = Path(__file__).resolve().parent.parent / "csrc"
BELOW = {
    "base": set[str](),
    "board": {"base"},
    "stream": {"base", "board"},
    "log": {"base"},
    "store": {"base", "board", "stream", "log"},
    "python": {"base"},
}
"""The rooms below each."""

Graph = dict[str, set[str]]
_INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_DEFINED = re.compile(r"^(?!static\b)\w[\w *]*?\b(hf_\w+)\([^;{}]*\)\n\{", re.MULTILINE)
_NAMED = re.compile(r"\bhf_\w+")


def sources() -> dict[str, str]:
    """Text of every C file, by its path in csrc."""
    return {path.relative_to(CSRC).as_posix(): path.read_text() for path in sorted(CSRC.rglob("*.[ch]"))}


def room(name: str) -> str:
    return name.partition("/")[0]


def includes(files: dict[str, str]) -> Graph:
    return {name: set(_INCLUDE.findall(text)) for name, text in files.items()}


def between_rooms(graph: Graph) -> Graph:
    found: Graph = {room(name): set() for name in graph}
    for name, others in graph.items():
        found[room(name)] |= {room(other) for other in others} - {room(name)}
    return found


def calls(files: dict[str, str]) -> Graph:
    """Which sources name a function that another source defines."""
    code = {name: _COMMENT.sub("", text) for name, text in files.items() if name.endswith(".c")}
    where = {function: name for name, text in code.items() for function in _DEFINED.findall(text)}
    return {
        name: {where[word] for word in _NAMED.findall(text) if word in where} - {name} for name, text in code.items()
    }


def circles(graph: Graph) -> list[str]:
    """What lies in a circle, or between two of them."""
    left = {name: set(others) for name, others in graph.items()}
    while ready := {name for name, others in left.items() if not others & set(left)}:
        left = {name: others for name, others in left.items() if name not in ready}
    while ready := set(left) - {other for others in left.values() for other in others}:
        left = {name: others for name, others in left.items() if name not in ready}
    return sorted(left)


def wrong(files: dict[str, str]) -> list[str]:
    """Includes that do not lead down."""
    found = []
    for name, others in includes(files).items():
        for other in sorted(others):
            if other not in files:
                found.append(f"{name}: {other} is no path from csrc")
            elif room(other) not in BELOW[room(name)] | {room(name)}:
                found.append(f"{name}: {other} is not below")
    return found


@pytest.mark.parametrize(
    ("name", "line", "broken"),
    [
        ("base/map.c", "board/board.h", "base/map.c: board/board.h is not below"),
        ("log/copy.c", "stream/frame.h", "log/copy.c: stream/frame.h is not below"),
        ("stream/send.c", "log/log.h", "stream/send.c: log/log.h is not below"),
        ("python/flow.c", "board/wait.h", "python/flow.c: board/wait.h is not below"),
        ("log/copy.c", "frame.h", "log/copy.c: frame.h is no path from csrc"),
        ("base/map.c", "../log/log.h", "base/map.c: ../log/log.h is no path from csrc"),
    ],
)
def test_a_planted_include_is_found(name: str, line: str, broken: str) -> None:
    files = sources()
    assert wrong({**files, name: f'#include "{line}"\n{files[name]}'}) == [broken]


def test_includes_lead_down() -> None:
    files = sources()
    assert {room(name) for name in files} == set(BELOW)
    assert min(len(includes(files)[name]) for name in files if name.endswith(".c")) > 0, "each includes its header"
    assert wrong(files) == []


def test_neither_files_nor_rooms_include_each_other_in_a_circle() -> None:
    graph = includes(sources())
    assert sum(map(len, graph.values())) > 100
    assert circles(graph) == []
    assert circles(between_rooms(graph)) == []
    assert between_rooms(graph)["store"] == {"base", "board", "log", "stream"}


def test_a_planted_circle_of_includes_is_found() -> None:
    files = sources()
    planted = {**files, "log/window.h": f'#include "log/fill.h"\n{files["log/window.h"]}'}
    assert circles(includes(planted)) == ["log/fill.h", "log/segment.h", "log/window.h"]
    planted = {**files, "base/map.c": f'#include "board/board.h"\n{files["base/map.c"]}'}
    assert circles(includes(planted)) == []
    assert circles(between_rooms(includes(planted))) == ["base", "board"]


def test_sources_do_not_call_each_other_in_a_circle() -> None:
    graph = calls(sources())
    assert sum(map(len, graph.values())) > 150
    assert graph["store/drain.c"] >= {"log/append.c", "stream/reader.c", "board/board.c", "base/clock.c"}
    assert circles(graph) == []


def test_a_planted_call_is_found() -> None:
    files = sources()
    planted = {
        **files,
        "log/copy.c": f"{files['log/copy.c']}\nint64_t again(void)\n{{\n    return hf_logr_here(0, 0);\n}}\n",
    }
    assert circles(calls(planted)) == ["log/copy.c", "log/lookup.c"]
    quiet = {**files, "log/copy.c": f"{files['log/copy.c']}\n/* see hf_logr_here( */\n"}
    assert circles(calls(quiet)) == []
