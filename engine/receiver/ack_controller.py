"""One source at a receiver that takes no messages: its line on the board, and how far that may be moved now
(ack_only.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import SystemCallError
from ..log.info_file import published_below
from ..native.core import lib
from ..native.runtime import os
from ..rules.start_and_gap import Start
from .delivery_controller import DeliveryController

if TYPE_CHECKING:
    from ..memory.discovery import Found
    from .ports import ReceiverPort

__all__ = ["AckController"]

STANDS = "another process stands still while it is its turn on the board: holdfast doctor names it"


class AckController(DeliveryController):
    """See the module. All of it under ``Context.turning``. ``read_below``: of the receiver, by source."""

    passes = *DeliveryController.passes, OSError, SystemCallError
    """Nothing is read here, so there is time."""

    def __init__(self, receiver: ReceiverPort, found: Found, read_below: dict[bytes, int]) -> None:
        super().__init__(receiver, found)
        self._read_below = read_below
        self._settled: tuple[tuple[int, tuple[int, int]], bool] = (-1, (0, 0)), False
        """Whether everything is acknowledged, and of which acknowledgement, under which BEGIN, that is
        said."""

    @property
    def ready(self) -> bool:
        """It is registered, and its line counts."""
        return self.window is not None and self.board is not None

    def hindrance(self) -> str:
        """What keeps it from being registered, and passes; empty: nothing that is worth a word does."""
        refusal = self.refusal()
        if refusal is not None and not refusal.lasts and refusal.code != "unknown_source":
            return refusal.reason
        return self.trouble

    @property
    def trouble(self) -> str:
        """Why it has no line on the board although it is registered; it tries again."""
        return (self._lacks.reason if self._lacks is not None else STANDS) if self._waiting is not None else ""

    @property
    def acked(self) -> int:
        """First number that is not acknowledged."""
        assert self.board is not None
        return int(lib.hf_board_line_at(self.board.handle, self.line).ack)

    def _start(self, low: int, high: int) -> Start:
        """At what was acknowledged. Late join, ``retransmit_request_maximum`` and the program's callback say
        where delivery starts, and would acknowledge what was never read."""
        return Start(min(low, high + 1), limited=False, clamped=low > high + 1)

    def _open(self, start: int, live_from: int, *, skips: bool) -> None:
        """No feed, and a window that is always settled: the context's thread sleeps."""
        self.window = self.receiver.new_window(start)

    def _cover(self, position: int, start: int) -> None:
        """From now on the line counts: what was said before goes with it."""
        super()._cover(position, position)  # nothing is delivered, so nothing is skipped
        self.acknowledge()

    def acknowledge(self, slot: int = -1, number: int | None = None) -> None:
        """What may be acknowledged, as far as it holds now. See the module."""
        board = self.board
        if board is None or not self.ready or self.registrar.deregistration is not None:
            return
        with self.acking:
            if self._left or self.receiver.context.fence is not None:
                return
            self._begun = max(self._begun, self.known_begin())
            self._rebase()
            wanted = self._read_below.get(self.uuid, 0)
            if wanted > self.acked:
                ack = min(wanted, self._published())
                lib.hf_board_ack(board.handle, self.receiver.context.bells.handle, self.line, ack, ack)

    def _published(self) -> int:
        """First number that is not published: neither in the ring, nor in a log, nor known to a store that
        answered."""
        return max(self._high(0) + 1, published_below(self._begun, self.registrar.log_paths()))

    @property
    def is_settled(self) -> bool:
        """Everything that is published is acknowledged; of a source without a ring. The logs are looked into
        once for each acknowledgement."""
        at = self.acked, self._begun
        if self._settled[0] != at:
            self._settled = at, at[0] >= self._published()
        return self._settled[1]

    def report(self, now_ns: int) -> None:
        """A heartbeat for ``stat``; nothing is delivered."""
        if self.board is not None and self.ready:
            lib.hf_board_line_at(self.board.handle, self.line).heartbeat_ns = now_ns

    def gone(self) -> bool:
        """The source was deregistered: neither a ring nor a log of it is left."""
        paths = self.registrar.log_paths()
        known = self.ready and not self.watch.ring and bool(paths)
        return known and not any(os.path.isdir(path) for path in paths)
