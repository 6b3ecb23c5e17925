"""What somebody still has to get of a source whose lifetime is over: no lifetime of the configuration makes
a store forget that (docs/semantics.md A.4). The store's control thread.

It stays while a receiver that somebody asked to keep has not acknowledged all of it, or while no receiver has
ever come to it. A store that was away meanwhile knows neither: it believes those of its peers that can be
read, in both directions. A receiver that no store knows may have been lost: what it lacks by its line on the
board counts. What cannot be known keeps a source, too.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ..errors import Error
from ..log.sight import state_of
from ..memory.deregistered_lines import receiver_lines
from ..native.runtime import os, time
from . import acks
from .registry import called, source_called

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..log.receiver_state import ReceiverState
    from ..log.state_file import SourceState
    from ..memory.deregistered_lines import ReceiverLine
    from .holdings import Holdings

__all__ = ["Needed", "lost", "needed", "owed"]

_log = logging.getLogger("holdfast.store")

UNREADABLE = "its log cannot be opened"
LOST = ", which no store knows"
UNREAD = "its board cannot be read, which may name receivers that no store knows"
AGAIN = 16
"""Of a log that stays open it is asked again at every so manieth look."""
TELL_NS = 3600_000_000_000
"""How often the log says it at most: each source that ends may be one more."""


def owed(source: SourceState, following: int) -> list[ReceiverState]:
    """Receivers that somebody asked to keep, and that have not acknowledged all of it. ``following``: number
    behind the last message that is kept."""
    return [each for each in source.receivers if not each.ephemeral and each.ack < following]


def needed(source: SourceState, following: int, elsewhere: Sequence[SourceState] = ()) -> str:
    """Why what a store keeps of a source stays; empty: nobody waits for it. ``elsewhere``: what other stores
    know of the same life of the source."""
    states = (source, *elsewhere)
    lacking = [
        each for state in states for each in owed(state, following) if not any(_has(s, each, following) for s in states)
    ]
    if lacking:
        name = called(lacking[0].registration_id, lacking[0].session_id)
        more = f", and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        return f"owed to receiver {name}{more}"
    met = any(each.met or each.receivers for each in states)
    return "" if met else "no receiver has ever come to it"


def _has(other: SourceState, receiver: ReceiverState, following: int) -> bool:
    """This receiver has acknowledged all of it, as this store knows."""
    return any(
        each.ack >= following and (each.uuid == receiver.uuid or 0 < each.session_id == receiver.session_id)
        for each in other.receivers
    )


def lost(source: SourceState, following: int, lines: Iterable[ReceiverLine], elsewhere: Sequence[SourceState]) -> str:
    """Who has a line on its board, lacks something of it and is known to no store: that was lost
    (docs/semantics.md F.7). Also of one that lives, and will register again. Empty: nobody.

    ``following``, ``elsewhere``: as in :func:`needed`.
    """
    known = [each for state in (source, *elsewhere) for each in state.receivers]
    for line in lines:
        owed_to = line.is_kept and source.clamp(line.ack, line.ack_stream) < following
        if owed_to and not any(each.uuid == line.uuid or 0 < each.session_id == line.session_id for each in known):
            return f"owed to receiver {called(line.registration_id, line.session_id)}{LOST}"
    return ""


class Needed:
    """Sources that stay after their lifetime, at one store."""

    def __init__(self, holdings: Holdings) -> None:
        self._holdings = holdings
        self.why: dict[bytes, str] = {}
        """Of each, by uuid."""
        self._new: list[bytes] = []
        """Since it was told."""
        self._told_ns: int | None = None
        self._looks = 0
        self._acks_saved = False
        """At this look: the state has what receivers have acknowledged."""
        self._states: dict[str, dict[bytes, SourceState]] = {}
        """Of other stores, as they were read at this look."""

    def begin(self, kept: Iterable[bytes]) -> None:
        """A look at all sources begins. ``kept``: all that there are."""
        there = set(kept)
        self.why = {uuid: why for uuid, why in self.why.items() if uuid in there}
        self._new = [uuid for uuid in self._new if uuid in self.why]
        self._looks += 1
        self._acks_saved = False
        self._states.clear()

    def keeps(self, source: SourceState) -> bool:
        """It stays, though its lifetime is over."""
        uuid = source.uuid
        if uuid in self.why and self._looks % AGAIN and self._holdings.repository(uuid) is not None:
            return True
        why = self._reason(source)
        if not why:
            self.why.pop(uuid, None)
        elif uuid not in self.why:
            self._new.append(uuid)
        if why:
            self.why[uuid] = why
        return bool(why)

    def may_pass(self, uuid: bytes) -> bool:
        """It stays for what its board says: when that is otherwise, nobody tells this store."""
        why = self.why.get(uuid, "")
        return why == UNREAD or why.endswith(LOST)

    def _reason(self, source: SourceState) -> str:
        holdings = self._holdings
        if holdings.repository(source.uuid) is None and not source.is_shelved:
            try:
                os.stat(holdings.logs / source.uuid.hex())
            except FileNotFoundError:
                return ""  # there is nothing of it
            except OSError:
                return UNREADABLE
            if self.why.get(source.uuid) != UNREADABLE:
                holdings.take_down(source)
        if holdings.repository(source.uuid) is not None:
            try:
                if not self._acks_saved:
                    acks.save(holdings)
            except (Error, OSError) as error:
                return f"what is acknowledged cannot be saved: {error}"
            self._acks_saved = True
        known = holdings.range(source)
        if known is None:
            return UNREADABLE
        oldest, following = known
        if oldest >= following:
            return ""
        lines = receiver_lines(holdings.domain, source.uuid)
        if lines is None:
            return UNREAD
        elsewhere = list(self._elsewhere(source))
        return needed(source, following, elsewhere) or lost(source, following, lines, elsewhere)

    def _elsewhere(self, source: SourceState) -> Iterable[SourceState]:
        for name in {*source.stores, *source.others} - {self._holdings.name}:
            if name not in self._states:
                state = state_of(self._holdings.domain, name)
                self._states[name] = {each.uuid: each for each in state.sources} if state is not None else {}
            other = self._states[name].get(source.uuid)
            if other is not None and other.incarnation == source.incarnation:
                yield other

    def tell(self) -> None:
        """One line for all that have come: there may be thousands."""
        now = time.monotonic_ns()
        if not self._new or (self._told_ns is not None and now - self._told_ns < TELL_NS):
            return
        source = self._holdings.registry.source(self._new[0])
        if source is None:
            return
        _log.warning(
            "store %s: %d sources stay after source-state-lifetime, because somebody needs them; one is %s: %s. "
            "`holdfast store deregister --finished --older-than 0s --dry-run` lists what is over; with --force what "
            "can be read goes",
            self._holdings.name, len(self.why), source_called(source), self.why[source.uuid],
        )  # fmt: skip
        self._told_ns, self._new = now, []
