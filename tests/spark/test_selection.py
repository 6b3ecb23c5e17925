"""Where a read begins and ends in each source, from what the stores say that they have."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from holdfast.engine.log.catalog import StoreLog, TopicSource
from holdfast.spark import selection
from holdfast.spark.options import OptionError, parse

if TYPE_CHECKING:
    from collections.abc import Sequence

LOGS = (StoreLog("a", "/a", 10, 100), StoreLog("b", "/b", 20, 80), StoreLog("c", "/c", 30, 60))
ONE = TopicSource("orders", "11111111" * 4, 7, 0, LOGS, 10, 80, 100)
AGAIN = TopicSource("orders", "22222222" * 4, 7, 0, LOGS[1:], 20, 60, 80)
OTHER = TopicSource("trades", "33333333" * 4, 8, 0, LOGS[:1], 10, 10, 100)
FIRST, SECOND = ("orders", "7/11111111"), ("orders", "7/22222222")


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the stores keep; message n was sent at n seconds."""

    def sources(domain: str | None, directories: Sequence[str] = (), *, wanted: Any = None) -> list[TopicSource]:
        return [source for source in (ONE, AGAIN, OTHER) if wanted is None or wanted(source.topic)]

    monkeypatch.setattr(selection, "topic_sources", sources)
    monkeypatch.setattr(
        selection, "first_number_since", lambda source, ns: min(max(source.oldest, -(-ns // 10**9)), source.any_next)
    )


def options(**given: Any) -> Any:
    given = {name: value if isinstance(value, str) else json.dumps(value) for name, value in given.items()}
    return parse(
        given if {"subscribe", "subscribePattern", "assign"} & given.keys() else {"topic": "orders", **given}, "batch"
    )


def begins(**given: Any) -> list[int]:
    return list(selection.starting(options(**given), [ONE, AGAIN], "earliest").values())


def ends(**given: Any) -> list[int]:
    return list(selection.ending(options(**given), [ONE, AGAIN]).values())


@pytest.mark.parametrize(
    ("given", "sources"),
    [
        ({}, [ONE, AGAIN]),
        ({"topic": "order"}, []),
        ({"subscribe": "trades,orders"}, [ONE, AGAIN, OTHER]),
        ({"subscribePattern": "^t"}, [OTHER]),
        ({"assign": {"orders": ["7/22222222"], "trades": [8]}}, [AGAIN, OTHER]),
        ({"assign": {"orders": ["7"]}}, [ONE, AGAIN]),
        ({"assign": {"orders": ["5/22222222"]}}, [AGAIN]),
        ({"assign": {"orders": ["5"]}}, []),
        ({"stores": "a"}, [ONE]),
        ({"readFrom": "store:c", "subscribe": "orders,trades"}, [ONE, AGAIN]),
    ],
)
def test_which_sources(given: dict[str, Any], sources: list[TopicSource]) -> None:
    assert selection.selected(options(**given)) == sources


def test_a_query_keeps_what_it_reads_when_a_store_was_wiped() -> None:
    """The RegID that was assigned is nobody's any more."""
    assigned = options(assign={"orders": ["5"]})
    assert selection.selected(assigned, [("orders", "5/22222222"), ("trades", "5/11111111")]) == [AGAIN]


@pytest.mark.parametrize(
    ("given", "numbers"),
    [
        ({}, [80, 60]),
        ({"readFrom": "any"}, [100, 80]),
        ({"readFrom": "store:b"}, [80, 80]),
        ({"readFrom": "store:c"}, [60, 60]),
        ({"stores": "c"}, [60, 60]),
        ({"stores": "b,c", "readFrom": "any"}, [80, 80]),
    ],
)
def test_how_far(given: dict[str, Any], numbers: list[int]) -> None:
    assert [selection.bound(source, options(**given)) for source in (ONE, AGAIN)] == numbers


def test_a_source_of_which_nothing_is_stable_ends_where_it_begins() -> None:
    assert selection.bound(OTHER, options()) == OTHER.oldest


def test_a_stream_begins_at_the_end_unless_it_is_told_to() -> None:
    assert selection.starting(options(), [ONE], "latest") == {FIRST: 80}
    assert selection.starting(options(startingOffsets="earliest"), [ONE], "latest") == {FIRST: 10}


@pytest.mark.parametrize(
    ("given", "numbers"),
    [
        ({}, [10, 20]),
        ({"startingOffsets": {"orders": {"7/22222222": 33}}}, [10, 33]),
        ({"startingOffsets": {"v": 1, "topics": {"orders": {"7/11111111": 80, "7/22222222": -2}}}}, [80, 20]),
        ({"startingOffsets": {"orders": {"7/11111111": 9}}}, [9, 20]),
        ({"readFrom": "store:c"}, [30, 30]),
        ({"stores": "b,c", "startingOffsetsByTimestamp": {}}, [20, 20]),
        ({"readFrom": "store:c", "startingOffsets": {"orders": {"7/11111111": 29}}}, [29, 30]),
        ({"startingTimestamp": "25000"}, [25, 25]),
        ({"startingTimestamp": "25000", "readFrom": "store:c"}, [30, 30]),
        ({"startingTimestamp": "90000", "startingOffsetsByTimestampStrategy": "latest"}, [80, 60]),
        ({"startingOffsetsByTimestamp": {"orders": {"7/11111111": 40000}}}, [40, 20]),
    ],
)
def test_where_it_begins(given: dict[str, Any], numbers: list[int]) -> None:
    assert begins(**given) == numbers


@pytest.mark.parametrize(
    ("given", "numbers"),
    [
        ({}, [80, 60]),
        ({"endingOffsets": {"orders": {"7/22222222": 33}}}, [80, 33]),
        ({"endingOffsets": {"orders": {"7/11111111": 5}}}, [5, 60]),
        ({"endingTimestamp": "70000"}, [70, 60]),
        ({"endingOffsetsByTimestamp": {"orders": {"7/11111111": 30000}}}, [30, 60]),
    ],
)
def test_where_it_ends(given: dict[str, Any], numbers: list[int]) -> None:
    assert ends(**given) == numbers


def test_a_log_without_messages_does_not_say_what_is_the_oldest() -> None:
    """A store that was wiped: numbers from 0 on would be walked through."""
    empty = msgspec.structs.replace(ONE, logs=(*LOGS, StoreLog("d", "/d", 0, 0)))
    assert selection.oldest(empty, options()) == 10
    assert selection.oldest(empty, options(readFrom="store:d")) == 10


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"startingOffsets": {"orders": {"7/22222222": 61}}}, r"names 61 .*readFrom=quorum it has 20\.\.59"),
        (
            {"startingOffsets": {"orders": {"7": 61}}},
            "several sources with RegID 7; give the whole key of one: 7/1{8}, 7/2{8}",
        ),
        (
            {"startingOffsets": {"orders": {"9": 61}}},
            "has no source '9'; its sources are: 7/11111111, 7/22222222; a RegID is that of one store",
        ),
        ({"startingOffsets": {"orders": {"9/9": 61}}}, "has no source '9/9'; its sources are: 7/11111111, 7/22222222$"),
        ({"startingOffsets": {"trades": {"8": 61}}}, "topic 'trades' has no source '8'; its sources are: none"),
        (
            {"startingTimestamp": "80000"},
            "no message was sent at 80000 ms or later; startingOffsetsByTimestampStrategy=latest",
        ),
    ],
)
def test_places_that_are_none(given: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        begins(**given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"topic": "order"}, r"no store keeps topic 'order'; did you mean 'orders'\?"),
        ({"topic": "trades", "stores": "b,c"}, "no store of b, c keeps topic 'trades'; it is at a"),
        ({"subscribe": "orders,flows"}, "no store keeps topic 'flows'; kept are: orders, trades"),
        ({"assign": {"orders": ["7/22222222", "9"]}}, "topic 'orders' has no source '9'"),
    ],
)
def test_what_would_read_as_an_empty_table(given: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        selection.check_topics(options(**given), selection.selected(options(**given)))


def test_directories_without_a_quorum() -> None:
    with pytest.raises(OptionError, match="no quorum of the topic's stores"):
        selection.check_topics(options(topic="trades", directory="/a"), [OTHER])
    selection.check_topics(options(topic="trades", directory="/a", readFrom="any"), [OTHER])
    selection.check_topics(options(directory="/a"), [ONE, OTHER])
