"""The sources of a state as its file has them, encoded in parts: a store may keep thousands, and few of them
change.

A source *rests* when nothing of it changes before somebody wakes it. A part whose sources all rest is encoded
once; the others at each save.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .state_file import SourceState

__all__ = ["StateParts"]

PART_MAX = 64
_ARRAY = struct.Struct(">BI")
_ARRAY_32 = 0xDD
"""The msgpack type of a list whose length takes 32 bits."""


class _Part:
    """Some sources, by uuid, in order."""

    __slots__ = ("encoded", "sources")

    def __init__(self) -> None:
        self.sources: dict[bytes, SourceState] = {}
        self.encoded: bytes | None = None
        """All of them, if they rest."""


class StateParts:
    """See the module. All are awake at first. One thread."""

    def __init__(self, sources: Iterable[SourceState]) -> None:
        self._parts: list[_Part] = []
        self._part_of: dict[bytes, _Part] = {}
        self._awake: dict[bytes, SourceState] = {}
        self._encode = msgspec.msgpack.Encoder().encode
        for source in sources:
            self.add(source)

    @property
    def awake(self) -> list[SourceState]:
        """The sources that do not rest."""
        return list(self._awake.values())

    def rests(self, uuid: bytes) -> bool:
        """This source does."""
        return uuid in self._part_of and uuid not in self._awake

    def add(self, source: SourceState) -> None:
        """One more, at the end; awake."""
        if not self._parts or len(self._parts[-1].sources) >= PART_MAX:
            self._parts.append(_Part())
        part = self._part_of[source.uuid] = self._parts[-1]
        part.sources[source.uuid] = source
        self.wake(source)

    def remove(self, source: SourceState) -> None:
        """It is not kept any more."""
        part = self._part_of.pop(source.uuid)
        del part.sources[source.uuid]
        part.encoded = None
        self._awake.pop(source.uuid, None)
        if not part.sources:
            self._parts.remove(part)

    def wake(self, source: SourceState) -> None:
        """Something of it may change from now on."""
        self._part_of[source.uuid].encoded = None
        self._awake[source.uuid] = source

    def rest(self, source: SourceState) -> None:
        """Nothing of it changes before it is woken."""
        self._awake.pop(source.uuid, None)

    def encoded(self) -> msgspec.Raw:
        """All of them, as the list in the file."""
        pieces = [_ARRAY.pack(_ARRAY_32, sum(len(part.sources) for part in self._parts))]
        for part in self._parts:
            piece = part.encoded
            if piece is None:
                piece = b"".join(map(self._encode, part.sources.values()))
                if not any(uuid in self._awake for uuid in part.sources):
                    part.encoded = piece
            pieces.append(piece)
        return msgspec.Raw(b"".join(pieces))
