"""The end of a source beside the logs of stores that it has declared before: what these may have comes
first."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from support.handmade_feed import PATIENCE_S, Log, Stage, numbers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATIENCE_NS = PATIENCE_S * 10**9


@pytest.fixture
def stage(tmp_path: Path, domain: str) -> Iterator[Stage]:
    made = Stage(tmp_path, domain)
    yield made
    made.close()


@pytest.fixture
def declared(stage: Stage) -> list[str]:
    """Logs of three stores that took part from 10 on, where nothing has been sent; they have 0..4, and
    learned of no more."""
    for name in "bcd":
        log = stage.log(name)
        log.begin(1, 0)
        log.plain(0, 4)
        log.begin(2, 10)
    return [str(log.path) for log in stage.logs]


@pytest.fixture
def earlier(stage: Stage, declared: list[str]) -> Log:
    """The log of a store of the list before, which alone has 5..9; it lies elsewhere."""
    log = stage.kept("a")
    log.begin(1, 0)
    log.plain(0, 9)
    log.path.rename(stage.path / "elsewhere")
    assert str(log.path) not in declared
    return log


def open_with(stage: Stage, declared: list[str], earlier: Log, start: int = 0) -> None:
    stage.open(start, begun=(2, 10), paths=[*declared, str(earlier.path)], until={str(earlier.path): 10})


def test_there_is_no_end_while_an_earlier_store_that_is_away_may_have_more(
    stage: Stage, declared: list[str], earlier: Log
) -> None:
    open_with(stage, declared, earlier)
    assert stage.drain() == numbers(0, 4)
    for _ in range(3):
        stage.now_ns += PATIENCE_NS
        assert stage.drain() == [("late", 5, [earlier.path.name])], "who may have it is told, in each patience"
        assert stage.drain() == []
    (stage.path / "elsewhere").rename(earlier.path)
    assert stage.drain() == [*numbers(5, 9), "ended"]


def test_the_end_comes_when_the_operator_has_given_that_store_up(
    stage: Stage, declared: list[str], earlier: Log
) -> None:
    open_with(stage, declared, earlier)
    assert stage.drain() == numbers(0, 4)
    assert stage.feed is not None
    stage.feed.late = lambda *_: False
    stage.now_ns += PATIENCE_NS
    assert stage.drain() == ["ended"]


def test_a_store_that_never_had_a_message_of_the_source_does_not_hold_its_end(
    stage: Stage, declared: list[str]
) -> None:
    log = stage.kept("a", incarnation=0)
    log.close()
    shutil.rmtree(log.path)
    open_with(stage, declared[:1], log)
    assert stage.drain() == [*numbers(0, 4), "ended"]


def test_a_store_whose_list_is_over_holds_no_end_behind_it(stage: Stage, declared: list[str], earlier: Log) -> None:
    open_with(stage, declared, earlier, start=10)
    assert stage.drain() == ["ended"]


def test_a_source_that_its_stores_have_forgotten_has_ended(stage: Stage, declared: list[str], earlier: Log) -> None:
    """The store of the earlier list does not hear of that: its log may lie there for ever, and be
    unreadable."""
    earlier.path.mkdir()
    open_with(stage, declared, earlier)
    assert stage.drain() == numbers(0, 4)
    for path in declared:
        shutil.rmtree(path)
    assert stage.drain() == ["ended"]


def test_logs_of_earlier_lists_are_no_part_of_the_quorum_that_says_the_end(stage: Stage) -> None:
    """Two of three that are declared cannot be read; those of earlier lists, which can, know nothing of what
    was sent since."""
    logs = [stage.log(name) for name in "abcd"]
    for log in logs:
        log.begin(1, 0)
        log.plain(0, 4)
    paths, until = [str(log.path) for log in logs], {str(log.path): 5 for log in logs[1:]}
    down = [str(stage.path / "down"), str(stage.path / "too")]
    stage.open(0, paths=[*down, *paths], until=until)
    assert stage.drain() == numbers(0, 4)
    stage.feed.use_logs([*down[1:], paths[0], str(stage.log("e").path), *paths[1:]], until)  # type: ignore[union-attr]
    assert stage.drain() == ["ended"], "one of the three is back, and has no more"
