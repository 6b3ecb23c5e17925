"""What a source or receiver tells its owner: frozen values, named as UM names them without prefix and `_EX`.

Events that only one side has are here under their own name; those that both have (RegistrationSuccess, ...) are
`events.source.X` and `events.receiver.X`. Source of names, fields and flag values: um_semantics B.5, C, D.3 to D.6, L.
"""

from __future__ import annotations

from . import receiver, source
from .info import RecoverySequenceNumberInfo, RegistrationInfo, SourceNotificationInfo
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
    DeliveryConfirmation,
    FlightSizeNotification,
    FlightSizeState,
    FlightSizeType,
    MessageNotStable,
    MessageReclaimed,
    MessageStable,
    SequenceNumberInfo,
    SourceEvent,
    StoreUnresponsive,
    Wakeup,
)

__all__ = [
    "BeginOfStream",
    "DeliveryConfirmation",
    "EndOfStream",
    "FlightSizeNotification",
    "FlightSizeState",
    "FlightSizeType",
    "MessageNotStable",
    "MessageReclaimed",
    "MessageStable",
    "NoSource",
    "ReceiverEvent",
    "RecoverySequenceNumberInfo",
    "RegistrationChange",
    "RegistrationInfo",
    "SequenceNumberInfo",
    "SourceEvent",
    "SourceNotificationInfo",
    "StoreUnresponsive",
    "UnrecoverableLoss",
    "UnrecoverableLossBurst",
    "Wakeup",
    "receiver",
    "source",
]
