"""What a process is: one that has contexts, or a callable store. Never both: a store owns the process's
signals and its end.

A forked child begins without either. Of a context that is still open when the program ends, it is told.
"""

from __future__ import annotations

import atexit
import weakref
from typing import TYPE_CHECKING

from ..errors import CallableStoreError
from ..native import unclosed
from ..native.runtime import OfProcess, threading

if TYPE_CHECKING:
    from ..control.host import Host

__all__ = ["admit", "become_store", "dismiss", "end_store", "is_store", "tell_unclosed"]


class _ProcessRole:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.contexts: weakref.WeakSet[Host] = weakref.WeakSet()
        self.store = False
        self.was_store = False


_role = OfProcess(_ProcessRole)


def admit(context: Host) -> None:
    """A context begins. Raises CallableStoreError where a callable store runs."""
    with _role.value.lock:
        if _role.value.store:
            raise CallableStoreError(
                "a context in the process of a callable store", hint="use contexts in another process: spawn_store()"
            )
        _role.value.contexts.add(context)


def dismiss(context: Host) -> None:
    """It is closed."""
    with _role.value.lock:
        _role.value.contexts.discard(context)


def become_store() -> None:
    """This process is a callable store from now on.

    Raises:
        CallableStoreError: it has a context, it is one already, or it was one before.
    """
    with _role.value.lock:
        if _role.value.store:
            raise CallableStoreError(
                "a callable store runs in this process already", hint="a process each: spawn_store()"
            )
        if _role.value.was_store:
            raise CallableStoreError(
                "store_main() runs once in a process", hint="a process for each run: spawn_store()"
            )
        if _role.value.contexts:
            name = next(iter(_role.value.contexts)).name
            raise CallableStoreError(
                f"store_main() in a process that has a context ({name})",
                hint="close it first, or run the store in another process: spawn_store()",
            )
        _role.value.store = True


def end_store(*, ran: bool) -> None:
    """It has ended; there will be no other one in this process, unless this one could not start."""
    _role.value.store, _role.value.was_store = False, ran


def is_store() -> bool:
    """A callable store runs in this process."""
    return _role.value.store


def tell_unclosed(context: Host) -> None:
    """Nobody can close it any more."""
    text = "stores hold its registrations until they see that it is gone"
    unclosed.tell(f"context {context.name}", context.made_at, text)


def _at_exit() -> None:
    for context in list(_role.value.contexts):
        tell_unclosed(context)


atexit.register(_at_exit)
