"""A source: writes each message once, into its stream, and learns from positions what became of it.

Sending is publisher.py, registration session.py, and what becomes of messages settlement.py; this is what a
program asks.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any, ClassVar, Self

from ..control.refusals import refusal_error
from ..errors import ClosedError, Error, RegistrationTimeout, StabilityTimeout, UsageError, WouldBlockError
from ..native import unclosed
from ..native.core import CData, ffi, lib
from ..native.event_loop import AsyncWith, Pace
from ..native.runtime import time
from ..native.waiting import PLAIN, check_timeout, deadline_of, left_of
from ..printable import printable
from ..rules.flight import InFlight
from ..rules.registration import Refusal
from ..shown import Shown
from .publisher import Claim, Publisher
from .settlement import SILENT
from .source_stats import STATES, SourceStats, StoreStats

if TYPE_CHECKING:
    from collections.abc import Callable

    from .session import SourceSession

__all__ = ["Claim", "InFlight", "Source", "SourceStats", "StoreStats"]

_send: Callable[[CData, bytes, int], int] = lib.hf_source_send
_soon: Callable[[CData, CData, int, int], int] = lib.hf_tally_soon
"""By global names: an attribute that is called is looked up as a method first, which costs half as much as
the call."""


class Source(Shown, AsyncWith):
    """Made by ``Context.source``; registers in the background. See bindings/README.md, "Send".

    >>> import holdfast as hf
    >>> with hf.Context() as ctx, ctx.source("quotes") as src:
    ...     src.wait_registered(timeout=10)
    ...     first = src.send(b"101.5", timeout=10)
    ...     last = src.send_batch([b"101.6", b"101.7"], timeout=10)
    ...     print(first, last, src.send_stable(b"101.8", timeout=10))
    0 (1, 2) 3

    With stores (``ctx.source("quotes", options={"ume_store_name": ["a", "b", "c"]})``) a message is stable
    when a quorum of them has it. ``await src.send_async(data)`` and ``await src.stable(number)`` wait without
    a thread.
    """

    _shown: ClassVar[tuple[str, ...]] = (
        "claim", "close", "deregister", "in_flight", "mark_stable", "next_sequence_number", "registration_ids", "send",
        "send_async", "send_batch", "send_stable", "stable", "stable_sequence_number", "stats", "topic",
        "wait_registered", "wait_stable",
    )  # fmt: skip

    def __init__(self, session: SourceSession) -> None:
        self._made_at = unclosed.place()
        self.context, self.topic, self.options = session.context, session.topic, session.options
        self._session = session
        self._publisher = Publisher(session)
        self._pace = Pace()
        self._one_fragment = int(self.options.fragment_size)

    def __del__(self) -> None:
        session = getattr(self, "_session", None)  # its making may have failed
        if session is None or session.closed or session.deregistration is not None:
            return
        if not self.context.forked and not sys.is_finalizing():
            text = "it stays registered until its context is closed"
            unclosed.tell(f"source {printable(self.topic)}", self._made_at, text)

    # Sending ------------------------------------------------------------------------------------------------

    def send(
        self,
        data: Any,
        *,
        client_data: object = None,
        sequence_info: str | None = None,
        timeout: float | None = None,
    ) -> int:
        """Publishes one message and returns the sequence number of its last fragment.

        Args:
            data: bytes-like; or a list or tuple of such, which are one message, joined.
            client_data: comes back with every event of every fragment.
            sequence_info: ``"always"`` or ``"fragmented"``: a SequenceNumberInfo event inside this call.
            timeout: seconds to wait for room; None for ever, 0 not at all (UM's NONBLOCK).

        Raises:
            MessageTooLargeError: more than a quarter of the ring or, where sends wait at the flight size,
                more than ume_flight_size_bytes. Checked first (docs/semantics.md D.7), then
            NotRegisteredError, QuorumLostError: it may not send now; nothing was published.
            FencedError: this process has lost its lock in the domain, and never sends there again.
            WouldBlockError: the wait is over; nothing was published and no number consumed. A Wakeup event
                follows.
        """
        direct = self._session.direct
        if (
            client_data is None
            and sequence_info is None
            and type(data) is bytes
            and direct is not None
            and (timeout is None or (timeout.__class__ in PLAIN and timeout >= 0))
        ):
            sqn = _send(direct, data, len(data))
            if sqn >= 0:
                return sqn
        return self._publisher.send(data, client_data, sequence_info, timeout)

    def send_batch(self, rows: Any, *, client_data: object = None, timeout: float | None = None) -> tuple[int, int]:
        """Publishes one message per row and returns the first and last sequence number.

        Args:
            rows: a list or tuple of bytes-like objects, each a message; an (n, width) uint8 array with
                contiguous rows; or a pyarrow Binary or LargeBinary array.
            client_data: as in :meth:`send`, for every message.
            timeout: seconds to wait for room, over the whole call.

        Raises:
            As :meth:`send`; the error has ``first_sequence_number`` and ``sent``, the rows that were
                published.
            UsageError: another shape or dtype, or no rows.
            TypeError, BufferError: something in the list is not bytes-like, or not contiguous.
        """
        return self._publisher.send_batch(rows, client_data, timeout)

    def claim(self, n: int, *, client_data: object = None, timeout: float | None = None) -> Claim:
        """A writable buffer of ``n`` bytes inside the stream, at most one fragment. See :class:`Claim`.

        It owns the source until it ends: a send in between raises UsageError.
        """
        return Claim(self._publisher, n, client_data, timeout)

    def check_size(self, size: int) -> None:
        """Raises MessageTooLargeError for a message of this many bytes that can never be sent."""
        self._publisher.check_size(size)

    # asyncio ------------------------------------------------------------------------------------------------

    async def send_async(
        self,
        data: Any,
        *,
        client_data: object = None,
        sequence_info: str | None = None,
        timeout: float | None = None,
    ) -> int:
        """As :meth:`send`, but a task waits for room, not its thread. Cancelled while it waits, it has
        published nothing.

        A task that finds room each time gives the event loop a turn after 1,024 messages, or 1 ms.
        """
        session, deadline = self._session, deadline_of(timeout)
        if self._pace.due():
            await self._pace.turn()
        began_ns = 0
        while True:
            moment = session.awaiting.moment(session)
            try:
                sqn = self._publisher.send(data, client_data, sequence_info, 0, awaits=True)
            except WouldBlockError:
                left = left_of(deadline)
                if left is not None and left <= 0:
                    raise
            else:
                if began_ns:
                    self._publisher.blocked_ns += time.monotonic_ns() - began_ns
                return sqn
            began_ns = began_ns or time.monotonic_ns()
            await session.awaiting.past(session, moment, left)
            self._pace.waited()
            self.context.raise_callback_error()

    async def stable(self, sqn: int | None = None, timeout: float | None = None) -> None:
        """As :meth:`wait_stable`, but a task waits, not its thread. It gives turns as :meth:`send_async`."""
        session, deadline = self._session, deadline_of(timeout)
        if self._pace.due():
            await self._pace.turn()
        self.context.raise_callback_error()
        target = self._sent(sqn)
        while True:
            moment, left = session.awaiting.moment(session), left_of(deadline)
            if self._is_stable(sqn, target, left):
                return
            await session.awaiting.past(session, moment, left)
            self._pace.waited()
            self.context.raise_callback_error()

    # Stability ----------------------------------------------------------------------------------------------

    @property
    def uuid(self) -> bytes:
        """Its identity, 16 bytes: settled when it is registered."""
        return self._session.machine.uuid

    @property
    def next_sequence_number(self) -> int:
        """Number that the next message's first fragment will carry."""
        return self._session.next_sequence_number

    @property
    def stable_sequence_number(self) -> int:
        """Highest stable number, -1 for none. Below it, all are stable but those that were reclaimed by force
        before."""
        session = self._session
        session.refresh()
        return (session.settlement.retention.stable_below if session.settlement else session.machine.start_sqn) - 1

    @property
    def in_flight(self) -> InFlight:
        """Messages (fragments) and payload bytes sent, and not yet stable and confirmed (docs/semantics.md
        D.6)."""
        session = self._session
        session.refresh()
        return session.settlement.in_flight()[0] if session.settlement else InFlight(0, 0)

    def mark_stable(self, sqn: int) -> None:
        """Calls one fragment stable, as if the stores had said so; nothing happens if they have
        (docs/semantics.md D.6).

        It leaves the flight in order: behind one that is not stable, it waits. The event is a MessageStable
        with flag USER.

        Raises:
            UsageError: a number that was not sent yet.
        """
        session = self._session
        self._sent(sqn)
        session.refresh()
        if session.settlement is not None:
            session.settlement.mark_stable(sqn)
            self.context.wake()

    @property
    def registration_ids(self) -> dict[str, int]:
        """Store name -> the RegID held there."""
        session = self._session
        return {
            session.names[i]: entry.grant.registration_id
            for i, entry in enumerate(session.machine.entries)
            if entry.grant is not None
        }

    def wait_stable(self, sqn: int | None = None, timeout: float | None = None) -> None:
        """Returns when number ``sqn`` (default: everything that was sent) is stable.

        Raises:
            StabilityTimeout: the time is over, or (at once) it was reclaimed by force, and no store has it.
            UsageError: a number that was not sent yet.
        """
        deadline = deadline_of(timeout)
        self.context.raise_callback_error()
        target = self._sent(sqn)
        self._wait_stable(sqn, target, deadline)

    def _sent(self, sqn: int | None) -> int:
        """This number, or the last one. Raises UsageError: it was not sent yet."""
        target = self.next_sequence_number - 1 if sqn is None else sqn
        if target >= self.next_sequence_number:
            raise UsageError(f"{target} was not sent yet: the next number is {self.next_sequence_number}")
        return target

    def _wait_stable(self, first: int | None, target: int, deadline: int | None) -> None:
        """Until all from ``first`` (None: everything) to ``target`` are stable."""
        if self._publisher.stable_soon(first, target, left_of(deadline)):
            return
        while True:
            moves, glance = self._publisher.moves(), self._publisher.glance()
            left = left_of(deadline)
            if self._is_stable(first, target, left):
                return
            self._publisher.wait_for_board(glance, moves, left)
            self.context.raise_callback_error()

    def _is_stable(self, first: int | None, target: int, left: float | None) -> bool:
        """As :meth:`_wait_stable` with ``left`` seconds left."""
        session = self._session
        session.refresh()
        if session.settlement is None:
            return True  # nothing was sent
        missing, reclaimed = session.settlement.missing(first, target)
        if missing is None:
            return True
        stable = session.settlement.retention.stable_below - 1
        if reclaimed:
            raise StabilityTimeout(missing, stable, reclaimed=True)
        self._publisher.check_not_deregistered()
        self.context.check_fence()
        if left is not None and left <= 0:
            raise StabilityTimeout(target, stable)
        if session.closed:
            raise ClosedError(f"source {self.topic}")
        return False

    def send_stable(self, data: Any, timeout: float | None = None) -> int:
        """Publishes one message as :meth:`send` does, returns when it is stable, and gives its number::

            number = src.send_stable(b"paid", timeout=1)  # enough stores have it

        Args:
            data: as in :meth:`send`.
            timeout: seconds, for room and for stability together; None for ever, 0: one look.

        Raises:
            As :meth:`send` and :meth:`wait_stable`. The error's ``sequence_number`` is the message's number
                if it was published: sent again, there would be two of it. None: nothing was published.
            StabilityTimeout: it was published, and the time is over (``wait_stable(error.sequence_number)``
                waits longer), or it was reclaimed by force.
        """
        session = self._session
        direct = session.direct
        if self.context.callback_raised:
            self._raise_unpublished()
        if (
            type(data) is bytes
            and direct is not None
            and len(data) <= self._one_fragment
            and (timeout is None or (timeout.__class__ in PLAIN and timeout >= 0))
        ):
            sqn = _send(direct, data, len(data))
            if sqn >= 0:
                settlement, board = session.settlement, session.board
                if settlement is not None and board is not None:
                    settlement.asked = True  # first: see Settlement._keep_answers
                    tally = settlement.tally
                    if tally is not None and _soon(tally, board.handle, sqn, sqn) == 1:
                        return sqn
                self._wait_published(sqn, sqn, deadline_of(timeout))
                return sqn
        deadline = deadline_of(timeout)
        first, sqn = self._publisher.send_fragments(data, None, None, timeout)
        self._wait_published(first, sqn, deadline)
        return sqn

    def _raise_unpublished(self) -> None:
        """What a callback has raised; it may be of another message, with its number."""
        try:
            self.context.raise_callback_error()
        except BaseException as error:
            with contextlib.suppress(AttributeError):
                error.sequence_number = None  # type: ignore[attr-defined]
            raise

    def _wait_published(self, first: int, sqn: int, deadline: int | None) -> None:
        """Whatever ends the wait says that the message is out."""
        try:
            self._wait_stable(first, sqn, deadline)
        except BaseException as error:
            with contextlib.suppress(AttributeError):  # a class of a callback's own
                error.sequence_number = sqn  # type: ignore[attr-defined]
            if isinstance(error, Error) and not hasattr(error, "of_callback"):  # that text is of something else
                error.args = (f"the message was published as number {sqn}: {error.args[0]}",)
                error.retriable = False
                if isinstance(error, StabilityTimeout) and not error.reclaimed:
                    error.hint = f"wait_stable({sqn}) waits longer; sent again, there would be two of it"
            raise

    def wait_registered(self, timeout: float | None = None) -> None:
        """Returns when the source may send now, and ``on_event`` has been told so. Any number of times, also
        after that was lost.

        Raises:
            RegIdInUseError, RegistrationError: a store has refused since the call, and that is why it cannot
                complete. What it said before may be over: who held the RegID may have closed.
            RegistrationTimeout: the time is over. The source goes on trying.
        """
        session = self._session
        deadline = deadline_of(timeout)
        self.context.raise_callback_error()
        called_ns = time.monotonic_ns()
        while True:
            self.context.check_usable()
            may_send = session.may_send
            if may_send and (not session.untold or self.context.in_turn):  # a callback does not wait for its own end
                return
            self.context.raise_callback_error()
            if session.closed:
                raise ClosedError(f"source {self.topic}")
            self._publisher.check_not_deregistered()
            if session.opening.error is not None:
                failure = session.opening.failed_since(called_ns)
                if failure is not None:
                    raise failure
                session.machine.open_by(session.opening.next_ns)
                self.context.wake()
            refusal = session.machine.refusal(called_ns) or self._hindered(called_ns)
            if refusal is not None:
                raise refusal_error(refusal)
            left = left_of(deadline)
            if left is not None and left <= 0:
                if may_send:
                    why = "its event RegistrationComplete is not delivered"
                else:
                    hindered = "; ".join(session.hindrances().values())
                    why = str(session.opening.error or hindered or session.machine.why(session.names))
                raise RegistrationTimeout(f"topic {self.topic!r} is not registered yet ({why})")
            self.context.wait(session.registered, 0.05 if left is None else min(0.05, left))

    def _hindered(self, since_ns: int) -> Refusal | None:
        """Why stores are not reached without which it cannot complete."""
        found = self._session.hindrances(since_ns)
        if not found or self._session.machine.can_do_without(found):
            return None
        return Refusal("failed", "; ".join(found.values()))

    def stats(self) -> SourceStats:
        """A snapshot of counters."""
        session = self._session
        session.refresh()
        settlement = session.settlement
        flight, retained = settlement.in_flight() if settlement else (InFlight(0, 0), 0)
        stores = {}
        beats = settlement.beats() if settlement else {}
        for index, store in enumerate(session.stores):
            entry = session.machine.entries[index]
            state = STATES.get(entry.phase, "down")
            beat = beats.get(index, SILENT)
            if state == "active" and beat.catching_up:  # overtaken while it was registered
                state = "catching_up"
            if state in {"active", "catching_up"} and beat.full:
                state = "full"
            stores[session.names[index]] = StoreStats(
                state, store.group, entry.grant.registration_id if entry.grant else 0,
                settlement.acks[index] - 1 if settlement else -1,
            )  # fmt: skip
        messages = payload = 0
        if session.handle:
            header = ffi.cast("struct hf_stream_header *", lib.hf_source_map(session.handle).base)
            messages, payload = int(header.messages), int(header.payload_bytes)
        stable = settlement.retention.stable_below - 1 if settlement else -1
        forced = settlement.retention.forced if settlement else 0
        return SourceStats(stores, messages, payload, stable, flight, retained, self._publisher.blocked_ns, forced)

    # The end ------------------------------------------------------------------------------------------------

    def deregister(self) -> None:
        """The stores forget this source: its state, and its messages, also those that nobody has acknowledged
        (docs/semantics.md F.7).

        Returns at once. ``DeregistrationSuccess`` tells of each store that it registered with,
        ``DeregistrationComplete`` of the end; a store that is down is asked when it is back, as long as this
        object lives. Sends raise NotRegisteredError from now on, and receivers see EndOfStream. To send
        again, make a new source.

        Raises:
            UsageError: it is not registered with any store, or it was called before.
        """
        self._session.deregister()

    def close(self, timeout: float | None = None) -> None:
        """Closes the stream: stores drain it, receivers read it to its end. Not a deregistration. Idempotent.

        In a forked child it only ends the child's use of it.

        Raises:
            What a callback raised, if ``callback_errors`` is ``raise`` and nobody has got it yet; it is
            closed then.
        """
        check_timeout(timeout)
        self._session.close(timeout)
        self.context.child_closed()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._session.close()
        if kind is None:  # what ended the block goes before what a callback raised
            self.context.child_closed()

    def __reduce__(self) -> tuple[object, ...]:
        raise UsageError(
            "a source cannot be pickled", hint="send the topic's name and make a source in the other process"
        )

    def __repr__(self) -> str:
        session = self._session
        state = "closed" if session.closed else "registered" if session.may_send else "registering"
        if session.settlement is None or self.context.forked:
            return printable(f"<Source {self.topic} {state}>")
        session.refresh()
        flight = session.settlement.in_flight()[0]
        return printable(
            f"<Source {self.topic} next={self.next_sequence_number} stable={session.settlement.retention.stable_below - 1}"
            f" in_flight={flight.messages} ({flight.bytes} bytes) {state}>"
        )
