"""A store as a function call: the process that makes it is a store until it returns (docs/semantics.md I.6,
"Callable store")."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING, TypeAlias

from ..daemon.events import EVENTS, SIGNALS, STOP
from ..engine.client import process_role
from ..engine.errors import CallableStoreError, ConfigError, Error, UsageError
from ..engine.options.store_config import StoreConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Given", "run_given", "store_main", "store_main_shutdown", "words_of"]

Given: TypeAlias = "Sequence[str] | str | os.PathLike[str] | StoreConfig"
"""What describes stores: the arguments of ``holdfast store run``, the path of UM's XML file, or a
StoreConfig."""


def store_main(argv: Given) -> int:
    """Runs a store in this process; returns 0 after SIGINT, SIGTERM or `store_main_shutdown`, 1 when a store
    has failed at work.

    ``argv``: the arguments of ``holdfast store run`` (needs holdfast[cli]), the path of UM's XML file, or a
    StoreConfig. The main thread only, once per process, and not beside a `Context`: `spawn_store` has none of
    these limits. A start that failed is no run. While it runs, it owns SIGINT, SIGTERM, SIGUSR1 (rolls the
    log) and SIGPIPE; afterwards they are handled as before.

    Raises:
        CallableStoreError: one of the rules above is broken, or somebody else handles one of these signals.
        Error: the store cannot start, such as ConfigError or DirectoryInUseError. UsageError: arguments that
            it does not have.
    """
    if not process_role.is_store():  # that it runs already is what matters more
        _require_main_thread()
        _require_own_signals()
    process_role.become_store()
    ran = True
    try:
        return run_given(argv)
    except Error:  # it could not start: nothing has run, and signals are handled as before
        ran = False
        raise
    finally:
        process_role.end_store(ran=ran)


def store_main_shutdown() -> None:
    """Makes `store_main` drain, sync and return 0. Any thread; before it has started up, it starts, stops and
    returns 0."""
    EVENTS.put(STOP)


def words_of(call: str, argv: Sequence[str]) -> list[str]:
    """The arguments, each as text. Raises UsageError for what is none of the forms of Given; ``call``: who
    was given it."""
    try:
        if not isinstance(argv, bytes):
            return [os.fsdecode(part) for part in argv]
    except TypeError:
        pass
    hint = "give a StoreConfig, the path of an XML file, or the arguments of `holdfast store run` as a list of str"
    raise UsageError(f"{call}({argv!r})", hint=hint)


def run_given(argv: Given) -> int:
    """Runs them; as `store_main`, whose rules the caller has seen to."""
    if isinstance(argv, StoreConfig):
        from ..daemon.config import DaemonConfig
        from ..daemon.run import run_daemon

        return run_daemon(DaemonConfig((argv,)), EVENTS)
    if isinstance(argv, str | os.PathLike):
        from ..daemon.run import run_daemon
        from ..daemon.store_xml import read_store_file

        return run_daemon(read_store_file(argv), EVENTS)
    return _run_arguments(words_of("store_main", argv))


def _run_arguments(argv: list[str]) -> int:
    try:
        from ..cli.outcome import command
    except ModuleNotFoundError as missing:
        raise ConfigError(
            f"the arguments of a command need {missing.name}", hint="pip install 'holdfast[cli]'"
        ) from None
    return command(["store", "run", *argv])


def _require_main_thread() -> None:
    if threading.current_thread() is not threading.main_thread():
        hint = "spawn_store() from any thread"
        raise CallableStoreError("store_main() on a thread that is not the main one", hint=hint)


def _require_own_signals() -> None:
    """Python's own dispositions at its start, and what a parent let it ignore, are nobody's handlers."""
    for number in SIGNALS:
        handler = signal.getsignal(number)
        if handler not in (signal.SIG_DFL, signal.SIG_IGN, signal.default_int_handler):
            raise CallableStoreError(
                f"{number.name} has a handler in this process: {handler!r}",
                hint="store_main() owns SIGINT, SIGTERM, SIGUSR1 and SIGPIPE: take it away, or use spawn_store()",
            )
