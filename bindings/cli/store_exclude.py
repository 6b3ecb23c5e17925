"""``holdfast store exclude``: the operator's word that nobody is to wait for a store that is gone."""

from __future__ import annotations

import os
import secrets
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..engine.control import wire
from ..engine.control.request import FIRST, ask
from ..engine.errors import ConfigError, DirectoryInUseError, Error, NotRegisteredError, UsageError
from ..engine.log.info_file import read_info
from ..engine.log.register import every_store
from ..engine.log.state_file import StateFile
from ..engine.log.store_directory import StoreDirectory
from ..engine.memory.domain import Domain

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["exclude"]


def exclude(store: str, timeout: float, name: str | None, *, force: bool = False) -> int:
    """Records at every other store of the domain that ``store`` is excluded; prints what that gives up.

    ``force``: also of a store that nobody here knows, since it never ran.
    """
    domain = Domain(name, make=name is None)
    try:
        info = read_info(domain, store)
        store = info.name if info is not None else store  # also by its port, or another name that it answers to
        others = [other for other in domain.store_names() if other != store]
        _check(domain, store, others, force=force)
        request = wire.Exclude(FIRST, store, secrets.randbelow(2**62) + 1)
        failed = [line for other in others for line in _record(domain, other, request, timeout)]
    finally:
        domain.close()
    for line in failed:
        print(line, file=sys.stderr)
    if len(failed) == len(others):
        return 3
    print(
        f"sources start once without waiting for store {store}: messages that were stable only with what it has are given up. "
        f"When it returns, it learns from the others before it has a say again."
    )
    return 1 if failed else 0


def _check(domain: Domain, store: str, others: list[str], *, force: bool) -> None:
    if _runs(domain, store):
        raise UsageError(
            f"store {store} runs: who starts a source hears it", hint="stop it first, if it is to be excluded"
        )
    if not others:
        raise ConfigError(
            f"domain {domain.name} has no other store that could record it", hint="holdfast stat lists the stores"
        )
    known = store in domain.store_names() or any(_declares(domain, other, store) for other in others)
    if not (known or force or store in every_store(domain.path)):
        raise ConfigError(
            f"no source in domain {domain.name} has declared a store {store}",
            hint="holdfast stat lists them; --force, if a source waits for it and it never ran",
        )


def _runs(domain: Domain, store: str) -> bool:
    """It listens, or holds its directory though its socket has no name any more."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        if sock.connect_ex(os.fspath(domain.socket_path(store))) == 0:
            return True
    info = read_info(domain, store)
    if info is None or not os.path.isdir(info.directory):
        return False
    try:
        StoreDirectory(Path(info.directory)).close()
    except DirectoryInUseError:
        return True
    except (Error, OSError):  # whoever cannot enter it cannot know
        return False
    return False


def _declares(domain: Domain, other: str, store: str) -> bool:
    """A source that ``other`` keeps has named ``store``, as its state says."""
    info = read_info(domain, other)
    try:
        state = StateFile(Path(info.directory)).load() if info is not None else None
    except (Error, OSError):
        return True  # nobody knows
    return state is not None and any(store in source.stores for source in state.sources)


def _record(domain: Domain, other: str, request: wire.Exclude, timeout: float) -> Iterator[str]:
    """At one store, running or not; what went wrong."""
    try:
        answer = ask(domain, other, request, timeout)
    except NotRegisteredError:
        yield from _record_offline(domain, other, request)
        return
    except Error as error:
        yield f"store {other}: not recorded: {error}"
        return
    assert isinstance(answer, wire.Excluded)
    print(f"store {other}: recorded")
    for topic, registration_id, following in answer.sources:
        held = f"has messages up to number {following - 1}" if following else "has no message"
        lost = f"what only store {request.store} has is given up"
        print(f"  topic {topic!r}, RegID {registration_id}: store {other} {held}; {lost}")


def _record_offline(domain: Domain, other: str, request: wire.Exclude) -> Iterator[str]:
    info = read_info(domain, other)
    if info is None:
        yield f"store {other}: not recorded: nobody knows its directory"
        return
    try:
        with StoreDirectory(Path(info.directory)) as directory:
            file = StateFile(directory.path)
            state = file.load()
            if state is None:
                yield f"store {other}: not recorded: {directory.path} has no state, so it forgets whom it is not to wait for"
                return
            state.excluded[request.store] = request.number
            file.save(state)
    except (Error, OSError) as error:
        yield f"store {other}: not recorded: {error}"
        return
    print(f"store {other}: recorded in {info.directory}; it does not run")
