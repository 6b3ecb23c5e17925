"""A store's line on the board of one source, and what the others say there. The drain thread's, as
engine/store/repository.py is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..memory.mapping import Mapping, UnpublishedError, attach_board, join_board
from ..native.core import CData, ffi, lib
from ..rules.reconcile import FOR_EVER

if TYPE_CHECKING:
    from ..memory.domain import Domain
    from ..memory.mapping import Bells
    from .receiver_state import Acked
    from .state_file import SourceState

__all__ = ["StoreLine"]


class StoreLine:
    """See the module. ``name`` and ``uuid`` are the store's. Before it has joined, and after it is closed,
    what it is to say goes nowhere; what others say can be read all the same."""

    def __init__(self, domain: Domain, bells: Bells, source: SourceState, name: str, uuid: bytes) -> None:
        self._domain = domain
        self._bells = bells
        self._source = source
        self._name, self._uuid = name, uuid
        self.board: Mapping | None = None
        self.index = -1
        self._views = ffi.new("struct hf_line_view[]", lib.HF_BOARD_LINES)

    def join(self, level: int) -> CData:
        """``struct hf_board_line *``, taken if it was not; ``level``: the one that the store acknowledges."""
        # Its name was removed under us: the source's next life has another one.
        if self.board is not None and not self.board.is_named():
            self.close()
        if self.board is None:
            name = self._name.encode()[:31]
            who = ffi.new("struct hf_identity *")
            ffi.memmove(who.uuid, self._uuid, 16)
            ffi.memmove(who.name, name, len(name))
            who.role, who.level, who.bell = lib.HF_ROLE_STORE, level, self._bells.index
            who.registration_id = self._source.registration_id
            self.board, self.index = join_board(self._domain, self._source.uuid, who)
        return lib.hf_board_line_at(self.board.handle, self.index)

    def cover(self, number: int) -> None:
        """It counts for nothing below ``number``."""
        if self.board is not None:
            lib.hf_line_range(lib.hf_board_line_at(self.board.handle, self.index), number, FOR_EVER)

    def acknowledge(self, ack: int, held: int) -> None:
        """Everything below ``ack`` is acknowledged, everything below ``held`` is in the log."""
        if self.board is not None:
            lib.hf_board_ack(self.board.handle, self._bells.handle, self.index, ack, held)

    def say_catching_up(self, yes: bool) -> None:
        """The log is behind the ring, or has what its peers have."""
        self._say(lib.HF_LINE_CATCHING_UP, yes)

    def say_full(self, yes: bool) -> None:
        """There is no room for the log, or it has what was sent by now."""
        self._say(lib.HF_LINE_FULL, yes)

    def _say(self, flag: int, yes: bool) -> None:
        if self.board is not None:
            line = lib.hf_board_line_at(self.board.handle, self.index)
            line.flags = line.flags | flag if yes else line.flags & ~flag

    def beat(self, now_ns: int) -> None:
        """The drain thread goes on: sources see by it that this store is not stopped, nor its disk
        (docs/semantics.md B.4)."""
        if self.board is not None:
            lib.hf_board_line_at(self.board.handle, self.index).heartbeat_ns = now_ns

    def close(self) -> None:
        """Lets it go; what it says stays readable."""
        if self.board is not None:
            lib.hf_board_release(self.board.handle, self.index)
            self.board.close()
            self.board = None

    # What is on the board -----------------------------------------------------------------------------------

    def views(self) -> list[CData]:
        """``struct hf_line_view`` of every participant; valid until the next call."""
        if self.board is not None:
            return self._read(self.board)
        try:
            with attach_board(self._domain, self._source.uuid, writable=False) as board:
                return self._read(board)
        except (FileNotFoundError, UnpublishedError):
            return []

    def _read(self, board: Mapping) -> list[CData]:
        count = lib.hf_board_read(board.handle, self._domain.fd, 0, self._views, lib.HF_BOARD_LINES)
        return [self._views[i] for i in range(count)]

    def _is_own(self, line: CData) -> bool:
        return bytes(ffi.buffer(line.uuid)) == self._uuid

    def said_before(self) -> list[CData]:
        """What this store says there itself, also in an earlier life: ``struct hf_board_line``, valid as
        :meth:`views`."""
        return [view.line for view in self.views() if self._is_own(view.line)]

    def told_by_peers(self) -> int:
        """The highest number that the other stores say they hold; 0 before it has joined."""
        views = self.views() if self.board is not None else []
        stores = [view.line for view in views if view.line.role == lib.HF_ROLE_STORE and view.line.level]
        others = [line for line in stores if not self._is_own(line)]
        return max((self._source.clamp(int(line.position), int(line.ack_stream)) for line in others), default=0)

    def receivers(self) -> dict[bytes, CData]:
        """Copies of the ``struct hf_line_view`` of every receiver, by its uuid."""
        found = {}
        for view in self.views():
            if view.line.role == lib.HF_ROLE_RECEIVER:
                found[bytes(ffi.buffer(view.line.uuid))] = ffi.new("struct hf_line_view *", view)
        return found

    def acks(self) -> dict[bytes, Acked]:
        """What every receiver says, by its uuid."""
        lines = [view.line for view in self.views() if view.line.role == lib.HF_ROLE_RECEIVER]
        return {bytes(ffi.buffer(line.uuid)): self._source.acked(line) for line in lines}
