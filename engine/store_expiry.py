"""Forgets sources and receivers that are gone for too long: looks every source-check-interval, engine/lifetimes.py decides."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from .lifetimes import Absences, Now, Timers, forget_after_ns
from .store_registry import called

if TYPE_CHECKING:
    from .core import CData
    from .store_holdings import Holdings
    from .store_receivers import ReceiverDesk
    from .store_sources import SourceDesk
    from .store_state import ReceiverState, SourceState

__all__ = ["Expiry"]

_log = logging.getLogger("holdfast.store")


class Expiry:
    """See the module; the store's control thread."""

    def __init__(self, holdings: Holdings, sources: SourceDesk, receivers: ReceiverDesk) -> None:
        options = holdings.options
        self._holdings = holdings
        self._sources = sources
        self._receivers = receivers
        self._absences = Absences()
        self._of_source = Timers(options.source_activity_timeout, options.source_state_lifetime)
        self._of_receiver = Timers(options.receiver_activity_timeout, options.receiver_state_lifetime)
        self.interval_s: float = options.source_check_interval / 1e3
        self._due_s = time.monotonic() + self.interval_s

    def turn(self) -> None:
        """One look at everything that is kept, if it is time."""
        if time.monotonic() < self._due_s:
            return
        changed = False
        seen = self._holdings.drain_thread(self._see)
        for source in list(self._holdings.state.sources):
            lives, lines = seen.get(source.uuid, (False, {}))
            changed |= self._look(source, lives, lines, Now(time.monotonic_ns(), time.time_ns()))
        if changed:
            self._holdings.save(sync=False)
        self._due_s = time.monotonic() + self.interval_s

    def _see(self) -> dict[bytes, tuple[bool, dict[bytes, CData]]]:
        """Of each source: whether the owner of the stream that is read here lives, and the lines of its receivers."""
        found = {}
        for source in self._holdings.state.sources:
            repository = self._holdings.repository(source.uuid)
            if repository is not None:
                found[source.uuid] = repository.owner_lives(), repository.receiver_lines() if source.receivers else {}
        return found

    def _look(self, source: SourceState, lives: bool, lines: dict[bytes, CData], now: Now) -> bool:
        key = (source.uuid,)
        held = lives or self._sources.connected(source)
        after = forget_after_ns(Timers(source.activity_timeout, source.state_lifetime), self._of_source)
        gone_ns, over = self._absences.look(key, held, source.gone_ns, after, now)
        if over and self._sources.holder(source) is not None:
            gone_ns, over = self._absences.look(key, True, gone_ns, after, now)
        if over:
            _log.info("%s: gone for its lifetime, with its messages", called(source.registration_id, source.session_id))
            self._absences.forget(key)
            for receiver in source.receivers:
                self._absences.forget((source.uuid, receiver.uuid))
            self._sources.forget(source, names=True)
            return False
        changed = gone_ns != source.gone_ns
        source.gone_ns = gone_ns
        for receiver in list(source.receivers):
            changed |= self._look_at_receiver(source, receiver, lines.get(receiver.uuid), now)
        return changed

    def _look_at_receiver(self, source: SourceState, receiver: ReceiverState, line: CData | None, now: Now) -> bool:
        key = (source.uuid, receiver.uuid)
        held = self._receivers.holder(source, receiver, line) is not None
        after = forget_after_ns(Timers(receiver.activity_timeout, receiver.state_lifetime), self._of_receiver)
        gone_ns, over = self._absences.look(key, held, receiver.gone_ns, after, now)
        if over:
            _log.info("%s: gone for its lifetime", called(receiver.registration_id, receiver.session_id))
            self._absences.forget(key)
            self._receivers.forget(source, receiver)
            return False
        changed = gone_ns != receiver.gone_ns
        receiver.gone_ns = gone_ns
        return changed
