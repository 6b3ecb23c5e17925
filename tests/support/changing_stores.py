"""Lives of one source on lists of stores that change: for tests of what earlier lists may have."""

from __future__ import annotations

from typing import Any

from support.three_stores import everywhere

import holdfast as hf

__all__ = ["READER", "SESSION", "SHORT", "options", "received", "sent", "waited"]

SHORT = 90.0
SESSION, READER = 9, 77
"""Session IDs of the source, and of a receiver."""


def options(names: str) -> dict[str, Any]:
    """Of a source on these stores, a letter each."""
    return {
        "ume_store_name": [f"{name}:0:0" for name in names], "ring_size": 1 << 17, "fragment_size": 4096,
        "ume_registration_interval": 100, "ume_store_check_interval": 50,
    }  # fmt: skip


def sent(names: str, count: int, *, by_all: bool = False) -> int:
    """A life of the source on these stores, ``by_all``: in which each takes part, however late it comes;
    returns its first number."""
    with hf.Context(session_id=SESSION) as ctx, ctx.source("quotes", options=options(names)) as src:
        src.wait_registered(SHORT)
        if by_all:
            everywhere(src)
        first = src.next_sequence_number
        for _ in range(count):
            src.send(b"x")
        src.wait_stable(timeout=SHORT)
    return first


def received(first: int, last: int, on_event: Any = None) -> None:
    """A life of the receiver, which gets exactly these numbers, and acknowledges them."""
    with hf.Context(session_id=READER) as ctx, ctx.receiver("quotes", on_event=on_event) as rcv:
        for number in range(first, last + 1):
            with rcv.receive(SHORT) as message:  # type: ignore[union-attr]  # it comes
                assert message.sequence_number == number


def waited(src: hf.Source) -> Exception | None:
    """What keeps it from being registered now."""
    try:
        src.wait_registered(0.2)
    except hf.RegistrationTimeout as error:
        return error
    return None
