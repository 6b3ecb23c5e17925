"""Which of a store's sources have changed since somebody asked.

It may keep thousands, and a new one comes with each short-lived program. So a receiver that has asked once is
told of the others alone: where a source has begun, or is over. The marks count for this life of the store.
Without I/O; the control thread.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import takewhile
from operator import attrgetter
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Changes"]

_uuid = attrgetter("uuid")


class Kept(Protocol):
    """A source that a store keeps."""

    uuid: bytes


_Kept = TypeVar("_Kept", bound=Kept)


class Changes(Generic[_Kept]):
    """See the module."""

    def __init__(self) -> None:
        self.mark = 1
        """Grows with every change."""
        self._marks: dict[bytes, int] = {}
        """uuid -> mark of its last change, in that order; what is not there has not changed since the store
        began."""
        self._sorted: tuple[tuple[int, int], list[_Kept]] = ((0, 0), [])

    def note(self, uuid: bytes) -> None:
        """There is news of this source."""
        self.forget(uuid)
        self._marks[uuid] = self.mark

    def forget(self, uuid: bytes) -> None:
        """The source is kept no more."""
        self.mark += 1
        self._marks.pop(uuid, None)

    def since(self, mark: int, sources: Sequence[_Kept], after: bytes) -> Iterator[_Kept]:
        """Those of ``sources`` that have changed since this mark, by their uuids, behind ``after``; 0: all
        of them."""
        changed = None
        if mark:
            changed = {uuid for uuid, _ in takewhile(lambda each: each[1] > mark, reversed(self._marks.items()))}
            if not changed:
                return
        ordered = self._by_uuid(sources)
        for place in range(bisect_right(ordered, after, key=_uuid), len(ordered)):
            if changed is None or ordered[place].uuid in changed:
                yield ordered[place]

    def _by_uuid(self, sources: Sequence[_Kept]) -> list[_Kept]:
        """Sorted once for all pages of an answer."""
        now = self.mark, len(sources)
        if self._sorted[0] != now:
            self._sorted = now, sorted(sources, key=_uuid)
        return self._sorted[1]
