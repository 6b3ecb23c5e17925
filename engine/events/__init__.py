"""What a source or receiver tells its owner: frozen values, named as UM names them without prefix and `_EX`.

Events that only one side has are here under their own name; those that both have (RegistrationSuccess, ...)
are `events.source.X` and `events.receiver.X`. Source of names, fields and flag values: docs/semantics.md B.5,
C, D.3 to D.6, L.
"""

from __future__ import annotations

from . import receiver, source
from .info import (
    ForceReclaimInfo,
    NoFlags,
    ReceivingContextFlags,
    ReceivingContextInfo,
    RecoverySequenceNumberInfo,
    RegistrationInfo,
    SourceNotificationInfo,
)
from .receiver import (
    BeginOfStream,
    EndOfStream,
    NoSource,
    ReceiverEvent,
    RegistrationChange,
    UnrecoverableLoss,
    UnrecoverableLossBurst,
)
from .source import (
    ConfirmationFlags,
    DeliveryConfirmation,
    FlightSizeNotification,
    FlightSizeState,
    FlightSizeType,
    MessageNotStable,
    MessageReclaimed,
    MessageStable,
    NotStableFlags,
    ReclaimedFlags,
    SequenceNumberInfo,
    SourceEvent,
    StableFlags,
    StoreUnresponsive,
    Wakeup,
)

__all__ = [
    "BeginOfStream",
    "ConfirmationFlags",
    "DeliveryConfirmation",
    "EndOfStream",
    "FlightSizeNotification",
    "FlightSizeState",
    "FlightSizeType",
    "ForceReclaimInfo",
    "MessageNotStable",
    "MessageReclaimed",
    "MessageStable",
    "NoFlags",
    "NoSource",
    "NotStableFlags",
    "ReceiverEvent",
    "ReceivingContextFlags",
    "ReceivingContextInfo",
    "ReclaimedFlags",
    "RecoverySequenceNumberInfo",
    "RegistrationChange",
    "RegistrationInfo",
    "SequenceNumberInfo",
    "SourceEvent",
    "SourceNotificationInfo",
    "StableFlags",
    "StoreUnresponsive",
    "UnrecoverableLoss",
    "UnrecoverableLossBurst",
    "Wakeup",
    "receiver",
    "source",
]
