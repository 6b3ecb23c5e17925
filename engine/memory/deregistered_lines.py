"""A receiver that was deregistered, on the board of its source: its line is marked there
(HF_LINE_DEREGISTERED).

A line that nobody marked, and that no store knows, is of a receiver whose store has lost its state, or has
gone back to an older one. What it lacks is owed. So a line is looked at first. Whoever marks it then makes
sure that it is over. At last only the line that was looked at is marked: the receiver may be back meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..errors import Error
from ..native.core import ffi, lib
from .mapping import UnpublishedError, attach_board, read_lines

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..native.core import CData
    from .domain import Domain

__all__ = ["Marked", "ReceiverLine", "mark_deregistered", "receiver_lines"]


class ReceiverLine(NamedTuple):
    """One claim of a line."""

    place: int
    """Index of the line."""
    since_ns: int
    uuid: bytes
    session_id: int
    registration_id: int
    ack: int
    ack_stream: int
    is_dead: bool
    is_marked: bool
    is_ephemeral: bool
    """Nobody asks to keep this receiver."""

    @property
    def is_kept(self) -> bool:
        """What it lacks is owed: somebody asked to keep this receiver, and nobody has deregistered it."""
        return not (self.is_marked or self.is_ephemeral)

    def is_of(self, uuid: bytes, session_id: int) -> bool:
        """It is this receiver's, or an earlier life of its session has left it."""
        return self.uuid == uuid or (self.is_dead and 0 < self.session_id == session_id)


def receiver_lines(domain: Domain, source: bytes) -> list[ReceiverLine] | None:
    """Those of a source's receivers; empty where there is no board, or one that nobody has joined yet. None:
    it cannot be read, so nobody knows who has a line there."""
    try:
        with attach_board(domain, source, writable=False) as board:
            views = read_lines(board, domain, test=True)
    except (FileNotFoundError, UnpublishedError):
        return []
    except (Error, OSError):
        return None
    return [_line(view) for view in views if view.line.role == lib.HF_ROLE_RECEIVER]


def _line(view: CData) -> ReceiverLine:
    line = view.line
    return ReceiverLine(
        int(view.index), int(line.since_ns), bytes(ffi.buffer(line.uuid)), int(line.session_id),
        int(line.registration_id), int(line.ack), int(line.ack_stream), view.alive == 0,
        bool(line.flags & lib.HF_LINE_DEREGISTERED), bool(line.flags & lib.HF_LINE_EPHEMERAL),
    )  # fmt: skip


class Marked(NamedTuple):
    """What :func:`mark_deregistered` has done."""

    done: int
    left: list[ReceiverLine]
    """Cannot be marked now."""


def mark_deregistered(domain: Domain, source: bytes, lines: Iterable[ReceiverLine]) -> Marked:
    """Marks those that are still claimed as they were. One that cannot be marked now says less than it could:
    what its receiver lacks counts as owed."""
    done, left = 0, list(lines)
    if not left:
        return Marked(0, left)
    try:
        with attach_board(domain, source) as board:
            while left:
                status = int(lib.hf_board_mark(board.handle, domain.fd, left[0].place, left[0].since_ns))
                if status < 0:  # somebody else has the turn, and each try waits for that
                    break
                done += status
                del left[0]
    except (FileNotFoundError, UnpublishedError):
        left = []  # there is no line any more
    except (Error, OSError):
        pass
    return Marked(done, left)
