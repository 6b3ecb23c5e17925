"""The stores' censuses, which lie in the domain, and the host's register of sources: what goes wrong with
them."""

from __future__ import annotations

import contextlib

from simulator import system
from simulator.machine import STATE
from simulator.world import world

__all__ = ["CensusFaults", "forget_register", "remove"]

PLACE = "/run/holdfast/d/stores"
ENDING = ".census"


def _names(place: str) -> list[str]:
    with contextlib.suppress(OSError):  # there are none, or their disk does not work
        return sorted(system.os.listdir(place))
    return []


def remove(store: str) -> None:
    """Somebody takes it away."""
    with contextlib.suppress(OSError):
        system.os.unlink(f"{PLACE}/{store}{ENDING}")


def forget_register() -> None:
    """Somebody takes the register of sources away; or who starts now has another one."""
    for name in _names(f"{STATE}/.register"):
        with contextlib.suppress(OSError):
            system.os.unlink(f"{STATE}/.register/{name}")


class CensusFaults:
    """Those of faults.Faults."""

    def lose_census(self) -> None:
        """One is taken away."""
        if names := [name for name in _names(PLACE) if name.endswith(ENDING)]:
            remove(names[int(world.random() * len(names))].removesuffix(ENDING))
