"""A source's slow side (the mirror of delivery_controller.py): registration with its stores, board, stream,
events. What becomes of messages that were sent is settlement.py.

The context's thread turns it; senders call :meth:`SourceSession.refresh` when they wait for room.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any

from ..control import wire
from ..control.deregistration import SourceDeregistration, check_deregister, close_for_good
from ..control.grants import grant_of
from ..control.link import twin_of
from ..control.refusals import refusal_of
from ..errors import ClosedError, FencedError, ForkedHandleError, SystemCallError
from ..events import source as events
from ..events.info import ForceReclaimInfo
from ..log.register import SourceRegister, earlier_stores, elsewhere
from ..memory.domain import unlink_object
from ..memory.new_ring import SourceRing, SriStore, stream_config, write_sri
from ..native.core import CData, ffi, lib
from ..native.limits import named
from ..native.runtime import secrets, threading, time
from ..options.receiver_paced import wanted_by
from ..rules import registration as reg
from ..rules.notification import taken
from ..rules.quorum import INTERGROUP, INTRAGROUP
from ..rules.source_registration import SourceRegistration
from .awaiting import WaitingTasks
from .opening import Opening
from .own_names import OwnNames
from .quorum_news import QuorumNews
from .registration_events import source_event
from .settlement import UNDER, Settlement
from .unheard import Unheard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..control.host import Host
    from ..control.link import StoreLink
    from ..memory.mapping import Mapping
    from ..options.resolve import Options
    from ..options.values import StoreAddress

__all__ = ["SourceSession"]

_log = logging.getLogger("holdfast")

FOR_EVER_NS = 2**62


class SourceSession:
    """See the module. What it owns of C is NULL before the stream is open and after close."""

    def __init__(self, context: Host, topic: str, options: Options, on_event: Callable[[Any], object] | None) -> None:
        self.context, self.topic = context, topic
        self.options, self.on_event = options, on_event
        self.stores: tuple[StoreAddress, ...] = options.stores
        self.names = tuple(str(store) for store in self.stores)
        self._session = options.ume_session_id or context.session_id
        self._proposal = secrets.token_bytes(16)
        """Its identity, if no store knows another one."""
        given = [store.registration_id for store in self.stores]
        named = bool(self._session) or any(given)
        self._look_ns = options.ume_store_check_interval * 1_000_000
        self.machine = SourceRegistration(
            options.groups, options.ume_registration_interval * 1_000_000,
            options.ume_consensus_sequence_number_behavior, self._proposal, stagger=secrets.randbelow(1000) / 1000,
            silence_ns=options.ume_store_activity_timeout * 1_000_000, look_ns=self._look_ns,
            anonymous=not named, names=self.names,
        )  # fmt: skip
        self._register = SourceRegister(context.domain, topic, self._session, given, self.names, options.groups)
        self._news = QuorumNews(topic, self._session, self.names, given)
        self._looked_ns = 0
        again_ns = reg.TELL_AGAIN * options.ume_registration_interval * 1_000_000
        self.own_names = OwnNames(context.domain, topic, again_ns)
        if self._session and any(given):
            _log.info("topic %r: session ID %#x is in force, so the RegIDs given are ignored", topic, self._session)
        self._links: list[StoreLink] = [context.link(name) for name in self.names]
        self._unheard = Unheard(
            context, self.machine, self._links, self._register, topic, self._session, given, self._look_ns
        )
        self._versions = [0] * len(self.stores)
        self.board: Mapping | None = None
        self.handle: CData = ffi.NULL
        self._straight: CData | None = None
        """The handle; None where every message is recorded."""
        self.direct: CData | None = None
        """That, while it may send: a send that nobody has to hear of goes straight into C."""
        self.name = ""
        self.settlement: Settlement | None = None
        self.may_send = self.closed = False
        self.deregistration: SourceDeregistration | None = None
        self.opening = Opening(options.ume_registration_interval * 1_000_000)
        self.registered = threading.Condition()
        self.untold = False
        """A RegistrationComplete is queued that the program has not been told yet."""
        self._events: list[object] = []
        self.awaiting = WaitingTasks()

    @property
    def next_sequence_number(self) -> int:
        """Number that the next message's first fragment will carry."""
        return int(lib.hf_source_next(self.handle)) if self.handle else self.machine.start_sqn

    @property
    def liveness_board(self) -> Mapping | None:
        """The board to find receiving contexts on; None if this source asks for no confirmations
        (docs/semantics.md H)."""
        return self.board if self.options.ume_confirmed_delivery_notification else None

    def refresh(self, *, thorough: bool = False) -> bool:
        """Reads the board, settles and releases (settlement.py). True when something moved.

        Raises ForkedHandleError in a forked child.
        """
        if self.context.forked:
            raise ForkedHandleError("source")
        settlement = self.settlement
        if settlement is None:
            return False
        moved = settlement.refresh(thorough=thorough)
        if settlement.notices.queue:
            self.context.wake()
        return moved

    # Registration: the context's thread ---------------------------------------------------------------------

    def start(self, now_ns: int) -> None:
        """First turn."""
        for link in self._links:
            link.listeners.append(self)
            if link.up:
                self.link_up(link)
        self._act(self.machine.start(), now_ns)

    def turn(self, now_ns: int) -> int:
        """Timers, stability and events. Returns the number of things done."""
        if self.closed:
            return 0
        if self.deregistration is not None:
            self.deregistration.tick(now_ns)
            return self.deliver_events()
        if not self.machine.is_open:
            self._unheard.turn(now_ns)
        put_off = self.opening.put_off(self.machine)
        self._act(put_off + self.machine.tick(now_ns, self.next_sequence_number), now_ns)
        work = 0
        if self.settlement is not None:
            self._look(self.settlement, now_ns)
            self._events += self.own_names.look(self.machine.uuid, self.name, self.board, now_ns)
            work = int(self.settlement.turn(now_ns))
            ffi.cast("struct hf_stream_header *", lib.hf_source_map(self.handle).base).heartbeat_ns = now_ns
        return work + self.deliver_events()

    def _look(self, settlement: Settlement, now_ns: int) -> None:
        """Do the stores' heartbeats go on, and are they still catching up?"""
        if now_ns - self._looked_ns < self._look_ns:
            return
        self._looked_ns = now_ns
        self._register.settle(0)
        for store, (beat, catching_up, full) in settlement.beats().items():
            following = self.next_sequence_number
            self._act(self.machine.look(store, beat, following, now_ns, catching_up=catching_up, full=full), now_ns)

    def wants_acks(self) -> bool:
        """Somebody listens for events: the context's thread sleeps with the board's flag set."""
        return self.may_send and (self.on_event is not None or self.options.ume_force_reclaim_function is not None)

    def prepare_sleep(self) -> int:
        """Sets the flag, looks again. How long to sleep at most, ns: 0 when there is something to do after
        all."""
        settlement, awaited = self.settlement, self.awaiting.somebody
        if self.board is None or settlement is None or not (awaited or self.wants_acks()):
            return FOR_EVER_NS
        nap = lib.hf_board_source_waits(self.board.handle, self.context.bells.index)
        if settlement.refresh() or settlement.notices.queue or self.awaiting.is_due(self):
            return 0
        return int(nap) if awaited or settlement.in_flight()[0].messages else FOR_EVER_NS

    def link_up(self, link: StoreLink) -> None:
        """LinkListener."""
        if self.deregistration is not None:
            self.deregistration.link_up(link)
            return
        now = time.monotonic_ns()
        for index, own in enumerate(self._links):
            if own is link:
                self._act(self.machine.connected(index, now), now)

    def link_down(self, link: StoreLink) -> None:
        """LinkListener."""
        now = time.monotonic_ns()
        for index, own in enumerate(self._links):
            if own is link and self.deregistration is None:
                self._act(self.machine.disconnected(index, now), now)

    def hindered(self, link: StoreLink) -> None:
        """LinkListener."""
        self._events.append(events.RegistrationError(link.hindrance, link.name))

    def hindrances(self, since_ns: int = 0) -> dict[int, str]:
        """Stores that may run and cannot be reached -> why, as was met since."""
        return {i: own.hindrance for i, own in enumerate(self._links) if own.hindrance and own.hindered_ns >= since_ns}

    def expelled(self, link: StoreLink) -> None:
        """LinkListener. A store where it has no seat is not asked, so what it would say is said here."""
        idle = [
            i for i, own in enumerate(self._links) if own is link and self.machine.entries[i].phase is reg.Phase.IDLE
        ]
        self.link_down(link)
        self.link_up(link)
        text = f"the source was deregistered at store {link.name} by its operator; it has no seat there now"
        self._events += [source_event(reg.RefusedBy(i, reg.Refusal("deregistered", text)), self.names) for i in idle]

    def concerns(self, source: bytes) -> bool:
        """LinkListener."""
        return self.machine.uuid == source

    def _act(self, actions: list[reg.Action], now_ns: int) -> None:
        if self.closed:  # it has said that it leaves: a store would hold what nobody lets go
            return
        announced = [action.store for action in actions if isinstance(action, reg.Announce)]
        for store in announced:  # in one record: receivers do not find a part of them
            known = self.machine.entries[store].hollow and self._versions[store]  # from an attempt that failed
            self._versions[store] += not known
        if announced and self.settlement is not None and self.settlement.begun:
            self._write_sri()
        for action in actions:
            match action:
                case reg.Ask(store):
                    self._question(self._ask, store)
                case reg.Open(incarnation, start_sqn):
                    self._act(self._open(incarnation, start_sqn), now_ns)
                case reg.Announce(store):
                    self._question(self._announce, store)
                case reg.Abandon():
                    self._abandon()
                case reg.Seated() if self.settlement is not None and self.settlement.begun:
                    self._write_sri()
                case reg.GiveUp(store, uuid):
                    link, own = self._links[store], self.machine.uuid  # a refused BEGIN may have renamed it
                    link.ask(wire.Leave(link.next_id(), "source", uuid, own), lambda _: None)
                case _ if (event := source_event(action, self.names, self._links)) is not None:
                    self._events.append(event)
                    if isinstance(action, reg.Forgot):
                        self._news.forgot(action)
        complete = any(isinstance(action, reg.Complete) for action in actions)
        if complete:
            self._register.complete(self.machine.start_sqn, self.machine.over)
            self.untold = self.on_event is not None  # before it may send: wait_registered looks at both
        self._let_send(self.machine.may_send)
        self._news.look(self.machine, self.next_sequence_number, now_ns)
        if actions and self.settlement is not None:
            self.settlement.registered(self.machine.seated, self.machine.active())
        if actions:
            with self.registered:
                self.registered.notify_all()

    def _let_send(self, may_send: bool) -> None:
        self.may_send = may_send
        self.direct = self._straight if may_send else None

    def _question(self, ask: Callable[[int], None], store: int) -> None:
        """Put off where this process has run out of something: nothing is decided without the register. A
        source that has been registered decides nothing any more."""
        began_ns = time.monotonic_ns()
        try:
            ask(store)
        except (SystemCallError, OSError, MemoryError) as error:
            self._events += self.opening.not_asked(store, named(error), began_ns)
        else:
            self.opening.asked(store, self.machine)

    def _ask(self, store: int) -> None:
        link, machine = self._links[store], self.machine
        twin = twin_of(self._links, store)
        if twin is not None:
            text = f"{self.names[store]} is the store {self.names[twin]} under another name: it would count twice; name it once"
            self._act(machine.refused(store, reg.Refusal("usage", text)), time.monotonic_ns())
            return
        machine.register = self._register.read(strict=not machine.was_complete)
        # Without a RegID or a session ID nobody could come back for what a proxy keeps.
        proxy = bool(self.options.ume_proxy_source and (self._session or self.stores[store].registration_id))
        request = wire.RegisterSource(
            link.next_id(), self.topic, self.stores[store].registration_id, self._session, machine.uuid,
            machine.incarnation, self.options.ume_activity_timeout, self.options.ume_state_lifetime,
            wanted_by(self.options), proxy, self._proposal, machine.least, elsewhere(machine.register),
        )  # fmt: skip
        link.ask(request, lambda answer: self._answered(store, answer))

    def _answered(self, store: int, answer: wire.Answer) -> None:
        now = time.monotonic_ns()
        match answer:
            case wire.SourceGranted():
                welcome = self._links[store].welcome
                grant = grant_of(answer, welcome.name if welcome is not None else "")
                if self.deregistration is not None:  # it crossed the call
                    self.machine.entries[store].grant = grant
                    self.deregistration.add([store])
                    return
                self._act(self.machine.granted(store, grant, now), now)
            case _ if self.deregistration is not None:
                return
            case wire.Begun():
                welcome, settlement = self._links[store].welcome, self.settlement
                news = self.machine.entries[store].hollow  # receivers have asked it since, and it had not begun
                self._versions[store] += news
                if settlement and welcome and (settlement.find_store(store, welcome.uuid) or news):
                    self._write_sri()  # not before: without BEGIN receivers stay with what was before this incarnation
                self._register.end(self.machine.over)
                begun = self.machine.begun(store, self.next_sequence_number, now, catching_up=answer.catching_up)
                self._act(begun, now)
            case wire.Refused():
                self._act(self.machine.refused(store, refusal_of(answer, self.names[store])), now)

    def _announce(self, store: int) -> None:
        link, machine = self._links[store], self.machine
        grant = machine.entries[store].grant
        lives, strict = machine.lives({store}), not machine.was_complete
        self._register.declare(machine.uuid, machine.incarnation, lives, strict=strict)
        request = wire.Begin(
            link.next_id(), machine.uuid, machine.incarnation, machine.start_sqn, self.name, list(self.names),
            grant.uuid if grant is not None else b"", list(machine.begins), machine.lives(),
            list(machine.groups.sizes), list(machine.groups.of), INTRAGROUP.index(machine.groups.intragroup),
            INTERGROUP.index(machine.groups.intergroup), self._proposal, machine.exclusions(store),
            earlier_stores(machine.register, machine.uuid, machine.start_sqn), machine.counted.get(store, 0), machine.over,
        )  # fmt: skip

        def answered(answer: wire.Answer) -> None:
            if machine.incarnation == request.incarnation:  # it was not abandoned since
                self._answered(store, answer)

        link.ask(request, answered)

    def _open(self, incarnation: int, start_sqn: int) -> list[reg.Action]:
        """Makes the ring. A failure is what ``wait_registered`` raises; it is tried again (opening.py)."""
        context = self.context
        config = stream_config(self.machine.uuid, self.topic, self._session, self.options)
        config.start_sqn, config.ring_bytes = start_sqn, int(self.options.ring_size)
        began_ns = time.monotonic_ns()
        try:
            ring = SourceRing.make(context.domain, context.bells, config, incarnation)
        except Exception as error:
            self._events += self.opening.failed(named(error, "the ring cannot be made"), began_ns)
            return []
        self.opening.made()
        if self.stores and ring.incarnation > incarnation:  # nobody has promised that one yet
            lib.hf_source_close(ring.handle)
            unlink_object(ring.name)
            return self.machine.beyond(ring.incarnation, time.monotonic_ns())
        self.name, self.board = ring.name, ring.board
        self.settlement = Settlement(
            ring.handle, ring.board, context.domain.fd, ring.incarnation, start_sqn, self.topic, self.options,
            listened=self.on_event is not None,
        )  # fmt: skip
        self.handle = ring.handle
        if not self.settlement.notices.records_all:
            self._straight = ring.handle
        if not self.stores:
            self._write_sri()
        # Each BEGIN needs what is not written yet (_announce).
        self._register.declare(
            self.machine.uuid, ring.incarnation, self.machine.lives(self.machine.seated), strict=False
        )
        return self.machine.opened(ring.incarnation, start_sqn, time.monotonic_ns())

    def _abandon(self) -> None:
        """Nothing was sent in it: it goes as if it had not been."""
        lib.hf_source_close(self.handle)
        unlink_object(self.name)
        self.settlement, self._straight, self.handle, self.name = None, None, ffi.NULL, ""
        self._let_send(False)
        self._versions = [0] * len(self.stores)

    def _write_sri(self) -> None:
        """A store without a seat has version 0: receivers do not wait for it."""
        said = []
        for index, address in enumerate(self.stores):
            welcome, grant = self._links[index].welcome, self.machine.entries[index].grant
            said.append(
                SriStore(
                    self.names[index], welcome.uuid if welcome is not None else b"", grant.registration_id if grant else 0,
                    address.group, self._versions[index] if index in self.machine.seated else 0,
                )
            )  # fmt: skip
        write_sri(self.handle, said, self.machine.groups)
        lib.hf_bell_ring_all(self.context.bells.handle)  # receivers of the topic look now

    # Events -------------------------------------------------------------------------------------------------

    def deliver_events(self) -> int:
        """Delivers what is queued, in order; the context's thread."""
        settlement = self.settlement
        queued = taken(self._events)
        if settlement is not None:
            queued += taken(settlement.notices.queue)
        for event in queued:
            if isinstance(event, ForceReclaimInfo):
                self.context.callback(self.options.ume_force_reclaim_function, event, self.options)
            else:
                self.tell_now(event)
            if event is UNDER and settlement is not None:
                settlement.under()
        if self.untold and not self._events:
            with self.registered:
                self.untold = False
                self.registered.notify_all()
        self.awaiting.wake(self)
        return len(queued)

    def tell_now(self, event: object) -> None:
        """Delivers one event on the calling thread."""
        if self.on_event is not None:
            self.context.callback(self.on_event, event, self.options)

    # The end ------------------------------------------------------------------------------------------------

    def fenced(self, error: FencedError) -> None:
        """The process has lost its lock: every send raises from now on. What was published is drained as that
        of the dead."""
        self._let_send(False)
        self._events.append(events.RegistrationError(str(error), ""))
        with self.registered:
            self.registered.notify_all()

    def deregister(self) -> None:
        """As :meth:`Source.deregister`."""
        self.context.check_usable()
        with self.context.turning():
            if self.closed:
                raise ClosedError(f"source {self.topic}")
            granted = [index for index, entry in enumerate(self.machine.entries) if entry.grant is not None]
            check_deregister(self.deregistration is not None, granted)
            self.deregistration = SourceDeregistration(
                self.context.domain, self.machine, self._links, self.names, lambda event: self._events.append(event)
            )
            self._let_send(False)
            if self.handle:
                close_for_good(self.handle)
            self.deregistration.add(granted)
        with self.registered:
            self.registered.notify_all()
        self.context.wake()

    def close(self, timeout: float | None = None) -> None:
        """As :meth:`Source.close`, without what a callback raised."""
        if self.context.forked:
            self.closed = True
            self._let_send(False)
            return
        with contextlib.ExitStack() as stack, self.context.turning():  # a callback that runs now ends first
            if self.closed and not self.context.has(self):
                return
            self.closed = True
            stack.callback(self._let_go)  # also where somebody interrupts the rest
            self._let_send(False)
            self.own_names.leave(self.machine.uuid)
            self.context.leave(self, timeout, self.deregistration.asked() if self.deregistration is not None else ())
            self.refresh()
            self.deliver_events()

    def _let_go(self) -> None:
        if self.handle:
            lib.hf_source_close(self.handle)  # it stays mapped for a thread that is inside a send: it gets HF_CLOSED
            if not self.machine.was_complete:  # nothing was sent that a store has to keep
                unlink_object(self.name)
        # No store keeps such an identity, so nobody comes back for it; a ring that failed left a board, too.
        if not self.stores:
            unlink_object(self.context.domain.board_name(self.machine.uuid))

    def leave_requests(self) -> Iterator[tuple[StoreLink, wire.Leave]]:
        """What to tell the stores at a clean close: those that have granted, or are to answer, also where it
        was to be forgotten."""
        for link, entry in zip(self._links, self.machine.entries, strict=True):
            if link.up and (entry.grant is not None or entry.pending is not None):
                yield link, wire.Leave(link.next_id(), "source", self.machine.uuid, self._proposal)
