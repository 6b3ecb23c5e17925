"""``start`` and ``reset`` of a receiver, with real stores, sources and receivers (docs/semantics.md F.1)."""

from __future__ import annotations

import dataclasses
import queue
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from support.paced_source import BLOCKS, DISK, LIMIT, MEMORY, SIZE
from support.paced_source import SOURCE as PACED_SOURCE
from support.receiving import SESSION, SHORT, Told, acked, send, source, take, until, until_no_ring
from support.three_stores import everywhere

import holdfast as hf
from holdfast.engine.events import receiver as events

if TYPE_CHECKING:
    from collections.abc import Callable

    from process.conftest import ThreadStore

ARRIVAL = {"ordered_delivery": -1}
EXPLICIT = {"ume_explicit_ack_only": 1}
POLLED = {"operational_mode": "sequential"}
"""Of a context in which nothing happens before it is polled: not even a registration."""
SOURCE_SESSION: dict[str, Any] = {"ume_session_id": 5}


@pytest.fixture
def store(run_store: Callable[..., ThreadStore]) -> ThreadStore:
    return run_store()


def now() -> datetime:
    """Later than what was sent before the call, and not later than what is sent behind it."""
    time.sleep(0.002)
    return datetime.now(UTC)


def started(ctx: hf.Context, start: Any, told: Told | None = None, **more: Any) -> tuple[hf.Receiver, int]:
    """A registered receiver, and where it starts."""
    told = told if told is not None else Told()
    rcv = ctx.receiver("quotes", start=start, on_event=told, **more)
    return rcv, told.wait(events.RegistrationComplete).sequence_number


def polled(ctx: hf.Context, rcv: hf.Receiver, count: int) -> list[int]:
    """As take, in a context that is polled."""
    found: list[int] = []

    def look() -> bool:
        while len(found) < count and (message := rcv.receive(0)) is not None:
            found.append(message.sequence_number)
            message.release()
        return len(found) == count

    until(f"{count} messages", look, ctx)
    return found


@pytest.mark.parametrize(
    "form",
    [{}, EXPLICIT, ARRIVAL, {"ume_application_outstanding_maximum": 5}],
    ids=["batched", "explicit", "arrival", "limited"],
)
@pytest.mark.parametrize(
    ("start", "first"), [("earliest", 0), ("latest", 9), (3, 3), (0, 0), (9, 9), (100, 9), ("time", 5)]
)
def test_where_a_new_receiver_starts(store: object, start: Any, first: int, form: dict[str, Any]) -> None:
    with hf.Context() as ctx, hf.Context() as other:
        src = source(ctx, 5)
        then = now()
        send(src, 4)
        rcv, began = started(other, then if start == "time" else start, options=form)
        assert began == first
        send(src, 3)
        assert sorted(take(rcv, 12 - first)) == list(range(first, 12))


@pytest.mark.parametrize(("start", "first"), [("earliest", 0), ("latest", 5), (3, 3)])
def test_a_receiver_with_a_callback_starts_there_too(store: object, start: Any, first: int) -> None:
    found: queue.Queue[int] = queue.Queue()
    with hf.Context() as ctx, hf.Context() as other:
        src = source(ctx, 5)
        other.receiver("quotes", start=start, on_message=lambda message: found.put(message.sequence_number))
        send(src, 2)
        assert [found.get(timeout=SHORT) for _ in range(7 - first)] == list(range(first, 7))


def test_a_time_is_found_in_logs_alone_and_before_and_behind_them(store: object) -> None:
    """The source is closed: no ring serves."""
    before = now()
    with hf.Context() as ctx, hf.Context() as other:
        src = source(ctx, 5)
        then = now()
        send(src, 4)
        behind = now()
        src.close()
        until_no_ring(ctx.domain)
        assert [started(other, each)[1] for each in (before, then, behind)] == [0, 5, 9]


def test_what_is_skipped_or_limited_otherwise_gives_way_to_the_start(store: object) -> None:
    with hf.Context() as ctx, hf.Context() as other:
        source(ctx, 9)
        assert started(other, 2, options={"retransmit_request_maximum": 1})[1] == 2


# Latest: from now on ----------------------------------------------------------------------------------------


AHEAD = pytest.mark.parametrize("ahead", [0, 10**12], ids=["the clock runs on", "the clock was set back"])


def set_back(rcv: hf.Receiver, ahead_ns: int) -> None:
    """The clock was set back by so much, since this receiver was made."""
    assert rcv.made is not None
    rcv.made = dataclasses.replace(rcv.made, time_ns=rcv.made.time_ns + ahead_ns)


@AHEAD
@pytest.mark.parametrize("start", ["latest", 5, 6, 8, 100, "time"])
def test_what_is_sent_before_the_registration_is_later_than_the_receiver(store: object, start: Any, ahead: int) -> None:
    """Nor does a number skip it that lies ahead of what was published when the receiver was made."""
    with hf.Context() as ctx, hf.Context(options=POLLED) as other:
        src = source(ctx, 5)
        rcv = other.receiver("quotes", start=now() if start == "time" else start)
        set_back(rcv, ahead)
        send(src, 3)
        assert polled(other, rcv, 3) == [5, 6, 7]


@pytest.mark.parametrize("start", ["earliest", "latest", 2, 3, 100])
def test_a_source_that_comes_later_is_new_from_its_first_message_on(store: object, start: Any) -> None:
    with hf.Context() as ctx, hf.Context(options=POLLED) as other:
        rcv = other.receiver("quotes", start=start)
        source(ctx, 3)
        assert polled(other, rcv, 3) == [0, 1, 2]


@AHEAD
@pytest.mark.parametrize("ring", [False, True], ids=["closed before", "with a ring"])
def test_an_incarnation_that_begins_later_is_new_and_the_one_before_it_is_not(
    store: object, ring: bool, ahead: int
) -> None:
    with hf.Context() as ctx, hf.Context(options=POLLED) as other:
        first = source(ctx, 5, **SOURCE_SESSION)
        if not ring:
            first.close()
            until_no_ring(ctx.domain)
        time.sleep(0.002)
        rcv = other.receiver("quotes", start="latest")
        assert rcv.made is not None
        assert bool(rcv.made.rings) == ring
        set_back(rcv, ahead)
        first.close()
        source(ctx, 3, **SOURCE_SESSION)
        assert polled(other, rcv, 3) == [5, 6, 7]


def test_a_source_that_came_and_closed_again_before_the_registration_is_new(store: object) -> None:
    with hf.Context() as ctx, hf.Context(options=POLLED) as other:
        source(ctx, 5, **SOURCE_SESSION).close()
        until_no_ring(ctx.domain)
        rcv = other.receiver("quotes", start="latest")
        source(ctx, 3, **SOURCE_SESSION).close()
        until_no_ring(ctx.domain)
        assert polled(other, rcv, 3) == [5, 6, 7]


@pytest.mark.parametrize("start", ["latest", 0, "earliest"])
def test_the_next_incarnation_applies_no_start_again(store: object, start: Any) -> None:
    """Neither is anything skipped that was not acknowledged, nor does anything come again."""
    with hf.Context() as ctx, hf.Context(session_id=SESSION) as other:
        first = source(ctx, 3, **SOURCE_SESSION)
        rcv, began = started(other, start)
        send(first, 3)
        assert take(rcv, 4 - began) == list(range(began, 4))
        first.close()
        again = source(ctx, 3, **SOURCE_SESSION)
        assert take(rcv, 3) == [4, 5, 6]
        send(again, 1)
        assert take(rcv, 2) == [7, 8]


def test_a_store_that_returns_applies_no_start_again(run_store: Callable[..., ThreadStore]) -> None:
    store = run_store(kind="disk")
    told = Told()
    with hf.Context() as ctx, hf.Context(session_id=SESSION) as other:
        src = source(ctx, 3, ume_registration_interval=100)
        rcv, _ = started(other, "latest", told, options={"ume_registration_interval": 100})
        send(src, 2)
        store.stop()
        until("the source has noticed", lambda: src.stats().stores["a"].state == "down")
        run_store(kind="disk")
        told.wait(events.RegistrationSuccess, 2)
        src.wait_registered(SHORT)
        send(src, 2)
        assert take(rcv, 4) == [3, 4, 5, 6]
        assert len(told.of(events.RegistrationComplete)) == 1


def test_what_the_ring_overtook_is_read_from_the_stores(store: object) -> None:
    """Latest turns no recovery off."""
    with hf.Context() as ctx, hf.Context() as other:
        src = ctx.source("quotes", options={"ume_store_name": ["a:0:0"], "ring_size": 1 << 17, "fragment_size": 4096})
        src.wait_registered(SHORT)
        send(src, 5)
        rcv, began = started(other, "latest")
        assert began == 5
        send(src, 1)
        assert take(rcv) == [5]
        for _ in range(300):
            src.send(bytes(1000), timeout=SHORT)
        src.wait_stable(timeout=SHORT)
        assert take(rcv, 300) == list(range(6, 306))
        assert rcv.stats().lapped > 0


# A session --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", ["earliest", "latest", 5, datetime(2020, 1, 1, tzinfo=UTC)])
def test_a_position_goes_before_the_start(store: object, start: Any) -> None:
    with hf.Context() as ctx, hf.Context(session_id=SESSION) as other:
        source(ctx, 9)
        acked({}, 2)
        rcv, began = started(other, start)
        assert began == 3
        assert take(rcv, 6) == [3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize(("skipped", "position"), [(False, 0), (True, 5)], ids=["kept", "acknowledged"])
def test_a_session_that_started_and_acknowledged_nothing_has_a_position(
    store: object, skipped: bool, position: int
) -> None:
    """What was published in between would be skipped else, and nobody would have had it."""
    with hf.Context() as ctx, hf.Context(session_id=SESSION) as other:
        src = source(ctx, 5)
        rcv, began = started(other, "latest")
        assert began == 5
        if skipped:
            rcv.acknowledge_skipped()
        rcv.close()
        send(src, 4)
        assert started(other, "latest")[1] == position


@pytest.mark.parametrize("form", [{}, EXPLICIT, ARRIVAL], ids=["batched", "explicit", "arrival"])
@pytest.mark.parametrize(("start", "first"), [("earliest", 0), (2, 2), ("time", 3)])
def test_a_reset_goes_back_and_the_position_stays_until_it_is_passed(
    store: object, start: Any, first: int, form: dict[str, Any]
) -> None:
    with hf.Context() as ctx, hf.Context(session_id=SESSION) as other:
        src = source(ctx, 3)
        then = now()
        send(src, 6)
        acked({}, 5)
        rcv, began = started(other, then if start == "time" else start, options=form, reset=True)
        assert began == first
        assert take(rcv, 5 - first) == list(range(first, 5))
        rcv.close()
        assert started(other, None)[1] == 6, "what was acknowledged once stays so"


def test_a_reset_that_went_back_acknowledges_when_it_is_past_its_position(store: object) -> None:
    with hf.Context() as ctx, hf.Context(session_id=SESSION) as other:
        source(ctx, 9)
        acked({}, 5)
        rcv, _ = started(other, "earliest", reset=True)
        assert take(rcv, 8) == list(range(8))
        rcv.close()
        assert started(other, None)[1] == 8


@pytest.mark.parametrize(("start", "first"), [("latest", 9), (5, 5), (100, 9)])
def test_a_reset_that_goes_on_acknowledges_nothing_by_itself(store: object, start: Any, first: int) -> None:
    with hf.Context() as ctx, hf.Context(session_id=SESSION) as other:
        src = source(ctx, 9)
        acked({}, 2)
        rcv, began = started(other, start, reset=True)
        assert (began, list(rcv.stats().acknowledged.values())) == (first, [2])
        rcv.close()
        rcv, began = started(other, None)
        assert began == 3, "what was skipped comes at the next start"
        rcv.close()
        rcv, began = started(other, start, reset=True)
        assert (began, rcv.acknowledge_skipped()) == (first, first - 3)
        rcv.close()
        rcv, began = started(other, None)
        assert began == first
        send(src, 1)
        assert take(rcv, 10 - first) == list(range(first, 10))


def test_the_first_acknowledgement_after_a_reset_covers_what_it_skipped(store: object) -> None:
    with hf.Context() as ctx, hf.Context(session_id=SESSION) as other:
        source(ctx, 9)
        acked({}, 2)
        rcv, _ = started(other, 6, options=EXPLICIT, reset=True)
        message = rcv.receive(SHORT)
        assert message is not None
        message.send_explicit_ack()
        rcv.close()
        assert started(other, None)[1] == 7


def test_a_reset_of_a_session_that_is_new_is_its_start(store: object) -> None:
    with hf.Context() as ctx, hf.Context(session_id=SESSION) as other:
        source(ctx, 9)
        assert started(other, 4, reset=True)[1] == 4


# Sources ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "firsts"), [("earliest", (0, 0)), ("latest", (9, 4)), (6, (6, 4)), (2, (2, 2)), ("time", (5, 0))]
)
@pytest.mark.parametrize("where", [{"topic": "quotes"}, {"pattern": "^quo"}], ids=["topic", "pattern"])
def test_each_source_has_a_start_of_its_own(
    store: object, start: Any, firsts: tuple[int, int], where: dict[str, str]
) -> None:
    told = Told()
    with hf.Context() as ctx, hf.Context() as other:
        one = source(ctx, 5)
        then = now()
        send(one, 4)
        two = source(ctx, 4, topic="quotes" if "topic" in where else "quotations")
        rcv = other.receiver(**where, start=then if start == "time" else start, on_event=told)  # type: ignore[arg-type]
        told.wait(events.RegistrationComplete, 2)
        found: dict[str, list[int]] = {}
        send(one, 1)
        send(two, 1)
        for _ in range(10 - firsts[0] + 5 - firsts[1]):
            with rcv.receive(SHORT) as message:  # type: ignore[union-attr]
                found.setdefault(message.source, []).append(message.sequence_number)
        assert sorted(found.values()) == sorted([list(range(firsts[0], 10)), list(range(firsts[1], 5))])


@pytest.mark.parametrize(("start", "first"), [("earliest", 0), ("latest", 9), (3, 3), (100, 9), ("time", 5)])
def test_a_source_without_stores(start: Any, first: int) -> None:
    with hf.Context() as ctx, hf.Context() as other:
        src = ctx.source("quotes", options={"ring_size": 1 << 20})
        src.wait_registered(SHORT)
        for _ in range(5):
            src.send(b"x")
        then = now()
        for _ in range(4):
            src.send(b"x")
        rcv, began = started(other, then if start == "time" else start)
        assert began == first
        src.send(b"x")
        assert take(rcv, 10 - first) == list(range(first, 10))


def test_a_source_without_stores_that_comes_later_is_new_from_its_first_message_on() -> None:
    with hf.Context() as ctx, hf.Context(options=POLLED) as other:
        rcv = other.receiver("quotes", start="latest")
        src = ctx.source("quotes", options={"ring_size": 1 << 20})
        src.wait_registered(SHORT)
        for _ in range(3):
            src.send(b"x")
        assert polled(other, rcv, 3) == [0, 1, 2]


@pytest.mark.parametrize(("start", "first"), [("earliest", 0), ("latest", 9), (3, 3), (None, 9)])
def test_a_receiver_paced_source(run_store: Callable[..., ThreadStore], start: Any, first: int) -> None:
    """It starts at the current number if nobody says otherwise, and nothing is kept for it from before
    then."""
    run_store(kind="disk", **DISK)
    with hf.Context() as ctx, hf.Context(session_id=SESSION) as other:
        src = ctx.source("quotes", options=PACED_SOURCE)
        src.wait_registered(SHORT)
        send(src, 9)
        rcv, began = started(other, start, options=BLOCKS)
        assert began == first
        send(src, 1)
        assert take(rcv, 10 - first) == list(range(first, 10))


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_what_a_store_has_granted_to_this_very_receiver_is_no_position(
    run_store: Callable[..., ThreadStore], start: str
) -> None:
    """One store of three is too few. When it is asked again it keeps what was sent since its grant, as for an
    earlier life."""
    stores = {name: run_store(name, "disk", **DISK) for name in "abc"}
    told = Told()
    with hf.Context() as ctx, hf.Context(session_id=SESSION) as other:
        lists = {"ume_store_name": [f"{name}:0:0" for name in stores], "ume_store_group": ["0:3"]}
        src = ctx.source("quotes", options={**PACED_SOURCE, **lists, "ume_registration_interval": 100})
        src.wait_registered(SHORT)
        send(src, 9)
        for name in "bc":
            stores[name].stop()
        options = {**BLOCKS, "ume_registration_interval": 100}
        rcv = other.receiver("quotes", start=start, options=options, on_event=told)  # type: ignore[arg-type]
        told.wait(events.RegistrationSuccess)
        stores["a"].stop()
        run_store("a", "disk", **DISK)
        told.wait(events.RegistrationSuccess, 2)
        assert not told.of(events.RegistrationComplete)
        run_store("b", "disk", **DISK)
        assert told.wait(events.RegistrationComplete).sequence_number == (0 if start == "earliest" else 9)
        assert len(rcv.controllers) == 1


def test_a_reset_tells_what_a_receiver_paced_source_keeps_for_it(run_store: Callable[..., ThreadStore]) -> None:
    run_store(kind="disk", **DISK)
    told = Told()
    with hf.Context() as ctx, hf.Context(session_id=SESSION) as other:
        src = ctx.source("quotes", options=PACED_SOURCE)
        src.wait_registered(SHORT)
        started(other, None, options=BLOCKS)[0].close()
        send(src, 9)
        rcv, _ = started(other, "latest", told, options=BLOCKS, reset=True)
        skipped = told.wait(events.Skipped)
        assert (skipped.first_sequence_number, skipped.sequence_number) == (0, 8)
        assert rcv.acknowledge_skipped() == 9


@pytest.mark.parametrize("start", ["earliest", 3, datetime(2020, 1, 1, tzinfo=UTC)])
@pytest.mark.parametrize("reset", [False, True], ids=["new", "reset"])
def test_what_stores_have_let_go_is_no_loss_to_a_start(
    run_store: Callable[..., ThreadStore], start: Any, reset: bool
) -> None:
    run_store(**MEMORY)
    told = Told()
    with hf.Context() as ctx, hf.Context(session_id=SESSION) as other:
        src = ctx.source("quotes", options={"ume_store_name": ["a:0:0"], "ring_size": 1 << 17, "fragment_size": 4096})
        src.wait_registered(SHORT)
        if reset:
            started(other, None)[0].close()
        for _ in range(3 * LIMIT // SIZE):
            src.send(bytes(SIZE), timeout=SHORT)
        src.wait_stable(timeout=SHORT)
        rcv, began = started(other, start, told, reset=reset)
        assert 3 < began < 3 * LIMIT // SIZE
        assert take(rcv, 10) == list(range(began, began + 10))
        assert not told.of(events.UnrecoverableLoss) + told.of(events.UnrecoverableLossBurst)


def test_the_earliest_is_the_oldest_of_all_logs_also_of_a_store_that_does_not_run(
    run_store: Callable[..., ThreadStore],
) -> None:
    """The others have let go what it has."""
    stores = {name: run_store(name, "disk", **({} if name == "a" else DISK)) for name in "abc"}
    with hf.Context() as ctx, hf.Context() as other:
        lists = {"ume_store_name": [f"{name}:0:0" for name in stores], "ume_store_group": ["0:3"]}
        src = ctx.source("quotes", options={**lists, "ring_size": 1 << 17, "fragment_size": 4096})
        everywhere(src)
        drainer = stores["a"].store.drainer
        for count in range(1, 3 * LIMIT // SIZE + 1):
            src.send(bytes(SIZE), timeout=SHORT)
            until(  # before the ring goes on: the others let it go
                "a has it, too",
                lambda count=count: [each.next_sqn for each in drainer.repositories.values()] == [count],  # type: ignore[misc]
            )
        src.wait_stable(timeout=SHORT)
        stores["a"].stop()
        rcv, began = started(other, "earliest", options={"ume_registration_interval": 200})
        assert began == 0
        assert take(rcv, 9) == list(range(9))


# What is refused --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "what"),
    [
        ({"start": datetime(2026, 1, 1)}, "no time zone"),
        ({"reset": True}, "reset=True without start"),
        ({"start": "first"}, "start 'first'"),
        (
            {"start": 1, "options": {"ume_recovery_sequence_number_info_function": print}},
            "start=.*ume_recovery_sequence_number_info_function",
        ),
        ({"start": "earliest", "options": {"use_late_join": 0}}, "use_late_join 0"),
        ({"start": 3, "options": {"ume_use_store": 0}}, "ume_use_store 0"),
    ],
)
def test_what_is_refused(asked: dict[str, Any], what: str) -> None:
    with hf.Context() as ctx:
        with pytest.raises(hf.ConfigError, match=what) as raised:
            ctx.receiver("quotes", **asked)
        assert raised.value.hint
        assert ctx.stats().receivers == 0


def test_latest_goes_with_no_late_join(store: object) -> None:
    with hf.Context() as ctx, hf.Context() as other:
        source(ctx, 5)
        assert started(other, "latest", options={"use_late_join": 0})[1] == 5
