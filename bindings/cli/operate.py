"""``holdfast store deregister`` and ``holdfast store mark``: what an operator changes at a running store."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..engine.control import wire
from ..engine.control.request import FIRST, ask
from ..engine.errors import ConfigError, Error, RegIdInUseError
from ..engine.log.info_file import read_info
from ..engine.memory.domain import Domain
from .lines import say
from .store_finished import deregister_finished

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Deregistration", "deregister", "deregister_as_asked", "mark", "numbers"]


@dataclass(frozen=True, slots=True)
class Deregistration:
    """What ``store deregister`` was given."""

    store: str | None
    source: int | None
    receiver: int | None
    older: str | None
    topic: str | None
    finished: bool
    force: bool
    dry_run: bool
    receiver_uuid: str | None = None


def deregister_as_asked(wanted: Deregistration, timeout: float, name: str | None) -> int:
    """One source or receiver at one store, or at all stores what is finished. Raises ConfigError: neither, or
    both."""
    if wanted.finished:
        if wanted.store is not None or wanted.source or wanted.receiver or wanted.receiver_uuid:
            raise ConfigError("--finished is about all stores and sources", hint="leave NAME, --source, --receiver out")
        if wanted.older is None:
            raise ConfigError("--finished needs --older-than", hint="--older-than 7d; --dry-run only says what goes")
        force, dry = wanted.force, wanted.dry_run
        return deregister_finished(wanted.older, wanted.topic, timeout, name, force=force, dry_run=dry)
    if wanted.older is not None or wanted.topic is not None or wanted.dry_run:
        raise ConfigError("--older-than, --topic and --dry-run are of --finished", hint="add it, or leave them out")
    if wanted.store is None or wanted.source is None:
        raise ConfigError(
            "a store's NAME and --source REGID are needed", hint="holdfast stat shows them; or --finished"
        )
    uuid = b"" if wanted.receiver_uuid is None else _uuid(wanted.receiver_uuid)
    if uuid and not wanted.receiver:
        raise ConfigError("--receiver-uuid says which receiver of a RegID is meant", hint="add --receiver REGID")
    return deregister(wanted.store, wanted.source, wanted.receiver or 0, wanted.force, timeout, name, uuid)


def _uuid(text: str) -> bytes:
    """Raises ConfigError."""
    if re.fullmatch("[0-9a-fA-F]{32}", text) is None:
        raise ConfigError(f"--receiver-uuid {text!r} is no uuid", hint="32 hexadecimal digits: holdfast stat --json")
    return bytes.fromhex(text)


def deregister(
    store: str, source: int, receiver: int, force: bool, timeout: float, name: str | None, uuid: bytes = b""
) -> int:
    """Makes a store forget a source with its messages, or one receiver of it: that with this ``uuid``, if one
    is given."""
    request = wire.OperatorDeregister(FIRST, source, receiver, force, uuid)

    def ask_for(domain: Domain) -> wire.Answer:
        info = read_info(domain, store) if uuid else None
        if info is not None and info.ready is None:  # it would go by the RegID alone
            raise Error(
                f"store {store} is of an older release, which knows no --receiver-uuid",
                hint=f"stop store {store}, start it by the release of this command, and ask again",
            )
        return ask(domain, store, request, timeout)

    try:
        answer = _asked(name, ask_for)
    except RegIdInUseError as held:
        held.hint = "stop that process, or take it away from it with --force; it is told"
        raise
    assert isinstance(answer, wire.Deregistered)
    if receiver:
        say(f"store {store}: receiver {receiver} of source {source} deregistered; it had acknowledged {_end(answer)}")
    else:
        say(f"store {store}: source {source} deregistered with its messages; it had stored {_end(answer)}")
    return 0


def _end(answer: wire.Deregistered) -> str:
    return f"up to number {answer.next_sqn - 1}" if answer.next_sqn else "nothing"


def mark(store: str, source: int, text: str, timeout: float, name: str | None) -> int:
    """Marks messages undeliverable at a store, for good."""
    request = wire.Mark(FIRST, source, numbers(text))
    answer = _asked(name, lambda domain: ask(domain, store, request, timeout))
    assert isinstance(answer, wire.Marked)
    for first, last in answer.ranges:
        said = f"number {first}" if first == last else f"numbers {first}..{last}"
        say(f"store {store}: {said} of source {source} marked undeliverable")
    return 0


def _asked(name: str | None, work: Callable[[Domain], wire.Answer]) -> wire.Answer:
    domain = Domain(name, make=name is None)
    try:
        return work(domain)
    finally:
        domain.close()


def numbers(text: str) -> list[tuple[int, int]]:
    """``2,5,7-9`` as (first, last). Raises ConfigError."""
    hint = "numbers and ranges, such as 2,5,7-9"
    found = []
    for part in text.split(","):
        first, dash, last = (word.strip() for word in part.partition("-"))
        last = last if dash else first
        if not (first.isascii() and first.isdigit() and last.isascii() and last.isdigit()) or len(first + last) > 38:
            raise ConfigError(f"{part.strip()!r} is no sequence number or range of them", hint=hint)
        if int(last) < int(first) or int(last) >= 2**63:
            raise ConfigError(f"range {part.strip()!r} is empty, or ends beyond {2**63 - 1}", hint=hint)
        found.append((int(first), int(last)))
    if len(found) > wire.RANGES_MAX:
        raise ConfigError(f"{len(found)} ranges, one command takes {wire.RANGES_MAX}", hint="run it several times")
    return found
