"""``holdfast store deregister --finished``: makes stores forget the sources that nobody goes on with."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..engine.control.forgetting import FINISHED_MAX, Finished, ForgetFinished, ForgotFinished
from ..engine.control.request import FIRST, ask
from ..engine.errors import ConfigError, Error
from ..engine.memory.domain import Domain
from ..engine.tools.finished import Candidate, candidates, changed
from .lines import say

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["age_ns", "deregister_finished"]

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
BATCH_BYTES = 256 << 20
"""Of logs in one request, where it is more than one source: large files take a while to remove."""


class _Stay(NamedTuple):
    """Why a source stays that could go when it was looked at."""

    why: str
    alive: bool = False
    """Somebody goes on with it, or has since."""
    forgotten_at: tuple[str, ...] = ()
    """Stores that had done it by then."""

    @property
    def is_failure(self) -> bool:
        """A source that is alive is not finished, and nothing is amiss where all of its stores keep it."""
        return not self.alive or bool(self.forgotten_at)

    def __str__(self) -> str:
        said = f"it came to life again: {self.why}" if self.alive else self.why
        if not self.forgotten_at:
            return said
        said = f"{said}; store {', '.join(self.forgotten_at)} had forgotten it by then"
        return f"{said}, and gets it again from the others, as after a loss of its log" if self.alive else said


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
        for batch in _batches(candidates(domain, older_ns, topic, force=force)):
            going = [each for each in batch if not each.keep]
            stays = {} if dry_run else _forget(domain, going, timeout, force=force)
            for each in batch:
                if each.keep:
                    kept += 1
                    say(f"kept {_named(each)}: {each.keep}; {_holds(each)}")
                elif each.uuid not in stays:
                    gone, size = gone + 1, size + each.bytes
                    say(f"{_verb(dry_run)} {_named(each)}: {_holds(each)}")
                elif stays[each.uuid].is_failure:
                    failed += 1
                    say(f"not deregistered everywhere: {_named(each)}: {stays[each.uuid]}", error=True)
                else:
                    kept += 1
                    say(f"kept {_named(each)}: {stays[each.uuid]}")
    finally:
        domain.close()
    say(f"domain {domain.name}: {_verb(dry_run)} {gone} sources, {size:,} bytes; kept {kept}")
    return 1 if failed else 0


def _verb(dry_run: bool) -> str:
    return "would deregister" if dry_run else "deregistered"


def _batches(found: Iterable[Candidate]) -> Iterator[list[Candidate]]:
    """What goes in one request: a store saves its state once for it, and answers when the files are gone."""
    batch, size = list[Candidate](), 0
    for each in found:
        if batch and (len(batch) == FINISHED_MAX or size + each.bytes > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(each)
        size += each.bytes
    if batch:
        yield batch


def _forget(domain: Domain, going: list[Candidate], timeout: float, *, force: bool) -> dict[str, _Stay]:
    """Why sources stay, by uuid. Others may have been waited for since they were looked at. So all of their
    stores say first whether anything has changed, and only then one after the other forgets."""
    stays = {uuid: _Stay(why) for uuid, why in changed(domain, going, force=force).items()}
    forgotten: dict[str, tuple[str, ...]] = {}
    for only_look in (True, False):
        for store in sorted({store for each in going for store in each.registration_ids}):
            asked = [each for each in going if store in each.registration_ids and each.uuid not in stays]
            if not asked:
                continue
            said = _ask(domain, store, asked, timeout, force=force, only_look=only_look)
            for uuid in [each.uuid for each in asked]:
                if uuid in said:
                    stays[uuid] = said[uuid]._replace(forgotten_at=forgotten.get(uuid, ()))
                elif not only_look:
                    forgotten[uuid] = *forgotten.get(uuid, ()), store
    return stays


def _ask(
    domain: Domain, store: str, sources: list[Candidate], timeout: float, *, force: bool, only_look: bool
) -> dict[str, _Stay]:
    """What a store says of those that it keeps. Where it fails, what the others have of them stays: a source
    may live again there."""
    seen = [Finished(bytes.fromhex(each.uuid), each.incarnation, each.next, each.gone_ns) for each in sources]
    try:
        answer = ask(domain, store, ForgetFinished(FIRST, seen, force, only_look), timeout)
    except Error as error:
        return {each.uuid: _Stay(f"store {store}: {error}") for each in sources}
    assert isinstance(answer, ForgotFinished)
    return {uuid.hex(): _Stay(why, uuid in answer.alive) for uuid, why in answer.kept}


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
