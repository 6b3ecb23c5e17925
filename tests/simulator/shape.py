"""What a seed is about: which stores there are, how the source groups them, what goes wrong."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from simulator.scenes import SCENES, SHARE

FRAGMENT = 1024
"""Bytes of payload in a fragment."""
NUMBERS_MAX = 16
"""A message has no more fragments."""
SIZES: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((1,), (1,)), ((2,), (2,)), ((3,), (3,)), ((3,), (3,)), ((3,), (3,)), ((3,), (3,)), ((4,), (4,)), ((5,), (5,)),
    ((3,), (4,)), ((2,), (3,)), ((3, 1), (3, 1)), ((2, 2), (2, 2)), ((1, 3), (1, 4)), ((1, 1), (1, 1)), ((1, 1), (2, 2)),
    ((1, 1, 1), (1, 1, 1)),
)  # fmt: skip
"""Declared sizes of the groups, and how many stores are listed in each: one more is a backup."""
PRIMARY_AND_BACKUP = (1,), (2,)
FLIGHT_BYTES = 24_000
"""Of a receiver-paced source."""
LIFETIME_MS = 700
"""How long a source or a receiver is remembered that is gone."""
LIMIT = 196_992
"""Bytes of a source that a store keeps."""
PACED_LIMIT = 3 * FLIGHT_BYTES
"""The same of a receiver-paced source, which asks for less."""
PATIENCE_MS = 100
"""How long an impatient source waits for the stability of what it retains."""
PIN_MS = 100
"""A source waits that long for who looks at a message in its ring."""
RETAINED_S = 1
"""A source retains a message that long."""
AGE_S = 1
"""Seconds that a memory store keeps a message."""
RECOVERED = 6
"""Numbers that a receiver with a limit asks to recover."""
FAULTS = (
    "kill_store", "kill_source", "kill_receiver", "kill_all", "stop", "close_program", "close_store", "rival", "power_cut",
    "wipe", "restore", "cut_link", "disk_errors", "disk_away", "full", "hide", "step_clock", "write_back",
)  # fmt: skip
LATER_FAULTS = ("upgrade",)
"""Methods of faults.Faults. The later ones are the last dice of a shape: they turn only the seeds that have
them."""
LAST_FAULTS = ("swap", "usurp")
"""The same, each with dice of its own."""
CENSUS_FAULT, CENSUS_SHARE = "lose_census", 0.1
"""The same, and how often."""
FORMS = ("receive", "receive", "batch", "callback", "arrival", "limited", "explicit")
SENDS = ("send", "send", "batch", "claim", "smart")
FEATURES = ("paced", "deregister", "lifetimes", "limits", "ages", "proxies", "impatient", "starts", "notify")
LAST_FEATURES = {"confirms": 0.15}
"""The same, and how often, each with dice of its own."""
PLOTS = (
    "blind", "orphan", "disaster", "coup", "absence", "power", "succession", "severed", "dawn", "clogged",
    "poised", "exile", "unseen", "amnesia", "stalled", "relapse", "rejoin", "stateless",
)  # fmt: skip
"""Functions of plots and plots_unseen."""
NEEDED = {"glut": ("paced", "limits"), "brimful": ("notify",), "parting": ("deregister",)}
"""Features without which a plot comes to nothing."""
MORE_PLOTS = ("rush", "glut", "brimful", "parting")
"""Of plots_more. They are drawn by themselves: the other seeds stay what they were."""


@dataclass
class Shape:
    """See the module."""

    sizes: tuple[int, ...]
    groups: tuple[int, ...]
    """Group of each store, in list order."""
    levels: tuple[str, ...]
    """Of each store."""
    intragroup: str
    intergroup: str
    receivers: int
    ring: int
    flight: int
    unique: int
    """ume_retention_unique_confirmations."""
    mode: int | None
    """ume_message_stability_notification."""
    faults: tuple[str, ...]
    plots: tuple[str, ...]
    forms: tuple[str, ...] = ("receive", "receive")
    """How each receiver's program receives."""
    sends: str = "send"
    """How the source's program sends."""
    features: tuple[str, ...] = ()
    lists: tuple[tuple[int, ...], ...] = ()
    """Stores that a life of the source may declare, in list order; all of them where there is no list."""
    volatile: bool = True
    """A reboot empties the domain's directory."""
    names: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.names = tuple("abcdef"[: len(self.groups)])
        self.lists = self.lists or (tuple(range(len(self.groups))),)
        if "stateless" in self.plots:  # what is rare is left alone
            self.plots = tuple(plot for plot in self.plots if plot not in MORE_PLOTS)
        if "rush" in self.plots:  # what is large goes around the ring soon
            self.sends, self.flight = "send", 16
        for plot, needed in NEEDED.items():
            if plot in self.plots:
                self.features = tuple(each for each in FEATURES if each in self.features or each in needed)
        if "glut" in self.plots:  # nothing holds that source back, and its receivers never catch up
            self.features = tuple(each for each in self.features if each != "notify")
        if self.sends == "smart":  # it has no others
            self.unique, self.mode = 0, None if self.mode in {1, 3} else self.mode
        if self.has("lifetimes") or self.has("ages"):  # what is told by a clock that is set, nobody can judge
            self.faults = tuple(fault for fault in self.faults if fault != "step_clock")
        if self.has("paced"):  # a receiver that comes later has nothing of what was sent before: nobody confirms it
            self.lists, self.unique = self.lists[:1], 0
        if self.has("starts"):  # what the only receiver has skipped, nobody ever confirms
            self.unique = 0

    def has(self, feature: str) -> bool:
        """One of FEATURES, or of LAST_FEATURES."""
        return feature in self.features

    @property
    def stores(self) -> int:
        """How many are listed."""
        return len(self.groups)

    def source_options(self, declared: tuple[int, ...]) -> dict[str, object]:
        """Of the program's source, which declares these stores."""
        return {
            "ume_store_name": [f"{self.names[store]}:0:{self.groups[store]}" for store in declared],
            "ume_store_group": [f"{index}:{size}" for index, size in enumerate(self.sizes)],
            "ume_retention_intragroup_stability_behavior": self.intragroup,
            "ume_retention_intergroup_stability_behavior": self.intergroup,
            "ume_retention_unique_confirmations": self.unique,
            "ume_flight_size": self.flight,
            "ume_registration_interval": 60,
            "ume_store_activity_timeout": 1000,
            "ume_store_check_interval": 50,
            "ring_size": self.ring,
            "fragment_size": FRAGMENT,
            **({"ume_message_stability_notification": self.mode} if self.mode is not None else {}),
            **(
                {"ume_receiver_paced_persistence": 1, "ume_flight_size_bytes": FLIGHT_BYTES}
                if self.has("paced")
                else {}
            ),
            **(
                {"ume_repository_size_limit": PACED_LIMIT, "ume_repository_disk_file_size_limit": PACED_LIMIT}
                if self.has("paced") and self.has("limits")
                else {}
            ),
            **({"ume_repository_ack_on_reception": 1} if self.on_reception else {}),
            **({"ume_confirmed_delivery_notification": 1} if self.has("confirms") and self.sends != "smart" else {}),
            **({"ume_state_lifetime": LIFETIME_MS} if self.has("lifetimes") else {}),
            **({"ume_message_stability_lifetime": PATIENCE_MS} if self.has("impatient") else {}),
            **({"retransmit_retention_age_threshold": RETAINED_S} if self.has("ages") else {}),
            **({"retransmit_retention_size_limit": self.ring} if "brimful" in self.plots else {}),
            **({"ume_proxy_source": 1} if self.has("proxies") else {}),
            **({"ume_flight_size_behavior": "notify"} if self.has("notify") else {}),
            **(
                {"smart_src_max_message_length": 2048, "smart_src_retention_buffer_count": 16}
                if self.sends == "smart"
                else {}
            ),
        }

    @property
    def any_group(self) -> bool:
        """There are several groups, and any of them will do."""
        return len(self.sizes) > 1 and self.intergroup == "any"

    @property
    def backups(self) -> bool:
        """More stores are listed than take part."""
        return any(len(declared) > sum(self.sizes) for declared in self.lists)

    @property
    def on_reception(self) -> bool:
        """Stable is what lies in a store's pages."""
        return self.has("paced") and self.flight == 2

    @property
    def fragment(self) -> int:
        """Bytes of payload in a fragment."""
        return 2048 if self.sends == "smart" else FRAGMENT

    def store_options(self, level: str) -> dict[str, object]:
        """Of a store."""
        options: dict[str, object] = {"source-check-interval": 60, "holdfast-scrub-interval": 1}
        if self.has("paced"):
            options |= {"repository-allow-receiver-paced-persistence": 1, "repository-allow-ack-on-reception": 1}
        if self.has("lifetimes"):
            options |= {"source-activity-timeout": 100, "receiver-activity-timeout": 100}
        if self.has("limits"):
            options |= {"repository-disk-file-size-limit" if level == "disk" else "repository-size-limit": LIMIT}
        if self.has("ages") and level == "memory":
            options |= {"repository-age-threshold": AGE_S}
        if self.has("proxies"):
            options |= {"allow-proxy-source": 1, "source-activity-timeout": 100}
        return options

    def receiver_options(self, session: int) -> dict[str, object]:
        """Of a program's receiver."""
        more = {
            "arrival": {"ordered_delivery": -1},
            "limited": {"ume_application_outstanding_maximum": 20},
            "explicit": {"ume_explicit_ack_only": 1},
        }
        return {
            "ume_registration_interval": 60,
            "retransmit_request_message_timeout": 300,
            **({"ume_receiver_paced_persistence": self.pace(session)} if self.has("paced") else {}),
            **({"ume_state_lifetime": LIFETIME_MS} if self.has("lifetimes") else {}),
            **more.get(self.forms[session - 1], {}),
            **{"limited": {"retransmit_request_maximum": RECOVERED}, "new": {"use_late_join": 0}}.get(
                self.starts(session), {}
            ),
        }

    def starts(self, session: int) -> str:
        """Where a receiver starts, if not behind what its session has acknowledged: "limited" near the end,
        "new" with what comes from now on, or "chosen" by the program."""
        if not self.has("starts"):
            return ""
        return "chosen" if session == 2 else "new" if self.flight == 16 else "limited"

    def pace(self, session: int) -> int:
        """A receiver's mode: 1 holds messages up, 2 does not."""
        return 2 if session == 2 and self.flight == 4 else 1

    def enough(self, holders: set[int], declared: tuple[int, ...]) -> bool:
        """These stores satisfy stability for a source that declared those, whoever is active: fewer never
        do."""
        good = []
        for group, size in enumerate(self.sizes):
            there = sum(1 for store in holders if store in declared and self.groups[store] == group)
            good.append(there >= (size if self.intragroup == "all" else size // 2 + 1))
        if self.intergroup == "all":
            return all(good)
        return sum(good) > len(good) // 2 if self.intergroup == "majority" else any(good)


def draw(seed: int) -> Shape:
    """The seed's."""
    dice, more = random.Random(f"shape of {seed}"), random.Random(f"more of {seed}")
    plots = (more.choice(MORE_PLOTS),) if more.random() < 0.33 else ()
    sizes, listed = dice.choice(SIZES)
    if more.random() < 0.05:
        sizes, listed = PRIMARY_AND_BACKUP
    groups = tuple(group for group, count in enumerate(listed) for _ in range(count))
    lists: tuple[tuple[int, ...], ...] = ()
    if sizes == listed and len(sizes) == 1 and sizes[0] > 1 and dice.random() < 0.3:  # one store is exchanged
        lists = (tuple(range(sizes[0])), tuple(range(1, sizes[0] + 1)))
        groups = (0,) * (sizes[0] + 1)
    kind = dice.random()
    levels = tuple(
        "disk" if kind < 0.6 else "memory" if kind < 0.75 else dice.choice(("disk", "memory")) for _ in groups
    )  # fmt: skip
    shape = Shape(
        sizes,
        groups,
        levels,
        "quorum" if dice.random() < 0.6 else dice.choice(("all-active", "all")),
        dice.choice(("any", "all-active", "majority", "all")) if len(sizes) > 1 else "any",
        1 + dice.randrange(2),
        65536,
        dice.choice((2, 4, 16)),
        1 if dice.random() < 0.25 else 0,
        dice.choice((None, None, 1, 2, 3)),
        tuple(fault for fault in FAULTS if dice.random() < 0.4),
        (tuple(dice.sample(PLOTS, dice.choice((1, 1, 2, 3)))) if dice.random() < 0.85 else ()) + plots,
        tuple(dice.choice(FORMS) for _ in range(2)),
        dice.choice(SENDS),
        tuple(feature for feature in FEATURES if dice.random() < 0.3) if dice.random() < 0.4 else (),
        lists,
    )
    shape.faults += tuple(fault for fault in LATER_FAULTS if dice.random() < 0.2)
    shape.faults += tuple(fault for fault in LAST_FAULTS if random.Random(f"{fault} in {seed}").random() < 0.2)
    shape.features += tuple(
        each for each, share in LAST_FEATURES.items() if random.Random(f"{each} in {seed}").random() < share
    )
    censuses = random.Random(f"censuses of {seed}")
    shape.volatile = censuses.random() < 0.5
    shape.faults += (CENSUS_FAULT,) if censuses.random() < CENSUS_SHARE else ()
    for scene, fixed in SCENES.items():
        if random.Random(f"{scene} of {seed}").random() < SHARE:
            return replace(shape, plots=(scene,), **fixed)
    return shape
