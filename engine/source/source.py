"""A source: writes each message once, into its stream, and learns from positions what became of it.

Sending is publisher.py, registration session.py, and what becomes of messages settlement.py; this is what a program asks.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Self

from ..control.refusals import refusal_error
from ..errors import ClosedError, RegistrationTimeout, StabilityTimeout, UsageError
from ..native.core import ffi, lib
from ..native.waiting import check_timeout, deadline_of, left_of
from ..printable import printable
from ..rules.flight import InFlight
from ..rules.registration import Phase
from .publisher import Claim, Sending

__all__ = ["Claim", "InFlight", "Source", "SourceStats", "StoreStats"]


STATES = {
    Phase.ACTIVE: "active",
    Phase.GRANTED: "catching_up",
    Phase.ANNOUNCED: "catching_up",
    Phase.CATCHING_UP: "catching_up",
    Phase.SUSPENDED: "suspended",
    Phase.IDLE: "idle",
}


@dataclass(frozen=True, slots=True)
class StoreStats:
    """One store as a source sees it."""

    state: str
    """``active``, ``catching_up``, ``suspended`` (its link holds, and it does nothing), ``down``, or ``idle``: a backup."""
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
    """Messages, in fragments, that were reclaimed before it was time (docs/semantics.md D.2)."""


class Source(Sending):
    """Made by ``Context.source``; registers in the background. See bindings/README.md, "Send"."""

    # Stability ------------------------------------------------------------------------------------------------------------

    @property
    def stable_sequence_number(self) -> int:
        """Highest stable number, -1 for none. Below it, all are stable but those that were reclaimed by force before."""
        self.refresh()
        return (self._settlement.retention.stable_below if self._settlement else self._machine.start_sqn) - 1

    @property
    def in_flight(self) -> InFlight:
        """Messages (fragments) and payload bytes sent, and not yet stable and confirmed (docs/semantics.md D.6)."""
        self.refresh()
        return self._settlement.in_flight()[0] if self._settlement else InFlight(0, 0)

    def mark_stable(self, sqn: int) -> None:
        """Calls one fragment stable, as if the stores had said so; nothing happens if they have (docs/semantics.md D.6).

        It leaves the flight in order: behind one that is not stable, it waits. The event is a MessageStable with flag USER.

        Raises:
            UsageError: a number that was not sent yet.
        """
        if sqn >= self.next_sequence_number:
            raise UsageError(f"{sqn} was not sent yet: the next number is {self.next_sequence_number}")
        self.refresh()
        if self._settlement is not None:
            self._settlement.mark_stable(sqn)
            self.context.wake()

    @property
    def registration_ids(self) -> dict[str, int]:
        """Store name -> the RegID held there."""
        return {
            self.names[i]: slot.grant.registration_id
            for i, slot in enumerate(self._machine.slots)
            if slot.grant is not None
        }

    def wait_stable(self, sqn: int | None = None, timeout: float | None = None) -> None:
        """Returns when number ``sqn`` (default: everything that was sent) is stable.

        Raises:
            StabilityTimeout: the time is over, or (at once) it was reclaimed by force, and no store has it.
            UsageError: a number that was not sent yet.
        """
        deadline = deadline_of(timeout)
        self.context.raise_callback_error()
        target = self.next_sequence_number - 1 if sqn is None else sqn
        if target >= self.next_sequence_number:
            raise UsageError(f"{target} was not sent yet: the next number is {self.next_sequence_number}")
        while True:
            moves, glance = self._moves(), self._glance()
            self.refresh()
            if self._settlement is None:
                return  # nothing was sent
            missing, reclaimed = self._settlement.missing(target, alone=sqn is not None)
            if missing is None:
                return
            stable = self._settlement.retention.stable_below - 1
            if reclaimed:
                raise StabilityTimeout(missing, stable, reclaimed=True)
            self._check_not_deregistered()
            self.context.check_fence()
            left = left_of(deadline)
            if left is not None and left <= 0:
                raise StabilityTimeout(target, stable)
            if self._closed:
                raise ClosedError(f"source {self.topic}")
            self._wait_for_board(glance, moves, left)
            self.context.raise_callback_error()

    def wait_registered(self, timeout: float | None = None) -> None:
        """Returns when the source may send now, and ``on_event`` has been told so. Any number of times, also after that was lost.

        Raises:
            RegIdInUseError, RegistrationError: a store has refused since the call, and that is why it cannot complete. What it
                said before may be over: who held the RegID may have closed.
            RegistrationTimeout: the time is over. The source goes on trying.
        """
        deadline = deadline_of(timeout)
        self.context.raise_callback_error()
        called_ns = time.monotonic_ns()
        while True:
            self.context.check_usable()
            may_send = self._may_send
            if may_send and (not self._untold or self.context.in_turn):  # a callback does not wait for its own end
                return
            self.context.raise_callback_error()
            if self._closed:
                raise ClosedError(f"source {self.topic}")
            self._check_not_deregistered()
            if self._failure is not None:
                raise self._failure
            refusal = self._machine.refusal(called_ns)
            if refusal is not None:
                raise refusal_error(refusal)
            left = left_of(deadline)
            if left is not None and left <= 0:
                why = "its event RegistrationComplete is not delivered" if may_send else self._machine.why(self.names)
                raise RegistrationTimeout(f"topic {self.topic!r} is not registered yet ({why})")
            self.context.wait(self._registered, 0.05 if left is None else min(0.05, left))

    def stats(self) -> SourceStats:
        """A snapshot of counters."""
        self.refresh()
        settlement = self._settlement
        flight, retained = settlement.in_flight() if settlement else (InFlight(0, 0), 0)
        stores = {}
        beats = settlement.beats() if settlement else {}
        for index, store in enumerate(self.stores):
            slot = self._machine.slots[index]
            state = STATES.get(slot.phase, "down")
            if state == "active" and beats.get(index, (0, False))[1]:  # overtaken while it was registered
                state = "catching_up"
            stores[self.names[index]] = StoreStats(
                state, store.group, slot.grant.registration_id if slot.grant else 0,
                settlement.acks[index] - 1 if settlement else -1,
            )  # fmt: skip
        messages = payload = 0
        if self._handle:
            header = ffi.cast("struct hf_stream_header *", lib.hf_source_map(self._handle).base)
            messages, payload = int(header.messages), int(header.payload_bytes)
        stable = settlement.retention.stable_below - 1 if settlement else -1
        forced = settlement.retention.forced if settlement else 0
        return SourceStats(stores, messages, payload, stable, flight, retained, self._blocked_ns, forced)

    def close(self, timeout: float | None = None) -> None:
        """As Outbound's.

        Raises:
            What a callback raised, if ``callback_errors`` is ``raise`` and nobody has got it yet; it is closed then.
        """
        check_timeout(timeout)
        super().close(timeout)
        self.context.child_closed()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        super().close()
        if kind is None:  # what ended the block goes before what a callback raised
            self.context.child_closed()

    def __reduce__(self) -> tuple[object, ...]:
        raise UsageError(
            "a source cannot be pickled", hint="send the topic's name and make a source in the other process"
        )

    def __repr__(self) -> str:
        state = "closed" if self._closed else "registered" if self._may_send else "registering"
        if self._settlement is None or self.context.forked:
            return printable(f"<Source {self.topic} {state}>")
        flight = self._settlement.in_flight()[0]
        return printable(
            f"<Source {self.topic} next={self.next_sequence_number} stable={self._settlement.retention.stable_below - 1}"
            f" in_flight={flight.messages} ({flight.bytes} bytes) {state}>"
        )
