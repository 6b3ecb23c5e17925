"""What happens in a soak and when: drawn from the seed before it begins."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from soak.programs import RECEIVERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "GIVEN_UP_S", "LEAVER", "RECEIVERS", "SOURCES", "STORES", "TOPICS", "Trouble", "topics_of", "troubles",
]  # fmt: skip

STORES = ("a", "b", "c")
SOURCES = ("s0", "s1", "s2")
TOPICS = {source: f"soak.{source}" for source in SOURCES}
LEAVER = "throttled"
GIVEN_UP_S = 10.0
"""``ume_store_activity_timeout``, as it is by default."""
SILENT_S = GIVEN_UP_S + 10.0
"""So long is a store silent at least, so that a source on a busy machine has noticed."""
ONE_TOPIC = {"one": "soak.s0", "arrival": "soak.s1", "explicit": "soak.s2"}
"""These receive one topic; the others all, by a pattern."""
OF_STORES = ("kill", "stop", "silence", "close", "wipe", "adopt", "exclude")
OF_OTHERS = ("kill", "kill", "stop", "close")


@dataclass(frozen=True, slots=True)
class Trouble:
    """One blow. ``at``: seconds since the begin. ``what``: ``kill``, ``stop``, ``close`` or ``leave``; of a
    store also ``silence`` (a stop that sources notice), ``wipe``, ``adopt`` (wiped, then `store adopt-empty`)
    or ``exclude`` (killed, then `store exclude`). ``for_s``: how long it is away."""

    at: float
    what: str
    whom: str
    for_s: float


def topics_of(receiver: str) -> tuple[str, ...]:
    """What a receiver of this kind receives."""
    return (ONE_TOPIC[receiver],) if receiver in ONE_TOPIC else tuple(TOPICS.values())


def _dealt(draw: random.Random, kinds: Sequence[str]) -> Iterator[str]:
    """Each as often as every other one, so that a short run has most of them."""
    while True:
        yield from draw.sample(kinds, len(kinds))


def troubles(seed: int, seconds: float, every: float) -> Iterator[Trouble]:
    """One each ``every`` seconds, the last early enough to be mended before the end."""
    draw = random.Random(seed)
    of_stores, of_others = _dealt(draw, OF_STORES), _dealt(draw, OF_OTHERS)
    at = every
    while at < seconds - every:
        group = draw.choice((STORES, SOURCES, RECEIVERS))
        whom = draw.choice(group)
        if whom == LEAVER:
            yield Trouble(at, "leave", whom, draw.choice((0.3, 1, 5)) * every)
        else:
            what = next(of_stores if group is STORES else of_others)
            away = draw.choice((0.0, 0.0, draw.random() * every / 4))
            if what == "silence":
                away = SILENT_S + 5.0 * draw.random()
            elif what == "exclude":
                away = draw.choice((0.0, every / 4))
            yield Trouble(at, what, whom, away)
        at += every
