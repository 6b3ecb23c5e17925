"""What receivers have acknowledged, from the boards into a store's state. The store's control thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..log.receiver_state import Acked, ReceiverState
    from .holdings import Holdings

__all__ = ["is_news", "save"]


def is_news(receiver: ReceiverState, on_board: Acked, end: int) -> bool:
    """Its line on the board says something that the state does not. ``end``: number behind the last message
    held."""
    ack = _held_of(receiver, on_board, end)
    return ack > receiver.ack or (on_board.joined and (ack < receiver.ack or not receiver.joined))


def _held_of(receiver: ReceiverState, on_board: Acked, end: int) -> int:
    return min(on_board.number, max(receiver.ack, end))


def save(holdings: Holdings, *, changed: bool = False) -> None:
    """Takes the acks from the boards into the state, which alone outlives a reboot: lazily, never beyond
    what is held, and backwards only to where a receiver has joined (answers.decide_receiver). ``changed``:
    the state says something new already."""
    lost = []
    for repository in holdings.open_ones():
        source = repository.source
        again = repository.caught_up and not repository.unsure and repository.next_sqn >= repository.caught_up_at
        changed |= source.learner and again
        source.lost_below = repository.lost_below
        if source.lost_below != repository.lost_on_disk:
            lost.append((repository, source.lost_below))
        source.learner = source.learner and not again
        if not source.receivers:
            continue
        acks, end = holdings.drain_thread(repository.acks)
        for receiver in source.receivers:
            on_board = acks.get(receiver.uuid)
            if on_board is not None and is_news(receiver, on_board, end):
                receiver.ack, changed = _held_of(receiver, on_board, end), True
                receiver.joined |= on_board.joined
    if changed or lost:
        holdings.save(sync=bool(lost))  # nothing is let go before (Repository.release)
    for repository, below in lost:
        repository.lost_on_disk = below
