"""A bug is planted by a patch of the product's own lines, before they are imported or compiled."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import math
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec, SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

__all__ = ["Patch", "build", "plant", "planted_text"]

ROOT = Path(__file__).resolve().parents[2]
BUILT = ROOT / "build/planted"
SIMULATED, RECEIVE = "holdfast._core_sim", "holdfast._receive"


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


class _CompiledFinder:
    """Finds the compiled module that has something planted in it."""

    def __init__(self, module: str, path: Path) -> None:
        self._module, self._path = module, path

    def find_spec(self, name: str, _path: object = None, _target: ModuleType | None = None) -> ModuleSpec | None:
        """As importlib."""
        if name != self._module:
            return None
        return importlib.util.spec_from_loader(name, ExtensionFileLoader(name, str(self._path)), origin=str(self._path))


def plant(bug: str, patches: Sequence[Patch], core: str = SIMULATED) -> None:
    """From now on what is imported has the bug. Before anything of the engine is imported. ``core``: the
    module of it that is imported."""
    sys.meta_path.insert(0, _Finder(patches))
    for module, own in _of_modules(patches, core).items():
        sys.meta_path.insert(0, _CompiledFinder(module, build(bug, own, module)))


def _of_modules(patches: Sequence[Patch], core: str) -> dict[str, list[Patch]]:
    """Those of C, by the compiled module that has the file."""
    found = dict[str, list[Patch]]()
    for patch in patches:
        if patch.path.endswith(".c"):
            found.setdefault(RECEIVE if patch.path.startswith("csrc/python/") else core, []).append(patch)
    return found


def _compile(module: str, source: Path, made: Path, newest: float) -> Path:
    """The object of one of a module's sources: what is there, if it is younger than ``newest``."""
    import build_core

    if not made.exists() or made.stat().st_mtime <= newest:
        flags = [*build_core.COMPILE, *(build_core.SIMULATION if module == SIMULATED else []), "-fPIC", "-w"]
        flags += [f"-I{path}" for path in (ROOT / "csrc", build_core.KERNEL, sysconfig.get_path("include"))]
        subprocess.run(["gcc", *flags, "-c", str(source), "-o", str(made)], check=True, capture_output=True)
    return made


def _objects(module: str) -> dict[str, Path]:
    """Of a module with nothing planted, by source; compiled once for all bugs, in folders as those of the
    sources."""
    import build_core

    sources = {path: ROOT / path for path in build_core.sources(module)}
    newest = max((ROOT / path).stat().st_mtime for path in [*sources, *build_core.headers(), "csrc/build_core.py"])
    folder = BUILT / "objects" / module
    if module != RECEIVE:  # all of that is ours
        written = sources["module.c"] = folder / "module.c"
        if not written.exists() or written.stat().st_mtime <= newest:
            with contextlib.redirect_stdout(None):  # cffi tells what it writes
                build_core.emit(module, written)
    wanted = {path: folder / path.replace(".c", ".o") for path in sources}
    for made in wanted.values():
        made.parent.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor() as pool:
        made_of = pool.map(lambda path: _compile(module, sources[path], wanted[path], newest), sources)
        return dict(zip(sources, made_of, strict=True))


def build(bug: str, patches: Sequence[Patch], module: str = SIMULATED) -> Path:
    """The module with its planted files, linked with the objects of all others."""
    sys.path.insert(0, str(ROOT / "csrc"))
    import build_core

    folder = BUILT / bug
    folder.mkdir(parents=True, exist_ok=True)
    with (BUILT / "lock").open("w") as lock:  # several tests build at a time
        fcntl.flock(lock, fcntl.LOCK_EX)
        objects = _objects(module)
    for path in sorted({patch.path for patch in patches}):
        source = folder / Path(path).name
        source.write_text(planted_text(patches, path))
        objects[path] = _compile(module, source, source.with_suffix(".o"), math.inf)
    made = folder / f"{module.rpartition('.')[2]}{EXTENSION_SUFFIXES[-2]}"
    wraps = [f"-Wl,--wrap={name}" for name in build_core.wrapped()] if module == SIMULATED else []
    linked = [*map(str, objects.values()), *wraps, "-o", str(made)]
    subprocess.run(["gcc", "-shared", *linked], check=True, capture_output=True)
    return made
