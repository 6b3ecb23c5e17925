"""One source at one receiver (UM's delivery controller): registration with its stores, the board line, and the acks.

The context's thread runs everything here but the feed, which belongs to the receiving thread.
"""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING

from . import registration as reg
from . import wire
from .acks import AckWindow
from .core import ffi, lib
from .events import info as callbacks
from .events import receiver as events
from .feed import Feed
from .outbound import refusal_of
from .recovery import limited_low, start_number
from .segments import Mapping, own_board
from .status import check

if TYPE_CHECKING:
    from .link import StoreLink
    from .receiver import Receiver

__all__ = ["Found", "Inbound"]


class Found:
    """A source that discovery came upon: in a stream's header, or in a store's answer."""

    __slots__ = ("registration_id", "session_id", "stores", "topic", "uuid")

    def __init__(self, uuid: bytes, topic: str, stores: tuple[str, ...], registration_id: int, session_id: int) -> None:
        self.uuid, self.topic, self.stores = uuid, topic, stores
        self.registration_id, self.session_id = registration_id, session_id


class Inbound:
    """See the module. ``feed`` is None until registration is complete."""

    def __init__(self, receiver: Receiver, found: Found) -> None:
        self.receiver = receiver
        self.found = found
        self.uuid = found.uuid
        self.topic = found.topic
        self.source = f"holdfast:{found.topic}:{found.uuid.hex()[:12]}"
        self.client_data: object = None
        self.feed: Feed | None = None
        self.window: AckWindow | None = None
        self.failure: Exception | None = None
        self.dozing = False
        """The context's thread sleeps without an ack timer: the next delivery must stir it."""
        self.delivered = 0
        self.redelivered = 0
        context, options = receiver.context, receiver.options
        self._machine = reg.ReceiverRegistration(
            len(found.stores), options.ume_registration_interval * 1_000_000,
            options.ume_consensus_sequence_number_behavior,
        )  # fmt: skip
        self._links: list[StoreLink] = [context.link(name) for name in found.stores]
        self._proposal = secrets.token_bytes(16)
        self._registration_ids: list[int | None] = [None] * len(found.stores)
        self._answers: dict[int, wire.ReceiverGranted] = {}
        self._session = options.ume_session_id or context.session_id
        self.board: Mapping | None = None
        self.line = -1
        self._left = False

    @property
    def ready(self) -> bool:
        """Messages may be received."""
        return self.feed is not None

    # Registration ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """First turn: links that are up already will not say so again."""
        if not self._links:
            self._complete(reg.Complete(0, True))
        for link in self._links:
            link.listeners.append(self)
            if link.up:
                self.link_up(link)

    def link_up(self, link: StoreLink) -> None:
        """LinkListener."""
        for index, own in enumerate(self._links):
            if own is link:
                self._act(self._machine.connected(index, time.monotonic_ns()))

    def link_down(self, link: StoreLink) -> None:
        """LinkListener."""
        for index, own in enumerate(self._links):
            if own is link:
                self._act(self._machine.disconnected(index))

    def tick(self, now_ns: int) -> None:
        """Timers of the registration."""
        if self.failure is None:
            self._act(self._machine.tick(now_ns))

    def _act(self, actions: list[reg.Action]) -> None:
        for action in actions:
            match action:
                case reg.Ask(store):
                    self._ask(store)
                case reg.Granted(store, grant):
                    self._granted(store, grant)
                case reg.RefusedBy(store, refusal):
                    if refusal.code != "unknown_source":  # the store has not heard of it yet: asked again
                        name = self.found.stores[store]
                        since = refusal.since_ns / 1e9
                        self.receiver.tell(
                            events.RegistrationError(self.topic, self.source, refusal.text, name, refusal.pid, since)
                        )
                case reg.Complete():
                    self._complete(action)

    def refusal(self) -> reg.Refusal | None:
        """Why a store refuses, if one does."""
        return self._machine.refusal()

    def _ask(self, store: int) -> None:
        wanted = self._registration_ids[store]
        if wanted is None:
            try:
                wanted = self._wanted(store)
            except Exception as error:
                self.failure = error
                self.receiver.failed(self, error)
                return
            self._registration_ids[store] = wanted
        link = self._links[store]
        request = wire.RegisterReceiver(link.next_id(), self.uuid, self.topic, wanted, self._session, self._proposal)
        link.ask(request, lambda answer: self._answered(store, answer))

    def _wanted(self, store: int) -> int:
        """The RegID to ask for: the program's callback says it, unless a session ID stands for it."""
        function = self.receiver.options.ume_registration_extended_function
        if function is None or self._session:
            return 0
        info = callbacks.RegistrationInfo(
            0, self.found.registration_id, store, self.found.stores[store], self.source, self.client_data
        )
        return int(function(info))

    def _answered(self, store: int, answer: wire.Answer) -> None:
        now = time.monotonic_ns()
        match answer:
            case wire.ReceiverGranted():
                self._answers[store] = answer
                grant = reg.Grant(answer.registration_id, answer.uuid, answer.next_sqn, answer.old)
                self._act(self._machine.granted(store, grant, now))
            case wire.Refused():
                self._act(self._machine.refused(store, refusal_of(answer)))

    def _granted(self, store: int, grant: reg.Grant) -> None:
        answer = self._answers[store]
        flags = events.RegistrationSuccessFlags
        said = flags.OLD if grant.old else flags(0)
        if answer.source_session_id:
            said |= flags.SRC_SID
        self.receiver.tell(
            events.RegistrationSuccess(
                self.topic, self.source, said, answer.source_registration_id, grant.registration_id,
                grant.next_sqn, store, self.found.stores[store], answer.source_session_id,
            )
        )  # fmt: skip

    def _complete(self, action: reg.Complete) -> None:
        """Takes a board line, decides where to start, and lets the receiving thread in."""
        try:
            self._join()
            high = self._high()
            start, limited = self._start(action.sequence_number, high)
        except Exception as error:
            self.failure = error
            self.receiver.failed(self, error)
            return
        assert self.board is not None
        self.window = AckWindow(start)
        lib.hf_line_range(lib.hf_board_line_at(self.board.handle, self.line), start, 2**64 - 1)
        logs = [self._answers[index].log for index in sorted(self._answers)]
        self.feed = Feed(
            self.uuid, self.board, self.receiver.context.bells, self.line, self.receiver.context.directory, logs,
            start, high + 1, self._lost, self._ended,
        )  # fmt: skip
        self.acknowledge(start)
        flags = events.RegistrationCompleteFlags
        said = flags(0) if action.all_stores else flags.QUORUM
        if limited:
            said |= flags.RXREQMAX
        session = max((answer.source_session_id for answer in self._answers.values()), default=0)
        if session:
            said |= flags.SRC_SID
        self.receiver.tell(events.RegistrationComplete(self.topic, self.source, said, start, session))
        self.receiver.joined(self)

    def _join(self) -> None:
        context = self.receiver.context
        self.board = own_board(context.domain, self.uuid)
        who = ffi.new("struct hf_identity *")
        grants = self._machine.grants()
        identity = grants[0].uuid if grants else self._proposal
        ffi.memmove(who.uuid, identity, 16)
        name = context.name.encode()[:31]
        ffi.memmove(who.name, name, len(name))
        who.role, who.bell, who.session_id = lib.HF_ROLE_RECEIVER, context.bells.index, self._session
        who.registration_id = grants[0].registration_id if grants else 0
        holder = ffi.new("struct hf_line_view *")
        status = lib.hf_board_claim(self.board.handle, context.domain.fd, who, holder)
        self.line = int(check(status, what=f"a line on the board of {self.source}"))

    def _high(self) -> int:
        """Highest number published so far, -1 for none."""
        known = [answer.high_sqn for answer in self._answers.values()]
        published = self.receiver.context.directory.next_sqn(self.uuid)
        return max([*known, published, 0]) - 1

    def _start(self, low: int, high: int) -> tuple[int, bool]:
        options = self.receiver.options
        maximum = options.retransmit_request_maximum
        if not self.found.stores:
            low = self.receiver.context.directory.start_sqn(self.uuid)
        if not options.use_late_join:
            return max(low, high + 1), False
        chosen = low
        function = options.ume_recovery_sequence_number_info_function
        if function is not None:
            session = max((answer.source_session_id for answer in self._answers.values()), default=0)
            flags = callbacks.RecoveryInfoFlags.SRC_SID if session else callbacks.RecoveryInfoFlags(0)
            info = callbacks.RecoverySequenceNumberInfo(
                flags, low, limited_low(low, high, maximum), high, self.source, self.client_data, session
            )
            function(info)
            chosen = int(info.low_sequence_number)
        start = start_number(low, high, maximum, chosen)
        return start.sequence_number, start.limited

    # The receiving thread -------------------------------------------------------------------------------------------------

    def _lost(self, first: int, last: int) -> None:
        assert self.window is not None
        self.window.lost(first, last)
        if last - first + 1 > self.receiver.burst:
            self.receiver.tell(events.UnrecoverableLossBurst(self.topic, self.source, last))
        else:
            for number in range(first, last + 1):
                self.receiver.tell(events.UnrecoverableLoss(self.topic, self.source, number))

    def _ended(self) -> None:
        self.receiver.tell(events.EndOfStream(self.topic, self.source))

    def stir(self) -> None:
        """A message was delivered while the context's thread dozed (receiving thread)."""
        self.dozing = False
        self.receiver.context.wake()

    # Acks -----------------------------------------------------------------------------------------------------------------

    def acknowledge(self, number: int | None = None) -> None:
        """Stores the ack: everything below ``number``, or what the window allows."""
        if self.window is None or self.board is None or self.feed is None:
            return
        lib.hf_board_rebase(self.board.handle, self.line, *self.feed.begun)
        ack = self.window.advance() if number is None else number
        if ack is not None:
            bells = self.receiver.context.bells
            lib.hf_board_ack(self.board.handle, bells.handle, self.line, ack, max(ack, self.feed.next))

    def report(self, now_ns: int) -> None:
        """Counters and heartbeat on the line, for stat."""
        if self.board is None or self.feed is None:
            return
        line = lib.hf_board_line_at(self.board.handle, self.line)
        line.heartbeat_ns = now_ns
        line.delivered, line.redelivered, line.lapped = self.delivered, self.redelivered, self.feed.lapped

    def lag(self) -> int:
        """Messages published and not delivered yet."""
        if self.feed is None:
            return 0
        return max(0, self.receiver.context.directory.next_sqn(self.uuid) - self.feed.next)

    # The end --------------------------------------------------------------------------------------------------------------

    def leave_requests(self) -> list[tuple[StoreLink, wire.Leave]]:
        """What to tell the stores at a clean close."""
        found = []
        for index, link in enumerate(self._links):
            answer = self._answers.get(index)
            if answer is not None and link.up:
                found.append((link, wire.Leave(link.next_id(), "receiver", self.uuid, answer.uuid)))
        return found

    def close(self) -> None:
        """Frees the line; its ack stays readable."""
        if self._left:
            return
        self._left = True
        for link in self._links:
            if self in link.listeners:
                link.listeners.remove(self)
        if self.feed is not None:
            self.feed.close()
        if self.board is not None:
            if self.line >= 0:
                lib.hf_board_release(self.board.handle, self.line)
            self.board = None
