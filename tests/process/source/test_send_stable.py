"""send_stable: publish, and wait until it is stable, in one call. By the short way (csrc/board/tally.h), and
by the long one where each message is to be told of: with the same result."""

from __future__ import annotations

import _thread
import array
import os
import signal
import threading
import warnings
from typing import TYPE_CHECKING, Any

import pytest
from support.stalled_store import OPTIONS, SHORT, Scene, until
from support.workers import Worker

import holdfast as hf
from holdfast.engine.native.core import CData, ffi
from holdfast.engine.rules.quorum import INTERGROUP, INTRAGROUP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from process.conftest import ThreadStore

    from holdfast.engine.source.settlement import Settlement

PER_MESSAGE: list[dict[str, Any]] = [
    {"ume_message_stability_notification": 1},
    {"ume_message_stability_notification": 2},
    {"ume_confirmed_delivery_notification": 1},
    {"ume_retention_unique_confirmations": 1},
]
"""Options with which somebody is to hear of each message, or a receiver has to confirm it."""


def quiet(scene: Scene, **options: Any) -> hf.Source:
    """A source whose program listens for nothing."""
    source = scene.context.source("quotes", options={**OPTIONS, **options})
    source.wait_registered(SHORT)
    return source


def settlement_of(source: hf.Source) -> Settlement:
    found = source._session.settlement
    assert found is not None
    return found


def board_of(source: hf.Source) -> CData:
    assert source._session.board is not None
    return ffi.cast("struct hf_board *", source._session.board.handle.base)


class Waiting:
    """A thread that is inside send_stable, of a source whose store stands still."""

    def __init__(self, source: hf.Source, data: bytes = b"x", timeout: float | None = SHORT) -> None:
        self.number: int | None = None
        self.error: BaseException | None = None
        self._source = source
        before = source.next_sequence_number
        self._thread = threading.Thread(target=self._run, args=(data, timeout))
        self._thread.start()
        until(lambda: source.next_sequence_number > before)

    def _run(self, data: bytes, timeout: float | None) -> None:
        try:
            self.number = self._source.send_stable(data, timeout)
        except BaseException as error:
            self.error = error

    def end(self) -> None:
        self._thread.join(SHORT)
        assert not self._thread.is_alive()

    def failed(self, kind: type[BaseException], number: int = 0) -> None:
        """It ended with this, which says that the message is out."""
        self.end()
        assert type(self.error) is kind, repr(self.error)
        assert getattr(self.error, "sequence_number", None) == number


# What it gives ----------------------------------------------------------------------------------------------


def test_it_gives_the_number_of_a_message_that_is_stable(scene: Scene) -> None:
    source = quiet(scene)
    for number in range(3):
        assert source.send_stable(b"x", SHORT) == number
        assert source.stable_sequence_number == number
    assert source.send_stable(b"x") == 3
    assert source.in_flight == (0, 0)
    for earlier in (-1, 0, 3, None):
        source.wait_stable(earlier, timeout=0)


@pytest.mark.parametrize(
    ("data", "last"),
    [
        (b"", 0),
        (bytes(1024), 0),
        (bytes(1025), 1),
        (bytes(3000), 2),
        (bytearray(10), 0),
        (memoryview(bytes(2048)), 1),
        ([b"a", bytes(1024)], 1),
        (array.array("d", [1.0] * 300), 2),
    ],
)
def test_of_what_send_takes_it_gives_the_number_of_the_last_fragment(scene: Scene, data: Any, last: int) -> None:
    source = quiet(scene)
    assert source.send_stable(data, timeout=SHORT) == last
    assert source.stable_sequence_number == last


def test_a_quick_answer_is_found_without_settling(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    source = quiet(scene)
    settlement = settlement_of(source)
    until(lambda: settlement.tally is not None)
    settled: list[object] = []
    refresh = source._session.refresh

    def counted(**how: bool) -> bool:
        settled.append(how)
        return refresh(**how)

    def quick() -> bool:
        """A store on a busy machine may take longer than the short way waits."""
        settled.clear()
        number = source.send_stable(b"x", timeout=SHORT)
        source.wait_stable(number, timeout=SHORT)
        source.wait_stable(timeout=SHORT)
        return not settled

    monkeypatch.setattr(source._session, "refresh", counted)
    until(quick)


@pytest.mark.parametrize("options", PER_MESSAGE)
def test_where_each_message_is_told_of_it_goes_the_long_way_with_the_same_result(
    scene: Scene, options: dict[str, Any]
) -> None:
    source = scene.source(**options)
    assert settlement_of(source).tally is None
    for number in range(3):
        assert source.send_stable(b"x", timeout=SHORT) == number
        assert source.stable_sequence_number == number
    scene.stand_still()
    with pytest.raises(hf.StabilityTimeout) as error:
        source.send_stable(b"x", timeout=0.01)
    assert error.value.sequence_number == 3


def test_a_program_that_hears_of_ranges_hears_of_them_also_behind_the_short_way(scene: Scene) -> None:
    source = scene.source()
    assert settlement_of(source).tally is not None
    assert [source.send_stable(b"x", timeout=SHORT) for _ in range(3)] == [0, 1, 2]
    until(lambda: [each.sequence_number for each in scene.events.of(hf.events.MessageStable)][-1:] == [2])


def test_it_never_fills_the_flight(scene: Scene) -> None:
    source = quiet(scene, ume_flight_size=3)
    for number in range(50):
        assert source.send_stable(bytes(900), timeout=SHORT) == number  # more than a lap of the ring's quarter
    assert source.stats().forced_reclaims == 0


def test_threads_each_get_their_own_number(scene: Scene) -> None:
    source = quiet(scene)
    numbers: list[int] = []
    threads = [
        threading.Thread(target=lambda: numbers.extend(source.send_stable(b"x", SHORT) for _ in range(100)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(numbers) == list(range(400))
    assert source.stable_sequence_number == 399


@pytest.mark.parametrize("strategy", ["busy_spin", "yield", "backoff", "block"])
def test_it_waits_as_the_strategy_says(scene: Scene, strategy: str) -> None:
    source = quiet(scene, wait_strategy=strategy)
    scene.stand_still()
    board = board_of(source)

    def slept() -> bool:
        board.source_waiting = 0  # nobody listens for events, so that the context's thread does not set it
        with pytest.raises(hf.StabilityTimeout):
            source.send_stable(b"x", timeout=0.02)
        return bool(board.source_waiting)

    if strategy in {"backoff", "block"}:
        until(slept)
    else:
        assert not slept()
    scene.go_on()
    assert source.send_stable(b"x", timeout=SHORT) > 0


# What stands in its way -------------------------------------------------------------------------------------


def test_a_timeout_says_that_the_message_was_published(scene: Scene) -> None:
    source = quiet(scene)
    assert source.send_stable(b"0", timeout=SHORT) == 0
    scene.stand_still()
    for number, timeout in ((1, 0), (2, 0.01), (3, 0.12)):  # a look, the short way, and the long one behind it
        with pytest.raises(hf.StabilityTimeout, match=f"was published as number {number}: .* not stable yet") as error:
            source.send_stable(b"x", timeout=timeout)
        assert (error.value.sequence_number, error.value.sqn, error.value.stable) == (number, number, 0)
        assert not error.value.retriable, "the same call again would make two of it"
        assert f"wait_stable({number})" in str(error.value)
    scene.go_on()
    source.wait_stable(error.value.sequence_number, timeout=SHORT)


def test_a_message_that_finds_no_room_has_no_number(scene: Scene) -> None:
    source = quiet(scene, ume_flight_size=1)
    scene.stand_still()
    source.send(b"fills the flight")
    with pytest.raises(hf.WouldBlockError) as blocked:
        source.send_stable(b"x", timeout=0.01)
    assert blocked.value.sequence_number is None
    for timeout in (-1, float("nan"), "1"):
        with pytest.raises(hf.UsageError):
            source.send_stable(b"x", timeout=timeout)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        source.send_stable("text")
    with pytest.raises(hf.MessageTooLargeError):
        source.send_stable(bytes(1 << 20))
    assert source.next_sequence_number == 1


def test_what_a_callback_raised_comes_before_the_message_is_published(
    run_store: Callable[..., ThreadStore], own_domain: str
) -> None:
    del own_domain
    run_store()

    def fails(event: object) -> None:
        raise ValueError(event)

    with hf.Context(options={"callback_errors": "raise"}) as context:
        source = context.source("quotes", options=OPTIONS, on_event=fails)
        until(lambda: source._session.may_send and context.callback_errors == 2)
        with pytest.raises(ValueError, match="RegistrationSuccess") as error:
            source.send_stable(b"x", SHORT)
        assert vars(error.value)["sequence_number"] is None
        assert source.next_sequence_number == 0


def test_a_message_that_is_reclaimed_while_it_waits_is_said_so(scene: Scene) -> None:
    source = quiet(scene, ume_message_stability_lifetime=300, ume_store_check_interval=20)
    scene.stand_still()
    waiting = Waiting(source)
    waiting.failed(hf.StabilityTimeout)
    assert isinstance(waiting.error, hf.StabilityTimeout)
    assert waiting.error.reclaimed
    assert "published as number 0: number 0 was reclaimed by force" in str(waiting.error)


def test_a_source_that_is_closed_deregistered_or_fenced_meanwhile(scene: Scene) -> None:
    closed = quiet(scene)
    scene.stand_still()
    waiting = Waiting(closed)
    closer = threading.Thread(target=closed.close)
    closer.start()
    waiting.failed(hf.ClosedError)
    scene.go_on()
    closer.join()

    deregistered = quiet(scene)
    scene.stand_still()
    waiting = Waiting(deregistered)
    deregistered.deregister()
    waiting.failed(hf.NotRegisteredError)
    with pytest.raises(hf.NotRegisteredError) as before:
        deregistered.send_stable(b"x", SHORT)
    assert before.value.sequence_number is None
    scene.go_on()


def test_a_process_that_loses_its_lock_meanwhile(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    source = quiet(scene)
    scene.stand_still()
    waiting = Waiting(source)

    def lost() -> None:
        raise hf.FencedError("lost")

    monkeypatch.setattr(source.context, "check_fence", lost)
    waiting.failed(hf.FencedError)
    monkeypatch.undo()
    scene.go_on()
    source.wait_stable(timeout=SHORT)


def test_an_interrupted_wait_leaves_the_source_as_it_is(scene: Scene) -> None:
    """The message is out, and its number is with the interrupt."""
    source = quiet(scene, wait_strategy="block")
    scene.stand_still()
    board = board_of(source)

    def interrupt() -> None:
        until(lambda: board.source_waiting)
        _thread.interrupt_main(signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt) as error:
        source.send_stable(b"x", timeout=SHORT)
    thread.join()
    assert error.value.sequence_number == 0  # type: ignore[attr-defined]
    scene.go_on()
    source.wait_stable(0, timeout=SHORT)
    assert source.send_stable(b"y", timeout=SHORT) == 1


def test_a_forked_child_publishes_nothing(scene: Scene) -> None:
    source = quiet(scene)
    assert source.send_stable(b"x", SHORT) == 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        code = 1
        try:
            source.send_stable(b"x", 1)
        except hf.ForkedHandleError as error:
            try:
                source.wait_stable(0)
            except hf.ForkedHandleError:
                code = error.sequence_number is not None
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert source.send_stable(b"x", SHORT) == 1


def test_a_program_that_marks_the_number_ends_the_wait(scene: Scene) -> None:
    source = quiet(scene)
    scene.stand_still()
    waiting = Waiting(source, timeout=None)
    source.mark_stable(0)
    waiting.end()
    assert waiting.number == 0
    scene.go_on()


# Groups of stores -------------------------------------------------------------------------------------------


@pytest.fixture
def spawn(tmp_path: Path, own_domain: str) -> Iterator[Callable[[str], Worker]]:
    started: list[Worker] = []

    def start(name: str) -> Worker:
        store = Worker("store", tmp_path, domain=own_domain, name=name, directory=str(tmp_path / name), kind="memory")
        started.append(store.start().wait_ready())
        return store

    yield start
    for store in started:
        if store.process is not None:
            store.send(signal.SIGCONT)
        store.discard()


def stop(*stores: Worker) -> None:
    for store in stores:
        assert store.process is not None
        store.send(signal.SIGSTOP)
        os.waitpid(store.process.pid, os.WUNTRACED)


PATIENT = {"ume_registration_interval": 60_000, "ume_store_activity_timeout": 600_000}


@pytest.mark.parametrize("intergroup", INTERGROUP)
@pytest.mark.parametrize("intragroup", INTRAGROUP)
def test_every_behaviour_gives_the_same_answer_both_ways(
    run_store: Callable[..., ThreadStore], intragroup: str, intergroup: str
) -> None:
    """The rules themselves are compared in tests/unit/source/test_tally.py; here with stores that answer."""
    for name in "abc":
        run_store(name)
    options = {
        **OPTIONS, "ume_store_name": ["a:0:0", "b:0:0", "c:0:1"], "ume_store_group": ["0:2", "1:1"],
        "ume_retention_intragroup_stability_behavior": intragroup,
        "ume_retention_intergroup_stability_behavior": intergroup,
    }  # fmt: skip
    with hf.Context() as context, context.source("quotes", options=options) as source:
        source.wait_registered(SHORT)
        for number in range(20):
            assert source.send_stable(b"x", timeout=SHORT) == number
            settlement = settlement_of(source)
            source._session.refresh()
            assert settlement.missing(number, number) == (None, False)
            assert settlement.tally is not None


def test_a_quorum_that_is_lost_while_it_waits_and_is_back(spawn: Callable[[str], Worker]) -> None:
    stores = [spawn(name) for name in "abc"]
    options = {**OPTIONS, **PATIENT, "ume_store_name": list("abc")}
    with hf.Context() as context, context.source("quotes", options=options) as source:
        source.wait_registered(SHORT)
        until(lambda: {store.state for store in source.stats().stores.values()} == {"active"})
        assert source.send_stable(b"0", SHORT) == 0
        stop(*stores[1:])
        with pytest.raises(hf.StabilityTimeout):  # one of three has it
            source.send_stable(b"1", timeout=0.1)
        until(lambda: source.stats().stores["a"].stable_sequence_number == 1)
        waiting = Waiting(source)
        for store in stores[1:]:
            store.strike()
            store.wait_died()
        until(lambda: not source._session.may_send)
        assert waiting.number is None
        for store in stores[1:]:
            store.start().wait_ready()
        waiting.end()
        assert waiting.number == 2
        source.wait_registered(SHORT)
        assert source.send_stable(b"3", SHORT) == 3


def test_a_backup_that_takes_the_seat_while_it_waits_counts_in_its_place(spawn: Callable[[str], Worker]) -> None:
    first = spawn("a")
    spawn("b")
    options = {**OPTIONS, **PATIENT, "ume_store_name": list("ab"), "ume_store_group": ["0:1"]}
    with hf.Context() as context, context.source("quotes", options=options) as source:
        source.wait_registered(SHORT)
        assert source.send_stable(b"0", SHORT) == 0
        before = settlement_of(source).tally
        assert before is not None
        stop(first)
        waiting = Waiting(source)
        first.strike()
        first.wait_died()
        waiting.end()
        assert waiting.number == 1
        assert before.ended
        until(lambda: source.stats().stores["b"].stable_sequence_number == 1)
        assert source.send_stable(b"2", SHORT) == 2


def test_what_was_said_to_be_stable_stays_so_when_another_copy_takes_the_seat(scene: Scene) -> None:
    """The short way settles nothing, and a copy that takes the place of another has to say all again."""
    source = scene.source()
    with scene.context.turning():  # its thread settles nothing meanwhile
        number = source.send_stable(b"paid", SHORT)
        settlement = source._session.settlement
        assert settlement is not None
        assert settlement.retention.stable <= number, "it was settled: this shows nothing"
        uuid = settlement._uuids[0]
        settlement.find_store(0, bytes(16))
        assert settlement.missing(number, number) == (None, False)
        settlement.find_store(0, uuid)
    source.wait_stable(number, SHORT)


def test_what_was_said_to_be_stable_stays_so_when_its_store_loses_the_seat(scene: Scene) -> None:
    source = scene.source()
    with scene.context.turning():
        number = source.send_stable(b"paid", SHORT)
        settlement = source._session.settlement
        assert settlement is not None
        assert settlement.retention.stable <= number, "it was settled: this shows nothing"
        settlement.registered(set(), set())
        assert settlement.missing(number, number) == (None, False)
        settlement.registered({0}, {0})
    source.wait_stable(number, SHORT)
