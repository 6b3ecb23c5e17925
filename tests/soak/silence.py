"""A store that is stopped for longer than `ume_store_activity_timeout` is taken for silent, and costs
nothing: what sources have written down (records.py), against when the store stood still."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from soak.plan import GIVEN_UP_S, TOPICS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from soak.actors import Actor
    from soak.records import Line

__all__ = ["Silence", "check_silences"]


@dataclass(frozen=True, slots=True)
class Silence:
    """``store``: its index. Topics: of the sources that were at work the whole time."""

    store: int
    begin: float
    end: float
    topics: Sequence[str]

    @classmethod
    def of(cls, index: int, store: Actor, sources: Mapping[str, Actor]) -> list[Silence]:
        """All that this store has been through, and that were not cut short by the end of the soak."""
        found = [(window.begin, window.absent) for window in store.windows if window.what == "silence"]
        return [
            cls(
                index, begin, end, [TOPICS[name] for name, source in sources.items() if source.was_calm(begin - 1, end)]
            )
            for begin, end in found
            if end - begin > GIVEN_UP_S + 1
        ]


def check_silences(silences: Sequence[Silence], sources: Mapping[str, Sequence[Line]]) -> list[str]:
    """Each source hears of it meanwhile, and messages go on becoming stable. ``sources``: records by
    topic."""
    found = []
    for silence in silences:
        for topic in silence.topics:
            meanwhile = [line for line in sources[topic] if silence.begin < line.at < silence.end]
            about = f"store {silence.store} was silent from {silence.begin:.1f} to {silence.end:.1f}, and the source of {topic}"
            if not any(line.kind == "silent" and line.numbers == (silence.store,) for line in meanwhile):
                found.append(f"{about} was not told")
            if not any(line.kind == "stable" for line in meanwhile):
                found.append(f"{about} had nothing stable meanwhile")
    return found
