"""The engine meets the operating system in one place, so that the simulator can be another one."""

from __future__ import annotations

import ast

from package import ROOT

RUNTIME = ROOT / "engine/native/runtime.py"
OUTSIDE = {
    "asyncio", "concurrent", "fcntl", "glob", "io", "multiprocessing", "os", "pathlib", "posix_ipc", "queue", "random",
    "sched", "secrets", "select", "selectors", "shutil", "signal", "socket", "subprocess", "tempfile", "threading", "time",
    "uuid",
}  # fmt: skip
"""Clocks, threads, locks, queues, pools, files, sockets, random bytes."""
LOADER = ROOT / "engine/native/core.py"
"""Chooses the compiled core, by the environment of the real process."""


def outside_imports(source: str) -> list[str]:
    """What a module takes from the outside when it runs; for annotations it may name what it likes."""
    found: list[str] = []

    def look(node: ast.AST) -> None:
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            for other in node.orelse:
                look(other)
            return
        if isinstance(node, ast.Import):
            found.extend(each.name for each in node.names if each.name.partition(".")[0] in OUTSIDE)
        if isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").partition(".")[0] in OUTSIDE:
            found.append(str(node.module))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open":
            found.append("open()")
        for each in ast.iter_child_nodes(node):
            look(each)

    look(ast.parse(source))
    return found


def test_what_counts_as_outside() -> None:
    assert outside_imports("import os\nfrom time import sleep\nimport json") == ["os", "time"]
    assert outside_imports(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import os\nelse:\n    import time"
    ) == ["time"]
    assert outside_imports("def f():\n    import threading\n    open('x')") == ["threading", "open()"]
    assert outside_imports("from ..native.runtime import os\npath.open()") == []


def test_the_engine_takes_the_outside_from_the_runtime_alone() -> None:
    broken = {
        str(path.relative_to(ROOT)): found
        for path in sorted((ROOT / "engine").rglob("*.py"))
        if path not in {RUNTIME, LOADER} and (found := outside_imports(path.read_text()))
    }
    assert broken == {}
