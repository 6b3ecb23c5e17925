"""The example programs as a person runs them: real processes, real stores, and UM's behaviour
(docs/semantics.md M, A.2, F.3, G)."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support import workers
from support.example_programs import Example, wait
from support.receiving import until_no_ring

from holdfast.engine.memory.domain import Domain
from holdfast.engine.tools import snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TOPIC = "UME Example"
ALL = [f"UME Message {number:02}" for number in range(1, 21)]
RECEIVED = r"\(sequence number (\d+)\) '(.*)'"
DATA = r"^\[\w+\]\[\S+\]\[(\d+)\]( -RX-)?, (\d+) bytes$"


@pytest.fixture
def start() -> Iterator[Callable[..., Example]]:
    """Starts programs; what still runs at the end is killed."""
    started: list[Example] = []

    def begin(command: str, *more: object) -> Example:
        started.append(Example(command, *more))
        return started[-1]

    yield begin
    for example in started:
        example.process.kill()
        example.end()


@pytest.fixture
def run(start: Callable[..., Example]) -> Callable[..., Example]:
    """Runs a program to its end, which must be a good one."""

    def go(command: str, *more: object) -> Example:
        example = start(command, *more)
        assert example.end() == (0, "")
        return example

    return go


@pytest.fixture
def place(domain: str) -> Iterator[Domain]:
    """Only looked at."""
    place = Domain(domain, join=False)
    yield place
    place.close()


@pytest.fixture
def look(place: Domain) -> Callable[[], snapshot.Snapshot]:
    """Who is in the domain, and who has acknowledged what."""
    return lambda: snapshot.take(place)


def stand_still(source: Example, look: Callable[[], snapshot.Snapshot], messages: int) -> None:
    """This many are sent, and no more: it would end, and nobody could kill it then."""
    wait(f"{messages} messages", lambda: any(row.next >= messages for row in look().sources), source.alive)
    source.process.send_signal(signal.SIGSTOP)


# The minimal programs ---------------------------------------------------------------------------------------


def test_the_minimal_receiver_gets_what_the_minimal_source_has_sent(
    run: Callable[..., Example], run_store: Any, look: Callable[[], snapshot.Snapshot]
) -> None:
    run_store()
    run("ume_example_src --interval 0")
    receiver = run("ume_example_rcv")
    assert receiver.found(RECEIVED) == [(str(number), text) for number, text in enumerate(ALL)]
    assert look().receivers == [], "nobody asked to keep it"


def test_a_static_registration_id_goes_on_after_a_kill_and_is_refused_to_a_second(
    start: Callable[..., Example], run: Callable[..., Example], run_store: Any, look: Callable[[], snapshot.Snapshot]
) -> None:
    run_store()
    first = start("ume_example_src_2 --interval 1")
    assert first.until(r"registered as (.*), the next number is (\d+)") == [("{'a': 1000}", "0")]
    wait("three messages", lambda: look().sources[0].next >= 3)
    first.process.send_signal(signal.SIGSTOP)  # stopped is not dead
    code, err = start("ume_example_src_2").end()
    assert code == 1
    assert re.fullmatch(rf"error: HF_REGID_IN_USE: .* 1000 is held by process {first.process.pid} .*\n", err)
    first.kill()
    published = look().sources[0].next
    second = run("ume_example_src_2 --interval 0")
    assert second.found(r"the next number is (\d+)") == [str(published)]
    assert [row.registration_ids for row in look().sources] == [{"a": 1000}], "one source, not two"


def test_saved_registration_ids_of_three_stores_let_a_killed_source_resume(
    start: Callable[..., Example], run: Callable[..., Example], run_store: Any, look: Callable[[], snapshot.Snapshot],
    tmp_path: Path,
) -> None:  # fmt: skip
    stores = [run_store(name) for name in "abc"]
    file = tmp_path / "ids"
    receiver = start("ume_example_rcv")
    source = start("ume_example_src_3 --interval 1 --file", file)
    stand_still(source, look, 5)
    receiver.until(RECEIVED, 5)
    source.kill()
    saved = dict(line.split(":") for line in file.read_text().split())
    assert saved == {name: str(number) for name, number in look().sources[0].registration_ids.items()}
    assert set(saved) == {"a", "b", "c"}
    published = look().sources[0].next
    again = run("ume_example_src_3 --interval 0 --file", file)
    assert again.found(r"will start with message number (\d+)") == [str(published + 1)]
    assert not file.exists()
    assert receiver.end() == (0, "")
    assert [text for _, text in receiver.found(RECEIVED)] == ALL, "each once, in order, over both lives"
    assert len(look().sources) == 1
    for store in stores:
        store.stop()


def test_a_receiver_with_a_chosen_registration_id_resumes_behind_its_acks(
    start: Callable[..., Example], run: Callable[..., Example], run_store: Any, look: Callable[[], snapshot.Snapshot]
) -> None:
    run_store()
    source = start("ume_example_src_2 --interval 1")
    stand_still(source, look, 5)
    first = start("ume_example_rcv_2")
    assert first.until(r"\[(\d+)\] requesting RegID (\d+)") == [("1000", "1100")]
    wait("an acknowledgement", lambda: any(row.ack >= 2 for row in look().receivers))
    first.process.send_signal(signal.SIGSTOP)
    source.kill()
    assert [row.registration_id for row in look().receivers] == [1100]
    code, err = start("umercv -i 100", TOPIC).end()
    assert (code, err.startswith("error: HF_REGID_IN_USE: ")) == (1, True), "1000 + 100 is taken"
    first.kill()
    acknowledged = max(row.ack for row in look().receivers)
    source = start("ume_example_src_2 --interval 0")
    second = run("ume_example_rcv_2")
    before, after = ([int(number) for number, _ in life.found(RECEIVED)] for life in (first, second))
    assert after == list(range(acknowledged + 1, 20))
    assert set(before) | set(after) == set(range(20))
    assert [row.ack for row in look().receivers] == [19], "the last message is consumed, too"


def test_a_receiver_with_saved_registration_ids_resumes_behind_its_acks(
    start: Callable[..., Example], run: Callable[..., Example], run_store: Any, look: Callable[[], snapshot.Snapshot],
    tmp_path: Path,
) -> None:  # fmt: skip
    stores = [run_store(name) for name in "abc"]
    ids, source_ids = tmp_path / "ids", tmp_path / "source-ids"
    source = start("ume_example_src_3 --interval 1 --file", source_ids)
    stand_still(source, look, 5)
    first = start("ume_example_rcv_3 --file", ids)
    first.until("saved RegIDs", 3)
    saved = dict(line.rsplit("-", 1) for line in ids.read_text().split())
    of_source = look().sources[0].registration_ids
    assert set(saved) == {f"{store}-{number}" for store, number in of_source.items()}
    wait("an acknowledgement", lambda: any(row.ack >= 2 for row in look().receivers))
    first.kill()
    source.kill()
    acknowledged = max(row.ack for row in look().receivers)
    source = start("ume_example_src_3 --interval 0 --file", source_ids)
    second = run("ume_example_rcv_3 --file", ids)
    asked = second.found(r"UME store \d: (\w) \[(\d+)\] requesting RegID (\d+)")
    assert {f"{store}-{source_id}": own for store, source_id, own in asked} == saved
    assert [int(number) for number, _ in second.found(RECEIVED)] == list(range(acknowledged + 1, 20))
    assert not ids.exists()
    for store in stores:
        store.stop()


def test_one_in_flight_never_has_two(run: Callable[..., Example], run_store: Any) -> None:
    run_store(kind="disk")
    source = run("one_in_flight")
    flights = source.found(r"^sent (\d+), in flight (\d+), stable (-?\d+)")
    assert [int(number) for number, _, _ in flights] == list(range(20))
    assert {int(count) for _, count, _ in flights} <= {0, 1}
    assert all(int(stable) >= int(number) - 1 for number, _, stable in flights), "the one before was stable"
    assert set(source.found(r"not sent \((\w+)\)")) == {"flight_size"}


# umesrc and umercv ------------------------------------------------------------------------------------------


def test_umesrc_prints_what_becomes_of_its_messages(run: Callable[..., Example], run_store: Any) -> None:
    stores = [run_store(name) for name in "abc"]
    each = "ume_message_stability_notification=1"
    source = run("umesrc -t a -t b:77 -t c -M 6 -d 0 -v -N -o", each, "flights")
    granted = source.found(r"^UME store (\d): (\w) registration success. RegID (\d+). Flags 0x0$")
    assert {(index, store) for index, store, _ in granted} == {("0", "a"), ("1", "b"), ("2", "c")}
    assert [number for _, store, number in granted if store == "b"] == ["77"]
    assert source.found(r"^UME registration complete. SQN 0. Flags 0x[01]") != []
    assert source.found(r"^SQN (\d+) \(cd (\d+)\)$") == [(str(n), str(n)) for n in range(6)]
    stable = source.found(r"^UME store \d: \w message stable. SQN (\d+) \(cd (\d+)\). Flags 0x\w+ .*STORE")
    assert {number for number, _ in stable} == set("012345")
    assert all(number == data for number, data in stable)
    as_configured = source.found(r"message stable. SQN (\d+) .* IA IR STABLE STORE")
    assert set(as_configured) == set("012345")
    assert source.found(r"^UME message reclaimed. SQN (\d+) \(cd \d\). Flags 0x0$") == list("012345")
    assert source.found(r"^app sent 6 stable 5 inflight 0") != []
    for store in stores:
        store.stop()


def test_umesrc_goes_on_when_its_store_is_back(start: Callable[..., Example], run_store: Any, domain: str) -> None:
    store = run_store()
    receiver = start("umercv -v -r 300 flights")
    processes = Path(os.environ["HOLDFAST_DIR"], domain, "processes")
    wait("the receiver is there: the source sends for 15 s", lambda: len(list(processes.iterdir())) > 1, receiver.alive)
    source = start("umesrc -t a -M 300 -m 20 -d 0 flights")
    receiver.until(DATA, 3)
    store.stop()
    source.until("unresponsive.*quorum lost")
    source.until("Send unsuccessful. Waiting...")
    run_store()
    assert source.end() == (0, "")
    assert receiver.end() == (0, "")
    assert [int(number) for number, _, _ in receiver.found(DATA)] == list(range(300))


def test_umesrc_without_waiting_sends_everything(run: Callable[..., Example], run_store: Any) -> None:
    run_store(kind="disk")
    run("umesrc -t a -M 50 -n -f 1 -d 0 flights")
    assert len(run("umercv -v -r 50 flights").found(DATA)) == 50


def test_verifiable_messages_are_verified(
    start: Callable[..., Example], run: Callable[..., Example], run_store: Any
) -> None:
    run_store()
    run("umesrc -t a -M 3 -d 0 -V -l 40 good")
    assert run("umercv -V -r 3 -s 60 good").found("checksum") == []
    run("umesrc -t a -M 3 -d 0 bad")
    receiver = start("umercv -V -r 3 bad")
    assert receiver.end() == (1, "")
    assert len(receiver.found("the checksum is wrong$")) == 3


def test_explicit_acks_come_every_n_messages(
    start: Callable[..., Example], run: Callable[..., Example], run_store: Any
) -> None:
    run_store()
    run("umesrc -t a -M 12 -d 0 flights")
    first = start("umercv -v -e 5 flights")
    first.until(DATA, 12)
    assert first.found(r"explicit ACK of (\d+)") == ["4", "9"]
    first.kill()
    second = run("umercv -v -e 5 -r 2 flights")
    assert second.found(DATA) == [("10", " -RX-", "25"), ("11", " -RX-", "25")], "behind the last explicit ack"
    assert second.until(r"UME store 0: a registration success.*Flags 0x\w+ OLD\[SQN 10\]")


def test_a_session_id_recovers_a_killed_receiver_and_is_refused_to_a_second(
    start: Callable[..., Example], run_store: Any, look: Callable[[], snapshot.Snapshot]
) -> None:
    run_store()
    source = start("umesrc -t a -M 100000 -m 50 -d 0 flights")
    first = start("umercv -v --session-id 0x2A flights")
    wait("an acknowledgement", lambda: any(row.ack >= 3 for row in look().receivers))
    second = start("umercv -v --session-id 42 -x flights")
    second.until("UME registration error at store a")
    code, err = start("umercv --session-id 42 flights").end()
    assert code == 1
    assert f"held by process {first.process.pid} " in err
    assert err.count("\n") == 1
    workers.stand_still(first.process.pid)  # stopped is not dead: nobody takes its place before this is read
    acknowledged = max(row.ack for row in look().receivers if row.session_id == 42)
    first.kill()
    numbers = [int(number) for number, _, _ in second.until(DATA, 5)]
    assert numbers == list(range(acknowledged + 1, acknowledged + 1 + len(numbers)))
    for example in (second, source):
        example.process.send_signal(signal.SIGINT)
        assert example.end() == (130, "")


def test_umercv_starts_where_it_is_told_and_ends_with_its_source(
    start: Callable[..., Example], run: Callable[..., Example], run_store: Any
) -> None:
    run_store()
    run("umesrc -t a -M 8 -d 0 flights")
    receiver = run("umercv -v -AA -S -N 3 flights")
    assert receiver.found(r"Low SQN (\d+) \(will set to (\d+)\), .* High SQN (\d+)") == [("0", "3", "7")]
    assert [int(number) for number, _, _ in receiver.found(DATA)] == [3, 4, 5, 6, 7]
    assert receiver.found(r"^(message \d)\0*$") == [f"message {number}" for number in range(3, 8)]
    assert receiver.found(r"end of stream$") != []
    assert receiver.found(r"\[RX: 5\] \[lost: 0\]") != []


def test_deregistered_objects_are_forgotten(
    start: Callable[..., Example], run: Callable[..., Example], run_store: Any, look: Callable[[], snapshot.Snapshot]
) -> None:
    run_store()
    run("umesrc -t a:500 -M 6 -d 0 flights")
    first = start("umercv -v -D 4 flights")
    first.until("UME deregistration complete")
    assert first.found(r"SrcRegID (\d+) RcvRegID (\d+). SQN") == [("500", "1500")]
    first.process.send_signal(signal.SIGINT)
    first.end()
    again = run("umercv -v -r 6 flights")
    assert [int(number) for number, _, _ in again.found(DATA)] == list(range(6)), "its acknowledgements were forgotten"
    source = run("umesrc -t a:500 -M 1 -d 0 -D flights")
    assert source.found(r"^UME store 0: a deregistration success. RegID (\d+). Last SQN (\d+)") == [("500", "6")]
    assert source.found("^UME deregistration complete$") != []
    assert look().sources == []


def test_umesrc_shows_who_has_confirmed(
    start: Callable[..., Example], run: Callable[..., Example], run_store: Any
) -> None:
    run_store()
    receiver = start("umercv -u 77 -r 3 -E flights")
    confirm = ["-o", "ume_confirmed_delivery_notification=1", "-o", "ume_retention_unique_confirmations=1"]
    source = run("umesrc -t a -M 3 -d 0 -v", *confirm, "flights")
    assert receiver.end() == (0, "")
    confirmed = source.found(r"UME delivery confirmation. SQN (\d), RcvRegID (\d+) \(cd \d\). Flags 0x\w+ (.*)")
    assert confirmed == [(str(number), "77", "UNIQUEACKS UREGID") for number in range(3)]


def test_a_configuration_file_names_the_store_and_shows_receiving_contexts(
    start: Callable[..., Example], run_store: Any, tmp_path: Path
) -> None:
    run_store()
    sending, receiving = tmp_path / "sending.cfg", tmp_path / "receiving.cfg"
    sending.write_text(
        "source ume_store_name a:321:0\n"
        "source ume_confirmed_delivery_notification 1\n"
        "context ume_source_liveness_timeout 500\n"
    )
    receiving.write_text("context ume_receiver_liveness_interval 100\n")
    source = start("umesrc -M 100000 -P 20 -d 0 -s 0.1 flights -c", sending)
    source.until("registration success. RegID 321")
    receiver = start("umercv -u 77 --session-id 5 flights -c", receiving)
    assert source.until(r"^Receiver detected: regid (\d+), Session ID") == ["77"]
    receiver.process.send_signal(signal.SIGINT)
    assert source.until(r"^Receiver declared dead: regid (\d+), .* reason (\S+)$") == [("77", "EOF")]
    assert len(source.until("^app sent", 2)) >= 2
    source.process.send_signal(signal.SIGINT)
    assert source.end() == (130, "")


# A loss -----------------------------------------------------------------------------------------------------


@pytest.fixture
def hide(place: Domain, tmp_path: Path) -> Callable[[], tuple[Path, Path]]:
    """Takes the oldest of a log's segments away: where it was, and where it is. The store has it open and
    does not notice.

    Nothing is missing before the ring has lost its name: a receiver would read that, and no log.
    """

    def take() -> tuple[Path, Path]:
        until_no_ring(place)
        segments = sorted((tmp_path / "store-a" / "logs").glob("*/seg-*"))
        assert len(segments) >= 2
        return segments[0], segments[0].rename(segments[0].with_name("away"))

    return take


def test_a_receiver_that_is_created_again_has_what_was_lost(
    start: Callable[..., Example], run: Callable[..., Example], run_store: Any, hide: Callable[[], tuple[Path, Path]]
) -> None:
    run_store(kind="disk")
    run("umesrc -t a -M 30 -l 60000 -d 0 flights")
    name, away = hide()
    receiver = start("retry_loss --messages 30 --interval 0.3 --retries 1000 flights")
    receiver.until("again, with a new receiver")
    away.rename(name)
    assert receiver.end() == (0, "")
    assert [int(number) for number in receiver.found(r"^(\d+): message")] == list(range(30)), "in order, each once"
    assert receiver.found(r", LOST$") != []


def test_a_loss_is_accepted_in_the_end(
    run: Callable[..., Example], run_store: Any, hide: Callable[[], tuple[Path, Path]]
) -> None:
    run_store(kind="disk")
    run("umesrc -t a -M 30 -l 60000 -d 0 flights")
    hide()
    receiver = run("retry_loss --messages 5 --interval 0 --retries 2 flights")
    lost = [int(count) for count in receiver.found(r"^(\d+) missing before \d+: again, with a new receiver$")]
    assert len(lost) == 2
    assert [int(number) for number in receiver.found(r"^(\d+): message")] == list(range(lost[0], lost[0] + 5))
