"""A receiver's slow side: finds the sources of its topic, registers with their stores, acknowledges on a
timer.

How messages reach the program (calls, iterators, batches, callbacks) is the binding's; this class is what the
context's thread turns. Delivery order between several sources is round-robin.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

from ..control import wire
from ..control.deregistration import check_deregister
from ..control.refusals import refusal_error
from ..control.session_claim import SessionClaim
from ..errors import ClosedError, ConfigError, FencedError, RegistrationError
from ..events import info as callbacks
from ..events import receiver as events
from ..memory.discovery import Found
from ..native import kernels
from ..native.core import Gate, lib
from ..native.runtime import secrets, threading, time
from ..native.waiting import STRATEGIES
from ..rules.quorum import Groups
from .ack_window import AckWindow, ExplicitWindow
from .delivery_controller import DeliveryController
from .finished import Finished
from .leaving import Leaving, unregistered
from .matcher import matcher
from .start import published_now

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..control.host import Host
    from ..control.link import StoreLink
    from ..options.resolve import Options
    from ..rules.chosen_start import ChosenStart
    from .ack_window import Window

__all__ = ["Receiver"]

FOR_EVER_NS = 2**62
FIRST_LOOK_NS = 500_000_000
"""After so long a receiver that has found no source says so."""
LIST_AGAIN_NS = 1_000_000_000
"""How long after a source has appeared the stores are asked again: it may be gone before anybody has seen its
ring."""
ASK_AGAIN_NS = 5_000_000_000
"""How often stores are asked which of their sources have changed."""
LOGS_NS = 50_000_000
"""How long to sleep at most while no ring serves: a log that goes on rings no bell."""
WARM_AFTER = 4096
"""Messages after which the compiled kernels are worth loading."""


class Past:
    """Counters of sources that a receiver has let go."""

    delivered = redelivered = lapped = 0

    def add(self, controller: DeliveryController) -> None:
        """One is let go."""
        self.delivered += controller.delivered
        self.redelivered += controller.redelivered
        self.lapped += controller.feed.lapped if controller.feed is not None else 0


class Receiver(Gate):
    """See the module. Subclassed by the binding, which implements :meth:`dispatch` and
    :meth:`wants_messages`."""

    def __init__(
        self, context: Host, topic: str | None, pattern: str | None, options: Options,
        on_event: Callable[[Any], object] | None, chosen: ChosenStart | None = None,
    ) -> None:  # fmt: skip
        if (topic is None) == (pattern is None):
            raise ConfigError("a receiver has a topic or a pattern, not both", hint="ctx.receiver('quotes')")
        self.context = context
        self.topic = topic
        self.pattern = pattern
        self.options = options
        self.on_event = on_event
        self.strategy = STRATEGIES[options.wait_strategy]
        self.controllers: tuple[DeliveryController, ...] = ()
        """Registered sources; replaced as a whole, so that a receiving thread may iterate over what it
        took."""
        self.matches = matcher(topic, pattern, options.pattern_type)
        """Tells whether the receiver wants a topic."""
        self.chosen = chosen
        """Where the program wants it to start."""
        self.made = published_now(context.discovery, self.matches) if chosen is not None else None
        self._all: dict[bytes, DeliveryController] = {}
        self.past = Past()
        self._session_id = int(options.ume_session_id or context.session_id)
        self._uuid = secrets.token_bytes(16)
        claimed = self._session_id if options.ume_use_store else 0
        self._claim = SessionClaim(context.domain, context.waits, claimed, self.name, self.tell)
        self.finished = Finished(self, self._session_id)
        self._leaving = Leaving(self.finished)
        self.ringed: set[bytes] = set()
        """Sources that had a ring at the last look."""
        self._asked: dict[StoreLink, int] = {}
        """Store -> id of the welcome under which it was asked for sources."""
        self._marks: dict[StoreLink, tuple[object, int]] = {}
        """Store -> what it has told so far, and in which life."""
        self._ask_again_ns = 0
        self._identities = 0
        """Discovery.seen at the last look."""
        self._list_again_ns = FOR_EVER_NS
        self._unanswered: set[StoreLink] = set()
        self._first_look_ns: int | None = time.monotonic_ns() + FIRST_LOOK_NS
        """When NoSource is due; None once it is decided."""
        self._events: list[object] = []
        self._events_lock = threading.Lock()
        self._logs_ns = 0
        """When those who await messages are sent to the logs again."""
        self._failure: Exception | None = None
        self._next_ack_ns = 0
        self._deregistering = False
        self.closed = False
        """close() was called."""

    @property
    def name(self) -> str:
        """Topic or pattern."""
        return self.topic if self.topic is not None else f"/{self.pattern}/"

    # The binding's ------------------------------------------------------------------------------------------

    def dispatch(self) -> int:
        """Delivers messages on the context's thread (callback form). Returns how many."""
        return 0

    def wants_messages(self) -> bool:
        """The context's thread must wake when a message comes: callback form, or somebody awaits."""
        return False

    def new_window(self, start: int, *, acks: bool = True) -> Window:
        """What remembers the deliveries from one more source, from number ``start`` on. ``acks``: some store
        is to hear of them."""
        return AckWindow(start) if acks and not self.options.ume_explicit_ack_only else ExplicitWindow(start)

    def new_controller(self, found: Found) -> DeliveryController:
        """What registers with one more source, and reads it."""
        return DeliveryController(self, found)

    def not_receiving(self) -> contextlib.AbstractContextManager[object]:
        """``with`` it, no other thread is inside a feed. It ends soon: a receive looks around every 100
        ms."""
        return contextlib.nullcontext()

    def wake(self) -> None:
        """Something happened that a waiting receiver should look at."""

    # The context's thread -----------------------------------------------------------------------------------

    def turn(self, now_ns: int) -> int:
        """Discovery, timers, acks, events, callbacks. Returns the number of things done."""
        if self.closed:
            return 0
        self._discover(now_ns)
        for controller in list(self._all.values()):
            controller.tick(now_ns)
            if controller.gone():
                self.let_go(controller)
        if self.closed:  # by one of its callbacks
            return 0
        self.finished.turn(now_ns, self._all_said)
        self._leaving.turn(list(self._all.values()), now_ns)
        self._first_look(now_ns)
        if now_ns >= self._next_ack_ns:
            self._next_ack_ns = now_ns + self.context.options.ume_ack_batching_interval * 1_000_000
            self.acknowledge(now_ns)
        return self.dispatch() + self.deliver_events()  # dispatch tells what comes before a message, too

    def deadline(self) -> int:
        """When the next turn is due at the latest. Without anything to acknowledge there is none: the next
        delivery stirs."""
        acking = [controller for controller in self.controllers if controller.registers]
        for controller in acking:
            controller.dozing = True  # first, so that a delivery after the look at the window stirs
            controller.dozing = controller.window is not None and controller.window.settled
        return FOR_EVER_NS if all(controller.dozing for controller in acking) else self._next_ack_ns

    def acknowledge(self, now_ns: int) -> None:
        """One tick of ACK batching for every source."""
        delivered = 0
        for controller in self.controllers:
            controller.acknowledge()
            controller.report(now_ns)
            delivered += controller.delivered
        if delivered >= WARM_AFTER and not kernels.ready():
            kernels.warm()

    def _discover(self, now_ns: int) -> None:
        context = self.context
        if self._claim.turn(now_ns):  # what stores have told was passed over
            self._asked.clear()
            self._marks = {link: (welcome, 0) for link, (welcome, _) in self._marks.items()}
        for controller in unregistered(self._all.values(), self.controllers) if self._claim.denied else ():
            self.let_go(controller)
        ringed = [found for found in context.discovery.sources() if self.matches(found.topic)]
        self.ringed = {found.uuid for found in ringed}
        for found in ringed:
            self._found(found)
        # Not while a question is due: where sources come all the time, it would never be asked.
        if context.discovery.seen != self._identities and self._list_again_ns == FOR_EVER_NS:
            self._identities = context.discovery.seen
            self._list_again_ns = now_ns + LIST_AGAIN_NS
        if now_ns >= self._list_again_ns:
            self._list_again_ns = FOR_EVER_NS
            self._asked.clear()
        if now_ns >= self._ask_again_ns:  # a life that nobody has seen may be over
            self._ask_again_ns = now_ns + ASK_AGAIN_NS
            for link, (welcome, _) in self._marks.items():
                if (
                    link not in self._unanswered or welcome is not link.welcome
                ):  # a store that stands still is asked once
                    self._asked.pop(link, None)
        for link in context.store_links():
            if link.welcome is None:
                self._asked.pop(link, None)
                if self._marks.pop(link, None) is not None:
                    self.finished.unlinked(link.name)
                self._unanswered.discard(link)
            elif self._asked.get(link) != id(link.welcome) and self.options.ume_use_store:
                self._asked[link] = id(link.welcome)
                self._unanswered.add(link)
                self._list(link)

    def _list(self, link: StoreLink, after: bytes = b"", since: int | None = None, mark: int = 0) -> None:
        if self.closed:
            return
        if since is None:
            welcome, told = self._marks.get(link, (None, 0))
            since = told if welcome is link.welcome else 0
        name = self._uuid if self._session_id else b""
        request = wire.ListSources(link.next_id(), self.topic or "", after, b"", self._session_id, since, name)
        link.ask(request, functools.partial(self._listed, link, since, mark))

    def _listed(self, link: StoreLink, since: int, mark: int, answer: wire.Answer) -> None:
        """``since``: what was asked for; ``mark``: of the first page, 0 for none."""
        if self.closed:  # it has said so: who asks for the next page is here
            return
        sources = answer.sources if isinstance(answer, wire.Sources) else []
        mark = mark or (answer.mark if isinstance(answer, wire.Sources) else 0)
        if isinstance(answer, wire.Sources) and answer.more:
            self._list(link, sources[-1].uuid, since, mark)
        else:
            self._unanswered.discard(link)
            if isinstance(answer, wire.Sources):
                self._marks[link] = link.welcome, mark
        for info in sources:
            # A store that has a log, and lost the state that named the others, names none: not known is not
            # "without stores".
            usable = info.incarnation > 0 and info.stores and self.matches(info.topic)
            if usable and self.has_session(info.over is not None):
                stores = tuple(info.stores)
                found = Found(
                    info.uuid, info.topic, stores, info.session_id, info.incarnation, info.start_sqn,
                    late_join=info.late_join, groups=Groups.told(info.sizes, info.groups) if info.groups else None,
                )  # fmt: skip
                known = self._all.get(info.uuid)
                if self.finished.takes(link.name, found, info, known):
                    continue
                if known is not None:
                    known.found_again(found)
                self._found(found)

    def _found(self, found: Found) -> None:
        wanted = not (self.closed or self._deregistering or (found.stores and self._claim.denied))
        if wanted and found.uuid not in self._all:
            self.take(self.new_controller(found))

    def has_session(self, claims: bool = True) -> bool:
        """No other receiver of its session is known to be there; it ``claims`` that. A closed one has
        none."""
        return not self.closed and (self._claim.hold() if claims else not self._claim.denied)

    def _all_said(self) -> bool:
        """Every store of the domain is linked, and has told of its sources."""
        return not self._unanswered and all(link.welcome is not None for link in self.context.store_links())

    def knows(self, uuid: bytes) -> bool:
        """It is registered with this source, or about to be, or reads it."""
        return uuid in self._all

    def resumed(self, uuid: bytes) -> tuple[int, int] | None:
        """Under which incarnation, and from which number on, a source is to be gone on with that was left."""
        left = self.finished.left.get(uuid)
        return (left.begun[0], left.next) if left is not None else None

    def take(self, controller: DeliveryController) -> None:
        """One more source: the program is told, and it begins."""
        if self.closed:
            return
        self._all[controller.uuid] = controller
        notify = self.options.source_notification_function
        if notify is not None:
            try:
                info = callbacks.SourceNotificationInfo(controller.topic, controller.source)
                controller.client_data = notify[0](info)
                controller.noticed = True
            except Exception as error:
                controller.failure = error
                self.failed(controller.topic, controller.source, error)
                return
        if self.closed:  # by that callback
            self._notify_deleted(controller)
        else:
            controller.start()

    def _first_look(self, now_ns: int) -> None:
        """NoSource, once: neither shared memory nor any store that can be reached knew a source."""
        any_source, early = self._all or self.finished, now_ns < (self._first_look_ns or 0) or self._unanswered
        if self._first_look_ns is None or self._claim.denied or (not any_source and early):
            return
        self._first_look_ns = None
        if not any_source:
            self.tell(events.NoSource(self.name))

    def let_go(self, controller: DeliveryController) -> None:
        """The source was deregistered, or is over. Who receives from it now does so from what is left."""
        if self._all.pop(controller.uuid, None) is None:  # by a turn inside a callback
            return
        self.past.add(controller)
        self.controllers = tuple(other for other in self.controllers if other is not controller)
        controller.close(feed_is_idle=False)
        self._notify_deleted(controller)

    def _notify_deleted(self, controller: DeliveryController) -> None:
        if controller.noticed:
            controller.noticed = False
            info = callbacks.SourceNotificationInfo(controller.topic, controller.source, controller.client_data)
            self.context.callback(self.options.source_notification_function[1], info, self.options)

    def joined(self, uuid: bytes) -> None:
        """Registration with this source is complete."""
        self.controllers = (*self.controllers, self._all[uuid])
        self.context.wake()
        self.wake()

    def failed(self, topic: str, source: str, error: Exception) -> None:
        """Registration with a source failed for good: a callback of the program raised, or there is no
        memory."""
        reason = str(error) or type(error).__name__  # an assertion may say nothing
        wrapped = error if isinstance(error, RegistrationError) else RegistrationError(f"{source}: {reason}")
        wrapped.__cause__ = error
        self._failure = wrapped
        self.tell(events.RegistrationError(topic, source, str(wrapped), ""))
        self.context.callback_failed(error, self.options)
        self.wake()

    def fenced(self, error: FencedError) -> None:
        """The process has lost its lock: nothing is delivered or acknowledged any more, for somebody else may
        do both by now."""
        for controller in self._all.values():
            self.tell(events.RegistrationError(controller.topic, controller.source, str(error), ""))
            if controller.live is not None:
                controller.live.newer = True  # whoever waits at its ring looks around
        self.controllers = ()
        self._claim.close()
        self.wake()

    def failure(self, since_ns: int) -> Exception | None:
        """Why nothing can be received: a registration failed, or a store refuses. None when there is no such
        reason.

        ``since_ns``: CLOCK_MONOTONIC; what a store answered to an older question is not believed.
        """
        if self._failure is not None:
            return self._failure
        if self.controllers:
            return None
        refusals = [
            said for controller in list(self._all.values()) if (said := controller.refusal(since_ns)) is not None
        ]
        lasting = [refusal for refusal in refusals if refusal.code != "unknown_source"]
        idle = not (self._all or self.finished.is_reading)
        return refusal_error(lasting[0]) if lasting else self._claim.refusal(since_ns) if idle else None

    def worth_a_look(self) -> bool:
        """A thread that awaits messages should look: one is there, or no ring serves, and logs were not
        looked at for a while."""
        feeds = [controller.feed for controller in self.controllers if controller.feed is not None]
        now = time.monotonic_ns()
        if now >= self._logs_ns and any(feed.ring is None or feed.ring.over for feed in feeds):
            self._logs_ns = now + LOGS_NS
            return True
        return any(feed.ready() for feed in feeds)

    # Sleeping -----------------------------------------------------------------------------------------------

    def prepare_sleep(self) -> int:
        """Sets the lines' sleeping flags and looks again. How long to sleep at most, ns: 0 when something is
        there after all."""
        nap = FOR_EVER_NS
        for controller in self.controllers:
            board = controller.board  # a source that is let go has none any more
            if board is not None and controller.feed is not None:
                nap = min(nap, lib.hf_line_sleeps(board.handle, controller.line, 1))
                ring = controller.feed.ring
                if ring is None or ring.over:
                    nap = min(nap, LOGS_NS)
                if controller.feed.ready():
                    nap = 0
        return nap

    def awake(self) -> None:
        """Clears the flags."""
        for controller in self.controllers:
            board = controller.board
            if board is not None:
                lib.hf_line_sleeps(board.handle, controller.line, 0)

    # Events -------------------------------------------------------------------------------------------------

    def tell(self, event: object) -> None:
        """Queues an event for the context's thread."""
        if self.on_event is not None:
            with self._events_lock:
                self._events.append(event)

    def deliver_events(self) -> int:
        """Tells what is queued; the context's thread."""
        with self._events_lock:
            queued, self._events = self._events, []
        for event in queued:
            assert self.on_event is not None
            self.context.callback(self.on_event, event, self.options)
        return len(queued)

    # The end ------------------------------------------------------------------------------------------------

    def deregister(self) -> None:
        """The stores of every source forget this receiver: its acknowledgements (docs/semantics.md F.7).

        Returns at once. ``DeregistrationSuccess`` tells of each store, ``DeregistrationComplete`` of each
        source whose stores have all answered; a store that is down is asked when it is back, as long as this
        object lives. Messages of the sources that it has go on coming, but are not acknowledged, and it
        registers with no other. To register again, make a new receiver.

        Raises:
            UsageError: it is not registered with any store, or it was called before.
        """
        self.context.check_usable()
        with self.context.turning():
            if self.closed:
                raise ClosedError(f"receiver of {self.name}")
            controllers = [each for each in self._all.values() if each.registers]
            answers = [answer for each in controllers for answer in each.registrar.answers()]
            check_deregister(self._deregistering, [*answers, *self.finished.read()])
            self._claim.close()
            self.acknowledge(0)
            self._deregistering = True
            for controller in controllers:
                controller.registrar.deregister()
            self.finished.deregister()
        self.context.wake()

    def leave_requests(self) -> list[tuple[StoreLink, wire.Leave]]:
        """What to tell the stores at a clean close."""
        requests = [request for controller in self._all.values() for request in controller.leave_requests()]
        told = self.context.store_links() if self._session_id else ()
        return requests + [(link, wire.Leave(link.next_id(), "receiver", self._uuid, self._uuid)) for link in told]

    def close(self, timeout: float | None = None) -> None:
        """Flushes due acks, frees the RegIDs at once. Unreleased messages are not consumed. Idempotent.

        In a forked child it only ends the child's use of it.
        """
        if self.context.forked:
            self.closed = True
            return
        with contextlib.ExitStack() as stack, self.context.turning():  # a callback that runs now ends first
            if self.closed and not self.context.has(self):
                return
            self.closed = True
            stack.callback(self._let_go_all)  # also where somebody interrupts the rest
            self._claim.close()  # first: who is let in by a store when that has heard of this is not refused here
            self.acknowledge(0)
            self.context.leave(self, timeout)
            self.deliver_events()  # what has happened is told; a loss is seen by a receiving thread that may close at once

    def _let_go_all(self) -> None:
        with contextlib.ExitStack() as stack:  # all of them, also where somebody interrupts the wait
            for controller in self._all.values():
                stack.callback(controller.close)
            with self.not_receiving():
                stack.close()
        with self.context.turning():
            for controller in self._all.values():
                self._notify_deleted(controller)
