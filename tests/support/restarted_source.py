"""A source that is started again and again, and what a receiver without state gets from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from process.conftest import ThreadStore

    import holdfast as hf


SHORT = 90.0


SOURCE = {"ring_size": 1 << 17, "fragment_size": 4096, "ume_registration_interval": 100}


def incarnation(ctx: hf.Context, stores: str, numbers: range, **options: object) -> None:
    """A source that goes on at the first of ``numbers``, sends them, and closes when they are stable."""
    with ctx.source("quotes", options={**SOURCE, "ume_store_name": list(stores), **options}) as src:
        src.wait_registered(SHORT)
        assert src.next_sequence_number == numbers[0]
        for number in numbers:
            src.send(b"%d" % number)
        src.wait_stable(timeout=SHORT)


def has_begun(store: ThreadStore, number: int) -> bool:
    """That incarnation, or a later one: each attempt that began in vain has a number of its own."""
    return any(source.incarnation >= number for source in store.store.state.sources)


def read(ctx: hf.Context, count: int) -> list[tuple[int, bytes]]:
    """What a receiver without state gets."""
    found: list[tuple[int, bytes]] = []
    with ctx.receiver("quotes", options={"ume_registration_interval": 100}) as rcv:
        for _ in range(count):
            message = rcv.receive(timeout=SHORT)
            assert message is not None, found
            with message:
                found.append((message.sequence_number, bytes(message)))
    return found
