"""``holdfast store deregister --finished``: makes stores forget the sources that nobody goes on with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..engine.control import wire
from ..engine.control.request import FIRST, ask
from ..engine.errors import ConfigError, Error
from ..engine.memory.domain import Domain
from ..engine.tools.finished import Candidate, candidates
from .lines import say

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["age_ns", "deregister_finished"]

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def age_ns(text: str) -> int:
    """``90s``, ``30m``, ``12h``, ``7d`` or ``2w``. Raises ConfigError."""
    number, unit = text[:-1], text[-1:]
    if unit not in UNITS or not (number.isascii() and number.isdigit()) or len(number) > 9:
        raise ConfigError(f"age {text!r} is no number with a unit", hint="90s, 30m, 12h, 7d or 2w")
    return int(number) * UNITS[unit] * 1_000_000_000


def deregister_finished(
    older: str, topic: str | None, timeout: float, name: str | None, *, force: bool, dry_run: bool
) -> int:
    """Prints what goes, what it holds, and what stays and why. 1: a store did not do it."""
    older_ns = age_ns(older)
    domain = Domain(name, join=not dry_run, make=name is None)
    try:
        gone = kept = size = failed = 0
        for each in candidates(domain, older_ns, topic, force=force):
            if each.keep:
                kept += 1
                say(f"kept {_named(each)}: {each.keep}; {_holds(each)}")
                continue
            errors = [] if dry_run else list(_forget(domain, each, older_ns, timeout, force=force))
            for error in errors:
                say(f"not deregistered everywhere: {_named(each)}: {error}", error=True)
            failed += bool(errors)
            if not errors:
                gone, size = gone + 1, size + each.bytes
                say(f"{_verb(dry_run)} {_named(each)}: {_holds(each)}")
    finally:
        domain.close()
    say(f"domain {domain.name}: {_verb(dry_run)} {gone} sources, {size:,} bytes; kept {kept}")
    return 1 if failed else 0


def _verb(dry_run: bool) -> str:
    return "would deregister" if dry_run else "deregistered"


def _forget(domain: Domain, each: Candidate, older_ns: int, timeout: float, *, force: bool) -> Iterator[str]:
    """What a store says that does not do it. The source is looked at once more, for others may have been
    waited for meanwhile; and the store looks whether it is as it was seen."""
    again = [now for now in candidates(domain, older_ns, each.topic, force=force) if now.uuid == each.uuid]
    if not again or again[0].keep or again[0].next != each.next:
        yield (again[0].keep or "it has sent more meanwhile") if again else "no store keeps it any more"
        return
    for store, registration_id in sorted(again[0].registration_ids.items()):
        try:
            source = bytes.fromhex(each.uuid)
            ask(
                domain,
                store,
                wire.OperatorDeregister(FIRST, registration_id, 0, False, source, each.next, force),
                timeout,
            )
        except Error as error:  # it may live again: what the others have of it stays
            yield f"store {store}: {error}"
            return


def _named(each: Candidate) -> str:
    return f"topic {each.topic!r}, RegID " + ", ".join(
        f"{n} at {store}" for store, n in sorted(each.registration_ids.items())
    )


def _holds(each: Candidate) -> str:
    numbers = f"numbers {each.oldest}..{each.next - 1}" if each.oldest < each.next else "no messages"
    age = "of unknown age" if each.age_ns is None else f"{_age(each.age_ns)} old"
    owed = f"; owed: {', '.join(each.owed)}" if each.owed and not each.keep else ""
    return f"{numbers}, {each.bytes:,} bytes, {age}{owed}"


def _age(ns: int) -> str:
    seconds = max(0, ns // 1_000_000_000)
    unit = next((unit for unit in "dhm" if seconds >= UNITS[unit]), "s")
    return f"{seconds // UNITS[unit]}{unit}"
