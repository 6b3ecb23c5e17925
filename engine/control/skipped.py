"""Sessions that started behind their position and have acknowledged nothing since, as a receiver-paced source
sees them.

The stores keep for them what they skipped. When that is all that there is room for, nothing goes on by
itself: the receiver has no message that it could acknowledge. So the source says whom it waits for. Read from
the board, by whoever waits for room.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..events.source import Skipped
from ..native.core import ffi, lib

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..memory.mapping import Mapping

__all__ = ["keeping_full", "named"]


def keeping_full(board: Mapping, domain_fd: int) -> list[Skipped]:
    """Who has skipped what, as long as a store withholds stability of something that it holds; else
    nobody."""
    views = ffi.new("struct hf_line_view[]", lib.HF_BOARD_LINES)
    count = max(0, int(lib.hf_board_read(board.handle, domain_fd, 0, views, lib.HF_BOARD_LINES)))
    lines = [views[i].line for i in range(count)]
    if not any(line.role == lib.HF_ROLE_STORE and line.ack < line.position for line in lines):
        return []
    return [
        Skipped(int(line.registration_id), int(line.session_id), int(line.ack), int(line.position) - 1)
        for line in lines
        if line.role == lib.HF_ROLE_RECEIVER and line.flags & lib.HF_LINE_SKIPPED and line.ack < line.position
    ]


def named(found: Sequence[Skipped]) -> str:
    """As an error names them; empty for nobody."""
    return "; ".join(
        f"the stores keep {each.first_sequence_number}..{each.sequence_number}, which the receiver with RegID "
        f"{each.receiver_registration_id} (session ID {each.session_id:#x}) skipped when it started and has not acknowledged"
        for each in found
    )
