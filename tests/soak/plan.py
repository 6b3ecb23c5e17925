"""What happens in a soak and when: drawn from the seed before it begins."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from soak.programs import RECEIVERS

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LEAVER", "RECEIVERS", "SOURCES", "STORES", "TOPICS", "Trouble", "topics_of", "troubles"]

STORES = ("a", "b", "c")
SOURCES = ("s0", "s1", "s2")
TOPICS = {source: f"soak.{source}" for source in SOURCES}
LEAVER = "throttled"
ONE_TOPIC = {"one": "soak.s0", "arrival": "soak.s1", "explicit": "soak.s2"}
"""These receive one topic; the others all, by a pattern."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """One blow. ``at``: seconds since the begin. ``what``: ``kill``, ``stop``, ``close``, ``wipe`` or
    ``leave``. ``for_s``: how long it is away."""

    at: float
    what: str
    whom: str
    for_s: float


def topics_of(receiver: str) -> tuple[str, ...]:
    """What a receiver of this kind receives."""
    return (ONE_TOPIC[receiver],) if receiver in ONE_TOPIC else tuple(TOPICS.values())


def troubles(seed: int, seconds: float, every: float) -> Iterator[Trouble]:
    """One each ``every`` seconds, the last early enough to be mended before the end."""
    draw = random.Random(seed)
    at = every
    while at < seconds - every:
        group = draw.choice((STORES, SOURCES, RECEIVERS))
        whom = draw.choice(group)
        if whom == LEAVER:
            yield Trouble(at, "leave", whom, draw.choice((0.3, 1, 5)) * every)
        else:
            kinds = ("kill", "stop", "close", "wipe") if group is STORES else ("kill", "kill", "stop", "close")
            away = draw.choice((0.0, 0.0, draw.random() * every / 4))
            yield Trouble(at, draw.choice(kinds), whom, away)
        at += every
