"""What a seed is about: how many stores in which groups, of what kind, how large the ring, and which faults
may happen."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from simulation.disk import DISK, MEMORY
from simulation.world import MS

from holdfast.engine.options.receiver_paced import BLOCKING, NON_BLOCKING, Terms
from holdfast.engine.rules.quorum import INTERGROUP, INTRAGROUP

if TYPE_CHECKING:
    from simulation.world import World

    from holdfast.engine.rules.quorum import Consensus, Intergroup, Intragroup

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
RARER = ("rot", "deregister", "unregister", "absence")
"""More of them, of seeds with features."""


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
    keeps: int = 0
    """Messages that a log keeps at least; 0: all."""
    age_ns: int = 0
    """retransmit_retention_age_threshold."""
    lifetime_ns: int = 0
    """ume_message_stability_lifetime; 0: for ever."""
    mode: int | None = None
    """ume_message_stability_notification; None: nobody listens."""
    confirmation: int = 0
    """ume_confirmed_delivery_notification."""
    waits: bool = False
    """A send that the flight size refuses is tried again when the program is woken, and not before."""
    proxy: bool = False
    """ume_proxy_source, and every store allows it."""
    paced: Terms | None = None
    """Of a receiver-paced source; a fragment is a byte."""
    modes: tuple[int, ...] = ()
    """ume_receiver_paced_persistence of each receiver."""
    skips: bool = False
    """A receiver's recovery callback may choose to start behind its position."""
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
    if MEMORY in levels and len(levels) > 1:  # only with features
        faults -= {"power_cut"}
    return Config(
        sizes, groups, levels, intragroup, intergroup, receivers, slots, pick((2, 4, slots - 2)), retained,
        1 if chance(0.35) else 0, "lowest" if chance(0.2) else "majority", faults,
    )  # fmt: skip


def features(config: Config, seed: int) -> None:
    """What not every store or source is set to, in most seeds. It draws by itself: without it a seed is what
    it always was.

    What would stop a source for good is left out: receivers that must confirm what no store gives them any
    more.
    """
    dice = random.Random(f"features of {seed}")
    if dice.random() < 0.3:
        return
    if dice.random() < 0.6:
        config.keeps = config.slots if config.unique else dice.choice((4, 4, 8))
    config.age_ns = dice.choice((10 * MS, 40 * MS)) if dice.random() < 0.2 else 0
    config.lifetime_ns = dice.choice((60 * MS, 150 * MS)) if dice.random() < 0.25 else 0
    config.mode, config.confirmation = (dice.randrange(4), dice.randrange(4)) if dice.random() < 0.5 else (None, 0)
    config.waits = dice.random() < 0.4
    if dice.random() < 0.25:  # what is in flight is all that comes after stability is withheld
        config.keeps = config.lifetime_ns = config.unique = 0
        config.retained = config.slots - 1
        config.paced = Terms(config.flight + dice.choice((1, 4, 12)), config.flight, False)
        config.modes = tuple(dice.choice((BLOCKING, BLOCKING, NON_BLOCKING)) for _ in range(config.receivers))
    config.proxy = dice.random() < 0.2
    rarer = RARER if not config.unique else RARER[1:]
    config.faults |= {fault for fault in rarer if dice.random() < 0.4}
    if MEMORY in config.levels and dice.random() < 0.5:
        config.faults |= {"power_cut"}
    config.skips = dice.random() < 0.3
    if config.skips:  # nobody confirms what a new receiver has skipped
        config.unique = 0
