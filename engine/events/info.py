"""What callback options receive: one argument each, with UM's field names (docs/semantics.md F.1)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag


class NoFlags(IntFlag):
    """Where UM has a field for flags, and defines none."""

    NONE = 0


class RecoveryInfoFlags(IntFlag):
    """Flags of RecoverySequenceNumberInfo."""

    SRC_SID = 0x1


@dataclass(slots=True)
class RecoverySequenceNumberInfo:
    """Where a receiver is about to start. Assign `low_sequence_number` to start elsewhere; the rest is for
    reading."""

    flags: RecoveryInfoFlags
    low_sequence_number: int
    low_rxreq_max_sequence_number: int
    high_sequence_number: int
    source: str
    source_clientd: object = None
    src_session_id: int = 0


@dataclass(frozen=True, slots=True)
class RegistrationInfo:
    """A receiver is about to register with a store; the callback returns the RegID to ask for, 0 = any."""

    flags: NoFlags
    src_registration_id: int
    store_index: int
    store: str
    source: str
    source_clientd: object = None


@dataclass(frozen=True, slots=True)
class SourceNotificationInfo:
    """A receiver found a source (`create` returns its source_clientd), or the source is gone (`delete`)."""

    topic: str
    source: str
    source_clientd: object = None


class ReceivingContextFlags(IntFlag):
    """Why a receiving context is gone. A clean close is EOF; a proved death without one is TMO | EOF."""

    TMO = 0x1
    EOF = 0x2


@dataclass(frozen=True, slots=True)
class ReceivingContextInfo:
    """A receiving context appeared (`create` returns its client_data), or is gone (`delete`). Source:
    docs/semantics.md H."""

    regid: int
    """ume_user_receiver_registration_id of the receiving context."""
    session_id: int
    flag: ReceivingContextFlags
    client_data: object = None


@dataclass(frozen=True, slots=True)
class ForceReclaimInfo:
    """A source no longer retains this fragment, though it was not time to let it go. Source:
    docs/semantics.md D.2."""

    topic: str
    sequence_number: int
    client_data: object = None
