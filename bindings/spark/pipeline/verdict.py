"""What the evidence of a source's ranges comes to: pure."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from ...engine.rules.intervals import Spans
from .findings import Finding, numbers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ...engine.log.catalog import TopicSource
    from .evidence import Divergence, Hole, RangeLook
    from .findings import Kind

__all__ = ["clean_below", "content_findings", "holes_of", "joined"]

KINDS: dict[str, Kind] = {"damaged": "damaged", "lost": "lost", "missing": "missing", "expired": "missing"}
"""Kind of finding by the answer of a log."""


def holes_of(looks: Sequence[RangeLook], store: str) -> list[Hole]:
    """Of one store, ascending."""
    return [hole for found in looks for each in found.stores if each.store == store for hole in each.holes]


def joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Half-open ranges, ascending and apart."""
    made = Spans()
    for first, following in spans:
        made.add(first, following)
    return list(made)


def content_findings(source: TopicSource, looks: Sequence[RangeLook]) -> list[Finding]:
    """What is wrong with the messages that are retained, by number. ``looks``: in order; what they leave out
    is not judged."""
    covered = joined((max(found.first, source.oldest), found.stop) for found in looks)
    had = Spans()
    for log in source.logs:
        lacks = Spans()
        for hole in holes_of(looks, log.store):
            lacks.add(hole.first, hole.next)
        for first, following in covered:
            for begin, end in lacks.gaps(max(first, log.oldest), min(following, log.next)):
                had.add(begin, end)
    found = [*_gaps(source, looks, covered, had), *_holes(source, looks, had), *_doubles(source, looks)]
    found += [_diverging(source, each) for each in chain.from_iterable(look.divergences for look in looks)]
    return sorted(found, key=lambda each: (each.first, each.kind, each.store))


def _gaps(
    source: TopicSource, looks: Sequence[RangeLook], covered: Sequence[tuple[int, int]], had: Spans
) -> Iterator[Finding]:
    holes = {log.store: holes_of(looks, log.store) for log in source.logs}
    for begin, end in chain.from_iterable(had.gaps(*each) for each in covered):
        whys = {
            f"{hole.why} at {store}": None
            for store, found in holes.items()
            for hole in found
            if hole.first < end and hole.next > begin
        }
        said = f" ({'; '.join(whys)})" if whys else ""
        text = f"no store has {numbers(begin, end)}{said}"
        yield Finding("gap", source.topic, source.key, "", "", begin, end, text)


def _holes(source: TopicSource, looks: Sequence[RangeLook], had: Spans) -> Iterator[Finding]:
    """What one store lacks and another one has."""
    for log in source.logs:
        holes = holes_of(looks, log.store)
        for why in dict.fromkeys(hole.why for hole in holes):
            lacks = joined((hole.first, hole.next) for hole in holes if hole.why == why)
            for begin, end in chain.from_iterable(had.parts(*each) for each in lacks):
                verb = "is" if end == begin + 1 else "are"
                text = f"{numbers(begin, end)} {verb} {why} at store {log.store}, and there at another one"
                yield Finding(KINDS[why], source.topic, source.key, log.store, "", begin, end, text)


def _doubles(source: TopicSource, looks: Sequence[RangeLook]) -> Iterator[Finding]:
    for found in looks:
        for each in found.stores:
            for first, last in each.doubles:
                text = f"store {each.store} has a message with {numbers(first, last + 1)} behind another one with such a number"
                yield Finding("duplicate", source.topic, source.key, each.store, "", first, last + 1, text)


def _diverging(source: TopicSource, found: Divergence) -> Finding:
    stores = ",".join(found.stores)
    where = numbers(found.first, found.next)
    count = f"{found.messages:,} messages within {where}" if found.messages > 1 else where
    rest = [log.store for log in source.logs if log.store not in found.stores]
    against = f"not what {', '.join(rest)} have" if rest else "which of them is right cannot be told"
    verb = "differs" if found.messages == 1 else "differ"
    text = f"{count} {verb} at {', '.join(found.stores)} ({', '.join(found.fields)}): {against}"
    return Finding("divergence", source.topic, source.key, stores, "", found.first, found.next, text)


def clean_below(source: TopicSource, first: int, looks: Sequence[RangeLook]) -> int:
    """Below it nothing is to be found any more, if nothing was below ``first``: all stores have had their
    say."""
    at = first
    for found in looks:
        if found.first != at:
            break
        at = found.stop
    said = [log.next for log in source.logs]
    wrong = [each.first for each in content_findings(source, looks)]
    return max(first, min([at, *said, *wrong]))
