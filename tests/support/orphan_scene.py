"""A shared memory in a directory of the test's own, and things in it of domains, made by hand."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from holdfast.engine.memory.card import Card, prefix_of
from holdfast.engine.tools.users import users

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Left", "Scene", "make_unused"]

HOUR_NS = 3_600_000_000_000
UUID = "0123456789abcdef" * 2


@dataclass
class Left:
    """What one domain has there."""

    directory: Path
    prefix: str
    shm: Path

    @property
    def card(self) -> Path:
        return self.shm / f"{self.prefix}card"

    @property
    def board(self) -> Path:
        return self.shm / f"{self.prefix}{UUID}.b"

    def names(self) -> list[str]:
        """What is there yet, without the prefix."""
        return sorted(path.name.removeprefix(self.prefix) for path in self.shm.glob(f"{self.prefix}*"))

    def age(self, hours: int) -> None:
        """All of it is that old."""
        then = time.time_ns() - hours * HOUR_NS
        for path in (path for top in self.shm.glob(f"{self.prefix}*") for path in [top, *top.rglob("*")]):
            os.utime(path, ns=(then, then), follow_symlinks=False)


ALL = sorted([f"{UUID}.b", f"{UUID}.s1", f"{UUID}.c7", "bells", "card", "logs.a.0123"])


def make_unused(directory: Path) -> None:
    """Makes it with an inode whose names no process has mapped: this test's own may keep those of a domain
    of another test, which was removed, and whose inode is free again."""
    directory.mkdir(mode=0o700)
    made = directory.stat()
    prefix = prefix_of(made.st_dev, made.st_ino)
    if prefix in users({}):
        directory.rename(directory.parent.parent / f"used-{prefix}")
        make_unused(directory)


class Scene:
    """Makes domains and what they leave."""

    def __init__(self, place: Path) -> None:
        self.place, self.shm = place, place / "shm"
        self.shm.mkdir()

    def left(self, name: str = "gone", **card: object) -> Left:
        """Of a domain whose directory is there. ``card``: fields that differ."""
        directory = self.place / "domains" / name
        directory.parent.mkdir(exist_ok=True)
        make_unused(directory)
        made = os.stat(directory)
        said = msgspec.structs.replace(Card.of(directory, made), **card)
        left = Left(directory, prefix_of(said.device, said.inode), self.shm)
        left.card.write_bytes(msgspec.json.encode(said))
        for what in (f"{UUID}.b", f"{UUID}.s1", f"{UUID}.c7", "bells"):
            (self.shm / f"{left.prefix}{what}").write_bytes(bytes(4096))
        logs = self.shm / f"{left.prefix}logs.a.0123"
        (logs / UUID).mkdir(parents=True)
        (logs / UUID / "head").write_bytes(bytes(8192))
        return left
