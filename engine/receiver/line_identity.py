"""What a receiver's line on a source's board says of it (csrc/board/board.h)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..log.reader import FOR_EVER
from ..native.core import CData, ffi, lib

if TYPE_CHECKING:
    from ..control.host import Host
    from ..options.resolve import Options
    from .registrar import Registrar

__all__ = ["counts_behind", "line_identity"]


def line_identity(context: Host, options: Options, registrar: Registrar) -> CData:
    """``struct hf_identity *``: who acknowledges there, and what its acks mean."""
    who = ffi.new("struct hf_identity *")
    identity, who.registration_id = registrar.identity()
    ffi.memmove(who.uuid, identity, 16)
    name = context.name.encode()[:31]
    ffi.memmove(who.name, name, len(name))
    who.role, who.bell, who.session_id = lib.HF_ROLE_RECEIVER, context.bells.index, registrar.session_id
    who.user_registration_id = context.options.ume_user_receiver_registration_id
    if options.ume_allow_confirmed_delivery and options.ume_use_store:
        who.flags |= lib.HF_LINE_CONFIRMS
    if options.ordered_delivery == -1:
        who.flags |= lib.HF_LINE_OUT_OF_ORDER
    if options.ume_explicit_ack_only:
        who.flags |= lib.HF_LINE_EXPLICIT
    if registrar.ephemeral or not options.ume_use_store:  # no store is to know it
        who.flags |= lib.HF_LINE_EPHEMERAL
    return who


def counts_behind(line: CData, first: int, last: int) -> None:
    """Of a line (``struct hf_board_line *``) that counts from ``first`` on: behind ``last`` from now on."""
    if int(line.from_sqn) == first:
        lib.hf_line_range(line, last + 1, FOR_EVER)
