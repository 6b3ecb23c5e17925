"""When a store says that it is behind, has caught up or stood still, and who is registered there
(engine/store/news.py)."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import pytest

from holdfast.engine.log.state_file import SourceState
from holdfast.engine.store import drainer as module
from holdfast.engine.store.clients import Client, Hold, Key
from holdfast.engine.store.drainer import STILL_NS, TEND_NS, Drainer
from holdfast.engine.store.news import CatchUpNews, called
from holdfast.engine.store.sources import SourceDesk

if TYPE_CHECKING:
    from collections.abc import Callable

SECOND_NS = 1_000_000_000
WHERE = called("c", SourceState(b"u" * 16, "quotes", 7, 0x2A))


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.INFO, "holdfast.store")
    return lambda: [record.getMessage() for record in caplog.records]


def test_a_line_names_store_source_and_topic() -> None:
    assert WHERE == "store c: RegID 7 (session ID 0x2a) on topic 'quotes'"
    assert called("c", SourceState(b"", "quotes", 7, 0)) == "store c: RegID 7 on topic 'quotes'"


def test_what_is_behind_is_said_once_and_the_time_counts_from_then(said: Callable[[], list[str]]) -> None:
    """The ring may lap a store while it catches up, and its holes are filled one after the other."""
    news = CatchUpNews(WHERE)
    news.behind(10, 0)
    news.behind(20, SECOND_NS)
    news.looks(30, SECOND_NS)
    assert said() == [f"{WHERE}: this store is behind, and catches up from number 10 on"]
    news.caught_up(50, 2 * SECOND_NS)
    assert said()[1:] == [f"{WHERE}: this store has caught up in 2.0 s: numbers 10..49"]
    news.caught_up(50, 3 * SECOND_NS)
    assert len(said()) == 2
    news.behind(60, 4 * SECOND_NS)
    news.caught_up(60, 5 * SECOND_NS)
    assert said()[2:] == [
        f"{WHERE}: this store is behind, and catches up from number 60 on",
        f"{WHERE}: this store has caught up in 1.0 s: nothing was missing",
    ]


def test_a_look_at_the_other_stores_is_news_only_when_they_had_more(said: Callable[[], list[str]]) -> None:
    news = CatchUpNews(WHERE)
    news.looks(10, 0)
    news.caught_up(10, SECOND_NS)
    assert said() == []
    news.looks(10, 2 * SECOND_NS)
    news.caught_up(12, 3 * SECOND_NS)
    assert said() == [f"{WHERE}: this store has caught up in 1.0 s: numbers 10..11"]


def test_a_store_that_looked_and_then_fell_behind_says_so(said: Callable[[], list[str]]) -> None:
    news = CatchUpNews(WHERE)
    news.looks(10, 0)
    news.behind(15, SECOND_NS)
    news.caught_up(20, 2 * SECOND_NS)
    assert said() == [
        f"{WHERE}: this store is behind, and catches up from number 15 on",
        f"{WHERE}: this store has caught up in 2.0 s: numbers 10..19",
    ]


def test_a_begin_that_is_repeated_over_one_connection_is_no_news(said: Callable[[], list[str]]) -> None:
    source = SourceState(b"u" * 16, "quotes", 7, 0, incarnation=1, start_sqn=5)
    repository: Any = SimpleNamespace(source=source, called="store c: it")

    def connection() -> Client:
        client = Client(MagicMock(), 77)
        client.holds[Key("source", source.uuid, source.uuid)] = Hold(0, b"")
        return client

    first, second = connection(), connection()
    SourceDesk._tell(first, repository, new=True)
    SourceDesk._tell(first, repository, new=False)
    SourceDesk._tell(second, repository, new=False)
    SourceDesk._tell(second, repository, new=False)
    SourceDesk._tell(Client(MagicMock(), 78), repository, new=False)
    assert said() == [
        "store c: it begins (pid 77): incarnation 1, from number 5 on",
        "store c: it is registered again (pid 77): incarnation 1, from number 5 on",
    ]


def test_a_store_that_stood_still_says_for_how_long(
    said: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its drain thread looks at the logs every TEND_NS; whatever keeps it from that is told when it is
    over."""
    bells: Any = None
    drainer = Drainer("c", bells, 0, 0.0)
    stop = 2 * TEND_NS + STILL_NS + SECOND_NS
    times = iter([TEND_NS, 2 * TEND_NS, stop, stop + TEND_NS])
    looks: list[int] = []

    def tend(now_ns: int) -> None:
        looks.append(now_ns)
        drainer._stopping = len(looks) == 4

    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic_ns=lambda: next(times)))
    for name, value in {"_tend": tend, "_fill": lambda _: None, "_round": lambda: None}.items():
        monkeypatch.setattr(drainer, name, value)
    drainer._drain()
    assert len(looks) == 4
    (line,) = said()
    assert line.startswith(f"store c: stood still for {STILL_NS / 1e9 + 1:.1f} s, and goes on: ")
