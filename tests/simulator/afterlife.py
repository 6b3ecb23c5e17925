"""All is well, and the source dies: one store stands in for it, the same for everybody, and another one when
that dies, too; when the source is back, none does (docs/semantics.md J.2)."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import TYPE_CHECKING

from simulator.native import lib
from simulator.paths import Path

if TYPE_CHECKING:
    from collections.abc import Callable

    from simulator.machine import Machine

__all__ = ["check"]

WITHIN_NS = 5_000_000_000
AGAIN = 8
"""Looks at which it stays so."""
LOOK_STEPS = 20


def check(machine: Machine, step: Callable[[], object]) -> None:
    """See the module. ``step``: the world goes on. A store that is declared no more may stand in beside one
    that is, and a source that is gone for its lifetime is forgotten."""
    shape = machine.shape
    if not shape.has("proxies") or shape.has("lifetimes") or len(shape.lists) > 1:
        return

    uuid = next(life.source.uuid for life in machine.judge.lives if life.process is machine.sources[0])

    def until(what: str, holds: Callable[[], bool]) -> None:
        end, since = int(lib.sim_now_ns) + WITHIN_NS, 0
        while since < AGAIN:
            if int(lib.sim_now_ns) > end:
                machine.judge.fail(f"not reached: {what}; {_standing(machine, uuid)} stand in")
            for _ in range(LOOK_STEPS):
                step()
            since = since + 1 if holds() else 0

    until("the source lives, and nobody stands in", lambda: not _standing(machine, uuid))
    for source in list(machine.sources):
        machine.ended(source)
    until("a store stands in", lambda: len(_standing(machine, uuid)) == 1)
    (there,) = _standing(machine, uuid)
    if len(_with_messages(machine)) > 1:
        machine.ended(machine.stores[there])
        until("another store stands in", lambda: len(_standing(machine, uuid)) == 1)
        machine.start_store(there)
    machine.start_source()
    until("the source is back, and nobody stands in", lambda: not _standing(machine, uuid))


def _with_messages(machine: Machine) -> set[int]:
    """Stores that have one of those that came last."""
    judge = machine.judge
    stable = [message for message in judge.messages.values() if message.stable]
    return judge.holders(stable[-1].mark) & machine.stores.keys()


def _standing(machine: Machine, uuid: bytes) -> list[int]:
    """Stores that run, and say that they stand in for the source."""
    lib.sim_held += 1
    found = []
    for index in sorted(machine.stores):
        try:
            said = json.loads(Path(f"/run/holdfast/d/stores/{machine.shape.names[index]}.info").read_bytes())
        except (OSError, ValueError):  # it has just begun, or writes it now
            continue
        found += [index] if uuid in map(b64decode, said.get("standing", ())) else []
    lib.sim_held -= 1
    return found
