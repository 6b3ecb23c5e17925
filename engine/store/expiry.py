"""Forgets sources and receivers that are gone for too long: looks every source-check-interval,
engine/rules/expiry.py decides."""

from __future__ import annotations

import contextlib
import heapq
import logging
import math
from typing import TYPE_CHECKING

from ..errors import Error, SystemCallError, TurnHeldError
from ..log.files import taken_bytes
from ..log.info_file import log_view, read_info
from ..log.sight import state_of
from ..log.stale_rings import deregistered, unlink_deregistered, unlink_unsent
from ..native.runtime import Path, time
from ..rules.expiry import Absences, Now, Timers, forget_after_ns
from ..rules.proxy_source import Proxies, elected
from . import news
from .clients import Reader
from .forgotten_lines import mark_forgotten
from .owed import Needed
from .registry import called, source_called

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..log.info_file import StoreInfo
    from ..log.receiver_state import ReceiverState
    from ..log.state_file import SourceState
    from ..native.core import CData
    from ..rules.proxy_source import Change
    from .clients import Clients
    from .forgotten_lines import Gone
    from .holdings import Holdings
    from .receivers import ReceiverDesk
    from .sources import SourceDesk

__all__ = ["Expiry"]

_log = logging.getLogger("holdfast.store")


UNSENT_S = 2.0
"""How often rings are looked for that a source left before it had begun, or after it was deregistered."""
LEFT_S = 30.0
"""So much later where something stays, or cannot be marked: the states of all stores are read for it."""


class Expiry:
    """See the module; the store's control thread. ``say`` is called when :attr:`proxies` have changed."""

    def __init__(
        self, holdings: Holdings, clients: Clients, sources: SourceDesk, receivers: ReceiverDesk,
        say: Callable[[], None],
    ) -> None:  # fmt: skip
        self._holdings = holdings
        self._clients = clients
        self._here: set[Reader] = set()
        """Sessions whose receivers were here at this look, or since the one before."""
        self.needed = Needed(holdings)
        self._say = say
        self._sources = sources
        self._receivers = receivers
        self._absences = Absences()
        self._due: list[tuple[float, bytes]] = []
        """When to look at sources that rest, and at which; a heap. What :attr:`_due_of` does not say is
        over."""
        self._due_of: dict[bytes, float] = {}
        self.proxies = Proxies()
        self._said: tuple[set[bytes], set[bytes]] = set(), set()
        """What others were told of ``proxies``."""
        self._infos: dict[str, StoreInfo | None] = {}
        """What other stores say, as it was read at this look: one may be of thousands of sources."""
        self._ringed: set[bytes] | None = None
        """Sources with a ring in shared memory, at this look; None: nobody has asked yet."""
        self._began: dict[bytes, set[tuple[Path, int]]] = {}
        """Of a source: the stores' logs in which it has begun, with their inode numbers: a wiped store's has
        another one."""
        self._interval_s: float = min(rules.options.source_check_interval for rules in holdings.topics.all()) / 1e3
        # A store that writes nothing cannot forget: at its next start it would know it again. Nor is it a
        # proxy.
        self.due_s: float = math.inf if holdings.sealed else time.monotonic() + self._interval_s
        self._unsent_s = self.due_s
        self._forgotten: dict[bytes, set[Gone]] = {}
        """Receivers whose lifetime is over, by source, and whose lines nobody has marked yet."""
        self._unmarked_s = 0.0
        """What could not be marked is not tried again before."""
        self._left_s = 0.0
        """What deregistered sources have left is not looked at before."""

    def turn(self) -> None:
        """One look at everything that is kept, if it is time."""
        if time.monotonic() < self.due_s:
            return
        try:
            self._look_around()
        finally:
            self.due_s = time.monotonic() + self._interval_s
            self._tell_others()

    def _look_around(self) -> None:
        holdings = self._holdings
        holdings.let_go_by_age()
        self._let_go_unsent()
        self._ringed = None
        self._infos.clear()
        changed, now = False, Now(time.monotonic_ns(), time.time_ns())
        self._meet(self._clients.readers())
        while self._due and self._due[0][0] <= now.monotonic_ns:
            due, uuid = heapq.heappop(self._due)
            if self._due_of.get(uuid) == due:
                del self._due_of[uuid]
                holdings.registry.source(uuid)
        self.needed.begin(holdings.registry.uuids)
        seen = holdings.drain_thread(self._see)
        for source in holdings.registry.parts.awake:
            lives, lines = seen.get(source.uuid, (False, {}))
            changed |= self._look(source, lives, lines, now)
            self._let_rest(source, lines, now.monotonic_ns)
        self._mark_forgotten()
        kept = holdings.registry.uuids
        self.needed.tell()
        self._tell_proxies(self.proxies.keep(kept))
        self._began = {source: logs for source, logs in self._began.items() if source in kept}
        if changed:
            holdings.save(sync=False)

    def _mark_forgotten(self) -> None:
        """The lines of those that were forgotten now; and again those that could not be marked."""
        forgotten, self._forgotten = self._forgotten, {}
        if self._holdings.unmarked and time.monotonic() >= self._unmarked_s:
            self._unmarked_s = time.monotonic() + LEFT_S
            unmarked, self._holdings.unmarked = self._holdings.unmarked, {}
            for source, receivers in unmarked.items():
                forgotten.setdefault(source, set()).update(receivers)
        if forgotten:
            mark_forgotten(self._holdings, forgotten)

    def _meet(self, here: set[Reader]) -> None:
        """Lifetimes of a session stop where it comes, and begin where it goes: its sources are looked at."""
        changed, self._here = here ^ self._here, here
        if not changed:
            return
        topics, sessions = {each.topic for each in changed}, {each.session_id for each in changed}
        for source in self._holdings.state.sources:
            if topics.isdisjoint({"", source.topic}):
                continue
            if any(each.session_id in sessions and self._expires(source, each) for each in source.receivers):
                self._holdings.registry.wake(source)

    def _expires(self, source: SourceState, receiver: ReceiverState) -> bool:
        return self._receivers.lifetime_ns(source, receiver) is not None

    def _is_here(self, source: SourceState, receiver: ReceiverState) -> bool:
        """A receiver of this session lives, and has left this source or need not be registered with it: the
        lifetime that it has does not run. It does of a receiver-paced source, which waits for it: none is
        left. One with a pattern may be of any topic."""
        session = receiver.session_id
        names = {Reader(source.topic, session), Reader("", session)}
        here = session > 0 and source.paced is None and not self._here.isdisjoint(names)
        return here and self._expires(source, receiver)

    def _let_rest(self, source: SourceState, lines: dict[bytes, CData], now_ns: int) -> None:
        """Its log is shelved and nobody has it open, so nobody holds the source or a receiver of it; that is
        known of each, and until when each is kept. Until then, or until somebody asks for it, nothing of it
        changes."""
        if not source.is_shelved or self._holdings.repository(source.uuid) is not None:
            return
        kept = source.uuid in self.needed.why  # as long as nobody acknowledges, which wakes it
        after_own = self._forget_after_ns(source, own=True) if kept else self._forget_after_ns(source)
        due = self._absences.due_ns((source.uuid,), after_own)
        for receiver in source.receivers:
            if receiver.ephemeral:  # its process may die meanwhile
                return
            if self._is_here(source, receiver):  # woken when that changes
                continue
            after = self._receivers.forget_after_ns(source, receiver, lines.get(receiver.uuid))
            due = min(due, self._absences.due_ns((source.uuid, receiver.uuid), after))
        if self.needed.may_pass(source.uuid):
            due = min(due, now_ns + int(LEFT_S * 1e9))
        if due <= now_ns:
            return
        self._holdings.registry.parts.rest(source)
        if due < math.inf and self._due_of.get(source.uuid) != due:
            self._due_of[source.uuid] = due
            heapq.heappush(self._due, (due, source.uuid))

    def _forget_after_ns(self, source: SourceState, *, own: bool = False) -> int | None:
        """``own``: by the lifetime that it has set itself, whatever the configuration says."""
        options = self._holdings.rules(source).options
        configured = Timers(options.source_activity_timeout, 0 if own else options.source_state_lifetime)
        return forget_after_ns(Timers(source.activity_timeout, source.state_lifetime), configured)

    def _holds(self, source: SourceState) -> str:
        """What goes with it, for the log."""
        known = self._holdings.range(source)
        if known is None:
            return "with what its log had, which is not open"
        oldest, following = known
        if oldest >= following:
            return "with no message"
        bytes_ = "unknown"
        with contextlib.suppress(OSError):
            bytes_ = f"{taken_bytes(self._holdings.logs / source.uuid.hex()):,}"
        return f"with its messages {oldest}..{following - 1}, {bytes_} bytes"

    def _lacked(self, source: SourceState, receiver: ReceiverState) -> str:
        """What is kept, and it has not acknowledged, for the log."""
        known = self._holdings.range(source)
        if known is None:
            return f"acknowledged below number {receiver.ack}"
        oldest, following = max(known[0], receiver.ack), known[1]
        return f"without {oldest}..{following - 1}" if oldest < following else "with everything acknowledged"

    def _let_go_unsent(self) -> None:
        if time.monotonic() < self._unsent_s:
            return
        self._unsent_s = time.monotonic() + UNSENT_S
        begun = {source.uuid: source.incarnation for source in self._holdings.state.sources}
        for name in unlink_unsent(self._holdings.domain, begun):
            _log.info("store %s: %s: its source died before it had begun; removed", self._holdings.name, name)
        if time.monotonic() >= self._left_s:
            self._let_go_deregistered()

    def _let_go_deregistered(self) -> None:
        """What sources that no store keeps have left in shared memory. Of a store whose state cannot be read
        nobody knows that; a source that another store keeps is that one's to look at."""
        domain, kept, left = self._holdings.domain, self._holdings.registry.uuids, self._sources.left
        left |= deregistered(domain, kept)
        left &= {item.uuid for item in domain.objects()} - kept
        if not left:
            return
        states = [state_of(domain, name) for name in domain.store_names() if name != self._holdings.name]
        elsewhere = {source.uuid for state in states if state is not None for source in state.sources}
        for uuid in left - elsewhere if None not in states else ():
            with contextlib.suppress(TurnHeldError):
                unlink_deregistered(domain, uuid)
        if left & {item.uuid for item in domain.objects()}:
            self._left_s = time.monotonic() + LEFT_S

    def _see(self) -> dict[bytes, tuple[bool, dict[bytes, CData]]]:
        """Of each source: whether the owner of the stream that is read here lives, and the lines of its
        receivers."""
        found = {}
        for repository in self._holdings.open_ones():
            source = repository.source
            found[source.uuid] = repository.owner_lives(), repository.line.receivers() if source.receivers else {}
        return found

    def _look(self, source: SourceState, lives: bool, lines: dict[bytes, CData], now: Now) -> bool:
        key = (source.uuid,)
        held = lives or self._sources.connected(source)
        options, after = self._holdings.rules(source).options, self._forget_after_ns(source)
        gone_ns, over = self._absences.look(key, held, source.gone_ns, after, now)
        if over and self._sources.holder(source) is not None:
            gone_ns, over = self._absences.look(key, True, gone_ns, after, now)
        if over and self._absences.due_ns(key, self._forget_after_ns(source, own=True)) > now.monotonic_ns:
            over = not self.needed.keeps(source)  # a lifetime that it has set itself holds
        elif not over:
            self.needed.why.pop(source.uuid, None)
        if over:
            _log.warning("%s: gone for its lifetime, %s", news.called(self._holdings.name, source), self._holds(source))
            self._absences.forget(key)
            for receiver in source.receivers:
                self._absences.forget((source.uuid, receiver.uuid))
            self._sources.forget(source, names=True)
            return False
        if source.proxy and source.incarnation and options.allow_proxy_source:
            self._look_at_proxy(source, held, options.source_activity_timeout, now)
        changed = gone_ns != source.gone_ns
        source.gone_ns = gone_ns
        # Of a log that cannot be opened nobody has looked who has a line.
        known = source.is_shelved or self._holdings.repository(source.uuid) is not None
        shelved = source.is_shelved
        for receiver in list(source.receivers) if known else []:
            changed |= self._look_at_receiver(source, receiver, lines.get(receiver.uuid), now, shelved=shelved)
        return changed

    def _look_at_proxy(self, source: SourceState, held: bool, activity_ms: int, now: Now) -> None:
        after_ns = (source.activity_timeout or activity_ms) * 1_000_000
        due = self.proxies.due(source.uuid, held, after_ns, now.monotonic_ns)
        if due and self._lives_elsewhere(source):
            due = self.proxies.due(source.uuid, True, after_ns, now.monotonic_ns)
        repository = self._holdings.repository(source.uuid)
        has = repository is not None and self._has_begun(source.uuid, repository.path)
        self.proxies.able(source.uuid, has)
        chosen = due and has and elected(self._holdings.state.uuid, self._candidates(source))
        self._tell_proxies(self.proxies.look(source.uuid, due=due, chosen=chosen))

    def _lives_elsewhere(self, source: SourceState) -> bool:
        """It goes on with other stores, and this one reads nothing of it."""
        if self._ringed is None:
            self._ringed = {item.uuid for item in self._holdings.domain.objects() if item.kind == "stream"}
        return source.uuid in self._ringed and self._sources.holder(source) is not None

    def _has_begun(self, source: bytes, log: Path) -> bool:
        """A store that was only asked has an empty log, and so has one that has lost what it had, whatever
        its state says.

        Raises SystemCallError: this process has run out of something, and nobody is elected by that.
        """
        known = self._began.setdefault(source, set())
        try:
            name = log, log.stat().st_ino
            if name not in known and log_view(log) is not None:
                known.add(name)
        except SystemCallError:
            raise
        except (OSError, Error):
            return False
        return name in known

    def _candidates(self, source: SourceState) -> list[bytes]:
        """The other stores of a source that could stand in for it: they run, allow it, and have its messages,
        as they say. Of an older store its log has to do."""
        domain, found = self._holdings.domain, []
        for info in map(self._info, source.stores):
            if info is None or not info.proxies:
                continue
            if info.ready is not None:
                ready = source.uuid in info.ready
            else:
                ready = self._has_begun(source.uuid, Path(info.logs) / source.uuid.hex())
            if ready and info.alive(domain) != 0:
                found.append(info.uuid)
        return found

    def _info(self, name: str) -> StoreInfo | None:
        if name not in self._infos:
            self._infos[name] = read_info(self._holdings.domain, name)
        return self._infos[name]

    def _tell_proxies(self, changes: list[Change]) -> None:
        for source, stands_in, why in changes:
            what = "proxy source created" if stands_in else "proxy source deleted"
            known = self._holdings.registry.source(source)
            name = source_called(known) if known is not None else "source"
            _log.info("store %s: %s for %s (%s): %s", self._holdings.name, what, name, source.hex(), why)

    def _tell_others(self) -> None:
        """Again and again, until it was written."""
        proxies = self.proxies
        if (proxies.standing, proxies.ready) != self._said:
            self._say()
            self._said = set(proxies.standing), set(proxies.ready)

    def _look_at_receiver(
        self, source: SourceState, receiver: ReceiverState, line: CData | None, now: Now, *, shelved: bool
    ) -> bool:
        """``shelved``: its log was at this look's beginning, so that nobody has looked at its board."""
        key = (source.uuid, receiver.uuid)
        held = self._receivers.holder(source, receiver, line) is not None or self._is_here(source, receiver)
        after = None if held else self._receivers.forget_after_ns(source, receiver, line)
        gone_ns, over = self._absences.look(key, held, receiver.gone_ns, after, now)
        if over and not after:  # an ephemeral one has ended, which is proved
            self._absences.forget(key)
            self._receivers.drop(source, receiver)
            return True
        if over and shelved:  # with the log, its line on the board is looked at
            self._holdings.take_down(source)
            over = False
        if over:
            name = called(receiver.registration_id, receiver.session_id)
            where = f"store {self._holdings.name}: receiver {name} of {source_called(source)}"
            _log.warning("%s: gone for its lifetime, %s", where, self._lacked(source, receiver))
            self._absences.forget(key)
            self._receivers.forget(source, receiver)
            self._forgotten.setdefault(source.uuid, set()).add((receiver.uuid, receiver.session_id))
            return False
        changed = gone_ns != receiver.gone_ns
        receiver.gone_ns = gone_ns
        return changed
