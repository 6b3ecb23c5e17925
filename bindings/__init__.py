"""holdfast: persistent messaging for processes that share one host. See README.md beside this package for the guide."""

from __future__ import annotations

from . import events
from .batch import Batch
from .context import Context
from .engine.context import ContextStats
from .engine.errors import (
    CallableStoreError,
    ClosedError,
    ConfigError,
    CorruptionError,
    DirectoryInUseError,
    Error,
    EvictedError,
    ForeignOwnerError,
    ForkedHandleError,
    LayoutMismatchError,
    MessageTooLargeError,
    NotRegisteredError,
    QuorumLostError,
    RegIdInUseError,
    RegistrationError,
    RegistrationTimeout,
    SharedMemoryFullError,
    StabilityTimeout,
    SystemCallError,
    UsageError,
    WouldBlockError,
)
from .engine.smart_source import SmartSource
from .engine.source import Claim, InFlight, Source, SourceStats, StoreStats
from .message import Ack, Message
from .receiver import Receiver, ReceiverStats

__version__ = "0.1.0"

__all__ = [
    "Ack",
    "Batch",
    "CallableStoreError",
    "Claim",
    "ClosedError",
    "ConfigError",
    "Context",
    "ContextStats",
    "CorruptionError",
    "DirectoryInUseError",
    "Error",
    "EvictedError",
    "ForeignOwnerError",
    "ForkedHandleError",
    "InFlight",
    "LayoutMismatchError",
    "Message",
    "MessageTooLargeError",
    "NotRegisteredError",
    "QuorumLostError",
    "Receiver",
    "ReceiverStats",
    "RegIdInUseError",
    "RegistrationError",
    "RegistrationTimeout",
    "SharedMemoryFullError",
    "SmartSource",
    "Source",
    "SourceStats",
    "StabilityTimeout",
    "StoreStats",
    "SystemCallError",
    "UsageError",
    "WouldBlockError",
    "events",
]
