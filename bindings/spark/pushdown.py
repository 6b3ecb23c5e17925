"""What a query's filters say about which numbers of which sources it can need. Pure.

Spark evaluates every filter again on the rows that it gets: what is left out here must be certain, and no
more is promised.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource as f

from .offsets import NUMBER_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["EVERYTHING", "Narrowing", "narrowed"]

SLACK_NS = 60 * 1_000_000_000
"""Times ascend with the numbers but where a clock was set back, by as much as this at most."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
AT_LEAST = (f.GreaterThan, f.GreaterThanOrEqual)
AT_MOST = (f.LessThan, f.LessThanOrEqual)
EQUAL = (f.EqualTo, f.EqualNullSafe)


@dataclass(frozen=True, slots=True)
class Narrowing:
    """The rows that a query can need: of these topics and RegIDs (None: of all), and within both spans, ends
    included."""

    topics: frozenset[str] | None = None
    registration_ids: frozenset[int] | None = None
    """As in the column."""
    numbers: tuple[int, int] = (0, NUMBER_MAX)
    sent_ns: tuple[int, int] = (0, NUMBER_MAX)
    """Of any message with these times, and of its neighbours within SLACK_NS."""


EVERYTHING = Narrowing()


def narrowed(filters: Iterable[f.Filter]) -> Narrowing:
    """What all of ``filters`` together leave. One that says nothing about these columns leaves everything."""
    found = EVERYTHING
    for each in filters:
        match getattr(each, "attribute", None):
            case ("topic",):
                found = replace(found, topics=_common(found.topics, _words(each, str)))
            case ("source_reg_id",):
                found = replace(found, registration_ids=_common(found.registration_ids, _words(each, int)))
            case ("sequence_number",):
                found = replace(found, numbers=_overlap(found.numbers, _span(each, _same), 0))
            case ("timestamp_ns",):
                found = replace(found, sent_ns=_overlap(found.sent_ns, _span(each, _same), SLACK_NS))
            case ("timestamp",):
                found = replace(found, sent_ns=_overlap(found.sent_ns, _span(each, _microsecond), SLACK_NS))
    return found


def _words(each: f.Filter, kind: type) -> frozenset[Any] | None:
    """The values that a column may have; None if the filter does not list them."""
    values = each.value if isinstance(each, f.In) else (each.value,) if isinstance(each, EQUAL) else None
    return frozenset(values) if values is not None and all(isinstance(value, kind) for value in values) else None


def _common(one: frozenset[Any] | None, other: frozenset[Any] | None) -> frozenset[Any] | None:
    if one is None or other is None:
        return one if other is None else other
    return one & other


def _span(each: f.Filter, of_value: Callable[[Any], tuple[int, int] | None]) -> tuple[int, int]:
    """The lowest and the highest value that the filter lets pass, or a little more."""
    values = each.value if isinstance(each, f.In) else (getattr(each, "value", None),)
    spans = [span for value in values if (span := of_value(value)) is not None]
    if not spans or len(spans) < len(values) or not isinstance(each, (f.In, *EQUAL, *AT_LEAST, *AT_MOST)):
        return 0, NUMBER_MAX
    low, high = min(span[0] for span in spans), max(span[1] for span in spans)
    return (0 if isinstance(each, AT_MOST) else low), (NUMBER_MAX if isinstance(each, AT_LEAST) else high)


def _overlap(one: tuple[int, int], other: tuple[int, int], slack: int) -> tuple[int, int]:
    return max(one[0], other[0] - slack), min(one[1], other[1] + slack)


def _same(value: Any) -> tuple[int, int] | None:
    return (value, value) if isinstance(value, int) else None


def _microsecond(value: Any) -> tuple[int, int] | None:
    """The nanoseconds that the column ``timestamp`` shows as this moment."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    begin = (value - EPOCH) // timedelta(microseconds=1) * 1000
    return begin, begin + 999
