"""A source: writes each message once, into its stream, and learns from positions what became of it.

``send`` is one call into C. Python comes in when a limit is reached (``_blocked``), when somebody wants events, and for
registration, which the context's thread runs.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from .core import CData, ffi, lib
from .errors import ClosedError, NotRegisteredError, QuorumLostError, RegistrationTimeout, StabilityTimeout, UsageError
from .events import source as events
from .outbound import InFlight, Outbound, refusal_error
from .registration import Phase
from .rows import feed_of
from .status import check, would_block
from .waiting import STRATEGIES

if TYPE_CHECKING:
    from collections.abc import Callable

    from .context import Context
    from .options import Options

__all__ = ["Claim", "InFlight", "Source", "SourceStats", "StoreStats"]

WAIT_NS = 50_000_000


@dataclass(frozen=True, slots=True)
class StoreStats:
    """One store as a source sees it."""

    state: str
    """``active``, ``catching_up``, ``suspended`` or ``down``."""
    group: int
    registration_id: int
    stable_sequence_number: int
    """Highest number that this store reports as stable, -1 for none."""


@dataclass(frozen=True, slots=True)
class SourceStats:
    """Counters of one source object."""

    stores: dict[str, StoreStats]
    messages: int
    bytes: int
    stable_sequence_number: int
    in_flight: InFlight
    retained_bytes: int
    blocked_ns: int
    """Time that sends spent waiting for room."""
    forced_reclaims: int


class Claim:
    """A fragment that is written in place: ``with src.claim(n) as view``. Commits at the end, aborts on an exception."""

    def __init__(self, source: Source, size: int, client_data: object, timeout: float | None) -> None:
        self.sequence_number: int | None = None
        self._source = source
        self._client_data = client_data
        self._base = source.begin_claim(size, timeout)
        self._view: memoryview | None = memoryview(self._base).cast("B")

    def __enter__(self) -> memoryview:
        if self._view is None:
            raise UsageError("this claim has ended already")
        return self._view

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        view, self._view = self._view, None
        if view is None:
            raise UsageError("this claim has ended already")
        with contextlib.suppress(BufferError):
            view.release()
        del view
        # Every view, and every view of a view, refers to the base; what is left is the attribute and the call's argument.
        if sys.getrefcount(self._base) > 2:
            self._source.end_claim(commit=False)
            raise UsageError(
                "a view of the claimed bytes is still in use", hint="drop every slice and array of it inside the block"
            )
        self.sequence_number = self._source.end_claim(commit=kind is None, client_data=self._client_data)


class Source(Outbound):
    """Made by ``Context.source``; registers in the background. See CONTRACT.md, "Context, source"."""

    def __init__(
        self, context: Context, topic: str, options: Options, on_event: Callable[[Any], object] | None
    ) -> None:
        super().__init__(context, topic, options, on_event)
        self._blocked_ns = 0
        self._claimed_by = 0
        """Thread that has a claim open."""
        self._strategy = STRATEGIES[options.wait_strategy]

    # Sending --------------------------------------------------------------------------------------------------------------

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
            data: bytes-like.
            client_data: comes back with every event of every fragment.
            sequence_info: ``"always"`` or ``"fragmented"``: a SequenceNumberInfo event inside this call.
            timeout: seconds to wait for room; None for ever, 0 not at all (UM's NONBLOCK).

        Raises:
            NotRegisteredError, QuorumLostError: it may not send now; nothing was published.
            WouldBlockError: the wait is over; nothing was published and no number consumed.
            MessageTooLargeError: larger than a quarter of the ring.
        """
        if client_data is None and sequence_info is None and type(data) is bytes and self._may_send:
            sqn = self._put(data, len(data))
            if sqn >= 0:
                return sqn
        return self._send_slowly(data, client_data, sequence_info, timeout)

    def _send_slowly(self, data: Any, client_data: object, sequence_info: str | None, timeout: float | None) -> int:
        if sequence_info not in {None, "always", "fragmented"}:
            raise UsageError(f"sequence_info={sequence_info!r}", hint='None, "always" or "fragmented"')
        buffer = ffi.from_buffer("uint8_t[]", data)
        size = len(buffer)
        pieces = max(1, -(-size // self.options.fragment_size))

        def attempt() -> int:
            if client_data is None and not self._records_all:
                return int(lib.hf_source_send(self._handle, buffer, size))
            with self._recording:
                sqn = int(lib.hf_source_send(self._handle, buffer, size))
                if sqn >= 0 and self._retention is not None:
                    self._retention.sent(sqn - pieces + 1, sqn, client_data)
                return sqn

        sqn = self._until_room(attempt, size, timeout)
        if sequence_info == "always" or (sequence_info == "fragmented" and pieces > 1):
            self.tell_now(events.SequenceNumberInfo(0, sqn - pieces + 1, sqn, client_data))
        return sqn

    @property
    def _records_all(self) -> bool:
        return self._retention is not None and self._retention.records_all

    def send_batch(self, rows: Any, *, client_data: object = None, timeout: float | None = None) -> tuple[int, int]:
        """Publishes one message per row and returns the first and last sequence number.

        Args:
            rows: (n, width) uint8 array with contiguous rows, or a pyarrow Binary or LargeBinary array.
            client_data: as in :meth:`send`, for every message.
            timeout: seconds to wait for room, over the whole call.

        Raises:
            As :meth:`send`; the error has ``first_sequence_number`` and ``sent``, the rows that were published.
            UsageError: another shape or dtype, or no rows.
        """
        feed, count = feed_of(rows)
        if count == 0:
            raise UsageError("send_batch of no rows", hint="nothing would be published")
        first, sent = -1, 0
        deadline = _deadline(timeout)

        def attempt() -> int:
            nonlocal first, sent
            with self._recording:
                before = int(lib.hf_source_next(self._handle))
                done = int(feed(self._handle, sent))
                if done <= 0:
                    return done
                after = int(lib.hf_source_next(self._handle))
                if self._retention is not None and (client_data is not None or self._records_all):
                    self._retention.sent(before, after - 1, client_data, max(1, (after - before) // done))
            first = before if first < 0 else first
            sent += done
            return after - 1

        last = -1
        try:
            while sent < count:
                last = self._until_room(attempt, 0, _left(deadline))
        except Exception as error:
            error.first_sequence_number = first if sent else None  # type: ignore[attr-defined]
            error.sent = sent  # type: ignore[attr-defined]
            raise
        return first, last

    def claim(self, size: int, *, client_data: object = None, timeout: float | None = None) -> Claim:
        """A writable buffer of ``size`` bytes inside the stream, at most one fragment. See :class:`Claim`.

        It owns the source until it ends: a send in between raises UsageError.
        """
        return Claim(self, size, client_data, timeout)

    def begin_claim(self, size: int, timeout: float | None) -> Any:
        """For :class:`Claim`: the writable bytes."""
        status = ffi.new("int64_t *")
        pointer: CData = ffi.NULL

        def attempt() -> int:
            nonlocal pointer
            pointer = lib.hf_source_claim(self._handle, size, status)
            return 0 if pointer else int(status[0])

        self._until_room(attempt, size, timeout)
        self._claimed_by = threading.get_ident()
        return ffi.buffer(pointer, size)

    def end_claim(self, *, commit: bool, client_data: object = None) -> int | None:
        """For :class:`Claim`: publishes it and returns its number, or leaves no trace of it."""
        self._claimed_by = 0
        if not commit:
            lib.hf_source_abort(self._handle)
            return None
        with self._recording:
            sqn = int(check(lib.hf_source_commit(self._handle), what="claim"))
            if self._retention is not None and (client_data is not None or self._records_all):
                self._retention.sent(sqn, sqn, client_data)
        return sqn

    # Waiting for room -----------------------------------------------------------------------------------------------------

    def _until_room(self, attempt: Callable[[], int], size: int, timeout: float | None) -> int:
        """Runs ``attempt`` until it returns a number, policy says no, or the time is over."""
        deadline = _deadline(timeout)
        started = 0
        while True:
            self._check_may_send()
            status = attempt()
            if status < 0 and would_block(status):
                self.refresh()  # room may have come since the context's thread last looked
                status = attempt()
            if status >= 0:
                break
            if not would_block(status):
                if status == lib.HF_BUSY:
                    self._busy()
                    continue
                check(status, what=f"source {self.topic}", size=size, limit=self._largest(), option="ring_size")
            left = _left(deadline)
            if left is not None and left <= 0:
                check(status)
            started = started or time.monotonic_ns()
            self._wait_for_room(left)
        if started:
            self._blocked_ns += time.monotonic_ns() - started
        return status

    def _busy(self) -> None:
        """Another thread sends (a moment), or a claim is open (this thread's own would never end)."""
        if self._claimed_by == threading.get_ident():
            raise UsageError("a claim is open on this source", hint="end it before the next send")
        time.sleep(0)

    def _largest(self) -> int:
        return int(self._ring_bytes() // 4)

    def _wait_for_room(self, left: float | None) -> None:
        """Sleeps on the bell until an ack moves, at most 50 ms: signals and a lost store are noticed in between."""
        bells = self.context.bells
        limit = WAIT_NS if left is None else min(WAIT_NS, int(left * 1e9) + 1)
        assert self._board is not None
        seen = lib.hf_bell_read(bells.handle, bells.index)
        nap = lib.hf_board_source_waits(self._board.handle, bells.index)
        if not self.refresh():
            lib.hf_bell_wait(bells.handle, bells.index, seen, min(limit, nap))
            self.refresh()

    def _check_may_send(self) -> None:
        if self._may_send:
            return
        if self._closed:
            raise ClosedError(f"source {self.topic}")
        waiting = ", ".join(self.stores[i].name for i in self._machine.waiting_for())
        if self._was_complete:
            raise QuorumLostError(f"topic {self.topic!r}: the quorum of stores is lost (waiting for {waiting})")
        raise NotRegisteredError(f"topic {self.topic!r}: not registered with enough stores (waiting for {waiting})")

    # Stability ------------------------------------------------------------------------------------------------------------

    @property
    def stable_sequence_number(self) -> int:
        """Highest stable number, -1 for none."""
        self.refresh()
        return (self._retention.stable if self._retention else self._machine.start_sqn) - 1

    @property
    def in_flight(self) -> InFlight:
        """Messages (fragments) and payload bytes sent and not yet stable."""
        self.refresh()
        return self._in_flight()[0]

    @property
    def registration_ids(self) -> dict[str, int]:
        """Store name -> the RegID held there."""
        return {
            self.stores[i].name: slot.grant.registration_id
            for i, slot in enumerate(self._machine.slots)
            if slot.grant is not None
        }

    def wait_stable(self, sequence_number: int | None = None, timeout: float | None = None) -> None:
        """Returns when ``sequence_number`` (default: everything that was sent) is stable.

        Raises:
            StabilityTimeout: the time is over.
            UsageError: a number that was not sent yet.
        """
        target = self.next_sequence_number - 1 if sequence_number is None else sequence_number
        if target >= self.next_sequence_number:
            raise UsageError(f"{target} was not sent yet: the next number is {self.next_sequence_number}")
        deadline = _deadline(timeout)
        spins = 0
        while True:
            self.refresh()
            stable = (self._retention.stable if self._retention else 0) - 1
            if stable >= target:
                return
            left = _left(deadline)
            if left is not None and left <= 0:
                raise StabilityTimeout(target, stable)
            if self._closed:
                raise ClosedError(f"source {self.topic}")
            spins += 1
            if self._board is None:
                time.sleep(0.001)
            elif self._strategy == lib.HF_WAIT_BUSY_SPIN or (self._strategy == lib.HF_WAIT_BACKOFF and spins < 50):
                continue
            else:
                self._wait_for_room(left)

    def wait_registered(self, timeout: float | None = None) -> None:
        """Returns when the source may send now. Any number of times, also after that was lost.

        Raises:
            RegIdInUseError, RegistrationError: a store refused and that is why it cannot complete.
            RegistrationTimeout: the time is over. The source goes on trying.
        """
        deadline = _deadline(timeout)
        while not self._may_send:
            self.context.check_usable()
            if self._closed:
                raise ClosedError(f"source {self.topic}")
            if self._failure is not None:
                raise self._failure
            refusal = self._machine.refusal()
            if refusal is not None:
                raise refusal_error(refusal)
            left = _left(deadline)
            if left is not None and left <= 0:
                waiting = ", ".join(self.stores[i].name for i in self._machine.waiting_for())
                raise RegistrationTimeout(f"topic {self.topic!r} is not registered yet (waiting for {waiting})")
            self.context.wait(self._registered, 0.05 if left is None else min(0.05, left))

    def stats(self) -> SourceStats:
        """A snapshot of counters."""
        self.refresh()
        flight, retained = self._in_flight()
        stores = {}
        for index, store in enumerate(self.stores):
            slot = self._machine.slots[index]
            state = {Phase.ACTIVE: "active", Phase.ANNOUNCED: "catching_up", Phase.GRANTED: "catching_up"}
            stores[store.name] = StoreStats(
                state.get(slot.phase, "down"), 0, slot.grant.registration_id if slot.grant else 0, self._ack(index) - 1
            )
        messages = payload = 0
        with self._lock:
            if self._handle:
                header = ffi.cast("struct hf_stream_header *", lib.hf_source_map(self._handle).base)
                messages, payload = int(header.messages), int(header.payload_bytes)
        stable = self._retention.stable - 1 if self._retention else -1
        return SourceStats(stores, messages, payload, stable, flight, retained, self._blocked_ns, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[object, ...]:
        raise UsageError(
            "a source cannot be pickled", hint="send the topic's name and make a source in the other process"
        )

    def __repr__(self) -> str:
        state = "closed" if self._closed else "registered" if self._may_send else "registering"
        return f"<Source {self.topic} next={self.next_sequence_number} {state}>"


def _deadline(timeout: float | None) -> int | None:
    return None if timeout is None else time.monotonic_ns() + int(timeout * 1e9)


def _left(deadline: int | None) -> float | None:
    return None if deadline is None else (deadline - time.monotonic_ns()) / 1e9
