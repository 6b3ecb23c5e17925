"""Where a query stands in each source: canonical JSON for Spark, and what people write for it. Pure.

An offset is the *next* number to read, so an end is exclusive, as Kafka's::

    {"topics": {"orders": {"3847562910/0a1b2c3d": 120034}}, "v": 1}

A source is named by its RegID and the beginning of its uuid: a RegID alone may be given again after a deregistration, and the
numbers then begin anew. Spark compares offsets as text (reference/spark.md §2): the same positions must be the same text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

__all__ = [
    "EARLIEST",
    "LATEST",
    "NUMBER_MAX",
    "Named",
    "Place",
    "Positions",
    "as_offset",
    "named_numbers",
    "place",
    "positions_of",
]

Positions = dict[tuple[str, str], int]
"""(topic, key of the source) -> next number to read."""
Named = Mapping[str, Mapping[str, int]]
"""topic -> RegID, or key of a source -> number: what people write."""
Place = Literal["earliest", "latest"] | Named

VERSION = 1
EARLIEST, LATEST = -2, -1
"""Kafka's words for them in JSON."""
NUMBER_MAX = 2**63 - 1


def as_offset(positions: Positions) -> dict[str, Any]:
    """The offset of these positions: the same positions give the same text, in whatever order they were put in."""
    topics: dict[str, dict[str, int]] = {}
    for (topic, key), number in sorted(positions.items()):
        topics.setdefault(topic, {})[key] = number
    return {"topics": topics, "v": VERSION}


def positions_of(offset: Mapping[str, Any] | str) -> Positions:
    """The positions of an offset that :func:`as_offset` made.

    Raises:
        ValueError: it is none, or one of another version.
    """
    found = _object(offset) if isinstance(offset, str) else offset
    if found.get("v") != VERSION:
        raise ValueError(f"an offset of version {found.get('v')!r}; this holdfast reads version {VERSION}")
    named = _numbers(found.get("topics"), least=0)
    return {(topic, key): number for topic, sources in named.items() for key, number in sources.items()}


def place(text: str) -> Place:
    """``earliest``, ``latest``, or JSON: topic -> source -> number, -2 (earliest) or -1 (latest); an offset is taken too.

    Raises:
        ValueError: what was expected.
    """
    word = text.strip().lower()
    if word == "earliest":
        return "earliest"
    if word == "latest":
        return "latest"
    found = _object(text)
    if set(found) == {"v", "topics"}:
        if found["v"] != VERSION:
            raise ValueError(f"an offset of version {VERSION}")
        found = found["topics"]
    return _numbers(found, least=EARLIEST)


def named_numbers(text: str) -> Named:
    """JSON: topic -> source -> number from 0 on.

    Raises:
        ValueError: what was expected.
    """
    return _numbers(_object(text), least=0)


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):  # a thousand brackets
        found = None
    if not isinstance(found, dict):
        raise ValueError('JSON such as {"orders": {"3847562910": 120034}}')
    return found


def _numbers(found: Any, *, least: int) -> dict[str, dict[str, int]]:
    if not isinstance(found, Mapping):
        raise ValueError('JSON such as {"orders": {"3847562910": 120034}}')
    for topic, sources in found.items():
        if not isinstance(sources, Mapping):
            raise ValueError(f"for topic {topic!r} a JSON object of sources")
        for key, number in sources.items():
            if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= NUMBER_MAX:
                raise ValueError(f"for {topic!r}, source {key!r} a whole number from {least} to {NUMBER_MAX}")
    return {topic: dict(sources) for topic, sources in found.items()}
