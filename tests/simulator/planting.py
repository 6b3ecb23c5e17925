"""A bug is planted by a patch of the product's own lines, before they are imported or compiled."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import sysconfig
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec, SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

__all__ = ["Patch", "build", "plant", "planted_text"]

ROOT = Path(__file__).resolve().parents[2]
BUILT = ROOT / "build/planted"
TEMP = ROOT / "build/inplace/temp"
"""Where csrc/build_core.py leaves objects."""


class Patch(NamedTuple):
    """In the file at ``path``, from the repository's root, ``old`` becomes ``new``. It is there once."""

    path: str
    old: str
    new: str


def planted_text(patches: Sequence[Patch], path: str) -> str:
    """The text of a file with what is planted in it. Raises ValueError: a patch does not fit any more."""
    text = (ROOT / path).read_text()
    for patch in patches:
        if patch.path == path:
            if text.count(patch.old) != 1:
                raise ValueError(f"{path} has this {text.count(patch.old)} times, not once: {patch.old!r}")
            text = text.replace(patch.old, patch.new)
    return text


class _Loader(SourceFileLoader):
    """Compiles the planted text; nothing of it is cached."""

    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self._text = text

    def path_stats(self, path: str) -> dict[str, object]:
        """There is no cache."""
        raise OSError(path)

    def get_data(self, path: str | bytes) -> bytes:
        """As SourceFileLoader."""
        return self._text.encode()


class _Finder:
    """Finds the modules that have something planted in them."""

    def __init__(self, patches: Sequence[Patch]) -> None:
        self._patches = patches
        self._paths = {patch.path for patch in patches if patch.path.endswith(".py")}

    def find_spec(self, name: str, _path: object = None, _target: ModuleType | None = None) -> ModuleSpec | None:
        """As importlib."""
        where = (
            name.replace("holdfast.engine", "engine", 1).replace("holdfast", "bindings", 1).replace(".", "/") + ".py"
        )
        if where not in self._paths:
            return None
        loader = _Loader(name, str(ROOT / where), planted_text(self._patches, where))
        return importlib.util.spec_from_loader(name, loader, origin=str(ROOT / where))


class _CoreFinder:
    """Finds the core that has something planted in it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def find_spec(self, name: str, _path: object = None, _target: ModuleType | None = None) -> ModuleSpec | None:
        """As importlib."""
        if name != "holdfast._core_sim":
            return None
        return importlib.util.spec_from_loader(name, ExtensionFileLoader(name, str(self._path)), origin=str(self._path))


def plant(bug: str, patches: Sequence[Patch]) -> None:
    """From now on what is imported has the bug. Before anything of the engine is imported."""
    sys.meta_path.insert(0, _Finder(patches))
    if any(patch.path.endswith(".c") for patch in patches):
        sys.meta_path.insert(0, _CoreFinder(build(bug, patches)))


def objects() -> list[Path]:
    """Of the simulated core, as it was built last."""
    return sorted([*(TEMP / "_core_sim").rglob("*.o"), TEMP / "build/inplace/temp/_core_sim/module.o"])


def build(bug: str, patches: Sequence[Patch]) -> Path:
    """The simulated core with its planted files compiled anew, and linked with the objects of all others."""
    sys.path.insert(0, str(ROOT / "csrc"))
    import build_core

    folder = BUILT / bug
    made = folder / f"_core_sim{EXTENSION_SUFFIXES[-2]}"
    paths = sorted({patch.path for patch in patches if patch.path.endswith(".c")})
    newest = max(each.stat().st_mtime for each in [*(ROOT / path for path in paths), *objects()])
    if made.exists() and made.stat().st_mtime > newest:
        return made
    folder.mkdir(parents=True, exist_ok=True)
    planted = []
    for path in paths:
        source = folder / Path(path).name
        source.write_text(planted_text(patches, path))
        planted.append(source)
    flags = [*build_core.COMPILE, *build_core.SIMULATION, "-fPIC", f"-I{ROOT / 'csrc'}", f"-I{build_core.KERNEL}"]
    flags += [f"-I{sysconfig.get_path('include')}", "-w"]
    others = [each for each in objects() if not any(str(each).endswith(path[:-2] + ".o") for path in paths)]
    wraps = [f"-Wl,--wrap={name}" for name in build_core.wrapped()]
    command = ["gcc", "-shared", *flags, *map(str, planted), *map(str, sorted(others)), *wraps, "-o", str(made)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return made
