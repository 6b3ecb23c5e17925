"""Many logs of one store catch up at once: how much of that is done between two rounds of the drain
(engine/store/drainer.py)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from holdfast.engine.log.state_file import SourceState
from holdfast.engine.native.core import lib
from holdfast.engine.rules.scrub_schedule import Range
from holdfast.engine.store.drainer import FILL_NS, Drainer

if TYPE_CHECKING:
    from unit.store.conftest import Clock


def catching_up(clock: Clock, names: str, slice_ns: int) -> tuple[Drainer, list[str]]:
    """A drainer with a log per letter, and the letters of the slices that were filled."""
    filled: list[str] = []
    bells: Any = None
    drainer = Drainer("a", bells, 0, 0.0)

    def repository(name: str) -> Any:
        def fill(_: int) -> None:
            filled.append(name)
            clock.now += slice_ns

        return SimpleNamespace(catch_up=object(), item=SimpleNamespace(status=lib.HF_OK, rolls=0), fill=fill, losses=[])

    drainer.repositories = {name.encode(): repository(name) for name in names}
    return drainer, filled


def test_slices_take_a_bounded_time_before_live_sources_are_drained_again(clock: Clock) -> None:
    drainer, filled = catching_up(clock, "abcdefgh", FILL_NS // 2 + 1)
    drainer._fill(clock.now)
    assert filled == ["a", "b"]


def test_one_slice_is_filled_however_long_it_takes(clock: Clock) -> None:
    drainer, filled = catching_up(clock, "abc", 10 * FILL_NS)
    drainer._fill(clock.now)
    assert filled == ["a"]


def test_everybody_has_a_turn(clock: Clock) -> None:
    drainer, filled = catching_up(clock, "abcde", FILL_NS // 2 + 1)
    for _ in range(5):
        drainer._fill(clock.now)
    assert "".join(filled) == "abcdeabcde"


def test_all_are_filled_where_there_is_time(clock: Clock) -> None:
    drainer, filled = catching_up(clock, "abc", 1)
    drainer._fill(clock.now)
    assert filled == ["a", "b", "c"]


def test_what_was_lost_is_asked_for_once_it_is_published(clock: Clock) -> None:
    """As long as a sync fails, the log's readers see no such record, and would find nothing missing."""
    drainer, _ = catching_up(clock, "a", 1)
    repo: Any = drainer.repositories[b"a"]
    repo.source, repo.losses, repo.next_sqn = SourceState(b"a", "quotes", 7, 0), [(5, 9), (12, 14)], 5
    repo.line = SimpleNamespace(say_full=lambda _: None)

    def full(_: int) -> None:
        raise OSError(28, "no space left on device")

    good, repo.fill = repo.fill, full
    drainer._fill(clock.now)
    assert drainer._scrub.losses.empty()
    repo.fill, repo.item.status, repo.next_sqn = good, lib.HF_OK, 9
    drainer._fill(clock.now)
    assert drainer._scrub.losses.get_nowait() == (b"a", Range(5, 9))
    assert repo.losses == [(12, 14)]
    assert drainer._scrub.losses.empty()


def test_a_log_that_is_not_filled_any_more_asks_for_what_it_lost_when_that_is_published(clock: Clock) -> None:
    drainer, _ = catching_up(clock, "a", 1)
    repo: Any = drainer.repositories[b"a"]
    repo.source, repo.losses, repo.next_sqn = SourceState(b"a", "quotes", 7, 0), [(5, 9)], 9
    repo.catch_up, repo.stream = None, object()
    repo.owner_gone = repo.drained = lambda: False
    repo.tidy, repo.beat, repo.look_for_lost = (lambda: None), (lambda _: None), (lambda: None)
    drainer._tend(clock.now)
    assert drainer._scrub.losses.get_nowait() == (b"a", Range(5, 9))
