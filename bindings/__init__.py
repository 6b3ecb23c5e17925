"""holdfast: persistent messaging for processes that share one host. Begin with ``help(holdfast.Context)``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .engine.errors import (
    CallableStoreError,
    ClosedError,
    ConfigError,
    CorruptionError,
    DirectoryInUseError,
    Error,
    EvictedError,
    FencedError,
    ForeignOwnerError,
    ForkedHandleError,
    LayoutMismatchError,
    LimitReachedError,
    MessageTooLargeError,
    MissingExtraError,
    NoDomainError,
    NotRegisteredError,
    QuorumLostError,
    ReadOnlyError,
    RegIdInUseError,
    RegistrationError,
    RegistrationTimeout,
    RemovedError,
    SharedMemoryFullError,
    StabilityTimeout,
    StoresAwayError,
    SystemCallError,
    TurnHeldError,
    UsageError,
    WouldBlockError,
)
from .version import __version__ as __version__

if TYPE_CHECKING:
    from . import events
    from .batch import Batch
    from .context import Context
    from .engine.client.context import ContextStats
    from .engine.options.store_config import StoreConfig
    from .engine.options.topic_rules import TopicOptions
    from .engine.source.smart_source import SmartSource
    from .engine.source.source import Claim, InFlight, Source, SourceStats, StoreStats
    from .message import Ack, Message
    from .reading import read
    from .receiver import Receiver, ReceiverStats
    from .stores.callable_store import store_main, store_main_shutdown
    from .stores.spawn import StoreProcess, spawn_store

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
    "FencedError",
    "ForeignOwnerError",
    "ForkedHandleError",
    "InFlight",
    "LayoutMismatchError",
    "LimitReachedError",
    "Message",
    "MessageTooLargeError",
    "MissingExtraError",
    "NoDomainError",
    "NotRegisteredError",
    "QuorumLostError",
    "ReadOnlyError",
    "Receiver",
    "ReceiverStats",
    "RegIdInUseError",
    "RegistrationError",
    "RegistrationTimeout",
    "RemovedError",
    "SharedMemoryFullError",
    "SmartSource",
    "Source",
    "SourceStats",
    "StabilityTimeout",
    "StoreConfig",
    "StoreProcess",
    "StoreStats",
    "StoresAwayError",
    "SystemCallError",
    "TopicOptions",
    "TurnHeldError",
    "UsageError",
    "WouldBlockError",
    "events",
    "read",
    "spawn_store",
    "store_main",
    "store_main_shutdown",
]

_LATE = {
    "Ack": ".message",
    "Batch": ".batch",
    "Claim": ".engine.source.source",
    "Context": ".context",
    "ContextStats": ".engine.client.context",
    "InFlight": ".engine.source.source",
    "Message": ".message",
    "Receiver": ".receiver",
    "ReceiverStats": ".receiver",
    "SmartSource": ".engine.source.smart_source",
    "Source": ".engine.source.source",
    "SourceStats": ".engine.source.source",
    "StoreConfig": ".engine.options.store_config",
    "StoreProcess": ".stores.spawn",
    "StoreStats": ".engine.source.source",
    "TopicOptions": ".engine.options.topic_rules",
    "events": ".events",
    "read": ".reading",
    "spawn_store": ".stores.spawn",
    "store_main": ".stores.callable_store",
    "store_main_shutdown": ".stores.callable_store",
}
"""Name -> module. They are imported when they are asked for: a command that looks at a domain, or a program
that only sends, needs few of them, and each takes its time."""


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    from importlib import import_module

    module = import_module(_LATE[name], __name__)
    found = globals()[name] = module if name == "events" else getattr(module, name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
