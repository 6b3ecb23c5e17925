"""``holdfast gc``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..engine.errors import ConfigError
from ..engine.memory.domain import Domain
from ..engine.tools.gc import Item, sweep
from .lines import say
from .pipeline_spark import needed

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["collect"]


def collect(dry_run: bool, everything: bool, name: str | None) -> int:
    """Removes what is dead and not needed, and lists it with what is dead and kept."""
    domain = Domain(name, join=False, make=name is None)
    try:
        items = sweep(domain, everything=everything, dry_run=dry_run) + _writers(domain.path / "spark", dry_run)
    finally:
        domain.close()
    verb = "would remove" if dry_run else "removed"
    for item in items:
        say(f"{verb if item.remove else 'kept'} {item.kind} {item.path}{_size(item)}: {item.why}")
    gone = [item for item in items if item.remove]
    say(f"domain {domain.name}: {verb} {len(gone)} things, {sum(item.bytes for item in gone):,} bytes")
    return 0


def _writers(place: Path, dry_run: bool) -> list[Item]:
    """What Spark's have left, if there were any."""
    if not place.is_dir() or not any(path.is_dir() for path in place.iterdir()):
        return []
    try:
        with needed():
            from ..spark.leftovers import leftovers
    except ConfigError as error:
        return [Item("writer", str(place), 0, False, f"not looked at: {error.args[0]}")]
    return leftovers(place, dry_run=dry_run)


def _size(item: Item) -> str:
    return f" ({item.bytes:,} bytes)" if item.bytes else ""
