"""What a receiver says on the board."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.engine.memory.domain import Domain
from holdfast.engine.memory.mapping import attach_board
from holdfast.engine.native.core import ffi, lib

if TYPE_CHECKING:
    import holdfast as hf


def line_of(ctx: hf.Context, uuid: bytes) -> Any:
    """A copy of the first receiver's line on a source's board."""
    domain = Domain(ctx.domain.name)
    views = ffi.new("struct hf_line_view[]", lib.HF_BOARD_LINES)
    with attach_board(domain, uuid, writable=False) as board:
        count = lib.hf_board_read(board.handle, domain.fd, 0, views, lib.HF_BOARD_LINES)
    return next(views[i].line for i in range(count) if views[i].line.role == lib.HF_ROLE_RECEIVER)
