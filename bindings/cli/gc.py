"""``holdfast gc``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..engine.errors import ConfigError
from ..engine.memory.domain import Domain
from ..engine.tools.gc import Item, sweep
from ..extras import needed
from .all_domains import each_domain, exclude, heading
from .lines import say
from .orphans import collect_orphans

__all__ = ["Collection", "collect"]


@dataclass(frozen=True, slots=True)
class Collection:
    """Arguments of the verb."""

    dry_run: bool
    everything: bool
    domain: str | None
    all_domains: bool
    orphans: bool
    remove: bool
    older_than: str | None

    def check(self) -> None:
        """Raises ConfigError where some of them exclude each other."""
        if not self.orphans and (self.remove or self.older_than is not None):
            raise ConfigError("--remove and --older-than are for --orphans", hint="holdfast gc --orphans --remove")
        if self.orphans and (self.all_domains or self.domain is not None):
            raise ConfigError("orphans belong to no domain", hint="--orphans without --domain and --all-domains")
        if self.all_domains:
            exclude(self.domain)


def collect(wanted: Collection) -> int:
    """Removes what is dead and not needed, and lists it with what is dead and kept."""
    wanted.check()
    if wanted.orphans:
        return collect_orphans(
            wanted.older_than, remove=wanted.remove and not wanted.dry_run, everything=wanted.everything
        )
    if wanted.all_domains:
        return _collect_all(wanted.dry_run, wanted.everything)
    domain = Domain(wanted.domain, join=False, make=wanted.domain is None)
    try:
        items = _sweep(domain, wanted.dry_run, wanted.everything)
    finally:
        domain.close()
    _tell(domain.name, items, wanted.dry_run)
    return 0


def _collect_all(dry_run: bool, everything: bool) -> int:
    worst = 0
    for path, items, why, code in each_domain(lambda domain: _sweep(domain, dry_run, everything)):
        heading(path, why)
        if items is not None:
            _tell(Path(path).name, items, dry_run)
        worst = max(worst, code)
    return worst


def _sweep(domain: Domain, dry_run: bool, everything: bool) -> list[Item]:
    return sweep(domain, everything=everything, dry_run=dry_run) + _writers(domain.path / "spark", dry_run)


def _tell(name: str, items: list[Item], dry_run: bool) -> None:
    verb = "would remove" if dry_run else "removed"
    held = [item for item in items if item.kind == "lock" and not item.remove]
    for item in [item for item in items if item not in held] if len(held) > 1 else items:
        say(f"{verb if item.remove else 'kept'} {item.kind} {item.path}{_size(item)}: {item.why}")
    if len(held) > 1:
        folder = Path(held[0].path).parent
        say(f"kept {len(held)} lock files of dead processes in {folder}: objects that stay name them, or they are new")
    gone = [item for item in items if item.remove]
    say(f"domain {name}: {verb} {len(gone)} things, {sum(item.bytes for item in gone):,} bytes")


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
