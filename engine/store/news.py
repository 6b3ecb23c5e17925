"""What the store's log says of sources that go, and of what this store catches up with: one line for each
change, and how it begins.

A source comes with its BEGIN (engine/store/sources.py), and goes when its ring is read to the end. Who left a
quorum, other stores included, only its source knows: its log says it (engine/source/quorum_news.py), it tells
its program, and `holdfast events -f` shows it from outside.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ..native.core import lib
from .registry import source_called

if TYPE_CHECKING:
    from ..log.state_file import SourceState
    from ..memory.mapping import Mapping

__all__ = ["CatchUpNews", "called", "stood_still", "went"]

_log = logging.getLogger("holdfast.store")


def called(store: str, source: SourceState) -> str:
    """How a line about a source at a store begins."""
    return f"store {store}: {source_called(source)}"


def went(where: str, ring: Mapping, held: int, *, lives: bool) -> None:
    """A ring is left, and everything in it below number ``held`` is in the log. ``lives``: its owner does,
    and has not closed it. ``where``: as :func:`called` has it."""
    closed = ring.stream.state == lib.HF_STREAM_CLOSED
    what = "is closed" if closed else "has begun anew at other stores" if lives else "has died"
    owner = ring.preamble
    _log.info(
        "%s %s (pid %d): incarnation %d is over, and %s",
        where, what, owner.owner_pid, owner.incarnation, f"kept up to number {held - 1}" if held else "nothing is kept",
    )  # fmt: skip


def stood_still(store: str, ns: int) -> None:
    """The drain thread did nothing for so long: the process was stopped, or the disk did not answer."""
    why = "a source does not count a store that is silent for its ume_store_activity_timeout"
    _log.warning("store %s: stood still for %.1f s, and goes on: %s", store, ns / 1e9, why)


class CatchUpNews:
    """Of one source at one store: from when it falls behind until it has caught up, however many holes are
    filled meanwhile. ``where``: as :func:`called` has it."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._held = self._since_ns = 0
        self._open = self._said = False

    def behind(self, held: int, now_ns: int) -> None:
        """The ring goes on without this store: it does not count until it has caught up."""
        self.looks(held, now_ns)
        if not self._said:
            self._said = True
            _log.info("%s: this store is behind, and catches up from number %d on", self._where, held)

    def looks(self, held: int, now_ns: int) -> None:
        """No ring is read: other stores are asked whether they have more. Only what they have is news."""
        if not self._open:
            self._open, self._held, self._since_ns = True, held, now_ns

    def caught_up(self, held: int, now_ns: int) -> None:
        """It has what the others have, below number ``held``."""
        if self._said or (self._open and held > self._held):
            numbers = f"numbers {self._held}..{held - 1}" if held > self._held else "nothing was missing"
            took_s = (now_ns - self._since_ns) / 1e9
            _log.info("%s: this store has caught up in %.1f s: %s", self._where, took_s, numbers)
        self._open = self._said = False
