"""``holdfast gc``."""

from __future__ import annotations

from ..engine.domain import Domain
from ..engine.sweep import Item, sweep

__all__ = ["collect"]


def collect(dry_run: bool, everything: bool, name: str | None) -> int:
    """Removes what is dead and not needed, and lists it with what is dead and kept."""
    domain = Domain(name, join=False)
    try:
        items = sweep(domain, everything=everything, dry_run=dry_run)
    finally:
        domain.close()
    verb = "would remove" if dry_run else "removed"
    for item in items:
        print(f"{verb if item.remove else 'kept'} {item.kind} {item.path}{_size(item)}: {item.why}")
    gone = [item for item in items if item.remove]
    print(f"domain {domain.name}: {verb} {len(gone)} things, {sum(item.bytes for item in gone):,} bytes")
    return 0


def _size(item: Item) -> str:
    return f" ({item.bytes:,} bytes)" if item.bytes else ""
