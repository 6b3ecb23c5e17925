"""Registration with stores as state machines without I/O: what a source (source_registration.py) and a
receiver (receiver_registration.py) share, and the words that they speak with their drivers (docs/semantics.md
B.1, B.3).

A driver feeds in what happened (a link came up, an answer arrived, time passed) and carries out the actions
that come back, in order. The machines know no socket and no clock: ``now_ns`` is CLOCK_MONOTONIC, handed in.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..errors import RegistrationError
from .refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from .quorum import Consensus, Groups
    from .reports import Configuration, Seen

__all__ = ["Action", "Grant", "Phase", "Refusal", "Registration"]

REFUSED_RETRY_NS = 100_000_000
TELL_AGAIN = 10
"""Registration intervals after which the same refusal is told again."""
AT_ONCE = {"reg_id_in_use", "unknown_source"}
"""Refusals that end with a proof of death, or with a source that registers: who waits for those asks as often
as before."""
REG_ID_MAX = 2**32 - 1


def checked_registration_id(value: object) -> int:
    """A RegID as a program gives it, 0 = any. Raises RegistrationError unless it is a 32-bit number
    (docs/semantics.md A.2)."""
    if not isinstance(value, int) or not 0 <= value <= REG_ID_MAX:
        raise RegistrationError(f"RegID {value!r}: expected a number from 1 to {REG_ID_MAX}, or 0 for any")
    return int(value)


@dataclass(frozen=True, slots=True)
class Grant:
    """What a store granted, to a source or to a receiver. From ``begins`` on: to a source; as in
    wire.SourceGranted."""

    registration_id: int
    uuid: bytes
    next_sqn: int
    """Next number that the store expects (source), or that the receiver has not acknowledged there
    (receiver)."""
    old: bool
    incarnation: int = 0
    begins: tuple[tuple[int, int], ...] = ()
    votes: bool = True
    empty_votes: bool = False
    opened: int = 0
    peers: Mapping[str, int] = field(default_factory=dict)
    """A store's own name -> the life that it was in when it last took part."""
    name: str = ""
    """The store's own."""
    flags: int = 0
    """Of RegistrationSuccess, besides OLD."""
    lives: Sequence[int] = ()
    """As in wire.SourceGranted."""
    promised: int = 0
    """The incarnation that this claimant may open there; 0: the store promises nothing (it is of an older
    version)."""
    seen: Sequence[Seen] = ()
    """What the store knows of the logs of the source's stores, its own among them."""
    configuration: Configuration | None = None
    """Whom the source declared before, as the store remembers it."""
    excluded: Mapping[str, int] = field(default_factory=dict)
    """Stores that the operator has excluded, and without which the source has not started since -> the
    exclusion's number."""
    exclusions: Mapping[str, int] = field(default_factory=dict)
    """All that the store remembers: who returns is to learn first."""
    over: Collection[int] = ()
    """Exclusions that are over, as the store knows: of any store."""
    served: Sequence[int] = ()
    """Exclusions of this store after which it has learned already."""
    position: int = -1
    """As in wire.ReceiverGranted."""
    high_sqn: int = 0
    """To a receiver: number behind the newest message that the store has."""
    given_up: Collection[int] = ()
    """To a receiver: the stores, by index, that the operator has excluded, as this one remembers it."""
    readmitted: Collection[int] = ()
    """To a receiver: those whose exclusion is over, as this one knows."""
    kept_for: bool = False
    """To a receiver: as wire.ReceiverGranted says."""

    @property
    def begun(self) -> int:
        """The newest incarnation of the store's own log; ``incarnation`` is that of the farthest it can
        read. 0: it says nothing of its own one."""
        views = (each.view for each in self.seen if self.name and each.name == self.name)
        return next((view.incarnation for view in views if view is not None), 0)


# Actions ----------------------------------------------------------------------------------------------------


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
class Forgot:
    """Tell the program: these stores do not know any more what they had; messages from ``start_sqn`` on may
    be gone."""

    stores: tuple[str, ...]
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
    """Leave this store, which granted ``uuid``: another claimant holds others enough that this one cannot
    complete."""

    store: int
    uuid: bytes


@dataclass(frozen=True, slots=True)
class Complete:
    """Tell the program: it may send (receive). ``all_stores`` is False when stores that have a seat are not
    registered."""

    sequence_number: int
    all_stores: bool
    position: int | None = None
    """Of a receiver: first number that it has not acknowledged. None: ``sequence_number``, which a rollback
    limit may raise."""


@dataclass(frozen=True, slots=True)
class Unresponsive:
    """Tell the program: a store is gone or silent. The counts are of its group; ``answered`` False: it never
    registered."""

    store: int
    quorum_lost: bool
    registered: int
    required: int
    answered: bool = True


@dataclass(frozen=True, slots=True)
class Full:
    """Tell the program: a store has no room for messages. Of its group, ``registered`` stores take them."""

    store: int
    registered: int
    required: int


@dataclass(frozen=True, slots=True)
class Seated:
    """``store`` has the seat of ``instead_of`` from now on, which receivers need not register with."""

    store: int
    instead_of: int


@dataclass(frozen=True, slots=True)
class Abandon:
    """Another incarnation has begun since the stores granted, and was sent under: remove the stream, which is
    empty."""


@dataclass(frozen=True, slots=True)
class Waits:
    """Tell the program of a receiver: it cannot complete. ``said``: every store that is asked, and what it
    says. ``disputed``: enough of them have granted, and they do not settle where it starts."""

    said: tuple[tuple[int, str], ...]
    disputed: bool = False


Action = (
    Ask
    | Open
    | Forgot
    | Announce
    | Granted
    | RefusedBy
    | GiveUp
    | Complete
    | Unresponsive
    | Full
    | Seated
    | Abandon
    | Waits
)


class Phase(enum.Enum):
    """Where a store stands in the registration of one source or receiver."""

    DOWN = "down"
    ASKED = "asked"
    REFUSED = "refused"
    GRANTED = "granted"
    ANNOUNCED = "announced"
    CATCHING_UP = "catching_up"
    """It takes part, and does not count as registered before it has what its peers have."""
    ACTIVE = "active"
    SUSPENDED = "suspended"
    """Its link holds and its heartbeat does not: it is stopped, or its disk is."""
    IDLE = "idle"
    """It has no seat."""


@dataclass(slots=True)
class _Entry:
    phase: Phase = Phase.DOWN
    up: bool = False
    """Its link is."""
    gone: bool = False
    """Unresponsive: a backup may have the seat."""
    full: bool = False
    """Of a source: the store says that it has no room for messages."""
    asked_ns: int = 0
    granted_ns: int = 0
    refusals: int = 0
    """In a row."""
    pending: int | None = None
    """Of a source: the incarnation that the question named which has no answer yet."""
    grant: Grant | None = None
    refusal: Refusal | None = None
    again: bool = False
    """Of a source: it had granted, and is asked whether it still says the same."""
    told: Refusal | None = None
    """The last one that the program was told of; it stays until the store takes part again."""
    told_ns: int = 0
    hollow: bool = False
    """Of a source: the last grant came to nothing, because BEGIN was refused after it."""
    same: int = 0
    """How often the same reason has been given since, by grants that came to nothing, too."""


@dataclass(slots=True)
class Registration:
    """What both sides share: one entry per store; those in ``seated`` are asked, again and again until they
    answer."""

    groups: Groups
    interval_ns: int
    behavior: Consensus = "majority"
    stagger: float = field(default=0.0, kw_only=True)
    """So much longer is the pause after a refusal, 0..1. Claimants of one RegID differ in it, or they meet
    again and again."""
    entries: list[_Entry] = field(init=False)
    seated: set[int] = field(init=False)
    first_ns: int = field(default=-1, init=False)
    _watched_ns: int = field(default=-1, init=False)
    """Since when answers are waited for."""

    def __post_init__(self) -> None:
        self.entries = [_Entry() for _ in range(self.groups.stores)]

    def connected(self, store: int, now_ns: int) -> list[Action]:
        """A link to the store is up."""
        entry = self.entries[store]
        entry.up, entry.gone = True, False
        return self._ask(store, now_ns) if entry.phase is Phase.DOWN else []

    def _ask(self, store: int, now_ns: int) -> list[Action]:
        if self.first_ns < 0:
            self.first_ns = now_ns
        entry = self.entries[store]
        entry.phase, entry.asked_ns = Phase.ASKED, now_ns
        return [Ask(store)]

    def refused(self, store: int, refusal: Refusal) -> list[Action]:
        """The store said no; it is asked again soon."""
        entry = self.entries[store]
        if entry.phase in {Phase.DOWN, Phase.IDLE}:
            return []
        entry.hollow = entry.phase is Phase.ANNOUNCED
        entry.phase, entry.refusal, entry.gone = Phase.REFUSED, refusal, False
        entry.refusals += 1
        entry.same = entry.same + 1 if entry.told == refusal else 0
        told: list[Action] = []
        if not entry.same or entry.asked_ns - entry.told_ns >= TELL_AGAIN * self.interval_ns:
            entry.told, entry.told_ns = refusal, entry.asked_ns
            told.append(RefusedBy(store, refusal))
        return told + self._give_up()

    def _claims(self) -> Phase | None:
        """The phase of a store that granted and may still be left; None: this object will not give up any
        more."""
        raise NotImplementedError

    def _sufficient(self, stores: Collection[int]) -> bool:
        """These stores, and no more, let it complete."""
        raise NotImplementedError

    def _in_use(self) -> set[int]:
        """Stores that somebody else holds."""
        return {store for store, entry in enumerate(self.entries) if _is_in_use(entry)}

    def _stuck(self, held: Collection[int], in_use: Collection[int]) -> bool:
        """What it holds does not let it complete."""
        return not self._sufficient(held) or len(held) <= len(in_use)

    def _give_up(self) -> list[Action]:
        """Two claimants of one RegID must not block each other, each with a part of the stores: one that
        cannot complete leaves what it has, and asks again as if it had been refused there. Nor may both
        complete, each with a group of its own: who cannot have more stores than are refused gives up, too.
        One that could complete, except for what others hold, waits whether they give up first: until it is
        refused again."""
        held, in_use = self._claims(), self._in_use()
        free = self.seated - in_use
        if held is None or not in_use:
            return []
        hopeless = not self._sufficient(free) or len(free) <= len(in_use & self.seated)
        again = any(self.entries[store].refusals > 1 for store in in_use)
        holding = self._in_phase(held)
        if not hopeless and not (again and holding and self._stuck(holding, in_use & self.seated)):
            return []
        actions: list[Action] = []
        latest = max(entry.asked_ns for entry in self.entries)
        for store, entry in enumerate(self.entries):
            if entry.phase is held and entry.grant is not None:
                actions.append(GiveUp(store, entry.grant.uuid))
                entry.phase, entry.grant, entry.asked_ns = Phase.REFUSED, None, latest
        return actions

    def _retries(self, now_ns: int) -> list[Action]:
        """A refused claimant looks again soon: its grant waits for a proof of death, not for a timeout. A
        request that has no answer yet is not repeated: the socket is reliable, and a broken link starts
        over."""
        due = self._pause_ns()
        actions: list[Action] = []
        for store, entry in enumerate(self.entries):
            if entry.phase is Phase.REFUSED and now_ns - entry.asked_ns >= self._backed_off(entry, due):
                actions += self._ask(store, now_ns)
        return actions

    def _backed_off(self, entry: _Entry, due: int) -> int:
        """Twice as long each time, while the reason stays the same."""
        if entry.refusal is None or entry.refusal.code in AT_ONCE:
            return due
        return min(due << min(entry.same, 16), max(due, self.interval_ns))

    def _pause_ns(self) -> int:
        return int(min(self.interval_ns, REFUSED_RETRY_NS) * (1 + self.stagger))

    def refusal(self, since_ns: int = 0) -> Refusal | None:
        """Why it cannot complete: what a store says, if those that do not refuse are not enough; nor those of
        them that are there, where all that are there would be. ``since_ns``: what was answered to older
        questions is not believed."""
        refused = self._refused_since(since_ns)
        rest = self.seated - refused
        there = {store for store in self.seated if not self.entries[store].gone}
        hindered = not self._sufficient(rest) or (self._sufficient(there) and not self._sufficient(rest & there))
        return self._reason(refused) if refused & self.seated and hindered else None

    def can_do_without(self, stores: Collection[int]) -> bool:
        """It can complete although these are not there."""
        return self._sufficient(self.seated.difference(stores))

    def _refused_since(self, since_ns: int) -> set[int]:
        """Stores that refuse, backups among them, and those that were left because others refuse. Who is
        asked again has said so last, which holds until the answer for who believes any answer."""
        return {
            store
            for store, entry in enumerate(self.entries)
            if (entry.phase is Phase.REFUSED and entry.asked_ns >= since_ns)
            or (entry.phase is Phase.ASKED and entry.refusals and not since_ns)
        }

    def _reason(self, refused: Collection[int]) -> Refusal | None:
        """What the first of these stores says: of one that has a seat, if one of them says anything."""
        order = sorted(refused, key=lambda store: (store not in self.seated, store))
        return next((reason for store in order if (reason := self.entries[store].refusal) is not None), None)

    def _overdue(self, now_ns: int, *phases: Phase) -> list[int]:
        """Stores that have a seat and have not answered within the interval: each once, until it does."""
        if self._watched_ns < 0:
            self._watched_ns = now_ns
        found = [
            store
            for store in sorted(self._in_phase(*phases))
            if not self.entries[store].gone
            and now_ns - max(self.entries[store].asked_ns, self._watched_ns) >= self.interval_ns
        ]
        for store in found:
            self.entries[store].gone = True
        return found

    def _in_phase(self, *phases: Phase) -> set[int]:
        return {store for store in self.seated if self.entries[store].phase in phases}

    def _is_over(self, now_ns: int) -> bool:
        """The first interval is: what the groups need will do, all is not waited for any more
        (docs/semantics.md B.1, step 7). Until then also a store that refuses is waited for: it may grant
        yet."""
        return self.first_ns >= 0 and now_ns - self.first_ns >= self.interval_ns


def _is_in_use(entry: _Entry) -> bool:
    """It said so, and nothing else since: also while it is asked again."""
    waits = entry.phase in {Phase.REFUSED, Phase.ASKED}
    return waits and entry.refusal is not None and entry.refusal.code == "reg_id_in_use"
