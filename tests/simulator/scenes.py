"""Scenes: each a plot, and the shape of the seeds in which it comes to something. They are for what hardly
any seed would meet by chance. Every scene has one seed in a hundred for itself."""

from __future__ import annotations

from typing import Any

__all__ = ["SCENES", "SHARE"]

SHARE = 0.01

THREE = {"sizes": (3,), "groups": (0, 0, 0), "levels": ("disk", "disk", "disk"), "lists": ()}
ONE = {"sizes": (1,), "groups": (0,), "levels": ("disk",), "lists": ()}
QUORUM = {**THREE, "intragroup": "quorum"}
TWO_AND_TWO = {
    "sizes": (2, 2), "groups": (0, 0, 1, 1), "levels": ("disk",) * 4, "lists": (), "intragroup": "quorum", "intergroup": "any",
}  # fmt: skip
TWO_LISTS = {
    "sizes": (3,), "groups": (0,) * 5, "levels": ("disk",) * 5, "lists": ((0, 1, 2), (2, 3, 4)), "intragroup": "quorum",
}  # fmt: skip
ANY_OF_TWO = {"sizes": (1, 1), "groups": (0, 1), "levels": ("disk", "disk"), "lists": (), "intergroup": "any"}
ALONE: dict[str, Any] = {
    "sizes": (1,), "groups": (0,), "lists": (), "receivers": 1, "faults": (), "features": (), "unique": 0, "mode": None,
}  # fmt: skip
"""One store and one receiver, and nothing else happens."""
FIVE: dict[str, Any] = {
    "sizes": (3,), "groups": (0,) * 5, "levels": ("disk",) * 5, "lists": ((0, 1, 3),), "intragroup": "quorum",
}  # fmt: skip
"""Of which the source has three."""
COUNTED: dict[str, Any] = {"faults": (), "features": (), "receivers": 1, "unique": 0}
LIMITED = {"features": ("limits",), "flight": 16, "sends": "send", "forms": ("receive", "limited"), "unique": 0}
SCENES: dict[str, dict[str, Any]] = {
    "without": {**QUORUM, "features": (), "faults": (), "unique": 0},
    "cloistered": {**QUORUM, "flight": 16, "sends": "send", "features": (), "unique": 0},
    "outpost": {**TWO_AND_TWO, "features": ()},
    "laggard": {**QUORUM, "features": (), "unique": 0},
    "careless": {**QUORUM, "flight": 16, "features": (), "unique": 0},
    "newcomer": {**ANY_OF_TWO, "features": ("paced",), "receivers": 2},
    "roundabout": {**TWO_LISTS, "features": ()},
    "emptied": {**QUORUM, "levels": ("disk", "memory", "memory"), "features": ()},
    "rewound": {**QUORUM, "features": (), "faults": (), "unique": 0},
    "verge": {**ALONE, "levels": ("memory",), "flight": 16, "forms": ("batch", "batch"), "sends": "send"},
    "overdue": {**ONE, "features": ("deregister",), "unique": 0},
    "renamed": {**QUORUM, "features": ("deregister",), "unique": 0},
    "rises": {**ONE, "features": ("deregister",), "unique": 0},
    "outgrown": {**ONE, **LIMITED},
    "stranger": {**ANY_OF_TWO, **LIMITED},
    "guests": {**QUORUM, "features": (), "unique": 0},
    "outlived": {**QUORUM, "features": ("lifetimes",), "unique": 0},
    "debut": {**QUORUM, **COUNTED},
    "relocated": {**FIVE, **COUNTED},
}
"""Name of the plot -> what replaces the fields of shape.Shape. A scene with stores of its own sets ``sizes``,
``groups``, ``levels`` and ``lists``."""
