"""Stores that were away, stopped, wiped, or come late get from their peers' logs what the ring has not any
more (docs/design.md 14)."""

from __future__ import annotations

import shutil
import signal
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from support.handmade_feed import Log
from support.kept_messages import kept, log_of, messages
from support.receiving import Told
from support.three_stores import SHORT, SOURCE, everywhere, send
from support.workers import Traces, Worker, stand_still, until

import holdfast as hf
from holdfast.engine.control.waits import waiting
from holdfast.engine.events import receiver as events
from holdfast.engine.log.info_file import log_reader
from holdfast.engine.memory.domain import Domain
from holdfast.engine.native.core import ffi, lib
from holdfast.engine.rules.reconcile import CatchUpRule
from holdfast.engine.store.catch_up import CatchUp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from process.conftest import ThreadStore


@pytest.fixture
def spawn(tmp_path: Path, own_domain: str) -> Iterator[Callable[..., Worker]]:
    """Store processes; called again with a name, it is a restart. What still runs at the end is killed."""
    started: dict[str, Worker] = {}

    def start(name: str, kind: str = "memory", failpoints: str | None = None) -> Worker:
        if name not in started:
            directory = str(tmp_path / f"store-{name}")
            started[name] = Worker("store", tmp_path, domain=own_domain, name=name, directory=directory, kind=kind)
        return started[name].start(failpoints)

    yield start
    for store in started.values():
        if store.process is not None:
            store.send(signal.SIGCONT)
        store.discard()


@pytest.fixture
def lines(own_domain: str) -> Iterator[Callable[[str], Any]]:
    """The line on the board that a store of this name holds, None without one."""
    traces = Traces(own_domain)

    def look(name: str) -> Any:
        every = traces.lines(lib.HF_ROLE_STORE)
        found = [line for line in every if ffi.string(line.name) == name.encode() and line.state == lib.HF_LINE_ACTIVE]
        return found[0] if found else None

    yield look
    traces.close()


def has_all(line: Any, end: int) -> bool:
    return line is not None and line.ack == end and not line.flags & lib.HF_LINE_CATCHING_UP


class Behind:
    """Stores a, b and c on disk and a living source: c has stopped after its first ten messages."""

    def __init__(self, run_store: Callable[..., ThreadStore], lines: Callable[[str], Any], ctx: hf.Context) -> None:
        self._run = run_store
        self._line = lines
        self.stores = {name: run_store(name, "disk") for name in "abc"}
        self.src = ctx.source("quotes", options=SOURCE)
        everywhere(self.src)
        self.sent = send(self.src, 10)
        until("c has it", lambda: has_all(lines("c"), 10))
        self.stores["c"].stop()

    def misses(self, count: int, size: int = 0) -> None:
        """This many messages more are sent."""
        self.sent += send(self.src, count, size)

    def returns(self) -> None:
        """c is started again."""
        self.stores["c"] = self._run("c", "disk")

    def catches_up(self) -> None:
        """c has acknowledged all that was sent."""
        until("c has caught up", lambda: has_all(self._line("c"), len(self.sent)))


@pytest.fixture
def behind(run_store: Callable[..., ThreadStore], lines: Callable[[str], Any]) -> Iterator[Behind]:
    with hf.Context() as ctx:
        yield Behind(run_store, lines, ctx)


def stop(store: Worker) -> None:
    assert store.process is not None
    stand_still(store.process.pid)


@pytest.mark.parametrize("kind", ["disk", "memory"])
def test_a_store_with_a_fresh_directory_gets_everything_that_its_peers_have(
    run_store: Callable[..., ThreadStore], wipe: Callable[[str], None], lines: Callable[[str], Any], kind: str
) -> None:
    stores = {name: run_store(name, kind if name == "c" else "memory") for name in "abc"}
    with hf.Context() as ctx, ctx.source("quotes", options=SOURCE) as src:
        everywhere(src)
        stores["c"].stop()
        wipe("c")
        sent = send(src, 50_000)
        stores["c"] = run_store("c", kind)
        until("c has caught up", lambda: has_all(lines("c"), len(sent)))
        until("c counts", lambda: src.stats().stores["c"].state == "active")
        sent += send(src, 1)
        until("c and a go on", lambda: all(has_all(lines(name), len(sent)) for name in "ca"))
    assert kept(stores["c"]) == kept(stores["a"]) == sent


def test_a_stopped_store_that_the_ring_laps_has_everything_when_it_goes_on_and_counts_again(
    run_store: Callable[..., ThreadStore], spawn: Callable[..., Worker], lines: Callable[[str], Any], tmp_path: Path
) -> None:
    for name in "ab":
        run_store(name)
    store = spawn("c")
    with hf.Context() as ctx, ctx.source("quotes", options=SOURCE) as src:
        src.wait_registered(SHORT)
        sent = send(src, 10)
        until("c has it", lambda: has_all(lines("c"), 10))
        stop(store)
        for _ in range(5):  # more than a lap each
            sent += send(src, 2000, 60)
        assert lines("c").ack == 10
        store.send(signal.SIGCONT)
        until("c has caught up", lambda: has_all(lines("c"), len(sent)))
        assert lines("c").from_sqn == 0, "it had everything, and counts for all of it"
        until("c counts", lambda: src.stats().stores["c"].state == "active")
        store.stop()
    assert kept(tmp_path / "store-c") == sent


def test_a_stopped_store_that_misses_the_end_of_its_ring_and_the_whole_next_one_has_both_when_it_goes_on(
    run_store: Callable[..., ThreadStore], spawn: Callable[..., Worker], lines: Callable[[str], Any], tmp_path: Path
) -> None:
    for name in "ab":
        run_store(name)
    store = spawn("c")
    with hf.Context(session_id=7) as ctx:
        with ctx.source("quotes", options=SOURCE) as src:
            src.wait_registered(SHORT)
            sent = send(src, 10)
            until("c has it", lambda: has_all(lines("c"), 10))
            stop(store)
            sent += send(src, 5000, 60)
        with ctx.source("quotes", options=SOURCE) as src:
            src.wait_registered(SHORT)
            sent += send(src, 5000, 60)
        store.send(signal.SIGCONT)
        until("c has caught up", lambda: len(kept(tmp_path / "store-c")) == len(sent))
        with ctx.source("quotes", options=SOURCE) as src:
            src.wait_registered(SHORT)
            sent += send(src, 10)
            until("c goes on", lambda: has_all(lines("c"), len(sent)))
    store.stop()
    assert kept(tmp_path / "store-c") == sent


@pytest.mark.parametrize(
    ("kind", "point"),
    [
        ("disk", "log.copied=kill@2"), ("disk", "log.synced=kill@2"), ("disk", "log.published=kill@2"),
        ("disk", "roll.renamed=kill@2"), ("memory", "log.copied=kill@6"), ("memory", "roll.sealed=kill@1"),
    ],
)  # fmt: skip
def test_a_store_that_is_killed_while_it_catches_up_goes_on_where_it_was(
    run_store: Callable[..., ThreadStore], spawn: Callable[..., Worker], lines: Callable[[str], Any], tmp_path: Path,
    kind: str, point: str,
) -> None:  # fmt: skip
    for name in "ab":
        run_store(name)
    store = spawn("c", kind)
    with hf.Context() as ctx, ctx.source("quotes", options=SOURCE) as src:
        everywhere(src)
        sent = send(src, 10)
        until("c has it", lambda: has_all(lines("c"), 10))
        store.strike()
        store.wait_died()
        sent += send(src, 10_000, 300)
        spawn("c", kind, point)
        store.wait_died()
        spawn("c", kind).wait_ready()
        until("c has caught up", lambda: has_all(lines("c"), len(sent)))
        sent += send(src, 1)
        until("c goes on", lambda: has_all(lines("c"), len(sent)))
        store.stop()
    assert kept(tmp_path / "store-c") == sent


@pytest.mark.parametrize("reboot", [False, True])
def test_the_files_of_dead_peers_serve(behind: Behind, own_domain: str, reboot: bool) -> None:
    """After a reboot also those that say where they are are gone."""
    behind.misses(5000)
    behind.stores["a"].stop()
    behind.stores["b"].stop()
    if reboot:
        domain = Domain(own_domain)
        for name in "ab":
            domain.info_path(name).unlink()
        domain.close()
    behind.returns()
    behind.catches_up()
    assert kept(behind.stores["c"]) == behind.sent


def test_what_one_peer_has_not_is_read_from_another(behind: Behind, tmp_path: Path) -> None:
    behind.misses(10_000, 300)
    (segment, *_) = sorted(log_of(tmp_path / "store-a").glob("seg-*"))
    with segment.open("r+b") as file:  # in the middle: what a reader of this store meets is damage
        file.seek(segment.stat().st_size // 2)
        file.write(b"\xff" * 5000)
    behind.returns()
    behind.catches_up()
    assert kept(behind.stores["c"]) == behind.sent


def test_a_store_that_was_away_when_the_source_ended_catches_up_without_it(
    run_store: Callable[..., ThreadStore], tmp_path: Path
) -> None:
    stores = {name: run_store(name, "disk") for name in "abc"}
    with hf.Context(session_id=7) as ctx:
        with ctx.source("quotes", options=SOURCE) as src:
            everywhere(src)
            sent = send(src, 10)
            stores["c"].stop()
        for _ in range(2):
            with ctx.source("quotes", options=SOURCE) as src:
                src.wait_registered(SHORT)
                sent += send(src, 3000)
    stores["c"] = run_store("c", "disk")
    until("c has caught up", lambda: kept(stores["c"]) == sent)
    (source,) = stores["c"].store.state.sources
    assert [number for number, _ in source.begins] == [1, 2, 3]


def test_a_store_that_cannot_know_which_begin_holds_does_not_ask_all_the_time(
    run_store: Callable[..., ThreadStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """b has 10..14 of incarnation 1, a has them of 2, and c, with which either may have been stable, cannot
    be read."""
    stores = {name: run_store(name, "disk") for name in "abc"}
    with hf.Context(session_id=7) as ctx:
        with ctx.source("quotes", options=SOURCE) as src:
            everywhere(src)
            send(src, 10)
        stores["b"].stop()
        with ctx.source("quotes", options=SOURCE) as src:
            src.wait_registered(SHORT)
            sent = send(src, 5)
    for name in "ac":
        stores[name].stop()
    path = log_of(tmp_path / "store-b")
    shutil.rmtree(path)
    log = Log(path, bytes.fromhex(path.name))
    path.chmod(0o700)
    log.begin(1, 0)
    log.plain(0, 14)
    log.close()
    (tmp_path / "store-c").rename(tmp_path / "hidden")
    asked: list[CatchUp] = []
    close = CatchUp.close

    def closed(self: CatchUp) -> None:
        asked.append(self)
        close(self)

    monkeypatch.setattr(CatchUp, "close", closed)
    run_store("a", "disk")
    b = run_store("b", "disk")
    (repository,) = b.store.drainer.repositories.values()
    until("b has seen it", lambda: (found := repository.catch_up) is not None and found.newer())
    rounds = 0
    for _ in range(100):
        rounds += b.store.drainer.call(lambda: 1)
    assert (rounds, repository.table) == (100, ((1, 0),))
    assert len(asked) < 10
    (tmp_path / "hidden").rename(tmp_path / "store-c")
    until("b follows", lambda: kept(b)[10:] == sent)


def test_a_store_that_nobody_tells_looks_at_its_peers(run_store: Callable[..., ThreadStore]) -> None:
    stores = {name: run_store(name, "disk") for name in "abc"}
    with hf.Context(session_id=7) as ctx:
        with ctx.source("quotes", options=SOURCE) as src:
            everywhere(src)
            sent = send(src, 10)
        (repository,) = stores["c"].store.drainer.repositories.values()
        until("c rests", lambda: repository.stream is None and repository.catch_up is None)
        with ctx.source("quotes", options={**SOURCE, "ume_store_name": list("ab")}) as src:
            src.wait_registered(SHORT)
            sent += send(src, 10)
        until("c has it", lambda: kept(stores["c"]) == sent)


def answer(log: Path, number: int) -> tuple[int, int]:
    """What the log says of a number that it has not, and where it goes on."""
    memory, following = ffi.new("uint8_t[]", 1 << 16), ffi.new("uint64_t *")
    with log_reader(log) as reader:
        assert reader is not None
        return int(lib.hf_logr_read(reader, number, memory, 1 << 16, following)), int(following[0])


@pytest.fixture
def hidden(behind: Behind, tmp_path: Path, unnoticed: None) -> list[Path]:
    """The logs of a and b cannot be read, and they have what c has missed."""
    behind.misses(10_000, 60)
    logs = [log_of(tmp_path / f"store-{name}") for name in "ab"]
    for log in logs:
        log.rename(log.with_name("hidden"))
    return logs


def show(hidden: list[Path]) -> None:
    for log in hidden:
        shutil.rmtree(log, ignore_errors=True)
        log.with_name("hidden").rename(log)


def test_what_a_store_out_of_reach_may_have_becomes_a_hole_and_is_filled_when_it_can_be_read(
    behind: Behind, lines: Callable[[str], Any], hidden: list[Path]
) -> None:
    behind.returns()
    behind.catches_up()
    start = lines("c").from_sqn
    assert 10 < start < len(behind.sent), "the line counts behind the hole"
    log = log_of(behind.stores["c"].store.directory.path)
    assert answer(log, 10) == (lib.HF_HOLE, start)
    assert kept(behind.stores["c"]) == behind.sent[:10] + behind.sent[start:]
    show(hidden)
    until("it is filled", lambda: kept(behind.stores["c"]) == behind.sent)


def test_what_every_store_was_read_for_and_lacks_becomes_a_loss(
    behind: Behind, lines: Callable[[str], Any], hidden: list[Path]
) -> None:
    for path in hidden:
        log = Log(path, bytes.fromhex(path.name))
        path.chmod(0o700)
        log.begin(1, 0)
        log.plain(0, 9)
        log.lost(10, len(behind.sent) - 1)
        log.close()
    behind.returns()
    behind.catches_up()
    start = lines("c").from_sqn
    assert 10 < start < len(behind.sent)
    assert answer(log_of(behind.stores["c"].store.directory.path), 10) == (lib.HF_LOST, start)
    show(hidden)


def test_a_receiver_at_a_hole_is_late_and_says_so_and_is_never_told_a_loss(
    behind: Behind, lines: Callable[[str], Any], hidden: list[Path]
) -> None:
    behind.returns()
    behind.catches_up()
    told, got = Told(), []
    with hf.Context() as ctx:
        options = {"retransmit_request_message_timeout": 50}
        rcv = ctx.receiver(
            "quotes", options=options, on_event=told, on_message=lambda message: got.append(copied(message))
        )
        until("it waits", lambda: any("waits for 10:" in event.text for event in told.of(events.RegistrationError)))
        text = next(event.text for event in told.of(events.RegistrationError) if "waits for 10:" in event.text)
        assert "store 0 [a], store 1 [b] may" in text
        assert [wait.why for wait in waiting(ctx.domain)] == [text], "doctor and stat show it"
        seen = len(told.of(events.RegistrationError))
        until("it says so again", lambda: len(told.of(events.RegistrationError)) > seen + 2)
        assert got == behind.sent[:10]
        show(hidden)
        until("it has everything", lambda: len(got) == len(behind.sent))
        until("it waits no longer", lambda: not waiting(ctx.domain))
        rcv.close()
    assert got == behind.sent
    assert not told.of(events.UnrecoverableLoss)
    assert not told.of(events.UnrecoverableLossBurst)


def copied(message: hf.Message) -> tuple[int, bytes]:
    return message.sequence_number, bytes(message)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store never gives up waiting for a peer."""
    monkeypatch.setattr("holdfast.engine.store.catch_up.CatchUpRule", partial(CatchUpRule, patience_ns=10**18))


@pytest.mark.usefixtures("patient", "unnoticed")
def test_a_store_that_catches_up_is_not_counted_and_drains_other_sources_meanwhile(
    behind: Behind, lines: Callable[[str], Any], tmp_path: Path
) -> None:
    src = behind.src
    behind.misses(10_000, 60)
    hidden = [log_of(tmp_path / f"store-{name}") for name in "ab"]
    for log in hidden:
        log.rename(log.with_name("hidden"))
    behind.returns()
    until("it shows", lambda: src.stats().stores["c"].state == "catching_up")
    assert lines("c").ack == 10
    with hf.Context() as ctx:
        other = ctx.source("trades", options={**SOURCE, "ume_retention_intragroup_stability_behavior": "all"})
        other.wait_registered(SHORT)
        send(other, 100)
    assert src.stats().stores["c"].state == "catching_up"
    behind.stores["b"].stop()
    until("one is not enough", lambda: not registered(src))
    for log in hidden:
        log.with_name("hidden").rename(log)
    src.wait_registered(SHORT)
    until("c has caught up", lambda: src.stats().stores["c"].state == "active")
    src.close()
    assert messages(tmp_path / "store-c" / "logs" / hidden[0].name) == behind.sent


def registered(src: hf.Source) -> bool:
    try:
        src.wait_registered(0)
    except hf.RegistrationTimeout:
        return False
    return True


def rings(domain: Domain) -> list[int]:
    return [item.incarnation for item in domain.objects() if item.kind == "stream"]


def test_a_ring_that_a_dead_store_has_left_does_not_hide_a_newer_incarnation(
    run_store: Callable[..., ThreadStore], spawn: Callable[..., Worker], own_domain: str
) -> None:
    """The ring of incarnation 2 stays, since its only store is dead; 3 has other stores, and has ended.

    What that ring has is not lost: the stores that knew the source before read it, when they are asked for
    the next incarnation.
    """
    for name in "ab":
        run_store(name)
    only = spawn("x").wait_ready()
    options = {**SOURCE, "ume_store_name": list("abx")}
    with hf.Context(session_id=7) as ctx:
        with ctx.source("quotes", options=options) as src:
            src.wait_registered(SHORT)
            sent = send(src, 10)
        with ctx.source("quotes", options={**options, "ume_store_name": ["x"]}) as src:
            src.wait_registered(SHORT)
            stop(only)
            sent.append((src.send(b"nobody has it"), b"nobody has it"))
        only.strike()
        only.wait_died()
        with ctx.source("quotes", options={**options, "ume_store_name": ["a", "b"]}) as src:
            src.wait_registered(SHORT)
            sent += send(src, 10)
        domain = Domain(own_domain)
        until("only the old ring is left", lambda: rings(domain) == [2])
        domain.close()
    with hf.Context() as ctx, ctx.receiver("quotes", options={"ume_registration_interval": 100}) as rcv:
        for expected in sent:
            message = rcv.receive(timeout=SHORT)
            assert message is not None
            with message:
                assert (message.sequence_number, bytes(message)) == expected
