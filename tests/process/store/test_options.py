"""What a store does by topic: patterns, repository types, retention and restore-last in real stores
(docs/semantics.md I.1 to I.4)."""

from __future__ import annotations

import logging
import shutil
import time
from typing import TYPE_CHECKING, Any

import pytest
from process.conftest import ThreadStore
from support.receiving import received
from support.three_stores import everywhere
from support.workers import until

import holdfast as hf
from holdfast.engine.log.stale_rings import StaleRings
from holdfast.engine.log.undeliverable import MarkFile
from holdfast.engine.native.core import ffi, lib
from holdfast.engine.native.status import check
from holdfast.engine.options.topic_rules import TopicOptions
from holdfast.engine.store.store import Store, StoreConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SHORT = 90.0
SOURCE: dict[str, Any] = {"ume_store_name": ["a:0:0"], "ring_size": 1 << 17, "fragment_size": 4096}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., ThreadStore]]:
    """Starts stores by any configuration; one at a time uses a directory."""
    started: list[ThreadStore] = []

    def run(*topics: TopicOptions, name: str = "a", kind: str = "disk", **options: object) -> ThreadStore:
        given = {option.replace("_", "-"): value for option, value in options.items()}
        config = StoreConfig(name, tmp_path / f"store-{name}", type=kind, options=given, topics=topics)
        started.append(ThreadStore(config))
        return started[-1]

    yield run
    for store in started:
        store.stop()


def topic(pattern: str, kind: str = "direct", **options: object) -> TopicOptions:
    return TopicOptions(pattern, kind, {name.replace("_", "-"): value for name, value in options.items()})


def sent(ctx: hf.Context, topic: str, *messages: bytes, **options: Any) -> hf.Source:
    """A registered source whose messages are stable."""
    src = ctx.source(topic, options={**SOURCE, **options})
    src.wait_registered(SHORT)
    for message in messages:
        src.send(message)
    if messages:
        src.wait_stable(timeout=SHORT)
    return src


def repository(store: ThreadStore, topic: str) -> Any:
    source = next(source for source in store.store.state.sources if source.topic == topic)
    return store.store.holdings.ensure_repository(source)  # its log may be shelved


# Patterns: A.1, I.1 -----------------------------------------------------------------------------------------


def test_a1_a_topic_without_a_pattern_is_refused_with_the_reason(start: Callable[..., ThreadStore]) -> None:
    store = start(topic("quotes"), topic("^md", "PCRE"))
    with hf.Context(session_id=5) as ctx:
        sent(ctx, "quotes", b"0")
        sent(ctx, "md.eu", b"0")
        news = ctx.source("news", options=SOURCE)
        with pytest.raises(hf.RegistrationError, match=r"does not keep topic 'news'.*'quotes', '\^md'"):
            news.wait_registered(SHORT)
    assert sorted(source.topic for source in store.store.state.sources) == ["md.eu", "quotes"]


def test_a1_a_topic_that_lost_its_pattern_is_still_offered_and_takes_nothing_new(
    start: Callable[..., ThreadStore],
) -> None:
    store = start(topic("quotes"), topic("news"))
    with hf.Context(session_id=5) as ctx:
        sent(ctx, "quotes", b"0").close()
        store.stop()
        start(topic("news"))
        with pytest.raises(hf.RegistrationError, match="does not keep topic 'quotes'"):
            ctx.source("quotes", options=SOURCE).wait_registered(SHORT)
        assert received(ctx, "quotes", 1) == [b"0"]


def test_i1_lifetimes_and_rollback_are_those_of_the_topics_pattern(start: Callable[..., ThreadStore]) -> None:
    store = start(
        topic("short", source_state_lifetime=1, source_activity_timeout=1),
        topic("back", receiver_new_registration_rollback=2),
        topic(".", "PCRE"),
        source_check_interval=5,
    )
    messages = [b"0", b"1", b"2", b"3"]
    with hf.Context(session_id=5) as ctx:
        for name in ("short", "back", "other"):
            sent(ctx, name, *messages).close()
        assert received(ctx, "short", 4) == messages
        until("the short one is forgotten", lambda: len(store.store.state.sources) == 2)
        assert received(ctx, "back", 2) == messages[2:]
        assert received(ctx, "other", 4) == messages


# Types: I.2, I.4 --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["disk", "memory"])
def test_i2_one_store_keeps_topics_on_disk_and_in_memory(start: Callable[..., ThreadStore], kind: str) -> None:
    rules = topic("disk", repository_type="disk"), topic("memory", repository_type="memory")
    store = start(*rules, kind=kind)
    with hf.Context(session_id=5) as ctx:
        for name in ("disk", "memory"):
            sent(ctx, name, name.encode())
        memory = store.store.domain.memory_logs("a", store.store.state.uuid)
        for name, level in (("disk", lib.HF_LEVEL_DISK), ("memory", lib.HF_LEVEL_MEMORY)):
            repo = repository(store, name)
            assert (repo.source.repository, repo.level) == (name, level)
            assert (repo.path.resolve().parent == memory) is (name == "memory")
            assert repo.path.parent == store.store.logs, "every log is found in one place"
        store.stop()
        store = start(*rules, kind=kind)
        for name in ("disk", "memory"):
            assert received(ctx, name, 1) == [name.encode()]
            src = ctx.source(name + "-2", options=SOURCE)
            src.close()
    for source in list(store.store.state.sources):
        store.store.sources.forget(source, names=True)
    assert list(store.store.logs.iterdir()) == []
    assert list(memory.iterdir()) == []


def test_i2_a_memory_log_is_made_again_when_the_memory_was_emptied(start: Callable[..., ThreadStore]) -> None:
    store = start(topic("m", repository_type="memory"))
    with hf.Context(session_id=5) as ctx:
        src = sent(ctx, "m", b"0", b"1")
        src.close()
        memory = store.store.domain.memory_logs("a", store.store.state.uuid)
        store.stop()
        shutil.rmtree(memory)
        store = start(topic("m", repository_type="memory"))
        assert repository(store, "m").path.resolve().parent == memory


def test_i2_a_memory_log_is_found_when_a_reboot_has_made_the_domain_anew(
    start: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where its directory lies in memory, it is another one then, with other names in shared memory."""
    monkeypatch.setattr(StaleRings, "tidy", lambda *_: None)  # what is lost at first is in the ring, which stays
    store = start(topic("m", repository_type="memory"))
    with hf.Context(session_id=5) as ctx:
        src = sent(ctx, "m", b"0", b"1")
        src.close()
        memory, link = store.store.domain.memory_logs("a", store.store.state.uuid), repository(store, "m").path
        store.stop()
        shutil.rmtree(memory)
        link.unlink()
        link.symlink_to(memory.with_name(f"hf.{0:012x}.logs.a") / link.name)
        store = start(topic("m", repository_type="memory"))
        sent(ctx, "m", b"2").close()
        assert repository(store, "m").path.resolve().parent == memory
        found = repository(store, "m")
        link = found.path
        store.stop()
        elsewhere = memory.with_name(f"hf.{1:012x}.logs.a") / link.name
        shutil.copytree(link, elsewhere)
        shutil.rmtree(memory)
        link.unlink()
        link.symlink_to(elsewhere)
        try:
            store = start(topic("m", repository_type="memory"))
            assert received(ctx, "m", 3) == [b"0", b"1", b"2"], "a store that was moved here goes on with what it had"
            store.store.sources.forget(store.store.state.sources[0], names=True)
            assert not elsewhere.exists()
        finally:
            shutil.rmtree(elsewhere.parent, ignore_errors=True)


def test_holdfast_acknowledge_of_a_topic_says_what_stable_means(start: Callable[..., ThreadStore]) -> None:
    store = start(topic("fast", holdfast_acknowledge="memory"), topic(".", "PCRE"))
    with hf.Context(session_id=5) as ctx:
        sent(ctx, "fast", b"0")
        sent(ctx, "safe", b"0")
        assert repository(store, "fast").level == lib.HF_LEVEL_MEMORY
        assert repository(store, "safe").level == lib.HF_LEVEL_DISK
        for name in ("fast", "safe"):
            assert repository(store, name).path.resolve().parent == store.store.logs


def test_i4_a_changed_type_leaves_what_exists_as_it_is_until_deregistration(
    start: Callable[..., ThreadStore], caplog: pytest.LogCaptureFixture
) -> None:
    store = start(topic("quotes", repository_type="disk"))
    with hf.Context(session_id=5) as ctx:
        sent(ctx, "quotes", b"0").close()
        store.stop()
        with caplog.at_level(logging.WARNING, "holdfast.store"):
            store = start(topic("quotes", repository_type="memory"))
        assert "stays a disk repository until it is deregistered; the configuration says memory" in caplog.text
        assert repository(store, "quotes").level == lib.HF_LEVEL_DISK
        src = sent(ctx, "quotes", b"1")
        assert received(ctx, "quotes", 2) == [b"0", b"1"]
        src.deregister()
        until("it is forgotten", lambda: not store.store.state.sources)
        src.close()
        sent(ctx, "quotes", b"2")
        assert repository(store, "quotes").level == lib.HF_LEVEL_MEMORY


def test_retention_is_that_of_the_topics_pattern(start: Callable[..., ThreadStore]) -> None:
    small = 1 << 20
    store = start(
        topic("disk", repository_disk_file_size_limit=small),
        topic("memory", repository_type="memory", repository_size_threshold=small),
        topic(".", "PCRE"),
    )
    with hf.Context(session_id=5) as ctx:
        for name in ("disk", "memory", "other"):
            src = sent(ctx, name, ume_flight_size=200)
            for _ in range(1200):
                src.send(bytes(4000))
            src.wait_stable(timeout=SHORT)
        kept = {name: int(repository(store, name).info.oldest_sqn) for name in ("disk", "memory", "other")}
    assert kept["other"] == 0
    assert kept["disk"] > 0
    assert kept["memory"] > 0


def test_a_store_refuses_a_wrong_configuration_before_it_makes_anything(tmp_path: Path) -> None:
    with pytest.raises(hf.ConfigError, match=r"topic pattern 'x': .*memory repository"):
        Store(
            StoreConfig(
                "a",
                tmp_path / "a",
                topics=[topic("x", repository_type="memory", repository_disk_file_size_limit=10**6)],
            )
        )
    assert not (tmp_path / "a").exists()


# restore-last and age: I.1, I.3 -----------------------------------------------------------------------------

HOUR_NS = 3600 * 10**9


def aged(store: ThreadStore, name: str, *ages_h: float) -> None:
    """Gives the topic's log messages that were sent this many hours ago, oldest first; a store that runs,
    without a source."""
    repo = repository(store, name)
    until("the ring is drained and gone", lambda: not store.store.drainer.call(repo.streams))
    now = time.time_ns()

    def put() -> None:
        for age in ages_h:
            frame = ffi.new("uint8_t[64]")
            head = ffi.cast("struct hf_frame *", frame)
            head.commit, head.sequence_number = 32 + 4, int(repo.info.appended_sqn)
            head.timestamp_ns, head.flags = now - int(age * HOUR_NS), lib.HF_FRAME_FIRST | lib.HF_FRAME_LAST
            if lib.hf_log_append(repo.log, frame, 64) == lib.HF_ROLL:
                check(lib.hf_log_roll(repo.log))
                check(lib.hf_log_append(repo.log, frame, 64))
        check(lib.hf_log_sync(repo.log))

    store.store.drainer.call(put)


@pytest.mark.parametrize(
    ("hours", "oldest"),
    [(0, 0), (1, 6), (2, 5), (5, 3), (336, 1), (None, 7)],
    ids=["all", "1h", "2h", "5h", "336h", "nothing"],
)
def test_i1_restore_last_offers_what_is_so_much_older_than_the_newest_message(
    start: Callable[..., ThreadStore], hours: int | None, oldest: int
) -> None:
    """Measured back from the newest message, 100 hours ago here, not from now."""
    store = start()
    with hf.Context(session_id=5) as ctx:
        sent(ctx, "quotes").close()
        aged(store, "quotes", 437, 436, 106, 105, 103, 102, 100)
        store.stop()
        store = start(TopicOptions("quotes", restore_last=hours))
        assert int(repository(store, "quotes").info.oldest_sqn) == oldest
        src = sent(ctx, "quotes", b"new")
        assert src.next_sequence_number == 8, "the numbering goes on all the same"
        rcv = ctx.receiver("quotes")
        message = rcv.receive(timeout=SHORT)
        assert message is not None
        assert message.first_sequence_number == oldest


def test_restore_last_is_measured_from_the_newest_message_also_where_that_is_marked(
    start: Callable[..., ThreadStore],
) -> None:
    store = start()
    with hf.Context(session_id=5) as ctx:
        sent(ctx, "quotes").close()
        aged(store, "quotes", 106, 103, 100)
        place = repository(store, "quotes").path
        store.stop()
    assert MarkFile(place).add(1, [(2, 2)])
    store = start(TopicOptions("quotes", restore_last=5))
    assert int(repository(store, "quotes").info.oldest_sqn) == 1


def test_i3_a_memory_repository_lets_go_what_is_too_old_and_others_do_not(start: Callable[..., ThreadStore]) -> None:
    store = start(
        topic("short", repository_type="memory", repository_age_threshold=2 * 3600),
        topic("long", repository_type="memory"),
        topic("disk", repository_age_threshold=2 * 3600),
        source_check_interval=5,
    )
    with hf.Context(session_id=5) as ctx:
        for name in ("disk", "long", "short"):
            sent(ctx, name).close()
            aged(store, name, 5, 4, 3, 2, 1)
        until("the old ones are gone", lambda: int(repository(store, "short").info.oldest_sqn) == 2)
        assert [int(repository(store, name).info.oldest_sqn) for name in ("disk", "long")] == [0, 0]
        assert len(received(ctx, "short", 3)) == 3


# no-cache: I.3, B.5 -----------------------------------------------------------------------------------------


def told(ctx: hf.Context, name: str) -> tuple[hf.Receiver, list[Any]]:
    """A registered receiver and its events."""
    events: list[Any] = []
    rcv = ctx.receiver(name, on_event=events.append)
    complete = hf.events.receiver.RegistrationComplete
    until("it is registered", lambda: any(isinstance(event, complete) for event in events))
    return rcv, events


def test_i3_a_no_cache_store_keeps_who_is_there_and_no_message(
    start: Callable[..., ThreadStore], caplog: pytest.LogCaptureFixture
) -> None:
    store = start(kind="no-cache")
    events: list[Any] = []
    with hf.Context(session_id=5, options={"ume_ack_batching_interval": 5}) as ctx:
        src = ctx.source("quotes", options=SOURCE, on_event=events.append)
        src.wait_registered(SHORT)
        until("it is told", lambda: events)
        assert events[0].flags == hf.events.source.RegistrationSuccessFlags.NOACKS
        assert "its stores are no-cache, so nothing that is sent becomes stable" in caplog.text
        rcv, of_receiver = told(ctx, "quotes")
        flags = hf.events.receiver.RegistrationSuccessFlags
        assert of_receiver[0].flags == flags.NOCACHE | flags.SRC_SID
        for number in range(10):
            src.send(bytes([number]))
        for number in range(10):
            message = rcv.receive(timeout=SHORT)
            assert message is not None
            with message:
                assert bytes(message) == bytes([number])
        with pytest.raises(hf.StabilityTimeout):
            src.wait_stable(timeout=0.1)
        until("the numbers are known", lambda: repository(store, "quotes").next_sqn == 10)
        until("the ack is kept", lambda: store.store.state.sources[0].receivers[0].ack == 10)
        assert not any(isinstance(event, hf.events.source.MessageNotStable) for event in events)
        src.close()
        until("nobody waits for it", lambda: not store.store.drainer.call(repository(store, "quotes").streams))
        store.stop()
        store = start(kind="no-cache")
        again = ctx.source("quotes", options=SOURCE)
        again.wait_registered(SHORT)
        assert again.next_sequence_number == 10, "numbers go on"
        again.send(b"new")
        message = rcv.receive(timeout=SHORT)
        assert message is not None
        assert bytes(message) == b"new"
        board = store.store.drainer.call(
            lambda: [
                (int(view.line.ack), int(view.line.level))
                for view in repository(store, "quotes").line.views()
                if view.line.role == lib.HF_ROLE_STORE
            ]
        )
        assert board == [(0, 0)], "it says on the board that it has nothing"
    used = sum(path.stat().st_blocks * 512 for path in store.store.logs.rglob("*") if path.is_file())
    assert used < 300_000


def test_i3_beside_disk_stores_a_no_cache_store_counts_for_registration_and_not_for_stability(
    start: Callable[..., ThreadStore],
) -> None:
    """Two of three are a quorum: both of the others."""
    stores = [start(name=name, kind=kind) for name, kind in (("a", "disk"), ("b", "no-cache"), ("c", "disk"))]
    names = {"ume_store_name": ["a:0:0", "b:0:0", "c:0:0"], "ume_registration_interval": 100}
    with hf.Context(session_id=5) as ctx:
        src = sent(ctx, "quotes", b"0", **names)
        everywhere(src)
        stores[2].stop()
        until("it is seen", lambda: src.stats().stores["c"].state == "down")
        src.send(b"1")
        with pytest.raises(hf.StabilityTimeout):
            src.wait_stable(timeout=0.2)
        start(name="c", kind="disk")
        src.wait_stable(timeout=SHORT)
        src.close()
        assert received(ctx, "quotes", 2) == [b"0", b"1"]
        until("the ring is gone", lambda: not stores[0].store.drainer.call(repository(stores[0], "quotes").streams))
