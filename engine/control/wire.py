"""The control protocol between clients and stores: one msgspec struct per SEQPACKET datagram. Never on the
data path.

A client says Hello first; both sides refuse another PROTOCOL. Every request carries an ``id`` that its answer
repeats. The peer's uid is checked with SO_PEERCRED before a byte of it is decoded.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta

from ..errors import CorruptionError
from ..options.receiver_paced import Wanted  # noqa: TC001  (msgspec decodes by it)
from ..printable import cut
from .fields import U32, BeginOf, Number, Small, Topic, Uuid
from .forgetting import FINISHED_MAX, Finished, ForgetFinished, ForgotFinished
from .listing import ListSources, Over, SourceInfo, Sources

__all__ = [
    "FINISHED_MAX",
    "PROTOCOL",
    "U32",
    "BeginOf",
    "Finished",
    "ForgetFinished",
    "ForgotFinished",
    "ListSources",
    "Number",
    "Over",
    "Small",
    "SourceInfo",
    "Sources",
    "Topic",
    "Uuid",
]

PROTOCOL = 1
PACKET_MAX = 128 * 1024
"""Bytes of one datagram; a socket buffer takes it whole."""
UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes that somebody else wrote, as text not in UTF-8, or a thousand brackets."""
PAGE_MAX = 16
"""Sources in one answer: with the longest topics and paths they fit."""
PAGE_BYTES = 64 * 1024
"""Of the sources in one answer, where they are more than that."""
RANGES_MAX = 1000
"""Ranges in one Mark."""
TEXT_MAX, WHY_MAX = 16 * 1024, 1024  # bytes of a text for people: of the only one in a message, and of one for each log
LOGS_MAX = 96 * 1024
"""Bytes of ReceiverGranted.others: some two dozen of the longest paths."""

Milliseconds = Annotated[int, Meta(ge=0)]
Role = Literal["source", "receiver"]
Elsewhere = tuple[Annotated[int, Meta(ge=-1, le=2**63 - 1)], Annotated[int, Meta(ge=-1, le=2**63 - 1)]]
"""Of a store on an earlier list: the life in which it last took part, -1: unknown; and the number below which
such a list counts, -1: every number."""


class PeerLog(msgspec.Struct, frozen=True, array_like=True):
    """How far a store's log of a source goes, as a store knows it: its own, or one it has walked."""

    store: str
    """As the source declared it."""
    name: str
    """The store's own name; empty where nobody knows it."""
    next_sqn: Annotated[int, Meta(ge=-1, le=2**63 - 1)]
    """Number behind the last message; -1: unknown, so it may hold anything."""
    begins: list[BeginOf]
    why: str = ""
    """Of what is unknown."""


class Hello(msgspec.Struct, tag="hello", frozen=True):
    """First packet of a client: who it is, and the bell that the store rings after an answer."""

    protocol: int
    token: Annotated[int, Meta(ge=0)]
    pid: U32
    start: Annotated[int, Meta(ge=0)]
    bell: U32


class Welcome(msgspec.Struct, tag="welcome", frozen=True):
    """The store's answer to Hello."""

    protocol: int
    name: str
    uuid: bytes
    directory: str
    level: int
    """enum hf_level that its stability means."""
    pid: int
    token: int


class RegisterSource(msgspec.Struct, tag="register_source", frozen=True):
    """PREG of a source (docs/semantics.md B.1). ``uuid`` is proposed; the store answers with its own."""

    id: int
    topic: Topic
    registration_id: int
    session_id: int
    uuid: Uuid
    incarnation: Number = 0
    """Of the live stream that registers again; 0 for a new source object."""
    activity_timeout: Milliseconds = 0
    state_lifetime: Milliseconds = 0
    """ume_activity_timeout and ume_state_lifetime, ms; what the first registration says is kept."""
    paced: Wanted | None = None
    """Receiver-paced persistence, with these values; None: source-paced."""
    proxy: bool = False
    """A store is to stand in for it when it is dead (ume_proxy_source)."""
    claimant: Annotated[bytes, Meta(max_length=16)] = b""
    """Which object asks: the same as long as it lives, whatever identity it takes over."""
    least: Number = 0
    """The incarnation that it will open, by what other stores promised: this store is to promise it, too."""
    elsewhere: dict[Uuid, dict[str, Elsewhere]] = {}
    """By identity, the stores of all lists that a source by this ID has declared: their logs count."""


class SourceGranted(msgspec.Struct, tag="source_granted", frozen=True):
    """The old owner is dead or gone, and its ring is drained (docs/design.md 14)."""

    id: int
    registration_id: int
    uuid: bytes
    incarnation: int
    """Newest in any readable log of the stores that the source declared last; 0 = none."""
    next_sqn: int
    """Number behind the last one that holds there: of this store's own log, if it has missed nothing."""
    old: bool
    """This store knows the source: something of it has begun here."""
    begins: list[BeginOf] = []
    """The BEGINs that lead to it, oldest first: a store that missed one learns it from the next Begin
    (docs/design.md 13)."""
    votes: bool = True
    """False: it has lost what it once acknowledged: it learns, and decides nothing (docs/design.md 15)."""
    empty_votes: bool = False
    """The operator said so, although it knows nothing (`holdfast store adopt-empty`)."""
    opened: int = 0
    """The life that the store is in: each opening of its directory is one."""
    peers: dict[str, int] = {}
    """Store -> its ``opened`` as the last Begin told it."""
    flags: int = 0
    """Of RegistrationSuccess, besides OLD: RPP, NOACKS."""
    lives: list[int] = []
    """The last ones that its directory has had, oldest first: one that a peer remembers and that is not among
    them was another directory's, so this one was restored. Empty: all up to ``opened``."""
    promised: Number = 0
    """The incarnation that this claimant may open here: BEGINs below it are refused, also after a crash."""
    logs: list[PeerLog] = []
    """How far the logs of the source's stores go: never one maximum, because unreadable is not empty
    (docs/design.md 14)."""
    stores: list[str] = []
    sizes: list[Small] = []
    groups: list[Small] = []
    intragroup: Small = 0
    intergroup: Small = 0
    """As the last Begin declared them here."""
    excluded: dict[str, Number] = {}
    """Stores that the operator has excluded, without which it has not begun here since -> the exclusion."""
    exclusions: dict[str, Number] = {}
    """All of them that this store remembers: who returns is to learn first."""
    served: list[Number] = []
    """Exclusions of this store after which it has learned this source."""
    over: list[Number] = []
    """Exclusions that are over: it has begun here with a BEGIN that knew of them."""


class Begin(msgspec.Struct, tag="begin", frozen=True):
    """BEGIN(uuid, incarnation, start): answered when it is durable and the store reads the stream."""

    id: int
    uuid: Uuid
    incarnation: Number
    start_sqn: Number
    stream: str
    stores: list[str]
    """Names of all stores that the source declares."""
    granted: Annotated[bytes, Meta(max_length=16)] = b""
    """The identity that this store granted, if another store knew the source by another one, ``uuid``: that
    one holds."""
    begins: list[BeginOf] = []
    """All that the granting stores know, oldest first, without this one: applied in order before it."""
    opened: dict[str, int] = {}
    """Store -> ``opened``, of those that granted: kept as ``peers``."""
    sizes: list[Small] = []
    groups: list[Small] = []
    """Declared size by group number, and the group of each of ``stores``: for receivers that find no ring."""
    intragroup: Small = 0
    intergroup: Small = 0
    """What they must agree on, by number (engine/rules/quorum.py): for who reads files only."""
    claimant: Annotated[bytes, Meta(max_length=16)] = b""
    """As in RegisterSource."""
    learns: list[Number] = []
    """Exclusions of this store by the operator: it has no say before it has caught up."""
    others: dict[str, Number] = {}
    """Stores of earlier lists -> the number below which only these may have messages of this source."""
    counted: Number = 0
    """The newest incarnation of this store's log when it was counted for the opening; 0: it was not."""
    over: list[Number] = []
    """Exclusions by the operator that the granting stores know of: they are over with this BEGIN."""


class Begun(msgspec.Struct, tag="begun", frozen=True):
    """The store takes part in this incarnation."""

    id: int
    next_sqn: int
    catching_up: bool = False
    """It reads from its peers first what the ring does not have any more, and counts when HF_LINE_CATCHING_UP
    is gone."""


class RegisterReceiver(msgspec.Struct, tag="register_receiver", frozen=True):
    """PREG of a receiver with one source (docs/semantics.md B.3)."""

    id: int
    source: Uuid
    topic: Topic
    registration_id: int
    session_id: int
    uuid: Uuid
    """A proposal, as in RegisterSource; the same one as long as the object lives."""
    holds_line: bool = False
    """It has its line on the board already: the store was away, and the receiver registers again."""
    activity_timeout: Milliseconds = 0
    state_lifetime: Milliseconds = 0
    """As in RegisterSource."""
    paced: Annotated[int, Meta(ge=0, le=2)] = 0
    """ume_receiver_paced_persistence."""
    identity: Annotated[bytes, Meta(max_length=16)] = b""
    """By which another store knows it: this one takes that over, and finds its acks on the board by it."""
    ephemeral: bool = False
    """Nobody asked to keep it (docs/semantics.md A.4): the store forgets it at its end."""


class ReceiverGranted(msgspec.Struct, tag="receiver_granted", frozen=True):
    """What the store knows of this receiver: it goes on at ``next_sqn``."""

    id: int
    source_registration_id: int
    source_session_id: int
    registration_id: int
    uuid: bytes
    next_sqn: int
    oldest_sqn: int
    high_sqn: int
    """Number behind the newest message that the store has."""
    old: bool
    log: str
    """Directory of the source's log, for reading it in place."""
    incarnation: int = 0
    start_sqn: int = 0
    """The newest BEGIN that ``next_sqn`` is true under."""
    flags: int = 0
    """Of RegistrationSuccess, besides OLD and SRC_SID: RPP, RPP_IS_NON_BLOCKING, NOCACHE."""
    begins: list[BeginOf] = []
    """All BEGINs that this store knows: one that another missed may void what was acknowledged there."""
    acknowledged_under: Number = 0
    """The incarnation that ``next_sqn`` was acknowledged under: a store that missed a BEGIN still sees it on
    the board."""
    position: int = -1
    """Everything below is acknowledged; the rollback limit may start it later, which moves nothing. -1:
    ``next_sqn``."""
    others: dict[str, tuple[str, Number]] = {}
    """Store of an earlier list -> directory of the source's log there, and the number below which it may have
    messages."""
    unrecorded: str = ""
    """Why this registration is in the store's memory alone (its disk is read-only). Empty: it is on disk."""
    excluded: list[str] = []
    """Stores that the operator has excluded, and without which the source has not begun here since."""
    kept_for: bool = False
    """Of a receiver-paced source: an earlier life was granted ``position``, and has acknowledged nothing. It
    is kept for this receiver from there on."""
    readmitted: list[str] = []
    """Stores whose exclusion is over: the source has begun here since."""
    may_leave: bool = False
    """If it leaves while it lives, no lifetime begins that could make the store forget where it is
    (docs/semantics.md A.4)."""


class Refused(msgspec.Struct, tag="refused", frozen=True):
    """A request that was not granted, and why.

    ``code``: reg_id_in_use, topic_mismatch, session_mismatch, other_source, unknown_source, deregistered,
    topic_not_kept, receiver_paced, proxy, read_only, unusable_log, busy (somebody else has begun or may),
    failed (the store could not, and may later), usage. The holder of a RegID: ``pid`` and ``since_ns``
    (CLOCK_REALTIME of its registration); 0: no process to name. Instead of Welcome, id 0: nobody is let in.
    """

    id: int
    code: str
    text: str
    pid: int = 0
    since_ns: int = 0
    registration_id: int = 0
    session_id: int = 0
    """That stands for the RegID, if one does."""


class Leave(msgspec.Struct, tag="leave", frozen=True):
    """A clean close: the RegID is free for its next owner at once. Not a deregistration."""

    id: int
    role: Role
    source: Uuid
    uuid: Uuid
    """As it was granted, or as the object proposed it: a grant may be on its way. A receiver as a whole:
    both are the ``reader`` of its ListSources."""


class Left(msgspec.Struct, tag="left", frozen=True):
    """Answer to Leave."""

    id: int


class Deregister(msgspec.Struct, tag="deregister", frozen=True):
    """Forget me, now (docs/semantics.md F.7). Repeated after a broken link; what is gone is forgotten."""

    id: int
    role: Role
    source: Uuid
    """A source's: as this store granted it."""
    uuid: Uuid
    """Of a source: as its BEGIN named it."""
    incarnation: Number = 0
    """Of the source: a later one is not this object's to deregister."""
    proposal: Annotated[bytes, Meta(max_length=16)] = b""
    """Of a receiver: as it came with. What another object holds by now is not its to deregister; empty: an
    older version says nothing of that."""


class Deregistered(msgspec.Struct, tag="deregistered", frozen=True):
    """Answer to Deregister, when the state is gone for good."""

    id: int
    next_sqn: int
    """Number behind the last message that was stored (source) or acknowledged (receiver)."""


class OperatorDeregister(msgspec.Struct, tag="operator_deregister", frozen=True):
    """Forget a source, or one receiver of it: asked by an operator, not by the object itself. Answered by
    Deregistered."""

    id: int
    registration_id: U32
    """The source's."""
    receiver_registration_id: U32 = 0
    """0: the source, with its messages and its receivers."""
    force: bool = False
    """Also while a living process holds it."""
    receiver_uuid: Annotated[bytes, Meta(max_length=16)] = b""
    """Says which receiver is meant; empty: its RegID does."""


class Expelled(msgspec.Struct, tag="expelled", frozen=True):
    """Unasked: the operator deregistered a source, or a receiver of it, that this process holds
    (docs/semantics.md N 29)."""

    source: Uuid


EXCLUDED_MAX = 100
"""Sources in one answer to Exclude: with the longest topics they fit."""


class Exclude(msgspec.Struct, tag="exclude", frozen=True):
    """Operator: do not wait for this store. What only it has is given up, and when it returns, it learns."""

    id: int
    store: str
    number: Number
    """Of this exclusion: the same at every store that records it."""


class Excluded(msgspec.Struct, tag="excluded", frozen=True):
    """Answer to Exclude, when it is durable."""

    id: int
    sources: list[tuple[str, U32, Number]]
    """(topic, RegID, number behind the last message here) of the sources that declared that store."""


class Mark(msgspec.Struct, tag="mark", frozen=True):
    """Operator: messages that must not be delivered from this store's log any more (docs/semantics.md
    I.4)."""

    id: int
    registration_id: U32
    """The source's."""
    ranges: list[tuple[Number, Number]]
    """(first, last)."""


class Marked(msgspec.Struct, tag="marked", frozen=True):
    """Answer to Mark, when it is durable."""

    id: int
    ranges: list[tuple[Number, Number]]
    """(first, last) of what is marked now, whole messages."""


Request = (
    Hello
    | RegisterSource
    | Begin
    | RegisterReceiver
    | ListSources
    | Leave
    | Deregister
    | OperatorDeregister
    | ForgetFinished
    | Mark
    | Exclude
)
Answer = (
    Welcome
    | SourceGranted
    | Begun
    | ReceiverGranted
    | Refused
    | Sources
    | Left
    | Deregistered
    | ForgotFinished
    | Expelled
    | Marked
    | Excluded
)

_encoder = msgspec.msgpack.Encoder()
_requests = msgspec.msgpack.Decoder(Request)
_answers = msgspec.msgpack.Decoder(Answer)
_T = TypeVar("_T")


def encode(message: Request | Answer) -> bytes:
    """One datagram, of PACKET_MAX bytes at most: a text that is too long is cut."""
    return _encoder.encode(_fitting(message))


def _fitting(message: Request | Answer) -> Request | Answer:
    match message:
        case Refused():
            assert message.text.strip(), f"a refusal without a reason: {message}"
            return msgspec.structs.replace(message, text=cut(message.text, TEXT_MAX))
        case ForgotFinished():
            return msgspec.structs.replace(message, kept=[(uuid, cut(why, WHY_MAX)) for uuid, why in message.kept])
        case SourceGranted():
            logs = [msgspec.structs.replace(log, why=cut(log.why, WHY_MAX)) for log in message.logs]
            return msgspec.structs.replace(message, logs=logs)
        case ReceiverGranted():
            unrecorded = cut(message.unrecorded, TEXT_MAX)
            return msgspec.structs.replace(message, others=_latest(message.others), unrecorded=unrecorded)
    return message


def _latest(others: dict[str, tuple[str, int]]) -> dict[str, tuple[str, int]]:
    """Those with the latest messages, as many as LOGS_MAX takes."""
    kept, size = dict[str, tuple[str, int]](), 0
    for store, where in sorted(others.items(), key=lambda each: -each[1][1]):
        size += len(_encoder.encode({store: where}))
        if size > LOGS_MAX:
            break
        kept[store] = where
    return kept


def decode_request(packet: bytes) -> Request:
    """Raises CorruptionError for anything that is not a request of this protocol."""
    request: Request = _decode(_requests, packet)
    return request


def decode_answer(packet: bytes) -> Answer:
    """Raises CorruptionError for anything that is not an answer of this protocol."""
    answer: Answer = _decode(_answers, packet)
    return answer


def _decode(decoder: msgspec.msgpack.Decoder[_T], packet: bytes) -> _T:
    try:
        return decoder.decode(packet)
    except UNDECODABLE as error:
        raise CorruptionError(f"a control packet of {len(packet)} bytes does not decode: {error}") from error
