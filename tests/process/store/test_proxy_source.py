"""Proxy sources with real stores (docs/semantics.md J.2): one store says that it stands in for a dead source,
until that is back."""

from __future__ import annotations

import contextlib
import errno
import logging
import shutil
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from support.kept_messages import kept
from support.receiving import until_no_ring
from support.worker import LIMIT, STABLE
from support.workers import Worker, until

import holdfast as hf
from holdfast.engine.log.info_file import log_view, read_info, write_info
from holdfast.engine.log.state_file import State, StateFile
from holdfast.engine.store import repository
from holdfast.engine.store import store as running
from holdfast.engine.tools import snapshot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from process.conftest import ThreadStore

SHORT = 90.0
STORE = {"source-activity-timeout": 50, "source-check-interval": 5, "allow-proxy-source": 1}
HOURS_MS = 1 << 30
THREE = {"ume_store_name": ["a:0:0", "b:0:0", "c:0:0"], "ume_registration_interval": 200}
SOURCE: dict[str, Any] = {"ring_size": 1 << 17, "fragment_size": 4096, "ume_proxy_source": 1}


def standing(*stores: ThreadStore) -> list[str]:
    """Names of the stores that stand in for a source."""
    return [store.store.config.name for store in stores if store.store._expiry.proxies.standing]


def shown(ctx: hf.Context) -> list[str]:
    """As a stranger sees it."""
    return [at.name for row in snapshot.take(ctx.domain).sources for at in row.stores if at.proxy]


def identities(tmp_path: Path) -> None:
    """Stores a, b and c, in this order, when they start for the first time."""
    for name in "abc":
        directory = tmp_path / f"store-{name}"
        directory.mkdir()
        StateFile(directory).save(State(name, name.encode() * 16, 0, 100))


def first_store(tmp_path: Path, domain: str, kind: str) -> Worker:
    """Store a, which has the lowest identity, in a process that can be killed."""
    identities(tmp_path)
    return Worker("store", tmp_path, directory=str(tmp_path / "store-a"), kind=kind, options=STORE, domain=domain)


def source(ctx: hf.Context, **options: Any) -> hf.Source:
    src = ctx.source("quotes", options={**SOURCE, **THREE, **options})
    src.wait_registered(SHORT)
    # Where it has begun decides who stands in; a quorum would do for the registration.
    until("it has begun everywhere", lambda: {at.state for at in src.stats().stores.values()} <= {"active", "idle"})
    return src


def refused() -> None:
    """The system does so to a process that has run out of descriptors."""
    raise OSError(errno.EMFILE, "Too many open files")


def looks(*stores: ThreadStore) -> None:
    """Each store has looked at what it keeps, some times."""
    for store in stores:
        expiry = store.store._expiry
        for _ in range(20):
            due = expiry.due_s
            until("the store looks", lambda: expiry.due_s != due)  # noqa: B023


def test_j2_exactly_one_store_stands_in_until_the_source_is_back(
    run_store: Callable[..., ThreadStore], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    identities(tmp_path)
    stores = [run_store(name, "memory", **STORE) for name in "cba"]
    with caplog.at_level(logging.INFO, "holdfast.store"), hf.Context(session_id=5) as ctx:
        src = source(ctx)
        src.send(b"0")
        src.wait_stable(timeout=SHORT)
        looks(*stores)
        assert standing(*stores) == [], "it lives"
        src.close()
        until("one stands in", lambda: standing(*stores) == ["a"])
        until("it says so", lambda: "store a: proxy source created for RegID" in caplog.text)
        looks(*stores)
        assert standing(*stores) == ["a"]
        assert shown(ctx) == ["a"]
        again = source(ctx)
        assert again.next_sequence_number == 1
        until("the real one is back", lambda: standing(*stores) == [])
        until("it says so", lambda: "the source is back" in caplog.text)
        until("nobody is shown any more", lambda: shown(ctx) == [])


def test_j2_when_the_store_that_stands_in_dies_another_one_does(
    run_store: Callable[..., ThreadStore], tmp_path: Path, own_domain: str
) -> None:
    first = first_store(tmp_path, own_domain, "memory")
    with contextlib.ExitStack() as stack, hf.Context(session_id=5) as ctx:
        stack.callback(first.discard)
        first.start().wait_ready()
        rest = [run_store(name, "memory", **STORE) for name in "bc"]
        source(ctx).close()
        until("everybody sees the first one", lambda: shown(ctx) == ["a"])
        looks(*rest)
        assert standing(*rest) == []
        first.strike()
        first.wait_died()
        assert "a" not in shown(ctx), "the dead stand in for nobody"
        until("the next one stands in", lambda: standing(*rest) == ["b"])
        first.start().wait_ready()
        until("it gives way", lambda: standing(*rest) == [])


def test_j2_a_store_that_starts_beside_a_dead_source_does_not_end_who_stands_in(
    run_store: Callable[..., ThreadStore], tmp_path: Path, own_domain: str
) -> None:
    """It has the lowest identity, and would be elected; but its own time has only begun."""
    first = first_store(tmp_path, own_domain, "disk")
    with contextlib.ExitStack() as stack, hf.Context(session_id=5) as ctx:
        stack.callback(first.discard)
        first.start().wait_ready()
        rest = [run_store(name, "disk", **STORE) for name in "bc"]
        source(ctx).close()
        until("everybody sees the first one", lambda: shown(ctx) == ["a"])
        first.strike()
        first.wait_died()
        until("the next one stands in", lambda: standing(*rest) == ["b"])
        again = run_store("a", "disk", **{**STORE, "source-activity-timeout": HOURS_MS})
        looks(again, *rest)
        assert standing(again, *rest) == ["b"]
        began = again.store._expiry.proxies._since
        began.update(dict.fromkeys(began, -HOURS_MS * 1_000_000))
        until("it stands in", lambda: standing(again, *rest) == ["a"])


def test_j2_a_store_in_reserve_stands_in_for_nobody_and_stops_nobody(
    run_store: Callable[..., ThreadStore], tmp_path: Path
) -> None:
    """It was asked, and granted; nothing has begun there."""
    identities(tmp_path)
    stores = [run_store(name, "memory", **STORE) for name in "ab"]
    with hf.Context(session_id=5) as ctx:
        # Who does not answer within the interval loses its seat.
        patient = {"ume_store_group": ["0:1"], "ume_registration_interval": 60_000}
        source(ctx, ume_store_name=["b:0:0", "a:0:0"], **patient).close()
        until("the one with the messages stands in", lambda: standing(*stores) == ["b"])
        looks(*stores)
        assert standing(*stores) == ["b"]


def test_j2_a_store_that_the_source_goes_on_without_does_not_stand_in(
    run_store: Callable[..., ThreadStore], tmp_path: Path
) -> None:
    identities(tmp_path)
    stores = [run_store(name, "memory", **STORE) for name in "abc"]
    with hf.Context(session_id=5) as ctx:
        source(ctx).close()
        until("one stands in", lambda: standing(*stores) == ["a"])
        (left,) = stores[0].store.drainer.repositories.values()
        until("it reads nothing", lambda: left.stream is None and left.catch_up is None)
        with source(ctx, ume_store_name=["b:0:0", "c:0:0"]):
            until("it lives", lambda: standing(*stores) == [])
            looks(*stores)
            assert standing(*stores) == []


def test_j2_only_stores_that_allow_it_and_have_the_messages_stand_in(
    run_store: Callable[..., ThreadStore], tmp_path: Path
) -> None:
    identities(tmp_path)
    run_store("a", "memory", **{**STORE, "allow-proxy-source": 0})
    stores = [run_store(name, "memory", **STORE) for name in "bc"]
    with hf.Context(session_id=5) as ctx:
        source(ctx, ume_store_name=["a:0:0", "c:0:0"]).close()
        until("the one that may does", lambda: standing(*stores) == ["c"])


def the_first_stands_in(ctx: hf.Context, stores: list[ThreadStore]) -> None:
    """For a source of both, which has sent a message and has ended."""
    src = source(ctx, ume_store_name=["a:0:0", "b:0:0"])
    src.send(b"x")
    src.wait_stable(timeout=SHORT)
    src.close()
    until("a does", lambda: standing(*stores) == ["a"])
    until_no_ring(ctx.domain)


def test_j2_a_store_that_has_lost_its_log_does_not_stand_in(
    run_store: Callable[..., ThreadStore], tmp_path: Path
) -> None:
    """Its state knows the source still, as a memory store's does after a reboot."""
    identities(tmp_path)
    stores = [run_store(name, "disk", **STORE) for name in "ab"]
    with hf.Context(session_id=5) as ctx:
        the_first_stands_in(ctx, stores)
        for store in stores:
            store.stop()
        shutil.rmtree(tmp_path / "store-a" / "logs")
        elsewhere = (tmp_path / "store-b").rename(tmp_path / "elsewhere")  # a cannot read it there
        a = run_store("a", "disk", **STORE)
        looks(a)
        assert standing(a) == []
        elsewhere.rename(tmp_path / "store-b")
        b = run_store("b", "disk", **STORE)
        # a may have got it back from b before b stands in.
        until("who has it does", lambda: standing(a, b) == ["b"] or (standing(a, b) == ["a"] and kept(a)))


def test_j2_a_store_that_has_no_room_to_say_that_it_stands_in_says_it_later(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = run_store("a", "memory", **STORE)
    with hf.Context(session_id=5) as ctx:
        src = source(ctx, ume_store_name=["a:0:0"])
        looks(store)
        with monkeypatch.context() as patched:
            patched.setattr(running, "write_info", lambda *_: refused())
            src.close()
            until("it stands in", lambda: standing(store) == ["a"])
            looks(store)
            assert shown(ctx) == []
        until("it says so", lambda: shown(ctx) == ["a"])


@pytest.mark.parametrize("trouble", ["its state is lost", "its log cannot be opened"])
def test_j2_a_store_that_cannot_stand_in_stops_nobody_by_the_log_that_it_has(
    run_store: Callable[..., ThreadStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    """Simulator seed 14131: everybody took the store with the lowest identity for the one that does."""
    identities(tmp_path)
    stores = [run_store(name, "disk", **STORE) for name in "ab"]
    with hf.Context(session_id=5) as ctx:
        the_first_stands_in(ctx, stores)
        stores[0].stop()
        directory, (kept,) = tmp_path / "store-a", stores[0].store.state.sources
        log = directory / "logs" / kept.uuid.hex()
        if trouble == "its state is lost":
            for file in directory.glob("state.*"):
                file.unlink()
            StateFile(directory).save(State("a", b"a" * 16, 0, 100))  # made anew, and again the lowest
        else:
            monkeypatch.setattr(repository, "log_view", lambda path: refused() if path == log else log_view(path))
        a = run_store("a", "disk", **STORE)
        assert a.store.holdings.repository(kept.uuid) is None
        assert log_view(log) is not None, "a stranger can read it"
        until("the other one does", lambda: standing(a, stores[1]) == ["b"])
        looks(a, stores[1])
        assert standing(a, stores[1]) == ["b"]


def test_j2_an_older_store_is_judged_by_its_log(run_store: Callable[..., ThreadStore], tmp_path: Path) -> None:
    """It does not say what it could stand in for."""
    identities(tmp_path)
    b = run_store("b", "disk", **STORE)
    with hf.Context(session_id=5) as ctx:
        path = tmp_path / "of-a"
        ours = read_info(ctx.domain, "b")
        assert ours is not None
        older = msgspec.structs.replace(ours, name="a", uuid=b"a" * 16, logs=str(path), standing=(), ready=None)
        group = {"ume_store_name": ["b:0:0", "a:0:0"], "ume_store_group": ["0:1"], "ume_registration_interval": 60_000}
        a = run_store("a", "disk", **STORE)  # a new source waits for all of its stores
        with ctx.source("quotes", options={**SOURCE, **THREE, **group}) as src:
            src.wait_registered(SHORT)
        a.stop()
        until("b does", lambda: standing(b) == ["b"])
        shutil.copytree(tmp_path / "store-b" / "logs", path)
        write_info(ctx.domain, older)
        until("b gives way", lambda: standing(b) == [])
        shutil.rmtree(path)
        until("b takes over", lambda: standing(b) == ["b"])


@pytest.mark.parametrize(
    ("row", "session", "options", "stands"),
    [
        ("a session ID", 5, {}, True),
        ("a RegID", None, {"ume_store_name": ["a:100:0"]}, True),
        ("neither", None, {}, False),
        ("not asked for", 5, {"ume_proxy_source": 0}, False),
    ],
)
def test_j2_it_needs_a_real_regid_or_a_session_id_and_the_sources_wish(
    run_store: Callable[..., ThreadStore], row: str, session: int | None, options: dict[str, Any], stands: bool
) -> None:
    store = run_store("a", "memory", **STORE)
    with hf.Context(session_id=session) as ctx:
        source(ctx, **{"ume_store_name": ["a:0:0"], **options}).close()
        if stands:
            until(f"{row}: it stands in", lambda: standing(store) == ["a"])
        else:
            until("the timeout is over", lambda: store.store.state.sources[0].gone_ns)
            looks(store)
            assert standing(store) == []


def test_j2_the_state_lifetime_ends_it_with_the_source(
    run_store: Callable[..., ThreadStore], caplog: pytest.LogCaptureFixture
) -> None:
    store = run_store("a", "memory", **STORE, **{"source-state-lifetime": 1500})
    with caplog.at_level(logging.INFO, "holdfast.store"), hf.Context(session_id=5) as ctx:
        source(ctx, ume_store_name=["a:0:0"]).close()
        until("it stood in", lambda: "proxy source created" in caplog.text)
        until("it is forgotten", lambda: store.store.state.sources == [] and standing(store) == [])
        until("it says so", lambda: "the source is forgotten" in caplog.text)


def test_j2_the_wish_cannot_be_changed_by_registering_again(run_store: Callable[..., ThreadStore]) -> None:
    run_store("a", "memory", **STORE)
    with hf.Context(session_id=5) as ctx:
        source(ctx, ume_store_name=["a:0:0"]).close()
        src = ctx.source("quotes", options={**SOURCE, "ume_store_name": ["a:0:0"], "ume_proxy_source": 0})
        with pytest.raises(hf.RegistrationError, match=r"ume_proxy_source = 0, but .* with 1 first"):
            src.wait_registered(SHORT)


@pytest.mark.parametrize("proxy", [0, 1])
def test_j2_late_receivers_register_and_recover_while_the_source_is_dead(
    run_store: Callable[..., ThreadStore], tmp_path: Path, own_domain: str, proxy: int
) -> None:
    """With a proxy or without: the stores keep the stream's record."""
    store = run_store("a", "memory", **STORE)
    options = {"ume_proxy_source": proxy, "ring_size": 1 << 17}
    worker = Worker("source", tmp_path, session=1, options=options, domain=own_domain, seed=3)
    told: list[Any] = []
    with contextlib.ExitStack() as stack, hf.Context(session_id=9) as ctx:
        stack.callback(worker.discard)
        worker.start().wait_ready()
        worker.words[LIMIT] = 50
        until("fifty are stable", lambda: worker.words[STABLE] >= 50)
        worker.strike()
        worker.wait_died()
        if proxy:
            until("it stands in", lambda: standing(store) == ["a"])
        rcv = ctx.receiver("kills", on_event=told.append)
        following = 0
        while following < 50:
            message = rcv.receive(timeout=SHORT)
            assert message is not None
            assert message.first_sequence_number == following
            following = message.sequence_number + 1
            message.release()
        complete = hf.events.receiver.RegistrationComplete
        until("it is told", lambda: any(isinstance(event, complete) for event in told))
