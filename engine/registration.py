"""Registration as state machines without I/O (um_semantics B.1, B.3; DESIGN 13, 14).

A driver feeds in what happened (a link came up, an answer arrived, time passed) and carries out the actions that come back, in
order. The machines know no socket and no clock: ``now_ns`` is CLOCK_MONOTONIC, handed in.

A source asks every store, and each store answers only after the previous owner is dead or gone and its ring is drained. When all
have answered, or a quorum has and the first interval is over, the source opens the next incarnation at the consensus number,
makes BEGIN durable at each store, and may send as long as a quorum is active.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from . import quorum
from .errors import RegistrationError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ReceiverRegistration", "SourceRegistration"]

REFUSED_RETRY_NS = 100_000_000
REG_ID_MAX = 2**32 - 1


def checked_registration_id(value: object) -> int:
    """A RegID as a program gives it, 0 = any. Raises RegistrationError unless it is a 32-bit number (um_semantics A.2)."""
    if not isinstance(value, int) or not 0 <= value <= REG_ID_MAX:
        raise RegistrationError(f"RegID {value!r}: expected a number from 1 to {REG_ID_MAX}, or 0 for any")
    return int(value)


@dataclass(frozen=True, slots=True)
class Grant:
    """What a store granted, to a source or to a receiver."""

    registration_id: int
    uuid: bytes
    next_sqn: int
    """Next number that the store expects (source), or that the receiver has not acknowledged there (receiver)."""
    old: bool
    incarnation: int = 0


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a store did not grant."""

    code: str
    text: str
    pid: int = 0
    since_ns: int = 0
    registration_id: int = 0
    session_id: int = 0


# Actions --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ask:
    """Send a registration request to this store."""

    store: int


@dataclass(frozen=True, slots=True)
class Open:
    """Create the stream of this incarnation, then call :meth:`SourceRegistration.opened`."""

    incarnation: int
    start_sqn: int


@dataclass(frozen=True, slots=True)
class Announce:
    """Send BEGIN to this store."""

    store: int


@dataclass(frozen=True, slots=True)
class Granted:
    """Tell the program: a store granted."""

    store: int
    grant: Grant


@dataclass(frozen=True, slots=True)
class RefusedBy:
    """Tell the program: a store refused. Said once per different reason."""

    store: int
    refusal: Refusal


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Leave this store, which granted ``uuid``: another claimant holds so many others that this one cannot complete."""

    store: int
    uuid: bytes


@dataclass(frozen=True, slots=True)
class Complete:
    """Tell the program: it may send (receive). ``all_stores`` is False when only a quorum has registered."""

    sequence_number: int
    all_stores: bool


@dataclass(frozen=True, slots=True)
class Unresponsive:
    """Tell the program: a store that took part is gone."""

    store: int
    quorum_lost: bool
    registered: int
    required: int


Action = Ask | Open | Announce | Granted | RefusedBy | GiveUp | Complete | Unresponsive


class Phase(enum.Enum):
    """Where a store stands in the registration of one source or receiver."""

    DOWN = "down"
    ASKED = "asked"
    REFUSED = "refused"
    GRANTED = "granted"
    ANNOUNCED = "announced"
    ACTIVE = "active"


@dataclass(slots=True)
class _Slot:
    phase: Phase = Phase.DOWN
    asked_ns: int = 0
    grant: Grant | None = None
    refusal: Refusal | None = None


@dataclass(slots=True)
class _Registration:
    """What both sides share: one slot per store, asked again every interval until it answers."""

    stores: int
    interval_ns: int
    behavior: quorum.Consensus = "majority"
    stagger: float = field(default=0.0, kw_only=True)
    """So much longer is the pause after a refusal, 0..1. Claimants of one RegID differ in it, or they meet again and again."""
    slots: list[_Slot] = field(init=False)
    first_ns: int = field(default=-1, init=False)

    def __post_init__(self) -> None:
        self.slots = [_Slot() for _ in range(self.stores)]

    def connected(self, store: int, now_ns: int) -> list[Action]:
        """A link to the store is up."""
        slot = self.slots[store]
        if slot.phase is not Phase.DOWN:
            return []
        return self._ask(store, now_ns)

    def _ask(self, store: int, now_ns: int) -> list[Action]:
        if self.first_ns < 0:
            self.first_ns = now_ns
        slot = self.slots[store]
        slot.phase, slot.asked_ns = Phase.ASKED, now_ns
        return [Ask(store)]

    def refused(self, store: int, refusal: Refusal) -> list[Action]:
        """The store said no; it is asked again soon."""
        slot = self.slots[store]
        said = slot.refusal
        slot.phase, slot.refusal = Phase.REFUSED, refusal
        told: list[Action] = [] if said == refusal else [RefusedBy(store, refusal)]
        return told + self._give_up()

    def _claims(self) -> Phase | None:
        """The phase of a store that granted and may still be left; None: this object will not give up any more."""
        raise NotImplementedError

    def _give_up(self) -> list[Action]:
        """Two claimants of one RegID must not block each other, each with a part of the stores: one that cannot reach a quorum
        leaves what it has, and asks again as if it had been refused there."""
        held = self._claims()
        in_use = sum(slot.phase is Phase.REFUSED and _is_in_use(slot.refusal) for slot in self.slots)
        if held is None or self.stores - in_use >= quorum.quorum(self.stores):
            return []
        actions: list[Action] = []
        for store, slot in enumerate(self.slots):
            if slot.phase is held and slot.grant is not None:
                actions.append(GiveUp(store, slot.grant.uuid))
                slot.phase, slot.grant = Phase.REFUSED, None
        return actions

    def _retries(self, now_ns: int) -> list[Action]:
        """A refused claimant looks again soon: its grant waits for a proof of death, not for a timeout. A request that has no
        answer yet is not repeated: the socket is reliable, and a broken link starts over."""
        due = int(min(self.interval_ns, REFUSED_RETRY_NS) * (1 + self.stagger))
        actions: list[Action] = []
        for store, slot in enumerate(self.slots):
            if slot.phase is Phase.REFUSED and now_ns - slot.asked_ns >= due:
                actions += self._ask(store, now_ns)
        return actions

    def refusal(self) -> Refusal | None:
        """Why it cannot complete: what a store says, if those that do not refuse are no quorum."""
        refusals = [slot.refusal for slot in self.slots if slot.phase is Phase.REFUSED and slot.refusal is not None]
        return refusals[0] if refusals and not quorum.may_send(self.stores - len(refusals), self.stores) else None

    def count(self, *phases: Phase) -> int:
        """How many stores are in one of these phases."""
        return sum(slot.phase in phases for slot in self.slots)

    def waiting_for(self) -> list[int]:
        """Stores that have not granted."""
        return [
            store for store, slot in enumerate(self.slots) if slot.phase in {Phase.DOWN, Phase.ASKED, Phase.REFUSED}
        ]

    def _enough(self, answered: int, now_ns: int) -> bool:
        """All stores in the first interval, a quorum afterwards (UM 6.7)."""
        if answered == self.stores:
            return True
        over = self.first_ns >= 0 and now_ns - self.first_ns >= self.interval_ns
        return over and quorum.may_send(answered, self.stores)


def _is_in_use(refusal: Refusal | None) -> bool:
    return refusal is not None and refusal.code == "reg_id_in_use"


class SourceRegistration(_Registration):
    """One source object's registration with its stores.

    ``incarnation``, ``start_sqn`` and ``uuid`` are fixed when the stream opens; a store that returns later registers again with
    them. Until then ``uuid`` is a proposal: the identity is the one under which most incarnations have begun.
    """

    incarnation: int
    start_sqn: int
    complete: bool
    uuid: bytes

    def __init__(
        self, stores: int, interval_ns: int, behavior: quorum.Consensus, uuid: bytes, *, stagger: float = 0.0
    ) -> None:
        _Registration.__init__(self, stores, interval_ns, behavior, stagger=stagger)
        self._open_again_ns = 0
        self.incarnation = 0
        self.start_sqn = 0
        self.complete = False
        self.uuid = uuid

    @property
    def is_open(self) -> bool:
        """The stream exists."""
        return self.incarnation > 0

    @property
    def may_send(self) -> bool:
        """The completion predicate holds now (um_semantics E.2)."""
        return self.is_open and quorum.may_send(self.count(Phase.ACTIVE), self.stores)

    def start(self) -> list[Action]:
        """A source without stores is complete at once: it streams, and nothing is kept."""
        return [] if self.stores else [Open(1, 0)]

    def granted(self, store: int, grant: Grant, now_ns: int) -> list[Action]:
        """The store answered for this identity."""
        slot = self.slots[store]
        slot.phase, slot.grant, slot.refusal = Phase.GRANTED, grant, None
        actions: list[Action] = [Granted(store, grant)]
        if self.is_open:
            slot.phase = Phase.ANNOUNCED
            return [*actions, Announce(store)]
        return actions + self._give_up() + self._open(now_ns)

    def _claims(self) -> Phase | None:
        return None if self.is_open else Phase.GRANTED

    def _open(self, now_ns: int) -> list[Action]:
        """An attempt may fail, without memory for example: the next one is made after the interval."""
        if self.is_open or now_ns < self._open_again_ns:
            return []
        grants = [slot.grant for slot in self.slots if slot.phase is Phase.GRANTED and slot.grant]
        if self.stores and (not grants or not self._enough(len(grants), now_ns)):
            return []
        self._open_again_ns = now_ns + self.interval_ns
        if not self.stores:
            return self.start()
        # Stores without state do not vote where another one knows the source: it would begin anew over what that one has.
        voters = [grant for grant in grants if grant.incarnation] or grants
        size = self.stores if quorum.may_send(len(voters), self.stores) else len(voters)
        start = quorum.consensus([grant.next_sqn for grant in voters], size, self.behavior)
        newest = max(grants, key=lambda grant: grant.incarnation)
        if newest.incarnation:  # else nothing was ever sent under any of these identities
            self.uuid = newest.uuid
        return [Open(newest.incarnation + 1, start)]

    def opened(self, incarnation: int, start_sqn: int) -> list[Action]:
        """The stream was created; BEGIN goes to every store that granted."""
        self.incarnation, self.start_sqn = incarnation, start_sqn
        if not self.stores:
            self.complete = True
            return [Complete(start_sqn, True)]
        actions: list[Action] = []
        for store, slot in enumerate(self.slots):
            if slot.phase is Phase.GRANTED:
                slot.phase = Phase.ANNOUNCED
                actions.append(Announce(store))
        return actions

    def begun(self, store: int, next_sqn: int) -> list[Action]:
        """BEGIN is durable at the store. ``next_sqn``: the source's next number now."""
        slot = self.slots[store]
        slot.phase = Phase.ACTIVE
        if slot.grant is not None:
            slot.grant = replace(slot.grant, uuid=self.uuid)
        if self.complete or not self.may_send:
            return []
        self.complete = True
        return [Complete(next_sqn, self.count(Phase.ACTIVE) == self.stores)]

    def disconnected(self, store: int) -> list[Action]:
        """The store is dead, or its link broke: it does not count until it has registered again."""
        slot = self.slots[store]
        was = slot.phase
        slot.phase = Phase.DOWN
        if was not in {Phase.ACTIVE, Phase.ANNOUNCED}:
            return []
        lost = self.complete and not self.may_send
        if lost:
            self.complete = False
        return [Unresponsive(store, lost, self.count(Phase.ACTIVE), quorum.quorum(self.stores))]

    def tick(self, now_ns: int) -> list[Action]:
        """Asks again what is due; accepts a quorum when the first interval is over."""
        return self._retries(now_ns) + self._open(now_ns)


class ReceiverRegistration(_Registration):
    """One receiver's registration with the stores of one source. Complete once; a store that returns registers again."""

    complete: bool

    def __init__(self, stores: int, interval_ns: int, behavior: quorum.Consensus, *, stagger: float = 0.0) -> None:
        _Registration.__init__(self, stores, interval_ns, behavior, stagger=stagger)
        self.complete = False

    def _claims(self) -> Phase | None:
        return None if self.complete else Phase.ACTIVE

    def granted(self, store: int, grant: Grant, now_ns: int) -> list[Action]:
        """The store answered."""
        slot = self.slots[store]
        slot.phase, slot.grant, slot.refusal = Phase.ACTIVE, grant, None
        return [Granted(store, grant), *self._give_up(), *self._complete(now_ns)]

    def again(self, store: int, now_ns: int) -> list[Action]:
        """The source has registered with the store again, so the receiver does, too (um_semantics B.2)."""
        return [] if self.slots[store].phase in {Phase.DOWN, Phase.ASKED} else self._ask(store, now_ns)

    def disconnected(self, store: int) -> list[Action]:
        """The link broke. Delivery goes on; recovery reads that store's files."""
        self.slots[store].phase = Phase.DOWN
        return []

    def tick(self, now_ns: int) -> list[Action]:
        """Asks again what is due; accepts a quorum when the first interval is over."""
        return self._retries(now_ns) + self._complete(now_ns)

    def grants(self) -> Sequence[Grant]:
        """What the stores that granted said."""
        return [slot.grant for slot in self.slots if slot.phase is Phase.ACTIVE and slot.grant]

    def _complete(self, now_ns: int) -> list[Action]:
        grants = self.grants()
        if self.complete or not grants or not self._enough(len(grants), now_ns):
            return []
        self.complete = True
        low = quorum.consensus([grant.next_sqn for grant in grants], self.stores, self.behavior)
        return [Complete(low, len(grants) == self.stores)]
