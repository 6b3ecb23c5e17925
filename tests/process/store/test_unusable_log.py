"""A store that cannot open the log of one source, or go on with it, at its start: it says why, and serves the
others."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import resource
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.workers import until

import holdfast as hf
from holdfast.engine.control.wire import Deregistered, OperatorDeregister, Refused
from holdfast.engine.errors import CorruptionError
from holdfast.engine.log.info_file import log_range, log_view, peer_view
from holdfast.engine.store import repository
from holdfast.engine.store.log_places import LogPlaces
from holdfast.engine.store.repository import Repository

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from process.conftest import ThreadStore

SHORT = 90.0
SOURCE: dict[str, Any] = {
    "ume_store_name": ["a:0:0"], "ring_size": 1 << 17, "fragment_size": 4096, "ume_registration_interval": 100,
}  # fmt: skip
SICK, WELL = 7, 8
"""Session IDs."""


def stable(ctx: hf.Context, topic: str) -> int:
    """A source sends one message, and that is stable. Returns its number."""
    with ctx.source(topic, options=SOURCE) as src:
        src.wait_registered(SHORT)
        number = src.send(b"one")
        src.wait_stable(timeout=SHORT)
    return number


def log_of(store: ThreadStore, topic: str) -> Path:
    source = next(source for source in store.store.state.sources if source.topic == topic)
    return store.store.logs / source.uuid.hex()


def give_another_head(store: ThreadStore) -> None:
    shutil.copy(log_of(store, "well") / "head", log_of(store, "sick") / "head")


@pytest.fixture
def store(run_store: Callable[..., ThreadStore]) -> ThreadStore:
    """It has started with a log that it cannot open."""
    store = run_store("a", "disk")
    with hf.Context(session_id=SICK) as sick, hf.Context(session_id=WELL) as well:
        stable(sick, "sick")
        stable(well, "well")
    store.stop()
    give_another_head(store)
    return run_store("a", "disk")


def test_the_source_is_told_and_the_other_ones_are_served(store: ThreadStore) -> None:
    with hf.Context(session_id=SICK) as sick, hf.Context(session_id=WELL) as well:
        with pytest.raises(
            hf.RegistrationError, match=r"^[A-Z_]+: store a cannot open its log of RegID \d+ .*'sick'.*/logs/"
        ):
            stable(sick, "sick")
        assert stable(well, "well") == 1
        with well.receiver("well") as rcv:
            for number in range(2):
                message = rcv.receive(timeout=SHORT)
                assert message is not None
                assert message.sequence_number == number
    source = next(source for source in store.store.state.sources if source.topic == "sick")
    assert source.uuid in store.store.drainer.failures


def test_the_source_is_served_again_when_the_log_is_moved_away(store: ThreadStore) -> None:
    with hf.Context(session_id=SICK) as sick, sick.source("sick", options=SOURCE) as src:
        with pytest.raises(hf.RegistrationError):
            src.wait_registered(SHORT)
        log = log_of(store, "sick")
        log.rename(log.with_name("aside"))
        until("it is registered", lambda: registered(src))
        src.send(b"two")
        src.wait_stable(timeout=SHORT)


def registered(src: hf.Source) -> bool:
    try:
        src.wait_registered(0)
    except hf.Error:
        return False
    return True


def test_an_operator_can_deregister_it(store: ThreadStore) -> None:
    source = next(source for source in store.store.state.sources if source.topic == "sick")
    log = log_of(store, "sick")
    answer = store.store.operator.deregister(OperatorDeregister(1, source.registration_id, 0, False))
    assert answer == Deregistered(1, 0)
    assert not log.exists()
    with hf.Context(session_id=SICK) as sick:
        assert stable(sick, "sick") == 0


def test_who_lives_is_not_forgotten_because_its_log_cannot_be_opened(run_store: Callable[..., ThreadStore]) -> None:
    options = {"source-check-interval": 20, "source-activity-timeout": 100, "receiver-activity-timeout": 100}
    options |= {"source-state-lifetime": 1000, "receiver-state-lifetime": 1000}
    store = run_store("a", "disk")
    with hf.Context(session_id=SICK) as sick, hf.Context(session_id=WELL) as well:
        stable(well, "well")
        with well.receiver("well") as once:
            assert once.receive(timeout=SHORT) is not None
        src, rcv = sick.source("sick", options=SOURCE), well.receiver("sick")
        src.wait_registered(SHORT)
        src.send(b"one")
        assert rcv.receive(timeout=SHORT) is not None
        store.stop()
        give_another_head(store)
        store = run_store("a", "disk", **options)
        source = next(source for source in store.store.state.sources if source.topic == "sick")
        log = log_of(store, "sick")
        refused = store.store.operator.deregister(OperatorDeregister(1, source.registration_id, 0, False))
        assert isinstance(refused, Refused)
        assert refused.pid == os.getpid()
        began = time.monotonic()
        until("all lifetimes are over", lambda: time.monotonic() - began > 1.5)
        until("the other one is forgotten", lambda: [each.topic for each in store.store.state.sources] == ["sick"])
        assert log.exists()
        assert len(source.receivers) == 1
        src.close()
        expiry, why = store.store._expiry, "its log cannot be opened"
        until("nobody knows what it holds", lambda: expiry.needed.why.get(source.uuid) == why)
        assert log.exists()
        rcv.close()


def open_below(directory: Path) -> list[str]:
    """The files of this directory that this process has open."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # another thread has closed it
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
    return [name for name in found if name.startswith(str(directory))]


@contextlib.contextmanager
def descriptors(free: int) -> Iterator[None]:
    """This many more file descriptors, and no more, can be opened."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    taken = [os.dup(0)]
    while taken[-1] < highest:  # until no hole is left
        taken.append(os.dup(0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken[-1] + 1 + free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in taken:
            os.close(fd)


@pytest.mark.parametrize("free", [0, 1, 2])
def test_a_process_without_descriptors_takes_no_log_for_lost(run_store: Callable[..., ThreadStore], free: int) -> None:
    store = run_store("a", "disk")
    with hf.Context(session_id=WELL) as well:
        stable(well, "well")
    log = log_of(store, "well")
    store.stop()
    view = log_view(log)
    assert view is not None
    with descriptors(free), pytest.raises(hf.SystemCallError, match="Too many open files"):
        log_view(log)
    with descriptors(free):
        assert log_range(log) is None
        with pytest.raises(hf.SystemCallError, match="Too many open files"):
            peer_view(log)
    assert peer_view(log) == view
    with descriptors(3):
        assert log_view(log) == view


def test_a_store_that_runs_out_of_descriptors_does_not_give_up_its_say(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = run_store("a", "disk")
    with hf.Context(session_id=WELL) as well:
        stable(well, "well")
    store.stop()
    with monkeypatch.context() as patched:

        def full(_: Path) -> None:
            with descriptors(0):
                log_view(Path("/proc"))

        patched.setattr(repository, "log_view", full)
        store = run_store("a", "disk")
        source = store.store.state.sources[0]
        log = log_of(store, "well")
        assert not source.learner
        for _ in range(3):
            with pytest.raises(hf.SystemCallError):
                store.store.holdings.ensure_repository(source)
        # The store itself tries again meanwhile: only what stays open is left behind.
        until("no descriptor is left behind", lambda: not open_below(log))
    with hf.Context(session_id=WELL) as well:
        assert stable(well, "well") == 1
        assert open_below(log)


@pytest.mark.parametrize("at", [(repository, "log_view"), (LogPlaces, "note")], ids=["view", "note"])
@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), CorruptionError("damaged")], ids=repr)
def test_an_opening_that_fails_leaves_no_descriptor_to_the_collector(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch, at: tuple[Any, str], error: Exception
) -> None:
    store = run_store("a", "disk")
    with hf.Context(session_id=WELL) as well:
        stable(well, "well")
    store.stop()

    def fail(*_: object) -> None:
        raise error

    gc.disable()
    try:
        with monkeypatch.context() as patched:
            patched.setattr(*at, fail)
            store = run_store("a", "disk")
            with pytest.raises((OSError, hf.Error)):
                store.store.holdings.ensure_repository(store.store.state.sources[0])
            until("no descriptor is left behind", lambda: not open_below(log_of(store, "well")))
        with hf.Context(session_id=WELL) as well:
            assert stable(well, "well") == 1
    finally:
        gc.enable()


def test_a_source_that_cannot_be_gone_on_with_is_tried_again_and_the_others_do_not_notice(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = run_store("a", "disk")
    with hf.Context(session_id=SICK) as sick, hf.Context(session_id=WELL) as well:
        stable(sick, "sick")
        stable(well, "well")
        store.stop()
        resume = Repository.resume

        def broken(self: Repository) -> None:
            if self.source.topic == "sick":
                raise OSError(errno.ENOSPC, "No space left on device")
            resume(self)

        with monkeypatch.context() as patched:
            patched.setattr(Repository, "resume", broken)
            store = run_store("a", "disk")
            uuid = next(source.uuid for source in store.store.state.sources if source.topic == "sick")
            assert "No space left" in store.store.drainer.failures[uuid]
            assert stable(well, "well") == 1
        until("it is well again", lambda: uuid not in store.store.drainer.failures)
        assert stable(sick, "sick") == 1
