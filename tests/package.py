"""The modules of the package, and what they import: for the tests of the house's rules."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ROOT", "import_statements", "modules"]

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {"holdfast.engine": ROOT / "engine", "holdfast": ROOT / "bindings"}


def modules() -> dict[str, Path]:
    """Name -> file of every module of the package."""
    found = {}
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            found[".".join([package, *parts]).removesuffix(".__init__")] = path
    return found


def import_statements(name: str, source: str, *, package: bool = False) -> Iterator[tuple[str, list[str]]]:
    """Absolute module and names of each import of the module ``name``, wherever in it; no names for a plain
    ``import``."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, []) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            up = name.split(".")[: len(name.split(".")) - node.level + package] if node.level else []
            yield ".".join([*up, node.module] if node.module else up), [alias.name for alias in node.names]
