"""A source's slow side (the mirror of inbound.py): registration with its stores, board, stream, stability, events.

The context's thread turns it; senders call :meth:`Outbound.refresh` when they wait for room.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from . import registration as reg
from . import wire
from .core import CData, ffi, lib
from .domain import open_object, unlink_object
from .errors import ConfigError, ForkedHandleError, RegIdInUseError, RegistrationError
from .events import source as events
from .quorum import stable_number
from .registration import Phase
from .retention import Retention, RetentionConfig
from .segments import Mapping, own_board, owned
from .status import check

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .context import Context
    from .link import StoreLink
    from .option_values import StoreAddress
    from .options import Options

__all__ = ["InFlight", "Outbound", "refusal_error", "refusal_of"]

FOR_EVER_NS = 2**62


class InFlight(NamedTuple):
    """Sent and not yet stable: messages counted in fragments, and payload bytes."""

    messages: int
    bytes: int


class Outbound:
    """See the module. What it owns of C is NULL before the stream is open and after close."""

    def __init__(
        self, context: Context, topic: str, options: Options, on_event: Callable[[Any], object] | None
    ) -> None:
        if any(not store.name or store.group for store in options.stores):
            raise ConfigError(
                "stores by port and more than one group of stores come in a later version",
                hint='ume_store_name=["NAME:0:0", ...]',
            )
        self.context = context
        self.topic = topic
        self.options = options
        self.on_event = on_event
        self.stores: tuple[StoreAddress, ...] = options.stores
        self._session = options.ume_session_id or context.session_id
        self._machine = reg.SourceRegistration(
            len(self.stores), options.ume_registration_interval * 1_000_000,
            options.ume_consensus_sequence_number_behavior, secrets.token_bytes(16),
        )  # fmt: skip
        self._links: list[StoreLink] = [context.link(store.name) for store in self.stores]
        self._versions = [0] * len(self.stores)
        self._board: Mapping | None = None
        self._handle: CData = ffi.NULL
        self._put: Callable[[bytes, int], int] = _not_open
        """hf_source_send of this source."""
        self._name = ""
        self._retention: Retention | None = None
        self._lines: dict[int, int] = {}
        """Store index -> its line on the board."""
        self._may_send = False
        self._closed = False
        self._was_complete = False
        self._failure: Exception | None = None
        self._lock = threading.RLock()  # retention and the view of the board
        self._recording = threading.Lock()  # a send that has client data, against the reading of the next number
        self._registered = threading.Condition()
        self._events: list[object] = []

    @property
    def next_sequence_number(self) -> int:
        """Number that the next message's first fragment will carry."""
        return int(lib.hf_source_next(self._handle)) if self._handle else self._machine.start_sqn

    def _in_flight(self) -> tuple[InFlight, int]:
        out = ffi.new("uint64_t[3]")
        with self._lock:
            if self._handle:
                lib.hf_source_in_flight(self._handle, out, out + 1, out + 2)
        return InFlight(int(out[0]), int(out[1])), int(out[2])

    def refresh(self) -> bool:
        """Reads the stores' positions, releases what became stable, and tells. True when something moved.

        Raises ForkedHandleError in a forked child.
        """
        if self.context.forked:
            raise ForkedHandleError("source")
        if self._board is None or self._retention is None:
            return False
        with self._lock:
            if not self._handle:
                return False
            retention = self._retention
            if not self.stores:
                stable = int(lib.hf_source_next(self._handle))
            else:
                stable = stable_number([self._ack(index) for index in range(len(self.stores))], len(self.stores))
            if stable <= retention.stable and not retention.pending:
                return False
            with self._recording:
                committed = int(lib.hf_source_next(self._handle))
                if committed > retention.next:
                    retention.next = committed
            told: list[object] = list(retention.advance(min(stable, committed)))
            lib.hf_source_release(self._handle, retention.release_below)
            lib.hf_source_stable(self._handle, retention.stable)
            told += retention.released(retention.release_below)
        if told and self.on_event is not None:
            self._events += told
            self.context.wake()
        return True

    def _ack(self, index: int) -> int:
        """What a store's line says of this incarnation; an ack of an older one may be of numbers that BEGIN voided."""
        line = self._lines.get(index)
        if line is None or self._board is None:
            return 0
        at = lib.hf_board_line_at(self._board.handle, line)
        return int(at.ack) if at.ack_stream == self._machine.incarnation else 0

    # Registration: the context's thread --------------------------------------------------------------------------------------

    def start(self, now_ns: int) -> None:
        """First turn."""
        for link in self._links:
            link.listeners.append(self)
            if link.up:
                self.link_up(link)
        self._act(self._machine.start(), now_ns)

    def turn(self, now_ns: int) -> int:
        """Timers, stability and events. Returns the number of things done."""
        if self._closed:
            return 0
        self._act(self._machine.tick(now_ns), now_ns)
        work = int(self.refresh())
        if self._handle:
            header = ffi.cast("struct hf_stream_header *", lib.hf_source_map(self._handle).base)
            header.heartbeat_ns = now_ns
        return work + self._tell()

    def wants_acks(self) -> bool:
        """Somebody listens for events and messages are in flight: the context's thread sleeps with the board's flag set."""
        return self.on_event is not None and self._may_send and self._in_flight()[0].messages > 0

    def prepare_sleep(self) -> int:
        """Sets the flag, looks again. How long to sleep at most, ns: 0 when there is something to do after all."""
        if self._board is None or not self.wants_acks():
            return FOR_EVER_NS
        nap = lib.hf_board_source_waits(self._board.handle, self.context.bells.index)
        return 0 if self.refresh() else nap

    def link_up(self, link: StoreLink) -> None:
        """LinkListener."""
        now = time.monotonic_ns()
        for index, own in enumerate(self._links):
            if own is link:
                self._act(self._machine.connected(index, now), now)

    def link_down(self, link: StoreLink) -> None:
        """LinkListener."""
        now = time.monotonic_ns()
        for index, own in enumerate(self._links):
            if own is link:
                self._act(self._machine.disconnected(index), now)

    def _act(self, actions: list[reg.Action], now_ns: int) -> None:
        for action in actions:
            match action:
                case reg.Ask(store):
                    self._ask(store)
                case reg.Open(incarnation, start_sqn):
                    self._act(self._open(incarnation, start_sqn), now_ns)
                case reg.Announce(store):
                    self._announce(store)
                case _:
                    self._tell_registration(action)
        self._may_send = self._machine.may_send if self.stores else self._machine.complete
        if self._may_send:
            self._was_complete = True
        if actions:
            with self._registered:
                self._registered.notify_all()

    def _ask(self, store: int) -> None:
        link = self._links[store]
        machine = self._machine
        request = wire.RegisterSource(
            link.next_id(), self.topic, self.stores[store].registration_id, self._session, machine.uuid,
            machine.incarnation,
        )  # fmt: skip
        link.ask(request, lambda answer: self._answered(store, answer))

    def _answered(self, store: int, answer: wire.Answer) -> None:
        now = time.monotonic_ns()
        match answer:
            case wire.SourceGranted():
                grant = reg.Grant(answer.registration_id, answer.uuid, answer.next_sqn, answer.old, answer.incarnation)
                self._act(self._machine.granted(store, grant, now), now)
            case wire.Begun():
                self._find_lines()
                self._act(self._machine.begun(store, self.next_sequence_number), now)
            case wire.Refused():
                self._act(self._machine.refused(store, refusal_of(answer)), now)

    def _announce(self, store: int) -> None:
        link = self._links[store]
        machine = self._machine
        self._versions[store] += 1
        self._write_sri()
        request = wire.Begin(
            link.next_id(), machine.uuid, machine.incarnation, machine.start_sqn, self._name,
            [address.name for address in self.stores],
        )  # fmt: skip
        link.ask(request, lambda answer: self._answered(store, answer))

    def _ring_bytes(self) -> int:
        return int(self.options.ring_size)

    def _open(self, incarnation: int, start_sqn: int) -> list[reg.Action]:
        """Creates board and stream. A failure is what ``wait_registered`` raises; it is tried again at the next tick."""
        context = self.context
        config = ffi.new("struct hf_stream_config *")
        ffi.memmove(config.uuid, self._machine.uuid, 16)
        topic = self.topic.encode()
        ffi.memmove(config.topic, topic, len(topic))
        config.start_sqn, config.ring_bytes = start_sqn, self._ring_bytes()
        config.session_id, config.fragment_bytes = self._session, self.options.fragment_size
        config.pin_timeout_ms = self.options.receiver_pin_timeout
        try:
            board = self._board or own_board(context.domain, self._machine.uuid)
            self._board = board
            while True:
                name = context.domain.stream_name(self._machine.uuid, incarnation)
                try:
                    fd = open_object(name, create=True)
                    break
                except FileExistsError:  # left by a claimant that died before BEGIN
                    incarnation += 1
            config.incarnation = incarnation
            out = ffi.new("struct hf_source **")
            try:
                status = lib.hf_source_create(fd, config, board.handle, context.bells.handle, out)
                check(status, what=name, size=self._ring_bytes())
            except BaseException:
                unlink_object(name)
                raise
            finally:
                os.close(fd)
        except Exception as error:
            self._failure = error
            return []
        self._failure = None
        options = self.options
        self._name = name
        self._retention = Retention(
            RetentionConfig(
                options.ume_flight_size if self.stores else 0,
                options.ume_flight_size_bytes if self.stores else 0,
                options.retransmit_retention_size_limit if self.stores else 0,
                options.ume_message_stability_notification,
                self.on_event is not None,
            ),
            start_sqn,
        )
        lib.hf_source_limits(out[0], *self._retention.limits())
        self._handle = owned(out[0], lib.hf_source_destroy, board.handle, context.bells)
        self._put = partial(lib.hf_source_send, self._handle)
        if not self.stores:
            self._write_sri()
        return self._machine.opened(incarnation, start_sqn)

    def _write_sri(self) -> None:
        stores = ffi.new("struct hf_sri_store[]", max(1, len(self.stores)))
        for index, address in enumerate(self.stores):
            name = address.name.encode()
            ffi.memmove(stores[index].name, name, len(name))
            welcome = self._links[index].welcome
            if welcome is not None:
                ffi.memmove(stores[index].uuid, welcome.uuid, 16)
            grant = self._machine.slots[index].grant
            stores[index].registration_id = grant.registration_id if grant else 0
            stores[index].index, stores[index].version = index, self._versions[index]
        lib.hf_source_sri(self._handle, stores, len(self.stores), 1)
        lib.hf_bell_ring_all(self.context.bells.handle)  # receivers of the topic look now

    def _find_lines(self) -> None:
        """Which line on the board belongs to which store; a store keeps its line as long as its process lives."""
        assert self._board is not None
        views = ffi.new("struct hf_line_view[]", lib.HF_BOARD_LINES)
        count = lib.hf_board_read(self._board.handle, self.context.domain.fd, 0, views, lib.HF_BOARD_LINES)
        by_uuid = {
            bytes(ffi.buffer(views[i].line.uuid)): int(views[i].index)
            for i in range(count)
            if views[i].line.role == lib.HF_ROLE_STORE and views[i].line.state == lib.HF_LINE_ACTIVE
        }
        for index, link in enumerate(self._links):
            if link.welcome is not None and link.welcome.uuid in by_uuid:
                self._lines[index] = by_uuid[link.welcome.uuid]

    # Events ---------------------------------------------------------------------------------------------------------------

    def _tell_registration(self, action: reg.Action) -> None:
        match action:
            case reg.Granted(store, grant):
                flags = events.RegistrationSuccessFlags.OLD if grant.old else events.RegistrationSuccessFlags(0)
                self._events.append(
                    events.RegistrationSuccess(
                        flags, grant.registration_id, grant.next_sqn, store, self.stores[store].name
                    )
                )
            case reg.Complete(sequence_number, all_stores):
                complete = events.RegistrationCompleteFlags
                self._events.append(
                    events.RegistrationComplete(complete(0) if all_stores else complete.QUORUM, sequence_number)
                )
            case reg.RefusedBy(store, refusal):
                self._events.append(
                    events.RegistrationError(refusal.text, self.stores[store].name, refusal.pid, refusal.since_ns / 1e9)
                )
            case reg.Unresponsive(store, lost, registered, required):
                name = self.stores[store].name
                text = f"store {store} [{name}] unresponsive" + (" (quorum lost)" if lost else "")
                self._events.append(events.StoreUnresponsive(text, name, store, lost, registered, required))

    def _tell(self) -> int:
        """Delivers what is queued; the context's thread."""
        queued, self._events = self._events, []
        for event in queued:
            self.tell_now(event)
        return len(queued)

    def tell_now(self, event: object) -> None:
        """Delivers one event on the calling thread."""
        if self.on_event is not None:
            self.context.callback(self.on_event, event)

    # The end --------------------------------------------------------------------------------------------------------------

    def close(self, timeout: float | None = None) -> None:
        """Closes the stream: stores drain it, receivers read it to its end. Not a deregistration. Idempotent.

        In a forked child it only ends the child's use of it.
        """
        if self.context.forked:
            self._closed, self._may_send = True, False
            return
        with self.context.turning():  # a callback that runs now ends first
            if self._closed:
                return
            self._closed, self._may_send = True, False
            self.context.leave(self, timeout)
            self.refresh()
            self._tell()
        with self._lock:
            if self._handle:
                lib.hf_source_close(
                    self._handle
                )  # it stays mapped for a thread that is inside a send: it gets HF_CLOSED
            if not self.stores:  # no store keeps this identity, so nobody will come back for what it leaves
                if self._name:
                    unlink_object(self._name)
                if self._board is not None:
                    unlink_object(self._board.name)

    def leave_requests(self) -> Iterator[tuple[StoreLink, wire.Leave]]:
        """What to tell the stores at a clean close."""
        for index, link in enumerate(self._links):
            if self._machine.slots[index].phase is not Phase.DOWN and link.up:
                yield link, wire.Leave(link.next_id(), "source", self._machine.uuid, self._machine.uuid)


def _not_open(_data: bytes, _size: int) -> int:
    return int(lib.HF_AGAIN)


def refusal_of(answer: wire.Refused) -> reg.Refusal:
    """The machine's form of a refusal."""
    return reg.Refusal(answer.code, answer.text, answer.pid, answer.since_ns, answer.registration_id)


def refusal_error(refusal: reg.Refusal) -> Exception:
    """What a waiting program gets for a refusal."""
    if refusal.code == "reg_id_in_use":
        return RegIdInUseError(refusal.registration_id, refusal.pid, refusal.since_ns / 1e9)
    return RegistrationError(refusal.text)
