"""What a store answers to a registration or a BEGIN (docs/semantics.md A.2 to A.4, B.1, B.3; docs/design.md
12 to 14). Pure.

A decision takes a request, what the store's state has of the participant, and facts: what was found out about
its owner, its log and its ring. It is an answer that refuses, or what is to be done. The desks
(engine/store/sources.py, engine/store/receivers.py) gather the facts and carry the decision out; they refuse
nothing by themselves.

Invariants:
 - a decision changes nothing; what it says is carried out before the next facts are gathered;
 - what :class:`GrantSource` promises is on disk before it is answered, and so is what :class:`TakePart`
   declares;
 - a RegID has one holder: a living process that holds it refuses everybody else;
 - the incarnation that a claimant was promised is opened by nobody else, and none below it;
 - a BEGIN that was built without one that has messages here is refused: it would void them. Not where what
   this log says was among what decided it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from ..control import wire
from ..options.receiver_paced import agree, changed, mode_refusal
from ..rules.election import LEAST_MAX
from ..rules.expiry import Timers
from ..rules.proxy_source import proxy_refusal
from ..rules.reconcile import BEGINS_MAX, after_begin
from ..rules.registration import Refusal
from ..rules.reports import farthest
from .registry import called

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..log.receiver_state import Acked, ReceiverState
    from ..log.state_file import SourceState, State
    from ..options.topic_rules import Topics
    from ..rules.reconcile import BeginOf, LogView, Table
    from ..rules.reports import Seen
    from .registry import Registry

__all__ = [
    "Accept", "BeginFacts", "Forget", "GrantReceiver", "GrantSource", "Held", "ReceiverFacts", "SourceFacts", "TakePart",
    "Wait", "another", "claim_receiver", "claim_source", "decide_begin", "decide_number", "decide_receiver", "decide_source",
    "deregistered", "first_position", "in_use", "keeps_promise", "too_late",
]  # fmt: skip

OTHERS_MAX = 32
"""Stores of earlier lists that are remembered: those with the latest messages."""


class Held(NamedTuple):
    """Who holds a registration."""

    pid: int
    since_ns: int
    """CLOCK_REALTIME of its registration."""


# What was found out -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """Of a source that registers, in the order in which they are looked for. The first that decides ends the
    search: what was not looked for is None, and decides nothing."""

    store: str
    """The name of the store that is asked."""
    holder: Held | None = None
    """Somebody else who lives."""
    unused: bool | None = None
    """Its ring has gone, and no store that it named has ever had a message of it. Looked for only where
    another identity asks that has begun elsewhere."""
    drained: bool | None = None
    """The ring of the previous owner is drained, and the logs that nobody keeps are walked to their ends."""
    lost: bool | None = None
    """The log has not what this store once acknowledged. Not looked for where that is known already."""


@dataclass(frozen=True, slots=True)
class BeginFacts:
    """Of a source that begins."""

    store: str
    """The name of the store that is asked."""
    holder: Held | None
    """Somebody else who lives."""
    begins: Sequence[BeginOf]
    """The BEGINs that this store knows."""
    next_sqn: int
    oldest_sqn: int
    """Of the log: behind its last message, and the first that it still offers. These three were read
    together, and after the holder was looked for: who lived until then may have had more acknowledged."""
    log: str
    """The path of the log, for a text."""
    stream: Literal["same", "other", "gone"]
    """Whether the stream that BEGIN names says the same incarnation and start."""


@dataclass(frozen=True, slots=True)
class ReceiverFacts:
    """Of a receiver that registers."""

    store: str
    """The name of the store that is asked."""
    holder: Held | None
    """Somebody else who lives, by the RegID that the state has."""
    holder_elsewhere: Held | None = None
    """The same, by the identity that another store gave it."""
    line: Acked | None = None
    """What its line on the board says; of the identity that it will have."""
    line_stream: int = 0
    """The incarnation under which that was said."""
    line_before: Acked | None = None
    """What the line of the identity says that it gives up."""


# What is decided --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Wait:
    """Not yet: the request is decided again, with new facts."""


@dataclass(frozen=True, slots=True)
class Forget:
    """What is known by this RegID has begun here alone and sent nothing. It is forgotten, and the request
    decided again: it has begun elsewhere."""


@dataclass(frozen=True, slots=True)
class Accept:
    """The source may register. What follows from that is on disk before the peers' files are read: two stores
    that have lost something and are asked at once see it of each other."""

    learns: bool
    """From now on this store has no say before it has caught up."""


@dataclass(frozen=True, slots=True)
class GrantSource:
    """The source is granted its registration."""

    known: LogView
    """Where numbering goes on, as far as this store knows."""
    promises: bool
    """Its claimant is promised an incarnation; False: its stream is open."""


@dataclass(frozen=True, slots=True)
class TakePart:
    """The store takes part in the incarnation."""

    table: Table
    """Its BEGINs from now on."""
    others: dict[str, int]
    """Stores of earlier lists -> the number below which they may have messages that no declared store has."""


@dataclass(frozen=True, slots=True)
class GrantReceiver:
    """The receiver is granted its registration."""

    adopts: bool
    """It takes the identity that another store gave it."""
    ack: int
    """Everything below is acknowledged."""
    joined: bool
    """Its line was seen on the board."""
    under: int
    """The incarnation by which ``ack`` counts."""


# Claims: which entry of the state a request means -----------------------------------------------------------


def _refused(request_id: int, refusal: Refusal) -> wire.Refused:
    """A refusal as an answer."""
    return wire.Refused(request_id, *dataclasses.astuple(refusal))


def in_use(request_id: int, store: str, kept: SourceState | ReceiverState, role: str, holder: Held) -> wire.Refused:
    """The answer to who asks for what a living process holds. ``role``: source or receiver."""
    name = called(kept.registration_id, kept.session_id)
    text = f"{name} is in use by a different {role} at store {store} (pid {holder.pid})"
    return wire.Refused(
        request_id, "reg_id_in_use", text, holder.pid, holder.since_ns, kept.registration_id, kept.session_id
    )


def deregistered(request_id: int, store: str, name: str) -> wire.Refused:
    """The answer to an object that the operator has deregistered."""
    text = f"{name} was deregistered at store {store} by its operator; make a new object to register again"
    return wire.Refused(request_id, "deregistered", text)


def claim_source(
    request: wire.RegisterSource, topics: Topics, registry: Registry
) -> tuple[SourceState, bool] | wire.Refused:
    """The state of the source that asks, and whether it is old. A new one is in ``registry`` from now on: the
    caller saves it, so that its RegID is never granted twice, not even after a power cut."""
    rules = topics.of(request.topic)
    if rules is None:
        return _refused(request.id, topics.refusal(request.topic))
    if request.paced is not None:
        terms = agree(request.paced, request.topic, rules.type, rules)
        if isinstance(terms, Refusal):
            return _refused(request.id, terms)
    timers = Timers(request.activity_timeout, request.state_lifetime)
    claimed = registry.claim_source(request.topic, request.registration_id, request.session_id, request.uuid, timers)
    if isinstance(claimed, Refusal):
        return _refused(request.id, claimed)
    source, old = claimed
    if not old:
        source.paced, source.proxy = request.paced, request.proxy
    wrong = changed(source.paced, request.paced) or proxy_refusal(source.proxy, request.proxy)
    return _refused(request.id, wrong) if wrong is not None else claimed


def claim_receiver(
    request: wire.RegisterReceiver, source: SourceState, registry: Registry
) -> tuple[ReceiverState, bool] | wire.Refused:
    """The state of the receiver that asks, and whether it is old. A new one is in ``registry`` from now
    on."""
    wrong = mode_refusal(source.paced is not None, request.paced, None)
    if wrong is not None:
        return _refused(request.id, wrong)
    timers = Timers(request.activity_timeout, request.state_lifetime)
    claimed = registry.claim_receiver(
        source, request.topic, request.registration_id, request.session_id, request.identity or request.uuid, timers,
        ephemeral=request.ephemeral,
    )  # fmt: skip
    if isinstance(claimed, Refusal):
        return _refused(request.id, claimed)
    receiver, old = claimed
    wrong = mode_refusal(source.paced is not None, request.paced, receiver.paced if old else None)
    return _refused(request.id, wrong) if wrong is not None else claimed


def first_position(source: SourceState, high: int, oldest: int, live: int, rollback: int) -> int:
    """What a new receiver counts as having acknowledged: what is below the oldest message within
    ``rollback``, or, receiver-paced, below the ``live`` end."""
    return max(oldest, high - rollback) if source.paced is None else max(high, live)


# Decisions --------------------------------------------------------------------------------------------------


def decide_source(
    request: wire.RegisterSource, state: State, source: SourceState, facts: SourceFacts
) -> wire.Refused | Wait | Forget | Accept:
    """Whether a source may register; ``source``: what is known of it here, from now on at the latest."""
    if facts.holder is not None:
        return in_use(request.id, facts.store, source, "source", facts.holder)
    if facts.unused is not None:
        return Forget() if facts.unused else another(request.id, facts.store, source)
    if not facts.drained:
        return Wait()
    return Accept(not source.learner and (_was_wiped(request, facts.store, state, source) or bool(facts.lost)))


def decide_number(
    request: wire.RegisterSource, source: SourceState, own: LogView, seen: Sequence[Seen]
) -> wire.Refused | GrantSource:
    """Where a source that may register goes on. ``own``: what the log of this store says; ``seen``: how far
    the logs of its stores go, for a claimant. A stream that is open already numbers by itself."""
    if request.incarnation:
        return GrantSource(own, promises=False)
    known = farthest(seen)
    most = max(known.incarnation, source.promised) + LEAST_MAX
    if request.least > most:
        text = f"incarnation {request.least} is to be promised, and {most} is the greatest that can be meant"
        return wire.Refused(request.id, "usage", text)
    return GrantSource(known, promises=True)


def _was_wiped(request: wire.RegisterSource, store: str, state: State, source: SourceState) -> bool:
    """This store took part, as the source's register has it, and its directory is another one. BEGIN in a
    stream that is open says nothing of what the store acknowledged since the start: so it has no say before
    it has that again."""
    life, _ = request.elsewhere.get(source.uuid, {}).get(store, (-1, 0))
    begins = not source.incarnation and request.incarnation > 0
    return begins and life >= 0 and life not in state.lives_for(source)


def another(request_id: int, store: str, kept: SourceState) -> wire.Refused:
    """The answer where the RegID or session stands here for another source than at the other stores, and that
    one has begun."""
    name = called(kept.registration_id, kept.session_id)
    return wire.Refused(
        request_id, "other_source",
        f"{name} on topic {kept.topic!r} is at store {store} another source than at the other stores, and has "
        f"messages of its own; this store takes no part until that one is deregistered: make a source with the same topic "
        f"and ID whose ume_store_name is this store alone, and call its deregister()",
        registration_id=kept.registration_id, session_id=kept.session_id,
    )  # fmt: skip


def too_late(request: wire.Begin, source: SourceState, holds: int) -> wire.Refused | None:
    """Why this BEGIN comes too late, whatever else is found out. ``holds``: the incarnation of the open
    stream that it registered with over this connection; 0: none, or not yet."""
    if request.incarnation < source.incarnation:
        text = f"incarnation {request.incarnation} is over: {source.incarnation} has begun"
        return wire.Refused(request.id, "busy", text)
    opens = holds != request.incarnation  # else its stream is open already
    if opens and not keeps_promise(source, request.incarnation, request.claimant):
        text = f"incarnation {request.incarnation} was not promised: a later claimant was told {source.promised}"
        return wire.Refused(request.id, "busy", text)
    return None


def decide_begin(request: wire.Begin, source: SourceState, facts: BeginFacts) -> wire.Refused | TakePart:
    """Whether this store takes part in the incarnation of a BEGIN that is not :func:`too_late`."""

    def busy(text: str) -> wire.Refused:
        return wire.Refused(request.id, "busy", text)

    if facts.holder is not None:  # two claimants have opened, on grants of different times: both start over
        name = called(source.registration_id, source.session_id)
        return busy(f"{name} is in use by a different source (pid {facts.holder.pid})")
    # A claimant that slept on its grants while another one began and sent: a quorum has that, and refuses
    # this.
    begun, start = facts.begins[-1] if facts.begins else (0, 0)
    if request.incarnation < begun:
        return busy(f"incarnation {request.incarnation} is over: {begun} has begun")
    missed = begun not in {request.incarnation, *(begin[0] for begin in request.begins)}
    # Where this log was among those that decided the opening, its messages were counted. A restored
    # store may know a BEGIN that no newer table has any more, and asking again would change nothing. Who
    # has missed a BEGIN that nobody remembers would not know which of them it makes void.
    counted = begun > 0 and request.counted == begun
    if missed and facts.next_sqn > start:
        if len(request.begins) == BEGINS_MAX and request.begins[0][0] > begun:
            return _too_old(request.id, source, start, facts)
        if not counted:
            return busy(f"incarnation {request.incarnation} was built without {begun}, which has messages")
    wrong = _contradiction(request, facts)
    if wrong is not None:
        return wrong
    table = after_begin(facts.begins, request.begins, request.incarnation, request.start_sqn)
    return TakePart(table, _others(request, source, facts.oldest_sqn))


def keeps_promise(source: SourceState, incarnation: int, claimant: bytes) -> bool:
    """A claimant opens what was promised to it, or more; an empty one is of a version that asks for no
    promise."""
    if incarnation == source.promised:
        return claimant in {b"", source.promised_to}
    return not claimant or incarnation > source.promised


def _too_old(request_id: int, source: SourceState, start: int, facts: BeginFacts) -> wire.Refused:
    """It was away for more starts than anybody remembers. The others go on without it."""
    name = called(source.registration_id, source.session_id)
    return wire.Refused(
        request_id, "unusable_log",
        f"store {facts.store} has missed more than {BEGINS_MAX} starts of {name} on topic {source.topic!r}: what its "
        f"log has from number {start} on may be void; move {facts.log} away: the store begins anew, from "
        f"its peers' logs; or deregister the source there",
    )  # fmt: skip


def stream_gone(request: wire.Begin) -> wire.Refused:
    """Its source has died, or somebody has removed the stream's name."""
    text = f"the stream of incarnation {request.incarnation} is gone: /dev/shm has no {request.stream}"
    return wire.Refused(request.id, "busy", f"{text}; if its source lives, close it and make it again")


def _contradiction(request: wire.Begin, facts: BeginFacts) -> wire.Refused | None:
    """A BEGIN that is taken in stays, and voids what is older: so not one whose source has gone, or has
    started over, since it asked; nor one that is not what its stream says."""
    if facts.stream == "gone":
        return stream_gone(request)
    if facts.stream == "other":
        text = f"BEGIN names {request.stream!r}, which is not the stream of incarnation {request.incarnation}"
        return wire.Refused(request.id, "usage", f"{text} from {request.start_sqn} on")
    numbers = [incarnation for incarnation, _ in request.begins]
    if numbers != sorted(set(numbers)) or len(numbers) > BEGINS_MAX:
        text = f"BEGIN is built on {len(numbers)} others: expected {BEGINS_MAX} at most, oldest first"
        return wire.Refused(request.id, "usage", text)
    return None


def _others(request: wire.Begin, source: SourceState, oldest: int) -> dict[str, int]:
    """Stores that are declared no more: as the source knows, and as this store remembers. Below the number
    from which on this incarnation is, they may have messages that nobody else has. ``oldest``: below it this
    store keeps nothing anyway."""
    found = dict(source.others)
    for store, below in [*request.others.items(), *((store, request.start_sqn) for store in source.stores)]:
        found[store] = max(below, found.get(store, 0))
    kept = {store: below for store, below in found.items() if store not in request.stores and below > oldest}
    return dict(sorted(kept.items(), key=lambda each: each[1])[-OTHERS_MAX:])


def decide_receiver(
    request: wire.RegisterReceiver, source: SourceState, receiver: ReceiverState, facts: ReceiverFacts
) -> wire.Refused | GrantReceiver:
    """Whether a receiver is granted its registration, and what it has acknowledged."""
    adopts = request.identity not in {b"", receiver.uuid}
    holder = facts.holder or (facts.holder_elsewhere if adopts else None)
    if holder is not None:
        return in_use(request.id, facts.store, receiver, "receiver", holder)
    ack, joined, under = receiver.ack, receiver.joined, source.incarnation
    if adopts:  # what it has acknowledged by the identity that it gives up stays
        ack = max(ack, facts.line_before.number if facts.line_before is not None else 0)
        joined |= source.paced is None  # else the number is where a stranger starts, until the line says more
    line = facts.line
    if line is not None:
        # A receiver that had joined says there what it has. What this store knows may be more: the oldest
        # that it kept when it heard of a receiver that began elsewhere, with older messages of another store.
        if line.number >= ack or line.joined:
            ack, under = line.number, max(under, facts.line_stream)
        joined |= line.joined
    return GrantReceiver(adopts, ack, joined, under)
