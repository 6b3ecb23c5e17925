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
from ..log.state_file import SourceState
from ..memory.deregistered_lines import mark_deregistered, receiver_lines
from ..rules.exclusions import in_force

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
    states, marked = _states(holdings, lines), 0
    for source, found in lines.items():
        concerned = _concerned(holdings, source, states)
        known = {name for state in concerned if state is not None for name in _receivers(state, source)}
        over = [each for each in found if known.isdisjoint({each.uuid, each.session_id})]
        if None not in concerned:
            done, over = mark_deregistered(holdings.domain, source, over)
            marked += done
        _again(holdings, source, [one for one in gone[source] if any(each.is_of(*one) for each in over)])
    return marked


def _again(holdings: Holdings, source: bytes, receivers: Iterable[Gone]) -> None:
    if those := {*receivers}:
        holdings.unmarked.setdefault(source, set()).update(those)


def _receivers(state: State, source: bytes) -> Iterator[bytes | int]:
    for receiver in _source(state, source).receivers:
        yield receiver.uuid
        if receiver.session_id:
            yield receiver.session_id


def _source(state: State, uuid: bytes) -> SourceState:
    return next((each for each in state.sources if each.uuid == uuid), SourceState(uuid, "", 0, 0))


def _states(holdings: Holdings, sources: Iterable[bytes]) -> dict[str, State | None]:
    """Of all other stores of the domain, and of those on the sources' record, by name; None: it cannot be
    read, or says not who has registered."""
    domain, names = holdings.domain, set(holdings.domain.store_names())
    found: dict[str, State | None] = {}
    own = Own(holdings.state.uuid, holdings.name, holdings.logs)
    for source in sources:
        names |= _on_record(holdings, source)
    for name in sorted(names):
        info = read_info(domain, name)
        if info is None or info.read_only:
            found[name] = None
        elif not own.is_told_by(info):
            found[name] = state_of(domain, name)
    return found


def _on_record(holdings: Holdings, source: bytes) -> set[str]:
    known = holdings.registry.source(source)
    return {*known.stores, *known.others} if known is not None else set()


def _concerned(holdings: Holdings, source: bytes, states: Mapping[str, State | None]) -> list[State | None]:
    """Of those that may know a receiver of this source. Not of those that the operator has given up, until
    the source has started again: then they may be back, and can be read."""
    read = [state for state in states.values() if state is not None]
    given_up = in_force(_source(state, source).says(state.excluded) for state in [holdings.state, *read])
    names = {*holdings.domain.store_names(), *_on_record(holdings, source)} - given_up
    never = {name for name, state in states.items() if state is None and name in holdings.state.excluded}
    return [holdings.state, *(state for name, state in states.items() if name in names - never)]
