"""A receiver that no store of its source knows any more, because an operator or a lifetime made the last one
forget it: that store marks its line on the board (HF_LINE_DEREGISTERED). The store's control thread.

Each store forgets first, and then looks at the others' states. So of two that forget at the same time one at
least sees that both have. Where a state cannot be read, or does not say who registers, nothing is marked.
What the receiver lacks counts as owed then, until the store has tried again (Expiry), or an operator gives it
up. A crash between the two leaves the same, and then only the operator does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..log.info_file import Own, read_info
from ..log.sight import state_of
from ..memory.deregistered_lines import mark_deregistered, receiver_lines

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from ..log.state_file import State
    from ..memory.deregistered_lines import ReceiverLine
    from .holdings import Holdings

__all__ = ["Gone", "mark_forgotten"]

Gone = tuple[bytes, int]
"""uuid and session ID of a receiver that this store has forgotten."""


def mark_forgotten(holdings: Holdings, gone: Mapping[bytes, Collection[Gone]]) -> int:
    """By source. Marks their lines, where no store knows them; how many. Which cannot be marked now, or may
    be known to a store, is in :attr:`Holdings.unmarked`, for the next try.

    The lines are looked at before the states: a receiver that is back is on a claim of its own.
    """
    lines: dict[bytes, list[ReceiverLine]] = {}
    for source, receivers in gone.items():
        seen = receiver_lines(holdings.domain, source)
        if seen is None:
            _again(holdings, source, receivers)
        elif found := [each for each in seen if not each.is_marked and any(each.is_of(*one) for one in receivers)]:
            lines[source] = found
    if not lines:
        return 0
    states, marked = list(_states(holdings, lines)), 0
    known = {name for state in states if state is not None for name in _receivers(state)}
    for source, found in lines.items():
        over = [each for each in found if known.isdisjoint({(source, each.uuid), (source, each.session_id)})]
        if None not in states:
            done, over = mark_deregistered(holdings.domain, source, over)
            marked += done
        _again(holdings, source, [one for one in gone[source] if any(each.is_of(*one) for each in over)])
    return marked


def _again(holdings: Holdings, source: bytes, receivers: Iterable[Gone]) -> None:
    if those := {*receivers}:
        holdings.unmarked.setdefault(source, set()).update(those)


def _receivers(state: State) -> Iterator[tuple[bytes, bytes | int]]:
    for source in state.sources:
        for receiver in source.receivers:
            yield source.uuid, receiver.uuid
            if receiver.session_id:
                yield source.uuid, receiver.session_id


def _states(holdings: Holdings, sources: Iterable[bytes]) -> Iterator[State | None]:
    """Of this store, of all others of the domain, and of those on the sources' record; None: it cannot be
    read, or says not who has registered. Not of those that the operator has given up."""
    domain, names = holdings.domain, set(holdings.domain.store_names())
    for source in map(holdings.registry.source, sources):
        if source is not None:
            names |= {*source.stores, *source.others}
    own = Own(holdings.state.uuid, holdings.name, holdings.logs)
    yield holdings.state
    for name in sorted(names - set(holdings.state.excluded)):
        info = read_info(domain, name)
        if info is None or info.read_only:
            yield None
        elif not own.is_told_by(info):
            yield state_of(domain, name)
