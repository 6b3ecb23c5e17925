"""``holdfast store run``: one store by its name and directory, or those of UM's XML file."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..daemon.config import DaemonConfig
from ..daemon.events import EVENTS
from ..daemon.process import Affinity, detach
from ..daemon.run import run_daemon
from ..engine.client import process_role
from ..engine.errors import CallableStoreError, ConfigError, UsageError
from ..engine.options.store_config import StoreConfig
from .options import pairs

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..engine.store.store import Store

__all__ = ["RunArguments", "run_store"]

AFFINITY = "UME_CPU_AFFINITY"
"""UM's environment variable for what ``-a`` says."""
_NOTHING_TO_RUN = "holdfast store run CONFIG.xml, or holdfast store run --name NAME --directory DIR"


@dataclass(frozen=True, slots=True)
class RunArguments:
    """The arguments of ``holdfast store run``."""

    config: str | None
    name: str | None
    directory: str | None
    kind: str
    port: int | None
    domain: str | None
    options: list[str]
    validate: bool
    dump_schema: bool
    detach: bool
    utc: bool
    affinity: str | None
    verbose: bool = False


def run_store(given: RunArguments) -> int:
    """Serves until a signal; returns the exit code."""
    if given.dump_schema:
        from ..daemon.schema import schema

        sys.stdout.write(schema())
        return 0
    if given.validate:
        return _validate(given)
    config, announce, level = _what_to_run(given)
    affinity = given.affinity or os.environ.get(AFFINITY)
    processors = Affinity(affinity) if affinity else None
    tell = None
    if given.detach:
        if process_role.is_store():
            raise CallableStoreError("a callable store does not leave its process (--detach)", hint="spawn_store()")
        tell = detach()
        if tell is None:
            return 0
    told = tell or (lambda _: None)
    try:
        return run_daemon(
            config, EVENTS, utc=given.utc, affinity=processors, level=level, announce=announce, ready=lambda: told(None)
        )
    except BaseException as error:
        told(error)
        raise


def _what_to_run(given: RunArguments) -> tuple[DaemonConfig, Callable[[Store], None], int]:
    if given.config is not None:
        if given.name is not None or given.directory is not None:
            raise UsageError(
                "a configuration file and --name, --directory", hint=f"give one of them: {_NOTHING_TO_RUN}"
            )
        from ..daemon.store_xml import read_store_file

        return read_store_file(given.config, given.domain), lambda _: None, logging.INFO
    if given.name is None or given.directory is None:
        raise UsageError("which store?", hint=_NOTHING_TO_RUN)
    store = StoreConfig(
        given.name, given.directory, given.domain, given.kind, port=given.port, options=pairs(given.options)
    )
    return DaemonConfig((store,)), _announce, logging.INFO if given.verbose else logging.WARNING


def _announce(store: Store) -> None:
    where = f"{store.config.type}, {store.directory.path}, domain {store.domain.name}, pid {os.getpid()}"
    print(f"store {store.config.name} is ready: {where}", file=sys.stderr, flush=True)


def _validate(given: RunArguments) -> int:
    if given.config is None:
        raise UsageError("which file?", hint="holdfast store run --validate CONFIG.xml")
    from ..config.text import read
    from ..daemon.preflight import preflight
    from ..daemon.store_xml import StoreFile

    file = StoreFile(read(given.config), given.domain)
    found = [*file.errors, *preflight(file.config)]
    for warning in file.config.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    for error in found:
        print(f"error: {error.args[0]}", file=sys.stderr)
        if error.excerpt:
            print(error.excerpt, file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
    count = len(file.config.stores)
    if not found:
        print(f"{file.name}: valid, {count} {'store' if count == 1 else 'stores'}")
    return ConfigError.exit_code if found else 0
