"""Events of a receiver. `topic` and `source` name the stream that an event is about, as they do on a
message."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag


class RegistrationSuccessFlags(IntFlag):
    """Flags of `receiver.RegistrationSuccess`."""

    OLD = 0x1
    NOCACHE = 0x2
    RPP = 0x4
    SRC_SID = 0x8
    RPP_IS_NON_BLOCKING = 0x10
    PROACTIVE_KEEPALIVE = 0x20
    RANGED_RXREQ = 0x40


class RegistrationCompleteFlags(IntFlag):
    """Flags of `receiver.RegistrationComplete`."""

    QUORUM = 0x1
    RXREQMAX = 0x2
    SRC_SID = 0x4


class DeregistrationFlags(IntFlag):
    """Flags of `receiver.DeregistrationSuccess`."""

    RPP = 0x1


@dataclass(frozen=True, slots=True)
class RegistrationError:
    """A store refused, or does not answer while too few others do; or, with an empty `store`, a callback of
    the program raised, or another receiver has the session on this topic (`source` is empty, too). As long as
    too few stores have granted, what each says is told together every ten registration intervals; `store` is
    then the first that has not. `pid` and `since` (seconds since the epoch) name the holder of the RegID or
    session, where that is why."""

    topic: str
    source: str
    text: str
    store: str
    pid: int = 0
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class RegistrationSuccess:
    """One store granted. `sequence_number` is where this store says to start."""

    topic: str
    source: str
    flags: RegistrationSuccessFlags
    source_registration_id: int
    receiver_registration_id: int
    sequence_number: int
    store_index: int
    store: str
    src_session_id: int = 0


@dataclass(frozen=True, slots=True)
class RegistrationComplete:
    """The receiver may receive; `sequence_number` is the first one it will ask for."""

    topic: str
    source: str
    flags: RegistrationCompleteFlags
    sequence_number: int
    src_session_id: int = 0


@dataclass(frozen=True, slots=True)
class RegistrationChange:
    """The source named other stores, or a new incarnation of it began."""

    topic: str
    source: str
    text: str


@dataclass(frozen=True, slots=True)
class UnrecoverableLoss:
    """This number will never be had; delivery goes on behind it."""

    topic: str
    source: str
    sequence_number: int


@dataclass(frozen=True, slots=True)
class UnrecoverableLossBurst:
    """A whole gap will never be had; `sequence_number` is its last number."""

    topic: str
    source: str
    sequence_number: int


@dataclass(frozen=True, slots=True)
class BeginOfStream:
    """The first message of this source follows."""

    topic: str
    source: str


@dataclass(frozen=True, slots=True)
class EndOfStream:
    """The source has closed or died, and everything it left is delivered."""

    topic: str
    source: str


@dataclass(frozen=True, slots=True)
class DeregistrationSuccess:
    """One store forgot the receiver; `sequence_number` is where it ended there."""

    topic: str
    source: str
    flags: DeregistrationFlags
    source_registration_id: int
    receiver_registration_id: int
    sequence_number: int
    store_index: int
    store: str


@dataclass(frozen=True, slots=True)
class DeregistrationComplete:
    """All stores forgot the receiver."""

    topic: str
    source: str


@dataclass(frozen=True, slots=True)
class Skipped:
    """Of a receiver-paced source: this start begins behind messages that the session has not acknowledged,
    and the stores keep them. The first acknowledgement covers them, or ``Receiver.acknowledge_skipped``."""

    topic: str
    source: str
    first_sequence_number: int
    sequence_number: int
    """The last one."""


@dataclass(frozen=True, slots=True)
class NoSource:
    """No source of this topic was found yet."""

    topic: str


ReceiverEvent = (
    RegistrationError
    | RegistrationSuccess
    | RegistrationComplete
    | RegistrationChange
    | UnrecoverableLoss
    | UnrecoverableLossBurst
    | BeginOfStream
    | EndOfStream
    | DeregistrationSuccess
    | DeregistrationComplete
    | NoSource
    | Skipped
)
