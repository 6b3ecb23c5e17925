"""A receiver's slow side: finds the sources of its topic, registers with their stores, acknowledges on a timer.

How messages reach the program (calls, iterators, batches, callbacks) is the binding's; this class is what the context's thread
turns. Delivery order between several sources is round-robin.
"""

from __future__ import annotations

import contextlib
import re
import threading
from typing import TYPE_CHECKING, Any

from . import kernels, wire
from .core import lib
from .errors import ConfigError, RegistrationError
from .events import info as callbacks
from .inbound import Found, Inbound
from .outbound import refusal_error
from .waiting import STRATEGIES

if TYPE_CHECKING:
    from collections.abc import Callable

    from .context import Context
    from .link import StoreLink
    from .options import Options

__all__ = ["Receiver"]

FOR_EVER_NS = 2**62
WARM_AFTER = 4096
"""Messages after which the compiled kernels are worth loading."""


class Receiver:
    """See the module. Subclassed by the binding, which implements :meth:`dispatch` and :meth:`wants_messages`."""

    def __init__(
        self, context: Context, topic: str | None, pattern: str | None, options: Options,
        on_event: Callable[[Any], object] | None,
    ) -> None:  # fmt: skip
        if (topic is None) == (pattern is None):
            raise ConfigError("a receiver has a topic or a pattern, not both", hint="ctx.receiver('quotes')")
        self.context = context
        self.topic = topic
        self.pattern = pattern
        self.options = options
        self.on_event = on_event
        self.burst = 1024
        self.strategy = STRATEGIES[options.wait_strategy]
        self.inbounds: tuple[Inbound, ...] = ()
        """Registered sources; replaced as a whole, so that a receiving thread may iterate over what it took."""
        self._pattern = _compile(pattern) if pattern is not None else None
        self._all: dict[bytes, Inbound] = {}
        self._asked: dict[StoreLink, int] = {}
        self._events: list[object] = []
        self._events_lock = threading.Lock()
        self._failure: Exception | None = None
        self._next_ack_ns = 0
        self.closed = False
        """close() was called."""

    @property
    def name(self) -> str:
        """Topic or pattern."""
        return self.topic if self.topic is not None else f"/{self.pattern}/"

    def matches(self, topic: str) -> bool:
        """The receiver wants this topic."""
        return topic == self.topic if self._pattern is None else self._pattern.fullmatch(topic) is not None

    # The binding's ----------------------------------------------------------------------------------------------------------

    def dispatch(self) -> int:
        """Delivers messages on the context's thread (callback form). Returns how many."""
        return 0

    def wants_messages(self) -> bool:
        """The context's thread must wake when a message comes: callback form, or somebody awaits."""
        return False

    def not_receiving(self) -> contextlib.AbstractContextManager[object]:
        """``with`` it, no other thread is inside a feed. It ends soon: a receive looks around every 50 ms."""
        return contextlib.nullcontext()

    def wake(self) -> None:
        """Something happened that a waiting receiver should look at."""

    # The context's thread -----------------------------------------------------------------------------------------------------

    def turn(self, now_ns: int) -> int:
        """Discovery, timers, acks, events, callbacks. Returns the number of things done."""
        if self.closed:
            return 0
        self._discover()
        for inbound in list(self._all.values()):
            inbound.tick(now_ns)
        if now_ns >= self._next_ack_ns:
            self._next_ack_ns = now_ns + self.context.options.ume_ack_batching_interval * 1_000_000
            self.acknowledge(now_ns)
        return self.dispatch() + self._deliver_events()

    def deadline(self) -> int:
        """When the next turn is due at the latest. Without anything to acknowledge there is none: the next delivery stirs."""
        for inbound in self.inbounds:
            inbound.dozing = True  # first, so that a delivery after the look at the window stirs
            inbound.dozing = inbound.window is not None and inbound.window.settled
        return FOR_EVER_NS if all(inbound.dozing for inbound in self.inbounds) else self._next_ack_ns

    def acknowledge(self, now_ns: int) -> None:
        """One tick of ACK batching for every source."""
        delivered = 0
        for inbound in self.inbounds:
            if not self.options.ume_explicit_ack_only:
                inbound.acknowledge()
            inbound.report(now_ns)
            delivered += inbound.delivered
        if delivered >= WARM_AFTER and not kernels.ready():
            kernels.warm()

    def _discover(self) -> None:
        context = self.context
        for found in context.directory.sources():
            if self.matches(found.topic):
                self._found(found)
        for inbound in self.inbounds:
            self._look_for_newer(inbound)
        for link in context.store_links():
            if link.welcome is None:
                self._asked.pop(link, None)
            elif self._asked.get(link) != id(link.welcome):
                self._asked[link] = id(link.welcome)
                request = wire.ListSources(link.next_id(), self.topic or "")
                link.ask(request, self._listed)

    def _listed(self, answer: wire.Answer) -> None:
        if isinstance(answer, wire.Sources):
            for info in answer.sources:
                if self.matches(info.topic) and info.incarnation > 0:
                    stores = tuple(info.stores)
                    self._found(Found(info.uuid, info.topic, stores, info.registration_id, info.session_id))

    def _found(self, found: Found) -> None:
        known = self._all.get(found.uuid)
        if known is not None:
            return
        inbound = Inbound(self, found)
        self._all[found.uuid] = inbound
        notify = self.options.source_notification_function
        if notify is not None:
            try:
                info = callbacks.SourceNotificationInfo(found.topic, inbound.source)
                inbound.client_data = notify[0](info)
            except Exception as error:
                inbound.failure = error
                self.failed(inbound, error)
                return
        inbound.start()

    def _look_for_newer(self, inbound: Inbound) -> None:
        feed = inbound.feed
        if feed is None:
            return
        ring = feed.ring
        streams = self.context.directory.streams(inbound.uuid)
        if ring is not None and not feed.newer and (not streams or streams[-1][0] > ring.incarnation):
            feed.newer = True
            self.wake()

    def joined(self, inbound: Inbound) -> None:
        """Registration with a source is complete."""
        self.inbounds = (*self.inbounds, inbound)
        self.context.wake()
        self.wake()

    def failed(self, inbound: Inbound, error: Exception) -> None:
        """Registration with a source failed for good: a callback of the program raised, or there is no memory."""
        wrapped = error if isinstance(error, RegistrationError) else RegistrationError(f"{inbound.source}: {error}")
        wrapped.__cause__ = error
        self._failure = wrapped
        self.context.callback_failed(error)
        self.wake()

    def failure(self) -> Exception | None:
        """Why nothing can be received: a registration failed, or a store refuses. None when there is no such reason."""
        if self._failure is not None:
            return self._failure
        if self.inbounds:
            return None
        refusals = [refusal for inbound in self._all.values() if (refusal := inbound.refusal()) is not None]
        lasting = [refusal for refusal in refusals if refusal.code != "unknown_source"]
        return refusal_error(lasting[0]) if lasting else None

    # Sleeping -----------------------------------------------------------------------------------------------------------------

    def prepare_sleep(self) -> int:
        """Sets the lines' sleeping flags and looks again. How long to sleep at most, ns: 0 when something is there after all."""
        nap = FOR_EVER_NS
        for inbound in self.inbounds:
            if inbound.board is not None and inbound.feed is not None:
                nap = min(nap, lib.hf_line_sleeps(inbound.board.handle, inbound.line, 1))
                if inbound.feed.ready():
                    nap = 0
        return nap

    def awake(self) -> None:
        """Clears the flags."""
        for inbound in self.inbounds:
            if inbound.board is not None:
                lib.hf_line_sleeps(inbound.board.handle, inbound.line, 0)

    # Events -------------------------------------------------------------------------------------------------------------------

    def tell(self, event: object) -> None:
        """Queues an event for the context's thread."""
        if self.on_event is not None:
            with self._events_lock:
                self._events.append(event)

    def _deliver_events(self) -> int:
        with self._events_lock:
            queued, self._events = self._events, []
        for event in queued:
            assert self.on_event is not None
            self.context.callback(self.on_event, event)
        return len(queued)

    # The end ------------------------------------------------------------------------------------------------------------------

    def leave_requests(self) -> list[tuple[StoreLink, wire.Leave]]:
        """What to tell the stores at a clean close."""
        return [request for inbound in self._all.values() for request in inbound.leave_requests()]

    def close(self, timeout: float | None = None) -> None:
        """Flushes due acks, frees the RegIDs at once. Unreleased messages are not consumed. Idempotent.

        In a forked child it only ends the child's use of it.
        """
        if self.context.forked:
            self.closed = True
            return
        with self.context.turning():  # a callback that runs now ends first
            if self.closed:
                return
            self.closed = True
            self.acknowledge(0)
            self.context.leave(self, timeout)
        with self.not_receiving():
            for inbound in self._all.values():
                inbound.close()


def _compile(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"pattern {pattern!r}: {error}", hint="a Python regular expression") from error
