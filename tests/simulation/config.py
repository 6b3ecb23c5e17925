"""What a seed is about: how many stores in which groups, of what kind, how large the ring, and which faults may happen."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from simulation.disk import DISK, MEMORY
from simulation.world import MS

from holdfast.engine.quorum import INTERGROUP, INTRAGROUP

if TYPE_CHECKING:
    from simulation.world import World

    from holdfast.engine.quorum import Consensus, Intergroup, Intragroup

INTERVAL_NS = 40 * MS
"""ume_registration_interval."""
ACTIVITY_NS = 60 * MS
"""ume_store_activity_timeout."""
CHECK_NS = 10 * MS
PIN_NS = 15 * MS
"""receiver_pin_timeout."""
PATIENCE_NS = 50 * MS
"""retransmit_request_message_timeout."""

SHAPES: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((1,), (1,)), ((2,), (2,)), ((3,), (3,)), ((3,), (3,)), ((3,), (3,)), ((3,), (3,)), ((4,), (4,)), ((5,), (5,)),
    ((3,), (4,)), ((2,), (3,)), ((3, 1), (3, 1)), ((2, 2), (2, 2)), ((1, 3), (1, 4)), ((1, 1), (1, 1)), ((1, 1), (2, 2)),
)  # fmt: skip
"""Declared sizes of the groups, and how many stores are listed in each: one more is a backup."""
FAULTS = (
    "kill_store", "kill_source", "kill_receiver", "kill_all", "stop", "close", "cut_link", "rival", "power_cut", "wipe",
    "restore", "full", "fail", "coup", "disaster",
)  # fmt: skip
"""Methods of faults.Faults."""


@dataclass
class Config:
    """See the module."""

    sizes: tuple[int, ...]
    groups: tuple[int, ...]
    """Group of each store, in list order."""
    levels: tuple[str, ...]
    """Of each store."""
    intragroup: Intragroup
    intergroup: Intergroup
    receivers: int
    slots: int
    flight: int
    retained: int
    """In fragments; less than the flight: messages are reclaimed by force."""
    unique: int
    """ume_retention_unique_confirmations."""
    consensus: Consensus = "majority"
    """Of receivers; sources take the majority."""
    faults: frozenset[str] = frozenset()
    names: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.names = tuple("ABCDE"[: len(self.groups)])

    @property
    def stores(self) -> int:
        """How many are listed."""
        return len(self.groups)


def draw(world: World) -> Config:
    """The seed's."""
    pick, chance = world.pick, world.chance
    sizes, listed = pick(SHAPES)
    groups = tuple(group for group, count in enumerate(listed) for _ in range(count))
    kind = world.random()
    levels = tuple(
        DISK if kind < 0.6 else MEMORY if kind < 0.75 else pick((DISK, MEMORY)) for _ in groups
    )  # fmt: skip
    intragroup = INTRAGROUP[0] if chance(0.6) else pick(INTRAGROUP[1:])
    intergroup = pick(INTERGROUP) if len(sizes) > 1 else INTERGROUP[0]
    slots = pick((8, 8, 12, 24))
    retained = pick((3, 5)) if chance(0.15) else slots - 1
    receivers = 1 + world.below(3)
    faults = frozenset(fault for fault in FAULTS if chance(0.5))
    if MEMORY in levels and len(levels) > 1:  # its table of BEGINs goes with its log, and nobody else may have it
        faults -= {"power_cut"}
    return Config(
        sizes, groups, levels, intragroup, intergroup, receivers, slots, pick((2, 4, slots - 2)), retained,
        1 if chance(0.35) else 0, "lowest" if chance(0.2) else "majority", faults,
    )  # fmt: skip
