"""The source is dead, all else is well: one store stands in for it (docs/semantics.md J.2), a receiver that
never was there has all of it, and when the source is back nobody stands in any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.receiver import Receiver

if TYPE_CHECKING:
    from collections.abc import Callable

    from simulation.faults import Faults
    from simulation.machine import Machine

ROUNDS_MAX = 120
AGAIN = 6
"""Rounds in which it stays so."""


def check(machine: Machine, faults: Faults, uuid: bytes) -> None:
    """See the module."""
    for source in list(machine.sources):
        faults.kill(source.process)
    late = machine.config.receivers + 1
    if machine.config.paced is None:
        machine.receivers[late] = Receiver(machine, late)
    _until(machine, "one store stands in", lambda: _one_stands_in(machine, uuid))
    if len(machine.stores) > 1:
        index = next(i for i, store in machine.stores.items() if uuid in store.proxies.standing)
        faults.kill(machine.stores[index].process)
        _until(machine, "another store stands in", lambda: _one_stands_in(machine, uuid))
        faults.start("store", index)
    if late in machine.receivers:
        end = max(log.next for log in machine.logs(uuid))
        _until(machine, "a late receiver has all of it", lambda: _has(machine.receivers[late], uuid, end))
        machine.truth.got_everything(uuid, late)
    faults.start_source()
    _until(machine, "the source is back", lambda: not _standing(machine, uuid) and machine.sources[0].may_send)


def _until(machine: Machine, what: str, holds: Callable[[], bool]) -> None:
    since = 0
    for _ in range(ROUNDS_MAX):
        since = since + 1 if holds() else 0
        if since == AGAIN:
            return
        machine.world.round()
    machine.truth.fail(f"without the source: not reached: {what}")


def _standing(machine: Machine, uuid: bytes) -> list[str]:
    return [store.name for store in machine.stores.values() if uuid in store.proxies.standing]


def _one_stands_in(machine: Machine, uuid: bytes) -> bool:
    standing = _standing(machine, uuid)
    if len(standing) > 1:
        machine.truth.fail(f"{standing} stand in for one source")
    return len(standing) == 1 or not any(
        uuid in store.directory.logs and store.directory.logs[uuid].begins for store in machine.stores.values()
    )


def _has(receiver: Receiver, uuid: bytes, end: int) -> bool:
    controller = receiver.controllers.get(uuid)
    return controller is not None and controller.window is not None and controller.next >= end and not controller.held
