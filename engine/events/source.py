"""Events of a source. Numbers are 64-bit, one per fragment; store fields are None and -1 where no store is
meant."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag

from .info import NoFlags


class RegistrationSuccessFlags(IntFlag):
    """Flags of `source.RegistrationSuccess`."""

    OLD = 0x1
    NOACKS = 0x2
    RPP = 0x4


class RegistrationCompleteFlags(IntFlag):
    """Flags of `source.RegistrationComplete`."""

    QUORUM = 0x1


class StableFlags(IntFlag):
    """Flags of MessageStable."""

    INTRAGROUP_STABLE = 0x1
    INTERGROUP_STABLE = 0x2
    STABLE = 0x4
    STORE = 0x8
    WHOLE_MESSAGE_STABLE = 0x10
    USER = 0x20


class NotStableFlags(IntFlag):
    """Flags of MessageNotStable."""

    STORE = 0x8
    LOSS = 0x40
    TIMEOUT = 0x80


class ConfirmationFlags(IntFlag):
    """Flags of DeliveryConfirmation."""

    UNIQUEACKS = 0x1
    UREGID = 0x2
    OOD = 0x4
    EXACK = 0x8
    WHOLE_MESSAGE_CONFIRMED = 0x10


class ReclaimedFlags(IntFlag):
    """Flags of MessageReclaimed."""

    FORCED = 0x1


class FlightSizeType(IntEnum):
    """What a FlightSizeNotification is about."""

    UME = 1


class FlightSizeState(IntEnum):
    """Which way the flight size was crossed."""

    OVER = 1
    UNDER = 2


@dataclass(frozen=True, slots=True)
class RegistrationError:
    """A store refused. `pid` and `since` (seconds since the epoch) name the holder of the RegID, where that
    is why."""

    text: str
    store: str
    pid: int = 0
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class RegistrationSuccess:
    """One store granted. `sequence_number` is the next number that this store expects."""

    flags: RegistrationSuccessFlags
    registration_id: int
    sequence_number: int
    store_index: int
    store: str


@dataclass(frozen=True, slots=True)
class RegistrationComplete:
    """The source may send; its next message starts with `sequence_number`."""

    flags: RegistrationCompleteFlags
    sequence_number: int


@dataclass(frozen=True, slots=True)
class StoreUnresponsive:
    """A store does nothing for this source; `registered` of `required` stores of its group are left.

    `reason` is "silent" (or dead), or "full": it is there, and has no room for messages. A store that is full
    keeps its seat. Sends go on until the flight is full, so `quorum_lost` is False; with fewer stores left
    than are required, nothing new becomes stable until there is room.
    """

    text: str
    store: str
    store_index: int
    quorum_lost: bool
    registered: int
    required: int
    reason: str = "silent"


@dataclass(frozen=True, slots=True)
class MessageStable:
    """Numbers `first_sequence_number`..`sequence_number` are stable; `client_data` is the last message's."""

    flags: StableFlags
    sequence_number: int
    first_sequence_number: int
    client_data: object = None
    store_index: int = -1
    store: str | None = None
    receiver_registration_id: int = 0


@dataclass(frozen=True, slots=True)
class MessageNotStable:
    """A store lost these numbers, or they were not stable within their lifetime."""

    flags: NotStableFlags
    sequence_number: int
    first_sequence_number: int
    client_data: object = None
    store_index: int = -1
    store: str | None = None
    receiver_registration_id: int = 0


@dataclass(frozen=True, slots=True)
class DeliveryConfirmation:
    """The receiver `receiver_registration_id` has consumed these numbers."""

    flags: ConfirmationFlags
    sequence_number: int
    first_sequence_number: int
    receiver_registration_id: int
    client_data: object = None
    store_index: int = -1
    store: str | None = None


@dataclass(frozen=True, slots=True)
class MessageReclaimed:
    """The source no longer retains these numbers. `flags` is None in the old form
    (use_extended_reclaim_notifications 0)."""

    flags: ReclaimedFlags | None
    sequence_number: int
    first_sequence_number: int
    client_data: object = None
    store_index: int = -1
    store: str | None = None
    receiver_registration_id: int = 0


@dataclass(frozen=True, slots=True)
class SequenceNumberInfo:
    """Numbers of the message that is being sent; given inside the send call."""

    flags: NoFlags
    first_sequence_number: int
    last_sequence_number: int
    client_data: object = None


@dataclass(frozen=True, slots=True)
class FlightSizeNotification:
    """The flight size was crossed (notify mode)."""

    type: FlightSizeType
    state: FlightSizeState


@dataclass(frozen=True, slots=True)
class Wakeup:
    """There is room again after a send raised WouldBlockError."""

    flags: NoFlags = NoFlags.NONE


@dataclass(frozen=True, slots=True)
class Skipped:
    """A receiver-paced source waits for room that its stores do not have, because this receiver has started
    behind messages that its session has not acknowledged. Its first acknowledgement makes room, or
    ``Receiver.acknowledge_skipped``."""

    receiver_registration_id: int
    session_id: int
    first_sequence_number: int
    sequence_number: int
    """The last one."""


@dataclass(frozen=True, slots=True)
class DeregistrationSuccess:
    """One store forgot the source; `sequence_number` is the last one it had stored."""

    flags: NoFlags
    registration_id: int
    sequence_number: int
    store_index: int
    store: str


@dataclass(frozen=True, slots=True)
class DeregistrationComplete:
    """All stores forgot the source."""


SourceEvent = (
    RegistrationError
    | RegistrationSuccess
    | RegistrationComplete
    | StoreUnresponsive
    | MessageStable
    | MessageNotStable
    | DeliveryConfirmation
    | MessageReclaimed
    | SequenceNumberInfo
    | FlightSizeNotification
    | Wakeup
    | Skipped
    | DeregistrationSuccess
    | DeregistrationComplete
)
