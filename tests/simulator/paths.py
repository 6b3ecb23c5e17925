"""pathlib's Path and shutil of simulated processes, over simulator.system."""

from __future__ import annotations

import os as real
import posixpath
import sys
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import TYPE_CHECKING

from simulator.native import lib
from simulator.system import AT_FDCWD, File, Stat, answered, encoded, found, is_link, os

if TYPE_CHECKING:
    from collections.abc import Iterator


class Path(PurePosixPath):
    """As pathlib.Path."""

    __slots__ = ()

    def __truediv__(self, name: str) -> Path:  # type: ignore[override]
        """As pathlib; what is one name needs no parsing."""
        if sys.version_info < (3, 12) and type(name) is str and "/" not in name and name not in {"", "."}:
            return self._from_parsed_parts(self._drv, self._root, [*self._parts, name])  # type: ignore[attr-defined,no-any-return]
        return super().__truediv__(name)

    def stat(self, *, follow_symlinks: bool = True) -> Stat:
        """As pathlib."""
        return os.stat(self, follow_symlinks=follow_symlinks)

    def exists(self) -> bool:
        """As pathlib."""
        return found(self) is not None

    def is_dir(self) -> bool:
        """As pathlib."""
        return os.path.isdir(self)

    def is_symlink(self) -> bool:
        """As pathlib."""
        there = found(self, follow=False)
        return there is not None and is_link(there)

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """As pathlib."""
        assert not parents
        try:
            os.mkdir(self, mode)
        except FileExistsError:
            if not exist_ok:
                raise

    def rmdir(self) -> None:
        """As pathlib."""
        os.rmdir(self)

    def unlink(self, missing_ok: bool = False) -> None:
        """As pathlib."""
        try:
            os.unlink(self)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def rename(self, target: object) -> None:
        """As pathlib."""
        os.replace(self, target)

    def symlink_to(self, target: object) -> None:
        """As pathlib."""
        answered(lib.sim_symlinkat(encoded(target), AT_FDCWD, encoded(self)), self)

    def readlink(self) -> Path:
        """As pathlib."""
        return Path(os.readlink(self))

    def iterdir(self) -> Iterator[Path]:
        """As pathlib."""
        return iter([self / name for name in os.listdir(self)])

    def glob(self, pattern: str) -> Iterator[Path]:
        """As pathlib, for a name that ends in a star."""
        prefix = pattern.removesuffix("*")
        return (each for each in self.iterdir() if each.name.startswith(prefix))

    def resolve(self) -> Path:
        """As pathlib."""
        return Path(os.path.realpath(self))

    def absolute(self) -> Path:
        """As pathlib."""
        return self

    def open(self, mode: str = "rb") -> File:
        """As pathlib."""
        flags = {"rb": real.O_RDONLY, "xb": real.O_WRONLY | real.O_CREAT | real.O_EXCL}[mode]
        return File(os.open(self, flags, 0o600))

    def read_bytes(self) -> bytes:
        """As pathlib; of /proc what is there."""
        fd = os.open(self, real.O_RDONLY)
        with File(fd) as file:
            return file.read(4096 if str(self).startswith("/proc/") else -1)

    def read_text(self) -> str:
        """As pathlib."""
        return self.read_bytes().decode()

    def write_bytes(self, data: bytes) -> int:
        """As pathlib."""
        with File(os.open(self, real.O_WRONLY | real.O_CREAT | real.O_TRUNC, 0o600)) as file:
            return file.write(data)


def rmtree(path: object) -> None:
    """As shutil."""
    for name in os.listdir(path):
        each = Path(posixpath.join(real.fspath(path), name))  # type: ignore[call-overload]
        if each.is_dir() and not each.is_symlink():
            rmtree(each)
        else:
            each.unlink()
    os.rmdir(path)


shutil = SimpleNamespace(rmtree=rmtree)
