"""What a reader makes of the stores of a history: a receiver's logs, or Spark, at a moment when some cannot
be read.

Run by the product: :func:`holdfast.engine.log.believed.tables_by_states`. The judge goes by its own book of
what is stable:

* a number below which all tables that may hold agree is never read as something else than it was when it was
  stable;
* what is stable there is not hidden, where a store that can be read has it;
* where every store can be read, there is nothing to wait for.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from model.verdicts import LostError

from holdfast.engine.log.believed import Kept, tables_by_states
from holdfast.engine.rules.reconcile import void_from
from holdfast.engine.rules.reports import agreed_below

if TYPE_CHECKING:
    from collections.abc import Collection

    from model.histories import World

    from holdfast.engine.rules.reconcile import Table


def judge_readers(world: World) -> None:
    """By a reader who reads all of them, and by those who cannot read one."""
    for hidden in ("", *world.disks):
        judge(world, {hidden} - {""})


def judge(world: World, hidden: Collection[str]) -> None:
    """Raises LostError."""
    tables = tables_of(world, hidden)
    table, agreed = tables[-1], agreed_below(tables)
    away = f"without {sorted(hidden)}: " if hidden else ""
    for number, content in world.stable.items():
        found = {
            name: disk.log[number].content
            for name, disk in world.disks.items()
            if name not in hidden and number in disk.log and number < void_from(table, disk.log[number].incarnation)
        }
        have = [name for name in world.disks if name not in hidden and has(world, name, number)]
        if number >= agreed:
            if not hidden:
                raise LostError(f"number {number} is waited for, and all stores can be read: {tables}")
        elif any(other != content for other in found.values()):
            raise LostError(f"{away}number {number} was stable as {content}, and is read as {found} by {table}")
        elif have and not found:
            raise LostError(f"{away}number {number} is stable, and hidden by {table}: {have} have it")


def has(world: World, name: str, number: int) -> bool:
    """Its log has the number as it was when it was stable."""
    kept = world.disks[name].log.get(number)
    return kept is not None and kept.content == world.stable[number]


def tables_of(world: World, hidden: Collection[str]) -> list[Table]:
    """The product's."""
    views = {name: None if name in hidden else disk.view() for name, disk in world.disks.items()}
    kept = [
        Kept(name, Path(f"/nowhere/{name}"), {}, disk.state)
        for name, disk in world.disks.items()
        if name not in hidden and disk.state is not None
    ]
    return tables_by_states(views, kept)
