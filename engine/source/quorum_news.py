"""What a source's log says of its quorum: which stores it is registered with, which one leaves and why, and
which one is back, caught up in how long. One line for each change (logger ``holdfast.source``). What may be
gone is a warning: a program without an ``on_event`` is told of it by nothing else.

Only the source knows who is in its quorum; what a store knows of itself, its own log says
(engine/store/news.py).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..log.source_key import given_by
from ..rules.registration import Phase
from .registration_events import may_be_gone

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..rules.registration import Forgot
    from ..rules.source_registration import SourceRegistration

__all__ = ["QuorumNews"]

_log = logging.getLogger("holdfast.source")

COMES_BACK = {Phase.ANNOUNCED, Phase.CATCHING_UP}
WHY = {
    Phase.DOWN: "it is not there",
    Phase.SUSPENDED: "its heartbeat stands still",
    Phase.IDLE: "it is not there, or stands still, and another store has its seat",
    Phase.CATCHING_UP: "it is behind",
}


@dataclass(slots=True)
class _Away:
    """A store that is not in the quorum."""

    since_ns: int
    number: int
    """Of the next message then."""
    behind_ns: int = 0
    """Since when it catches up; 0: it does not."""


def _identity(session: int, registration_ids: Sequence[int]) -> str:
    if session:
        return f" (session ID {session:#x})"
    given = [number for _, number in given_by(session, registration_ids)]
    return f" (RegID{'s' * (len(given) > 1)} {', '.join(map(str, given))})" if given else ""


class QuorumNews:
    """Of one source. ``session``: its session ID, 0 for none. ``names``: of its stores, as declared.
    ``registration_ids``: those that it gives them. The context's thread."""

    def __init__(self, topic: str, session: int, names: Sequence[str], registration_ids: Sequence[int] = ()) -> None:
        self._called = f"topic {topic!r}{_identity(session, registration_ids)}"
        self._names = names
        self._there: set[int] = set()
        self._away: dict[int, _Away] = {}
        self._began = False
        self._gone = set[str]()

    def forgot(self, action: Forgot) -> None:
        """These stores do not know any more what they had. Once, however often the source begins for it."""
        text = may_be_gone(action)
        if text not in self._gone:
            self._gone.add(text)
            _log.warning("%s: %s", self._called, text)

    def look(self, machine: SourceRegistration, following: int, now_ns: int) -> None:
        """``following``: the number of the next message."""
        if not self._names or not machine.was_complete:
            return
        there = {store for store in machine.active() if not machine.entries[store].full}
        if not self._began:
            self._begin(machine, there, following, now_ns)
        for store, away in self._away.items():
            if machine.entries[store].phase in COMES_BACK:
                away.behind_ns = away.behind_ns or now_ns
            elif store not in there:
                away.behind_ns = 0
        left, back = self._there - there, there - self._there
        self._there = there
        for store in sorted(left):
            self._away[store] = _Away(now_ns, following)
            self._leaves(machine, store, following)
        for store in sorted(back):
            self._returns(machine, store, self._away.pop(store, None), following, now_ns)

    def _begin(self, machine: SourceRegistration, there: set[int], following: int, now_ns: int) -> None:
        self._began, self._there = True, there
        self._away = {store: _Away(now_ns, following) for store in machine.seated - there}
        names = ", ".join(self._names[store] for store in sorted(there))
        missing = ", ".join(self._names[store] for store in sorted(self._away))
        _log.info("%s: registered with %s%s", self._called, names, f", and not with {missing}" if missing else "")
        if machine.keeps_too_little():
            _log.warning("%s: its stores are no-cache, so nothing that is sent becomes stable", self._called)

    def _leaves(self, machine: SourceRegistration, store: int, following: int) -> None:
        entry = machine.entries[store]
        why = "it has no room for messages" if entry.full else WHY.get(entry.phase, "it registers again")
        _log.info(
            "%s: store %s has left the quorum at number %d: %s; %s",
            self._called, self._names[store], following, why, self._rest(machine),
        )  # fmt: skip

    def _returns(
        self, machine: SourceRegistration, store: int, away: _Away | None, following: int, now_ns: int
    ) -> None:
        took = ""
        if away is not None:
            took = f" after {(now_ns - away.since_ns) / 1e9:.1f} s"
            if away.behind_ns:
                took += f", caught up in {(now_ns - away.behind_ns) / 1e9:.1f} s"
            sent = following - away.number
            took += f": numbers {away.number}..{following - 1} were sent meanwhile" if sent > 0 else ""
        _log.info("%s: store %s is in the quorum%s; %s", self._called, self._names[store], took, self._rest(machine))

    def _rest(self, machine: SourceRegistration) -> str:
        count = f"{len(self._there)} of {len(machine.seated)} stores are in it"
        return count if machine.groups.complete(self._there) else f"{count}, too few: nothing new becomes stable"
