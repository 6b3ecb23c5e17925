"""A number that is late (engine/receiver/late.py): it is no longer waited for when the operator has given up
who may have it."""

from __future__ import annotations

import errno
import os
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from support.handmade_feed import PATIENCE_S, Log, Stage, numbers
from support.three_stores import SHORT, SOURCE, send
from support.workers import until

import holdfast as hf
from holdfast.engine.log.info_file import had
from holdfast.engine.log.reader import Block, Logs
from holdfast.engine.receiver.late import Late

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from process.conftest import ThreadStore


@pytest.fixture
def stage(tmp_path: Path, domain: str) -> Iterator[Stage]:
    made = Stage(tmp_path, domain)
    yield made
    made.close()


def test_what_only_a_store_may_have_that_the_operator_gave_up_is_lost(stage: Stage) -> None:
    log = stage.log("a")
    log.begin(1, 0)
    log.plain(4, 8)
    stage.open(0, paths=[str(log.path), str(stage.path / "down")]).late = lambda *_: False
    assert stage.drain() == []
    stage.now_ns += PATIENCE_S * 10**9
    assert stage.drain() == [("lost", 0, 3), *numbers(4, 8)]


@pytest.mark.parametrize(("newest", "last"), [(3, 9), (4, 4)])
def test_what_an_unknown_begin_may_have_made_void_is_waited_for(stage: Stage, newest: int, last: int) -> None:
    """A ring says that incarnation 4 has begun, and the only log that can be read knows 2: 3 may have begun
    below 9."""
    log = stage.log("a")
    log.begin(1, 0)
    log.plain(0, 4)
    log.begin(2, 5)
    log.plain(5, 9)
    stage.open(0, begun=(newest, 10), paths=[str(log.path), str(stage.path / "away")])
    assert stage.drain() == numbers(0, last)
    stage.now_ns += 10 * 10**9
    assert stage.drain() == ([("late", last + 1, ["away"])] if last < 9 else [])
    log.begin(newest, 10)  # now it knows: nothing has begun in between
    log.plain(10, 11)
    assert stage.drain() == numbers(last + 1, 11)


def test_a_guess_is_not_built_on_another_one(stage: Stage) -> None:
    """The ring has said 4, then 5: 3 may have begun below 9 all the same."""
    log = stage.log("a")
    log.begin(1, 0)
    log.plain(0, 4)
    log.begin(2, 5)
    log.plain(5, 9)
    logs, block = Logs([str(log.path)]), Block()
    for begun in ((4, 20), (5, 25)):
        logs.begun = begun
        assert logs.read(4, block)
        assert not logs.read(5, block)
    logs.close()


def with_a_hole(log: Log) -> None:
    """It had 0 to 9, and could not read who may have 10 to 99."""
    log.plain(0, 9)
    log.hole(10, 99)


def begun_late(_: Log) -> None:
    """Its store was replaced: it has nothing below 100."""


@pytest.mark.parametrize("held", [with_a_hole, begun_late])
@pytest.mark.parametrize("readable", [True, False], ids=["state", "no state"])
def test_what_a_store_never_had_is_not_let_go_by_its_retention(
    stage: Stage, held: Callable[[Log], None], readable: bool
) -> None:
    """Another store, which cannot be read now, may have it."""
    log = stage.kept("b", lost_below=100)
    log.begin(1, 0)
    held(log)
    log.plain(100, 149)
    log.roll()
    log.plain(150, 199)
    log.release(160)
    if not readable:
        for slot in log.path.parent.parent.glob("state.*"):
            slot.write_bytes(b"no state")
    stage.open(10, paths=[str(log.path), str(stage.path / "down")])
    assert stage.drain() == []
    stage.now_ns += PATIENCE_S * 10**9
    assert stage.drain() == [("late", 10, ["down"])]
    assert stage.feed is not None
    stage.feed.seek(120)
    stage.now_ns += PATIENCE_S * 10**9
    stage.drain()
    stage.now_ns += PATIENCE_S * 10**9
    gone = [("lost", 120, 159), *numbers(160, 199)] if readable else [("late", 120, ["down"])]
    assert stage.drain() == gone, "it had these"


@pytest.mark.parametrize(("number", "incarnation"), [(10, 1), (9, 1), (10, 2)], ids=["out", "before", "in the state"])
def test_a_store_that_has_not_begun_with_the_incarnation_of_a_number_is_not_waited_for(
    stage: Stage, number: int, incarnation: int
) -> None:
    """It lost its seat before incarnation 2 began. It may still get 9, which is of incarnation 1. It may get
    10, which is of incarnation 2, only where its state says that it has begun with that one."""
    idle, seated = stage.kept("c", incarnation=incarnation), stage.kept("a", incarnation=2)
    for log in (idle, seated):
        log.begin(1, 0)
        log.plain(0, 8)
    seated.hole(9, 9)
    seated.begin(2, 10)
    seated.hole(10, 11)
    seated.plain(12, 15)
    stage.open(number, begun=(2, 10))
    assert stage.drain() == []
    stage.now_ns += PATIENCE_S * 10**9
    lost = [("lost", number, 11), *numbers(12, 15), "ended"]
    assert stage.drain() == (lost if (number, incarnation) == (10, 1) else [("late", number, [idle.path.name])])


def test_a_log_lets_nothing_go_before_it_is_on_disk_what_it_never_had(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = run_store("a", "disk")
    with hf.Context() as ctx, ctx.source("quotes", options={**SOURCE, "ume_store_name": ["a"]}) as src:
        src.wait_registered(SHORT)
        send(src, 10)
        (repository,) = store.store.drainer.repositories.values()
        with monkeypatch.context() as full:
            full.setattr(store.store.holdings, "save", disk_is_full)
            store.store.drainer.call(partial(repository.lacks_below, 5))
            assert not store.store.drainer.call(partial(repository.release, 8))
            assert had(repository.path, 4), "as its state on disk has it"
        until("its state has it", lambda: repository.lost_on_disk == 5)
        assert not had(repository.path, 4)
        assert had(repository.path, 5)
        assert store.store.drainer.call(partial(repository.release, 8))


def disk_is_full(**_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_who_waits_looks_again_where_the_logs_are(own_domain: str) -> None:
    """A store without a seat that had never run when the receiver was registered grants nothing, and may have
    what is waited for: its log is found when it runs."""
    looked: list[str] = []
    controller = SimpleNamespace(
        registrar=SimpleNamespace(stores=[], session_id=0, log_paths=list, earlier_logs=dict),
        receiver=SimpleNamespace(context=SimpleNamespace(waits=SimpleNamespace(show=lambda *_: None))),
        tell=lambda _: None, found_logs=lambda: looked.append("logs"), feed=None, topic="t", source="s", uuid=bytes(16),
    )  # fmt: skip
    late = Late(cast("Any", controller))
    late.look()
    assert looked == []
    assert late.tell(7, [""])
    late.look()
    late.look()
    assert looked == ["logs"], "once for each time that it is told"
