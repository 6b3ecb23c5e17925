"""``holdfast gc --orphans``: what is in shared memory of domains that are gone."""

from __future__ import annotations

from ..engine.tools.orphans import Orphan, orphans
from .lines import say
from .store_finished import age_ns

__all__ = ["collect_orphans"]

UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def collect_orphans(older: str | None, *, remove: bool, everything: bool) -> int:
    """Lists it, whose it is and why it belongs to nobody; removes it where that is asked for."""
    found = orphans(older_ns=None if older is None else age_ns(older), remove=remove, everything=everything)
    verb = "removed" if remove else "would remove"
    for each in found:
        said = f"{each.why}; {each.kept}" if each.kept else each.why
        say(f"{'kept' if each.kept else verb} {each.kind} {each.path} ({_holds(each)}), {_whose(each)}: {said}")
    gone, kept = [each for each in found if not each.kept], [each for each in found if each.kept]
    say(f"orphans: {verb} {len(gone)} things, {_bytes(gone)} bytes; kept {len(kept)}, {_bytes(kept)} bytes")
    if gone and not remove:
        more = (" --all" if everything else "") + (f" --older-than {older}" if older else "")
        say(f"to remove them: holdfast gc --orphans --remove{more}")
    return 0


def _bytes(found: list[Orphan]) -> str:
    return f"{sum(each.bytes for each in found):,}"


def _holds(each: Orphan) -> str:
    seconds = each.age_ns // 1_000_000_000
    size, unit = next(((size, unit) for size, unit in UNITS if seconds >= size), UNITS[-1])
    return f"{each.bytes:,} bytes, {seconds // size} {unit} old"


def _whose(each: Orphan) -> str:
    return f"domain {each.domain}" if each.domain else "of an unknown domain"
