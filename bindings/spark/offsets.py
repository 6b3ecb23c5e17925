"""Where a query stands in each source: canonical JSON for Spark, and what people write for it. Pure.

An offset is the *next* number to read, so an end is exclusive, as Kafka's::

    {"topics": {"orders": {"3847562910/0a1b2c3d": 120034}}, "v": 1}

An offset that a query makes also says ``query``, an id that the query has over all its runs, ``stores``, the
stores on record of its sources, and in the first micro-batch ``began``, where that begins: Spark keeps
nothing of the three.

A source is named by its RegID and the beginning of its uuid: a RegID alone may be given again after a
deregistration, and the numbers then begin anew. Spark compares offsets as text (docs/design.md S.2): the same
positions must be the same text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

__all__ = [
    "EARLIEST",
    "LATEST",
    "NUMBER_MAX",
    "Lineage",
    "Named",
    "Place",
    "Positions",
    "as_offset",
    "lineage_of",
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


class Lineage(NamedTuple):
    """What an offset says of its query."""

    query: str = ""
    """The query's id; "" where a release before 0.2.0 has made the offset."""
    began: Positions | None = None
    """Where the micro-batch begins that ends here, if it is the first one."""
    stores: tuple[str, ...] = ()
    """On record of the sources that were in sight."""


NO_LINEAGE = Lineage()


def as_offset(positions: Positions, lineage: Lineage = NO_LINEAGE) -> dict[str, Any]:
    """The offset of these positions: the same positions give the same text, in whatever order they were put
    in."""
    found: dict[str, Any] = {"topics": _topics(positions), "v": VERSION}
    if lineage.began is not None:
        found["began"] = _topics(lineage.began)
    if lineage.query:
        found["query"] = lineage.query
    if lineage.stores:
        found["stores"] = sorted(lineage.stores)
    return found


def _topics(positions: Positions) -> dict[str, dict[str, int]]:
    topics: dict[str, dict[str, int]] = {}
    for (topic, key), number in sorted(positions.items()):
        topics.setdefault(topic, {})[key] = number
    return topics


def lineage_of(offset: Mapping[str, Any]) -> Lineage:
    """What an offset of :func:`as_offset` says of its query.

    Raises:
        ValueError: it is none.
    """
    began, stores = offset.get("began"), offset.get("stores", [])
    if not isinstance(stores, list):
        raise ValueError("for stores a list of names")
    start = None if began is None else _flat(_numbers(began, least=0))
    return Lineage(str(offset.get("query", "")), start, tuple(map(str, stores)))


def positions_of(offset: Mapping[str, Any] | str) -> Positions:
    """The positions of an offset that :func:`as_offset` made.

    Raises:
        ValueError: it is none, or one of another version.
    """
    found = _object(offset) if isinstance(offset, str) else offset
    if found.get("v") != VERSION:
        raise ValueError(f"an offset of version {found.get('v')!r}; this holdfast reads version {VERSION}")
    return _flat(_numbers(found.get("topics"), least=0))


def _flat(named: Named) -> Positions:
    return {(topic, key): number for topic, sources in named.items() for key, number in sources.items()}


def place(text: str) -> Place:
    """``earliest``, ``latest``, or JSON: topic -> source -> number, -2 (earliest) or -1 (latest); an offset
    is taken too.

    Raises:
        ValueError: what was expected.
    """
    word = text.strip().lower()
    if word == "earliest":
        return "earliest"
    if word == "latest":
        return "latest"
    found = _object(text)
    if {"v", "topics"} <= set(found) <= {"v", "topics", *Lineage._fields}:
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
