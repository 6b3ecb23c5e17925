"""Which sources a query reads, from which number to which: the options applied to what the stores have
kept."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Literal

from ..engine.log.catalog import first_number_since, topic_sources
from ..engine.memory.domain import domain_directory
from .errors import StoresAwayError
from .offsets import EARLIEST, LATEST
from .options import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from ..engine.log.catalog import TopicSource
    from .offsets import Named, Place, Positions
    from .options import Options

__all__ = [
    "bound",
    "check_topics",
    "ending",
    "name_of",
    "newest",
    "no_domain",
    "oldest",
    "selected",
    "starting",
    "stores_of",
    "unknown_topic",
]

MILLISECOND = 1_000_000
SHOWN = 20
"""Topics that an error lists."""


def selected(options: Options, reading: Collection[tuple[str, str]] = ()) -> list[TopicSource]:
    """The sources that ``options`` name, with those of their logs that are to be read; by topic, RegID and
    uuid.

    A source that has none of these logs is left out. ``reading``: what a query that goes on reads already
    (:func:`name_of`); that stays assigned to it when the store is wiped that gave the RegID.

    Raises:
        ConfigError, NoDomainError, SystemCallError, CorruptionError: as kept_topics.topic_sources.
    """
    only = set(stores_of(options))
    return [
        source
        for source in topic_sources(options.domain, options.directory, wanted=_topics(options))
        if _is_assigned(source, options, reading) and (not only or any(log.store in only for log in source.logs))
    ]


def stores_of(options: Options) -> tuple[str, ...]:
    """Names of the stores that are read; none for all of them."""
    return (options.read_from.removeprefix("store:"),) if options.read_from.startswith("store:") else options.stores


def _topics(options: Options) -> Callable[[str], bool]:
    if options.subscribe_pattern:
        return lambda topic: re.search(options.subscribe_pattern, topic) is not None
    names = set(_named(options))
    return lambda topic: topic in names


def _named(options: Options) -> Iterable[str]:
    return options.assign or options.subscribe or ((options.topic,) if options.topic else ())


def _is_assigned(source: TopicSource, options: Options, reading: Collection[tuple[str, str]]) -> bool:
    if options.assign is None:
        return True
    keys = (*options.assign[source.topic], *(key for topic, key in reading if topic == source.topic))
    return any(_is_called(source, key) for key in keys)


def _is_called(source: TopicSource, key: str) -> bool:
    """By its RegID, or by its key, of which the uuid counts: the RegID in it is one store's, and may be
    another one later."""
    number, slash, uuid = key.partition("/")
    return source.uuid[:8] == uuid if slash else number == str(source.registration_id)


def check_topics(options: Options, sources: Sequence[TopicSource]) -> None:
    """What would otherwise read as an empty table.

    Raises:
        OptionError: a topic, or a source of ``assign``, that no store knows; directories without a quorum.
        NoDomainError: the domain is not there.
    """
    have = {source.topic for source in sources}
    missing = [topic for topic in _named(options) if topic not in have]
    kept = topic_sources(options.domain, options.directory) if missing or options.assign else []
    for topic, keys in (options.assign or {}).items():
        for key in keys if any(source.topic == topic for source in kept) else ():
            _one(topic, key, kept)
    if missing:
        raise unknown_topic(missing[0], kept, stores_of(options))
    if (
        options.directory
        and options.read_from == "quorum"
        and sources
        and all(_unreached(source) for source in sources)
    ):
        raise OptionError(
            "the stores in these directories are no quorum of the topic's stores: nothing can be read with readFrom=quorum",
            hint="name the directories of all of them, or read with readFrom=any",
        )


def no_domain(options: Options) -> StoresAwayError:
    """The error of a query that has read in a domain which is not there now."""
    return StoresAwayError(
        f"there is no domain {domain_directory(options.domain)}, and this query reads it",
        hint="start its stores; if it is elsewhere, HOLDFAST_DIR or the option domain say where",
    )


def unknown_topic(topic: str, kept: Sequence[TopicSource], only: Sequence[str] = ()) -> OptionError:
    """The error of a topic that none of the stores keeps (``only``: of these), with what may have been
    meant."""
    at = sorted({log.store for source in kept if source.topic == topic for log in source.logs})
    names = sorted({source.topic for source in kept})
    near = difflib.get_close_matches(topic, names, 1)
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    hint = f"kept are: {', '.join(names[:SHOWN]) or 'none'}{more}"
    if at:
        hint = f"it is at {', '.join(at)}"
    elif near:
        hint = f"did you mean {near[0]!r}?"
    of = f" of {', '.join(only)}" if only else ""
    return OptionError(f"no store{of} keeps topic {topic!r}", hint=hint)


def _unreached(source: TopicSource) -> bool:
    return source.quorum_next <= source.oldest < source.any_next


def bound(source: TopicSource, options: Options) -> int:
    """The first number that ``readFrom`` does not allow: a number below it is there for good, or gone for
    good."""
    only = set(stores_of(options))
    limit = source.quorum_next if options.read_from == "quorum" else source.any_next
    if only:
        limit = min(limit, max(log.next for log in source.logs if log.store in only))
    return max(limit, oldest(source, options))


def newest(source: TopicSource, options: Options) -> int:
    """Number behind the last one of the logs that are read."""
    only = set(stores_of(options))
    return max((log.next for log in source.logs if not only or log.store in only), default=0)


def oldest(source: TopicSource, options: Options) -> int:
    """The lowest number that one of the logs has that are read; a log without any says nothing."""
    only = set(stores_of(options))
    return min(
        (log.oldest for log in source.logs if log.store in only and log.oldest < log.next), default=source.oldest
    )


def starting(options: Options, sources: Sequence[TopicSource], default: Literal["earliest", "latest"]) -> Positions:
    """Where a new query begins in each source. A number that is named may be expired.

    Raises:
        OptionError: a source that is not there, a number beyond what can be read, a time that no message is
            as new as.
    """

    def since(source: TopicSource, milliseconds: int) -> int:
        number = first_number_since(source, milliseconds * MILLISECOND)
        if number >= bound(source, options) and options.starting_offsets_by_timestamp_strategy == "error":
            raise OptionError(
                f"topic {source.topic}, source {source.key}: no message was sent at {milliseconds} ms or later",
                hint="startingOffsetsByTimestampStrategy=latest begins at the end then",
            )
        return min(max(number, oldest(source, options)), bound(source, options))

    time, times = options.starting_timestamp, options.starting_offsets_by_timestamp
    if time is not None or times is not None:
        return _timed(time, times, sources, since, lambda source: oldest(source, options))
    return _placed(options.starting_offsets or default, sources, options, "startingOffsets", "earliest")


def ending(options: Options, sources: Sequence[TopicSource]) -> Positions:
    """Where a batch read ends in each source; exclusive.

    Raises:
        OptionError: a source that is not there, or a number beyond what can be read.
    """

    def since(source: TopicSource, milliseconds: int) -> int:
        return min(first_number_since(source, milliseconds * MILLISECOND), bound(source, options))

    time, times = options.ending_timestamp, options.ending_offsets_by_timestamp
    if time is not None or times is not None:
        return _timed(time, times, sources, since, lambda source: bound(source, options))
    return _placed(options.ending_offsets or "latest", sources, options, "endingOffsets", "latest")


def _timed(
    time: int | None, times: Named | None, sources: Sequence[TopicSource], since: Callable[[TopicSource, int], int],
    edge: Callable[[TopicSource], int],
) -> Positions:  # fmt: skip
    """Places by time: one for all sources, or one for each that is named; ``edge`` for the others."""
    by_source = _by_source(times or {}, sources)
    found = {name_of(source): (source, by_source.get(name_of(source), time)) for source in sources}
    return {name: edge(source) if at is None else since(source, at) for name, (source, at) in found.items()}


def name_of(source: TopicSource) -> tuple[str, str]:
    """How positions name it."""
    return source.topic, source.key


def _placed(
    place: Place, sources: Sequence[TopicSource], options: Options, name: str, other: Literal["earliest", "latest"]
) -> Positions:
    """``place`` for each source; ``other`` for those that it does not name."""
    numbers = {} if isinstance(place, str) else _by_source(place, sources)
    word = place if isinstance(place, str) else other
    edge = {"earliest": EARLIEST, "latest": LATEST}[word]
    found = {}
    for source in sources:
        number = numbers.get(name_of(source), edge)
        if number == EARLIEST:
            number = oldest(source, options)
        elif number == LATEST:
            number = bound(source, options)
        else:
            number = _possible(source, number, options, name)
        found[name_of(source)] = number
    return found


def _possible(source: TopicSource, number: int, options: Options, name: str) -> int:
    least, most = oldest(source, options), bound(source, options)
    if number > most:
        raise OptionError(
            f"{name} names {number} for topic {source.topic}, source {source.key}; with readFrom={options.read_from} it has "
            f"{least}..{most - 1}",
            hint="give a lower number",
        )
    return number


def _by_source(named: Named, sources: Sequence[TopicSource]) -> Positions:
    """What people wrote, by the sources that they meant."""
    found: Positions = {}
    for topic, numbers in named.items():
        for key, number in numbers.items():
            source = _one(topic, key, sources)
            if name_of(source) in found:
                raise OptionError(f"topic {topic!r}: source {source.key} is named twice")
            found[name_of(source)] = number
    return found


def _one(topic: str, key: str, sources: Sequence[TopicSource]) -> TopicSource:
    here = [source for source in sources if source.topic == topic]
    found = [source for source in here if _is_called(source, key)]
    if len(found) == 1:
        return found[0]
    keys = ", ".join(source.key for source in found or here) or "none"
    if found:
        raise OptionError(
            f"topic {topic!r} has several sources with RegID {key}", hint=f"give the whole key of one: {keys}"
        )
    changes = "" if "/" in key else "; a RegID is that of one store, and another one when that was wiped"
    raise OptionError(f"topic {topic!r} has no source {key!r}", hint=f"its sources are: {keys}{changes}")
