"""A context: one domain as a program sees it, with its sources and receivers and the thread that serves them.

The thread runs registration, timers, events and callbacks; messages of the pull form never pass it. It sleeps
on the process's bell, 500 ms at most. ``operational_mode`` ``sequential`` has no thread: the program calls
:meth:`Context.poll`.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from ..control.link import StoreLink
from ..control.waits import WaitFile
from ..errors import (
    CallableStoreError,
    ClosedError,
    Error,
    FencedError,
    ForkedHandleError,
    LimitReachedError,
    UsageError,
)
from ..events import receiver as receiver_events
from ..events import source as source_events
from ..memory.discovery import Discovery
from ..memory.domain import Domain, check_topic
from ..memory.mapping import Bells
from ..memory.nameless import BellsName
from ..native import unclosed
from ..native.core import lib
from ..native.event_loop import AsyncWith
from ..native.limits import named
from ..native.runtime import os, threading, time
from ..native.waiting import check_timeout
from ..options.resolve import Defaults, NoDefaults, Options, as_given, resolve
from ..printable import printable
from ..source.session import SourceSession
from ..source.smart_source import SmartSource, smart_options
from ..source.source import Source
from . import process_role
from .callback_errors import CallbackErrors
from .liveness_driver import LivenessDriver
from .turn_loop import TurnLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ..control import wire
    from ..control.host import Child
    from ..events.source import SourceEvent
    from ..memory.mapping import Mapping as Segment
    from ..receiver.receiver import Receiver

__all__ = ["Context", "ContextStats"]

_log = logging.getLogger("holdfast")

STORES_NS = 500_000_000
"""How often new stores are looked for."""


@dataclass(frozen=True, slots=True)
class ContextStats:
    """Counters of one context."""

    sources: int
    receivers: int
    callback_errors: int
    """Exceptions that callbacks of the program have raised."""
    stores: dict[str, bool]
    """Name of each store that was seen in the domain -> it is connected now."""


class Context(AsyncWith):
    """See bindings/README.md, "Send".

    Raises:
        ConfigError: a bad name or option.
        ForeignOwnerError: the domain's directory is not ours alone.
    """

    def __init__(
        self,
        domain: str | None = None,
        session_id: int | str | None = None,
        *,
        name: str | None = None,
        options: Mapping[str, object] | None = None,
        defaults: Defaults | None = None,
    ) -> None:
        self.made_at = unclosed.place()
        given = as_given("context", options)
        if session_id is not None:
            given["ume_session_id"] = session_id
        if name is not None:
            given["context_name"] = name
        self._defaults = defaults if defaults is not None else NoDefaults()
        self.options: Options = resolve("context", given, layers=self._defaults.layers("context"))
        self.session_id: int = self.options.ume_session_id
        self.domain = Domain(domain)
        self.name: str = self.options.context_name or f"context-{os.getpid()}"
        self.bells = Bells.of(self.domain)
        self._bells_name = BellsName(self.domain, self.bells)
        self.discovery = Discovery(self.domain)
        self._token = int(lib.hf_process_token())
        self.liveness = LivenessDriver(self)
        self.waits = WaitFile(self.domain)
        self._links: dict[str, StoreLink] = {}
        self._sources: list[SourceSession] = []
        self._receivers: list[Receiver] = []
        self._closing, self._closed = threading.Lock(), False
        self._stores_ns = 0
        self._limit = ""
        """The limit that the last turn met."""
        self.fence: FencedError | None = None
        """This process has lost its lock in the domain: nothing is sent, acknowledged or registered any
        more."""
        self._callbacks = CallbackErrors(self.name, self.options)
        threaded = self.options.operational_mode != "sequential"
        self._loop = TurnLoop(
            self._work, self._prepare_sleep, self._callbacks, self.bells, self.name, threaded=threaded
        )
        try:
            process_role.admit(self)
        except CallableStoreError:
            self.domain.close()
            raise
        try:
            self._loop.start()
        except Error:
            process_role.dismiss(self)
            self.domain.close()
            raise

    # Making things ------------------------------------------------------------------------------------------

    def source(
        self,
        topic: str,
        *,
        options: Mapping[str, object] | None = None,
        on_event: Callable[[SourceEvent], object] | None = None,
    ) -> Source:
        """A source on ``topic``; returns at once and registers in the background.

        Raises:
            ConfigError: a bad topic or option.
        """
        self.check_usable()
        check_topic(topic)
        session = SourceSession(self, topic, self.options_for("source", options, topic), on_event)
        source = Source(session)
        self._add_source(session)
        return source

    def smart_source(
        self,
        topic: str,
        *,
        options: Mapping[str, object] | None = None,
        on_event: Callable[[SourceEvent], object] | None = None,
    ) -> SmartSource:
        """A source on ``topic`` with fixed memory, whose messages are written in place; see
        :class:`SmartSource`.

        Raises:
            ConfigError: a bad topic or option, or one that asks for what a smart source has not got.
        """
        self.check_usable()
        check_topic(topic)
        found = self.options_for("source", options, topic)
        settled = self.options_for("source", smart_options(topic, options or {}, found), topic)
        session = SourceSession(self, topic, settled, on_event)
        source = SmartSource(session)
        self._add_source(session)
        return source

    def _add_source(self, source: SourceSession) -> None:
        with self._loop.lock:
            self.check_usable()  # a close() that has begun closes what it finds, and nothing comes behind it
            _warn(source.options, source.topic)
            self._sources.append(source)
            source.start(time.monotonic_ns())
        self.wake()

    def options_for(
        self, scope: str, given: Mapping[str, object] | None, name: str | None, *, wildcard: bool = False
    ) -> Options:
        """Options that a source or receiver of topic (or pattern) ``name`` would have. Raises ConfigError."""
        layers = self._defaults.layers(scope, name, wildcard=wildcard)
        return resolve(scope, as_given(scope, given), self.options, layers)

    def add_receiver(self, receiver: Receiver) -> None:
        """Takes a receiver in (the binding's ``receiver`` makes it)."""
        self.check_usable()  # before the lock: in a forked child nobody would ever let it go
        if receiver.topic is not None:
            check_topic(receiver.topic)
        with self._loop.lock:
            self.check_usable()  # as in _add_source
            _warn(receiver.options, receiver.name)
            self._receivers.append(receiver)
        self.wake()

    def joined(self, source: bytes, board: Segment, session_id: int) -> None:
        """A receiver has joined ``source``: the context shows itself on its board, if it is to."""
        self.liveness.joined(source, board, session_id)

    def link(self, store: str) -> StoreLink:
        """The one connection of this context to a store."""
        link = self._links.get(store)
        if link is None:
            link = self._links[store] = StoreLink(self.domain, store, self.bells.index)
        return link

    def store_links(self) -> Iterable[StoreLink]:
        """Connections to every store that was ever seen in the domain: receivers ask them for sources without
        a stream."""
        return list(self._links.values())

    # The thread ---------------------------------------------------------------------------------------------

    def poll(self, timeout: float | None = 0) -> int:
        """Does the context's work on the caller's thread: returns after the first turn that found some, or
        the timeout.

        Only with ``operational_mode`` ``sequential``. Raises what a callback raised if ``callback_errors`` is
        ``raise``.
        """
        if not self.sequential:
            raise UsageError("poll() of a context that has a thread", hint='options={"operational_mode": "sequential"}')
        self.check_usable()
        return self._loop.poll(timeout)

    def wait(self, condition: threading.Condition, timeout: float) -> None:
        """Waits for ``condition``; in a sequential context by doing the work that makes it true."""
        if self.sequential:
            self.poll(min(timeout, 0.005))
            return
        with condition:
            condition.wait(timeout)

    @property
    def in_turn(self) -> bool:
        """This thread does the context's work now: the caller is a callback, and nothing else of it goes on
        meanwhile."""
        return self._loop.in_turn

    def _work(self) -> int:
        try:
            work = self._turn()
        except (OSError, MemoryError, LimitReachedError) as error:
            limit = named(error)
            if not isinstance(limit, LimitReachedError):
                raise
            self._limited(limit)
            return 0
        self._limit = ""
        return work

    def _limited(self, limit: LimitReachedError) -> None:
        """What could not be done is tried again at the next turn; told once, until a turn comes through."""
        if self._limit == limit.limit:
            return
        self._limit = limit.limit
        text = f"{self.name} cannot look around: {limit}"
        _log.error("%s", text)
        for source in self._sources:
            source.tell_now(source_events.RegistrationError(text, ""))
        for receiver in self._receivers:
            receiver.tell(receiver_events.RegistrationError(receiver.name, "", text, ""))
            receiver.deliver_events()

    def _turn(self) -> int:
        now = time.monotonic_ns()
        self._look_at_lock(now)
        self._bells_name.look(now)
        if self.fence is not None:
            told = sum(source.deliver_events() for source in self._sources)
            return told + sum(receiver.deliver_events() for receiver in self._receivers)
        if self._receivers and now >= self._stores_ns:
            self._stores_ns = now + STORES_NS
            for store in self.domain.store_names():
                self.link(store)
        work = sum(link.turn(now) for link in list(self._links.values()))
        work += sum(source.turn(now) for source in self._sources)
        work += self.liveness.turn(now, self._sources)
        return work + sum(receiver.turn(now) for receiver in self._receivers)

    def _look_at_lock(self, now_ns: int) -> None:
        """Without the lock others may have drained what is in the rings, and let another claimant in. Locking
        again would not undo that: so it is over for this process, and everybody in it is told."""
        if self.fence is not None:
            return
        try:
            self.domain.look_at_lock(now_ns)
        except FencedError as error:
            self.fence = error
            _log.critical("%s: %s", self.name, error)
            for link in self._links.values():
                link.close()
            for source in self._sources:
                source.fenced(error)
            for receiver in self._receivers:
                receiver.fenced(error)

    def _prepare_sleep(self) -> tuple[int, Callable[[], None]]:
        listening = [receiver for receiver in self._receivers if receiver.wants_messages()]
        due = min([self.liveness.deadline(), *(receiver.deadline() for receiver in self._receivers)])
        due -= time.monotonic_ns()
        naps = [receiver.prepare_sleep() for receiver in listening]
        naps += [source.prepare_sleep() for source in self._sources]

        def awake() -> None:
            for receiver in listening:
                receiver.awake()

        return min([due, *naps]), awake

    def turning(self) -> contextlib.AbstractContextManager[object]:
        """Held while the context's work is done; ``with`` it, nothing of it runs meanwhile on another
        thread."""
        return self._loop.lock

    @property
    def sequential(self) -> bool:
        """There is no thread: whoever waits does the work."""
        return self._loop.sequential

    def sleep_on_bell(self, prepare: Callable[[], int], limit_ns: int) -> None:
        """Sleeps until this process's bell rings, at most ``limit_ns``, 50 ms, and what ``prepare``
        allows."""
        bells = self.bells
        seen = lib.hf_bell_read(bells.handle, bells.index)
        lib.hf_bell_wait(bells.handle, bells.index, seen, min(limit_ns, prepare()))

    def wake(self) -> None:
        """Makes the context's thread look around."""
        self.bells.ring()

    # Callbacks ----------------------------------------------------------------------------------------------

    def callback(self, function: Callable[[Any], object], argument: object, options: Options | None = None) -> None:
        """Calls the program for an object with these options (default: the context's)."""
        self._callbacks.call(function, argument, options)

    def callback_failed(self, error: BaseException, options: Options | None = None) -> None:
        """A callback of the program raised: counted, logged, and with ``callback_errors`` ``raise`` kept for
        whoever waits."""
        self._callbacks.failed(error, options)

    @property
    def callback_errors(self) -> int:
        """Exceptions that callbacks of the program have raised."""
        return self._callbacks.count

    @property
    def callback_raised(self) -> bool:
        """Something is kept for whoever waits."""
        return self._callbacks.kept

    def raise_callback_error(self) -> None:
        """Raises what a callback raised, once. Every call that waits asks: poll, wait_..., receive...,
        close."""
        self._callbacks.raise_kept()

    def child_closed(self) -> None:
        """As :meth:`raise_callback_error`, at the end of a child's close.

        Not while the context itself closes all of them, and not into a callback that closes one.
        """
        if not (self._loop.closing or self.forked) and not self._loop.is_own():
            self.raise_callback_error()

    # The end ------------------------------------------------------------------------------------------------

    def leave(self, child: Child, timeout: float | None = None, awaited: Iterable[StoreLink] = ()) -> None:
        """Takes a child out and tells its stores, so that its RegIDs are free at once. Answers are awaited, 1
        s at most; ``awaited``: also on these links."""
        with self._loop.lock:
            asked: dict[StoreLink, set[int] | None] = {}
            for link, request in list(child.leave_requests()):
                if link.ask(request, _ignore):
                    asked.setdefault(link, set()).add(request.id)  # type: ignore[union-attr]
            self._sources = [source for source in self._sources if source is not child]
            self._receivers = [receiver for receiver in self._receivers if receiver is not child]
            asked.update(dict.fromkeys(awaited))  # whatever is asked there
            deadline = time.monotonic_ns() + int((1.0 if timeout is None else min(timeout, 1.0)) * 1e9)
            try:
                for link, own in asked.items():
                    link.settle(deadline - time.monotonic_ns(), time.monotonic_ns, own)
            finally:  # also where somebody interrupts that
                left: object = child  # of a receiver, its registrations are the listeners
                for link in self._links.values():
                    link.listeners[:] = [listener for listener in link.listeners if listener is not left]

    def has(self, child: Child) -> bool:
        """It has not been taken out: its stores have not been told all."""
        return child in self._sources or child in self._receivers

    def close(self, timeout: float | None = None) -> None:
        """Closes its receivers and sources, then itself. Idempotent: beside one that is under way, it returns
        at once. After one that was interrupted it does the rest.

        Raises:
            What a callback raised, if ``callback_errors`` is ``raise`` and nobody has got it yet; everything
            is closed then.
        """
        check_timeout(timeout)
        self._close(timeout)
        self.raise_callback_error()

    def _close(self, timeout: float | None) -> None:
        if self.forked:
            self._loop.closing = True
            return
        with contextlib.ExitStack() as stack, self._loop.lock:  # a callback that runs now ends first
            if self._closed or not self._closing.acquire(blocking=False):
                return
            stack.callback(self._closing.release)
            process_role.dismiss(self)
            self._loop.closing = True
            stack.callback(self._let_go)  # all of it, also where somebody interrupts a part
            closes = [each.close for each in self._receivers] + [each.close for each in self._sources]
            for close in reversed(closes):
                stack.push(partial(_close_child, close, timeout))
            if self.fence is None:
                self.liveness.close()

    def _let_go(self) -> None:
        for close in [each.close for each in self._receivers] + [each.close for each in self._sources]:
            close(0)  # somebody has interrupted it
        self.wake()
        self._loop.join()
        for link in self._links.values():
            with contextlib.suppress(OSError):
                link.close()
        self._bells_name.close()
        self.domain.close()
        self._closed = True

    def stats(self) -> ContextStats:
        """A snapshot of counters."""
        stores = {name: link.up for name, link in sorted(self._links.copy().items())}
        return ContextStats(len(self._sources), len(self._receivers), self.callback_errors, stores)

    @property
    def forked(self) -> bool:
        """This is a child of the process that made it: nothing of it may be touched, nor its locks, sockets
        and mappings."""
        return bool(lib.hf_process_forked(self._token))

    def check_usable(self) -> None:
        """Raises ForkedHandleError in a forked child, ClosedError after close, FencedError when the process
        has lost its lock."""
        if self.forked:
            raise ForkedHandleError("context")
        if self._loop.closing:
            raise ClosedError("context")
        self.check_fence()

    def check_fence(self) -> None:
        """Raises FencedError when this process has lost its lock in the domain."""
        if self.fence is not None:
            raise FencedError(self.fence.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._close(None)
        if kind is None:  # what ended the block goes before what a callback raised
            self.raise_callback_error()

    def __reduce__(self) -> tuple[object, ...]:
        raise UsageError("a context cannot be pickled", hint="make one in the other process")

    def __repr__(self) -> str:
        state = "closed" if self._loop.closing else f"sources={len(self._sources)} receivers={len(self._receivers)}"
        session = f" session_id={self.session_id:#x}" if self.session_id else ""
        return printable(f"<Context {self.name} domain={self.domain.name}{session} {state}>")


def _close_child(close: Callable[[float | None], None], timeout: float | None, interrupted: object, *_: object) -> None:
    """Whoever interrupts one of them waits for no store any more."""
    close(timeout if interrupted is None else 0)


def _ignore(_: wire.Answer) -> None:
    return


def _warn(options: Options, name: str) -> None:
    for warning in options.warnings:
        _log.warning("%s of %r: %s", options.scope, name, warning)
