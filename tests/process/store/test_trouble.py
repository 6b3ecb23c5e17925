"""What fails at one source, or in work that is done now and then, ends no store: the others go on, and it is
tried again."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import pytest
from support.workers import until

import holdfast as hf
from holdfast.engine.events import source as events
from holdfast.engine.log.repair import LogRepair
from holdfast.engine.native.core import lib

if TYPE_CHECKING:
    from collections.abc import Callable

    from process.conftest import ThreadStore

SHORT = 90.0
SOURCE: dict[str, Any] = {"ume_store_name": ["a:0:0"], "ring_size": 1 << 17, "fragment_size": 4096}


def full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def stable(source: hf.Source) -> None:
    """It sends one message more, and that becomes stable."""
    source.wait_registered(SHORT)
    source.send(b"one")
    source.wait_stable(timeout=SHORT)


def repository(store: ThreadStore, topic: str) -> Any:
    source = next(source for source in store.store.state.sources if source.topic == topic)
    return store.store.drainer.repositories[source.uuid]


@pytest.mark.parametrize("work", ["tidy", "beat"])
def test_a_log_that_cannot_be_looked_after_leaves_the_other_sources_alone(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    store = run_store()
    with hf.Context() as ctx:
        sick, well = ctx.source("sick", options=SOURCE), ctx.source("well", options=SOURCE)
        stable(sick)
        stable(well)
        own = repository(store, "sick")
        drainer = store.store.drainer
        with monkeypatch.context() as broken:
            broken.setattr(own, work, full)
            until("it is said", lambda: "No space left" in drainer.failures.get(own.source.uuid, ""))
            beats = drainer.call(lambda: repository(store, "well").line.views()[0].line.heartbeat_ns)
            stable(well)
            until(
                "the other one is looked after",
                lambda: drainer.call(lambda: repository(store, "well").line.views()[0].line.heartbeat_ns) > beats,
            )
        assert not store.store.crashed
        stable(sick)
        until("it is well again", lambda: own.source.uuid not in drainer.failures)


def test_a_log_that_the_ring_has_passed_and_that_cannot_follow_is_tried_again(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = run_store()
    with hf.Context() as ctx:
        source = ctx.source("quotes", options=SOURCE)
        stable(source)
        own = repository(store, "quotes")
        drainer = store.store.drainer

        def overtaken() -> str:
            own.item.status = lib.HF_LAPPED
            drainer._mend([own])
            return drainer.failures[own.source.uuid]

        with monkeypatch.context() as broken:
            broken.setattr(own, "_follow", full)
            assert "No space left" in drainer.call(overtaken)
        stable(source)
        assert not store.store.crashed


@pytest.mark.parametrize("failing", [1, 2, 3, 4])
def test_a_registration_that_cannot_be_saved_is_not_held_against_the_same_source(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """A store saves a new source twice before it grants, and again at BEGIN. Where one of these fails it has
    granted nothing; what it grants later is on disk."""
    store = run_store()
    really, saved = store.store._file.save, 0

    def save(*arguments: Any, **more: Any) -> None:
        nonlocal saved
        saved += 1
        if saved == failing:
            full()
        really(*arguments, **more)

    refusals: list[str] = []

    def told(event: object) -> None:
        if isinstance(event, events.RegistrationError):
            refusals.append(str(event))

    with monkeypatch.context() as broken, hf.Context(session_id=5) as ctx:
        broken.setattr(store.store._file, "save", save)
        source = ctx.source("quotes", options=SOURCE, on_event=told)
        until("it is registered", lambda: registered(source))
        file = store.store._file
        on_disk = type(file)(file.directory).load()
        assert on_disk is not None
        assert [(each.incarnation, each.stores) for each in on_disk.sources] == [
            (source._session.machine.incarnation, ["a"])
        ]
        stable(source)
    assert saved >= failing
    assert not any("in use" in refusal for refusal in refusals), refusals


def registered(source: hf.Source) -> bool:
    try:
        source.wait_registered(SHORT)
    except hf.RegistrationError:  # the store says that it has failed
        return False
    return True


def test_a_state_that_cannot_be_written_now_and_then_ends_no_store(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = run_store()
    file = store.store._file
    with hf.Context(session_id=5, options={"ume_ack_batching_interval": 5}) as ctx:
        source = ctx.source("quotes", options=SOURCE)
        stable(source)
        rcv = ctx.receiver("quotes")
        with monkeypatch.context() as broken:
            really = file.save
            tried: list[bool] = []

            def save(state: object, *, sync: bool = True, **_: object) -> None:
                if not sync:
                    tried.append(True)
                    full()
                really(state)  # type: ignore[arg-type]

            broken.setattr(file, "save", save)
            source.send(b"two")
            for _ in range(2):
                message = rcv.receive(timeout=SHORT)
                assert message is not None
                message.release()
            until("it was tried", lambda: tried)
            stable(ctx.source("more", options=SOURCE))
        source.send(b"three")
        message = rcv.receive(timeout=SHORT)
        assert message is not None
        message.release()

        def kept() -> bool:
            state = type(file)(file.directory).load()
            return state is not None and any(each.ack == 3 for s in state.sources for each in s.receivers)

        until("it is written after all", kept)


def test_a_store_that_cannot_write_its_state_at_the_end_lets_the_next_one_in_all_the_same(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = run_store()
    with hf.Context() as ctx:
        stable(ctx.source("quotes", options=SOURCE))
        with monkeypatch.context() as broken:
            broken.setattr(store.store._file, "save", full)
            with pytest.raises(OSError, match="No space left"):
                store.stop()
        run_store()
        stable(ctx.source("more", options=SOURCE))


def test_a_source_is_kept_when_the_state_without_it_cannot_be_written(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = run_store()
    with hf.Context() as ctx:
        source = ctx.source("quotes", options=SOURCE)
        stable(source)
        (kept,) = store.store.state.sources
        with monkeypatch.context() as broken:
            broken.setattr(store.store._file, "save", full)
            with pytest.raises(OSError, match="No space left"):
                store.store.holdings.forget(kept, names=lambda _: False)
        assert store.store.state.sources == [kept]
        assert store.store.state.going == []
        stable(source)


def test_a_receiver_is_kept_when_the_state_without_it_cannot_be_written(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = run_store()
    with hf.Context(session_id=3) as ctx:
        stable(ctx.source("quotes", options=SOURCE))
        with ctx.receiver("quotes") as rcv:
            assert rcv.receive(timeout=SHORT) is not None
    (kept,) = store.store.state.sources
    known = list(kept.receivers)
    with monkeypatch.context() as broken:
        broken.setattr(store.store._file, "save", full)
        with pytest.raises(OSError, match="No space left"):
            store.store.receivers.forget(kept, known[0])
    assert kept.receivers == known
    assert len(known) == 1


def test_a_look_through_a_log_that_fails_in_a_way_nobody_foresaw_is_said_and_repeated(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looked: list[LogRepair] = []
    really = LogRepair.step

    def step(repair: LogRepair) -> bool:
        looked.append(repair)
        if len(looked) < 3:
            raise ZeroDivisionError("nobody foresaw this")
        return really(repair)

    monkeypatch.setattr(LogRepair, "step", step)
    store = run_store()
    with hf.Context() as ctx:
        stable(ctx.source("quotes", options=SOURCE))
        until("it is looked through after all", lambda: len(looked) > 3)
    assert not store.store.crashed
    said = [record for record in caplog.records if record.exc_info]
    assert [str(record.exc_info[1]) for record in said if record.exc_info] == ["nobody foresaw this"] * 2
    assert all("quotes" in text or "logs" in text for text in (record.getMessage() for record in said))


def test_a_helper_thread_that_fails_stops_the_store_and_says_so(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = run_store()

    def broken() -> None:
        raise ZeroDivisionError("nobody foresaw this")

    monkeypatch.setattr(store.store.drainer, "_prepare_all", broken)
    store.store.drainer.want_spares()
    until("the store stops", lambda: store.store.crashed)
    store.crashes = True
    assert any("the helper thread failed" in record.getMessage() for record in caplog.records)
