"""``holdfast store exclude``: the operator's word that nobody is to wait for a store that is gone."""

from __future__ import annotations

import os
import secrets
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..engine import wire
from ..engine.domain import Domain
from ..engine.errors import ConfigError, Error, NotRegisteredError, UsageError
from ..engine.store_info import read_info
from ..engine.store_request import FIRST, ask
from ..engine.store_state import StateFile, StoreDirectory

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["exclude"]


def exclude(store: str, timeout: float, name: str | None) -> int:
    """Records at every other store of the domain that ``store`` is excluded; prints what that gives up."""
    domain = Domain(name, make=name is None)
    try:
        others = [other for other in domain.store_names() if other != store]
        _check(domain, store, others)
        request = wire.Exclude(FIRST, store, secrets.randbelow(2**62) + 1)
        failed = [line for other in others for line in _record(domain, other, request, timeout)]
    finally:
        domain.close()
    for line in failed:
        print(line, file=sys.stderr)
    if len(failed) == len(others):
        return 3
    print(
        f"nobody waits for store {store} any more: messages that were stable only with what it has are given up. When it "
        f"returns, it learns from the others before it has a say again."
    )
    return 1 if failed else 0


def _check(domain: Domain, store: str, others: list[str]) -> None:
    if _listens(domain, store):
        raise UsageError(
            f"store {store} runs: who starts a source hears it", hint="stop it first, if it is to be excluded"
        )
    if not others:
        raise ConfigError(
            f"domain {domain.name} has no other store that could record it", hint="holdfast stat lists the stores"
        )


def _listens(domain: Domain, store: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        return sock.connect_ex(os.fspath(domain.socket_path(store))) == 0


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
        print(f"  topic {topic!r}, RegID {registration_id}: has messages below number {following}")


def _record_offline(domain: Domain, other: str, request: wire.Exclude) -> Iterator[str]:
    info = read_info(domain, other)
    if info is None:
        yield f"store {other}: not recorded: nobody knows its directory"
        return
    try:
        with StoreDirectory(Path(info.directory)) as directory:
            file = StateFile(directory.path)
            state = file.load()
            if state is not None:
                state.excluded[request.store] = request.number
                file.save(state)
    except (Error, OSError) as error:
        yield f"store {other}: not recorded: {error}"
        return
    print(f"store {other}: recorded in {info.directory}; it does not run")
