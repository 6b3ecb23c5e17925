"""Receiver-paced persistence with real stores, sources and receivers (docs/semantics.md J.1)."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import pytest
from support.paced_source import BLOCKS, DISK, FLIGHT, LIMIT, MEMORY, NEVER_BLOCKS, SIZE, SOURCE
from support.three_stores import everywhere
from support.workers import until

import holdfast as hf
from holdfast.engine.log.receiver_state import Acked
from holdfast.engine.log.state_file import SourceState
from holdfast.engine.native.core import lib

if TYPE_CHECKING:
    from collections.abc import Callable

    from process.conftest import ThreadStore

SHORT = 90.0


@pytest.fixture(params=["disk", "memory"])
def store(request: pytest.FixtureRequest, run_store: Callable[..., ThreadStore]) -> ThreadStore:
    return run_store("a", request.param, **(DISK if request.param == "disk" else MEMORY))


def source(ctx: hf.Context, **options: Any) -> hf.Source:
    src = ctx.source("quotes", options={**SOURCE, **options})
    src.wait_registered(SHORT)
    return src


def receiver(ctx: hf.Context, **options: Any) -> hf.Receiver:
    told: list[object] = []
    rcv = ctx.receiver("quotes", options=options, on_event=told.append)
    complete = hf.events.receiver.RegistrationComplete
    until("it is registered", lambda: any(isinstance(event, complete) for event in told))
    return rcv


def refused_receiver(ctx: hf.Context, **options: Any) -> str:
    told: list[Any] = []
    patient = {"ume_registration_interval": 90_000, **options}  # no store is said to be silent: one answers
    with ctx.receiver("quotes", options=patient, on_event=told.append):
        until("it is refused", lambda: told)
    assert isinstance(told[0], hf.events.receiver.RegistrationError)
    return str(told[0].text)


def fill(src: hf.Source, count: int) -> None:
    """This many messages go out, each with its place in this call; then the flight size stops the source for
    good."""
    for sent in range(count):
        src.send(sent.to_bytes(4, "big") + bytes(SIZE - 4), timeout=SHORT)
    with pytest.raises(hf.WouldBlockError):
        src.send(bytes(SIZE), timeout=0.2)


def take(rcv: hf.Receiver, *numbers: int) -> None:
    """These messages come next, and are acknowledged."""
    for number in numbers:
        message = rcv.receive(timeout=SHORT)
        assert message is not None, f"{number} did not come"
        with message:
            assert int.from_bytes(bytes(message)[:4], "big") == number


def repository(store: ThreadStore) -> Any:
    return next(iter(store.store.drainer.repositories.values()))


def oldest(store: ThreadStore) -> int:
    return int(repository(store).info.oldest_sqn)


def states(store: ThreadStore) -> list[Any]:
    return [receiver for source in store.store.state.sources for receiver in source.receivers]


def test_j1_a_slow_receiver_stops_the_source_one_flight_size_before_the_store_is_full(store: ThreadStore) -> None:
    with hf.Context(session_id=5, options={"ume_ack_batching_interval": 5}) as ctx:
        src = source(ctx)
        rcv = receiver(ctx, **BLOCKS)
        stable = (LIMIT - FLIGHT) // SIZE
        sent = LIMIT // SIZE
        fill(src, sent)  # what is in flight fills the store exactly
        assert src.stable_sequence_number == stable - 1
        take(rcv, *range(10))
        src.wait_stable(stable + 9, timeout=SHORT)
        fill(src, 10)  # ten were acknowledged, ten more find room
        take(rcv, *range(10, sent), *range(10))
        src.wait_stable(timeout=SHORT)


def test_j1_a_message_goes_when_all_receivers_have_acknowledged_it(store: ThreadStore) -> None:
    with hf.Context(session_id=5, options={"ume_ack_batching_interval": 5}) as ctx, hf.Context(session_id=6) as other:
        src = source(ctx)
        fast, slow = receiver(ctx, **BLOCKS), receiver(other, **NEVER_BLOCKS)
        for number in range(20):
            src.send(number.to_bytes(4, "big"))
        take(fast, *range(20))
        take(slow, *range(5))
        until("five are gone", lambda: oldest(store) == 5)
        take(slow, *range(5, 20))
        until("all are gone", lambda: oldest(store) == 20)


def test_j1_without_receivers_nothing_is_kept_and_nothing_waits(store: ThreadStore) -> None:
    with hf.Context(session_id=5) as ctx:
        src = source(ctx)
        for number in range(3 * LIMIT // SIZE):
            src.send(number.to_bytes(4, "big") + bytes(SIZE - 4), timeout=SHORT)
        src.wait_stable(timeout=SHORT)
        until("nothing is kept", lambda: oldest(store) == 3 * LIMIT // SIZE)


def test_j1_a_new_receiver_starts_at_the_live_number_and_a_known_one_where_it_was(store: ThreadStore) -> None:
    with hf.Context(session_id=5, options={"ume_ack_batching_interval": 5}) as ctx:
        src = source(ctx)
        known = receiver(ctx, **BLOCKS)
        for number in range(10):
            src.send(number.to_bytes(4, "big"))
        take(known, *range(4))
        with hf.Context(session_id=6) as other:
            late = receiver(other, **BLOCKS)
            src.send((10).to_bytes(4, "big"))
            take(late, 10)
        known.close()
        again = receiver(ctx, **BLOCKS)
        take(again, *range(4, 11))


def test_j1_only_non_blocking_receivers_wait_the_oldest_go_and_the_source_goes_on(store: ThreadStore) -> None:
    with hf.Context(session_id=5) as ctx:
        src = source(ctx)
        receiver(ctx, **NEVER_BLOCKS)
        for number in range(3 * LIMIT // SIZE):
            src.send(number.to_bytes(4, "big") + bytes(SIZE - 4), timeout=SHORT)
        src.wait_stable(timeout=SHORT)
        room = (LIMIT - FLIGHT) // SIZE
        until("the oldest are gone", lambda: oldest(store) >= 3 * LIMIT // SIZE - room)
        assert oldest(store) < 3 * LIMIT // SIZE


def test_j1_deregistration_and_the_end_of_a_lifetime_free_what_waited(run_store: Callable[..., ThreadStore]) -> None:
    lifetimes = {"receiver-activity-timeout": 1, "receiver-state-lifetime": 1}
    store = run_store("a", "disk", **DISK, **lifetimes)
    with hf.Context(session_id=5) as ctx:
        src = source(ctx)
        for leave in ("deregister", "close"):
            rcv = receiver(ctx, **BLOCKS)
            fill(src, LIMIT // SIZE)
            getattr(rcv, leave)()
            src.wait_stable(timeout=SHORT)
            until("nobody is registered", lambda: states(store) == [])
            until("nothing is kept", lambda: oldest(store) == src.next_sequence_number)
            rcv.close()


def test_j1_a_receiver_that_is_only_closed_is_waited_for(store: ThreadStore) -> None:
    with hf.Context(session_id=5, options={"ume_ack_batching_interval": 5}) as ctx:
        src = source(ctx)
        receiver(ctx, **BLOCKS).close()
        sent = LIMIT // SIZE
        fill(src, sent)
        again = receiver(ctx, **BLOCKS)
        take(again, *range(sent))
        src.wait_stable(timeout=SHORT)


def test_j1_a_store_that_restarts_withholds_as_before(run_store: Callable[..., ThreadStore]) -> None:
    store = run_store("a", "disk", **DISK)
    with hf.Context(session_id=5, options={"ume_ack_batching_interval": 5}) as ctx:
        src = source(ctx)
        rcv = receiver(ctx, **BLOCKS)
        sent = LIMIT // SIZE
        fill(src, sent)
        stable = src.stable_sequence_number
        store.stop()
        until("the source has noticed", lambda: src.stats().stores["a"].state == "down")
        store = run_store("a", "disk", **DISK)
        src.wait_registered(SHORT)
        fill(src, 0)
        assert src.stable_sequence_number == stable
        take(rcv, *range(sent))
        src.wait_stable(timeout=SHORT)
        until("all are gone", lambda: oldest(store) == sent)


def test_j1_an_incarnation_that_begins_below_is_paced_as_if_nothing_had_followed(store: ThreadStore) -> None:
    """As after a power cut that took the end of the other stores' logs: numbers that this store had
    acknowledged come again."""
    with hf.Context(session_id=5, options={"ume_ack_batching_interval": 5}) as ctx:
        with source(ctx) as src:
            rcv = receiver(ctx, **BLOCKS)
            fill(src, 200)
            take(rcv, *range(30))
            until("thirty more are stable", lambda: src.stable_sequence_number == 179)
            rcv.close()
        (paced,) = store.store.drainer.repositories.values()
        until("its ring is over", lambda: paced.stream is None)
        store.store.drainer.call(lambda: paced._adopt(((1, 0), (2, 20))))
        assert paced.pacer is not None
        assert paced.pacer.allowed(1000) == 20, (
            "a first message that does not fit must not profit from what was allowed before"
        )
        with source(ctx) as src:
            assert src.next_sequence_number == 20
            fill(src, 200)
            assert src.stable_sequence_number == 169


def test_j1_three_stores_pace_together_and_one_of_them_may_be_away(run_store: Callable[..., ThreadStore]) -> None:
    stores = {name: run_store(name, "memory", **MEMORY) for name in "abc"}
    names = {"ume_store_name": ["a:0:0", "b:0:0", "c:0:0"], "ume_registration_interval": 100}
    with hf.Context(session_id=5, options={"ume_ack_batching_interval": 5}) as ctx:
        src = source(ctx, **names)
        everywhere(src)
        rcv = receiver(ctx, **BLOCKS)
        sent = LIMIT // SIZE
        fill(src, sent)
        stores.pop("b").stop()
        take(rcv, *range(sent))
        src.wait_stable(timeout=SHORT)
        for store in stores.values():
            until("all are gone", lambda: oldest(store) == sent)  # noqa: B023


def test_j1_ack_on_reception_makes_stable_mean_the_stores_pages(run_store: Callable[..., ThreadStore]) -> None:
    store = run_store("a", "disk", **DISK)
    with hf.Context(session_id=5) as ctx:
        src = source(ctx, ume_repository_ack_on_reception=1)
        src.send(b"0")
        src.wait_stable(timeout=SHORT)
        assert repository(store).level == lib.HF_LEVEL_MEMORY
        assert repository(store).path.resolve().parent == store.store.logs


def test_j1_both_sides_are_told_that_it_is_receiver_paced(store: ThreadStore) -> None:
    source_events, receiver_events = hf.events.source, hf.events.receiver
    told: list[Any] = []

    def of(*kinds: type[Any]) -> list[Any]:
        return [event.flags for event in told if isinstance(event, kinds)]

    with hf.Context(session_id=5) as ctx, hf.Context(session_id=6) as other:
        src = ctx.source("quotes", options=SOURCE, on_event=told.append)
        src.wait_registered(SHORT)
        for count, (context, options) in enumerate(((ctx, BLOCKS), (other, NEVER_BLOCKS)), 1):
            rcv = context.receiver("quotes", options=options, on_event=told.append)
            until("it is registered", lambda: len(of(receiver_events.RegistrationComplete)) == count)  # noqa: B023
        rcv.deregister()
        until("it is forgotten", lambda: of(receiver_events.DeregistrationSuccess))
    assert of(source_events.RegistrationSuccess) == [source_events.RegistrationSuccessFlags.RPP]
    flags = receiver_events.RegistrationSuccessFlags
    both = flags.RPP | flags.SRC_SID
    assert of(receiver_events.RegistrationSuccess) == [both, both | flags.RPP_IS_NON_BLOCKING]
    assert of(receiver_events.DeregistrationSuccess) == [receiver_events.DeregistrationFlags.RPP]


def refused_source(**options: Any) -> str:
    with hf.Context(session_id=5) as ctx:
        src = ctx.source("quotes", options={**SOURCE, **options})
        with pytest.raises(hf.RegistrationError) as refused:
            src.wait_registered(SHORT)
        return str(refused.value)


def test_j1_a_store_that_does_not_allow_it_rejects_the_source(run_store: Callable[..., ThreadStore]) -> None:
    store = run_store("a", "disk")
    assert "repository-allow-receiver-paced-persistence 1" in refused_source()
    assert store.store.state.sources == []


def test_j1_a_source_that_wants_more_than_the_store_has_is_rejected(store: ThreadStore) -> None:
    assert "source-flight-size-bytes-maximum = 4194304" in refused_source(ume_flight_size_bytes=4194305)
    assert "never raise it" in refused_source(ume_write_delay=1)
    assert store.store.state.sources == []


def test_j1_a_source_that_comes_back_with_other_values_is_rejected_until_it_is_deregistered(store: ThreadStore) -> None:
    with hf.Context(session_id=5) as ctx:
        source(ctx).close()
    assert "flight_bytes 50000 first, 60000 now" in refused_source(ume_flight_size_bytes=60_000)
    assert "receiver-paced first, and asks for source-paced" in refused_source(ume_receiver_paced_persistence=0)
    with hf.Context(session_id=5) as ctx:
        source(ctx).deregister()
        until("it is forgotten", lambda: store.store.state.sources == [])
    with hf.Context(session_id=5) as ctx:
        source(ctx, ume_flight_size_bytes=60_000)


@pytest.mark.parametrize(
    ("paced", "mode", "words"),
    [
        (0, 1, "the source is source-paced"),
        (0, 2, "the source is source-paced"),
        (1, 0, "the source is receiver-paced"),
    ],
)
def test_j1_a_receiver_of_another_mode_is_rejected(store: ThreadStore, paced: int, mode: int, words: str) -> None:
    with hf.Context(session_id=5) as ctx:
        source(ctx, ume_receiver_paced_persistence=paced)
        assert words in refused_receiver(ctx, ume_receiver_paced_persistence=mode)
        assert states(store) == []


def test_j1_a_receiver_does_not_change_between_blocking_and_non_blocking(store: ThreadStore) -> None:
    with hf.Context(session_id=5) as ctx:
        source(ctx)
        receiver(ctx, **BLOCKS).close()
        assert "registered with 1 first" in refused_receiver(ctx, **NEVER_BLOCKS)
        assert [state.paced for state in states(store)] == [1]


def test_a_new_receiver_that_cannot_be_recorded_is_refused_each_time(
    store: ThreadStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that forgets it grants the live end next time, behind what it never acknowledged."""
    with hf.Context(session_id=5) as ctx:
        source(ctx)

        def read_only(*_: object, **__: object) -> None:
            raise OSError(errno.EROFS, "planted")

        monkeypatch.setattr(store.store.holdings._file, "_put", read_only)
        for _ in range(2):
            assert "its file system is read-only" in refused_receiver(ctx, **BLOCKS)
            assert states(store) == []
        monkeypatch.undo()
        receiver(ctx, **BLOCKS)
        assert len(states(store)) == 1


def test_j1_a_source_paced_source_stays_so_where_receiver_pacing_is_allowed(store: ThreadStore) -> None:
    with hf.Context(session_id=5) as ctx:
        src = source(ctx, ume_receiver_paced_persistence=0)
        receiver(ctx)
        for number in range(3 * LIMIT // SIZE):
            src.send(number.to_bytes(4, "big") + bytes(SIZE - 4), timeout=SHORT)
        src.wait_stable(timeout=SHORT)


def test_j1_a_source_must_say_how_much_may_be_in_flight() -> None:
    with hf.Context(session_id=5) as ctx, pytest.raises(hf.ConfigError, match="without ume_flight_size_bytes"):
        ctx.source("quotes", options={"ume_store_name": ["a:0:0"], "ume_receiver_paced_persistence": 1})


def test_j1_what_was_sent_since_a_receiver_registered_is_its_own_where_another_group_never_knew_it(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was killed before it said anywhere that it had joined: its position is no more than a number. The
    greatest of all groups would be where the other one lets strangers start."""
    acked = SourceState.acked
    monkeypatch.setattr(SourceState, "acked", lambda state, line: Acked(acked(state, line).number, joined=False))
    stores = {name: run_store(name, "disk", **DISK) for name in "ab"}
    groups = {"ume_store_name": ["a:0:0", "b:0:1"], "ume_store_group": ["0:1", "1:1"], "ume_registration_interval": 100}
    with hf.Context(session_id=5, options={"ume_ack_batching_interval": 5}) as ctx:
        src = source(ctx, **groups)
        everywhere(src)
        stores["b"].stop()
        receiver(ctx, **BLOCKS).close()
        assert [(each.joined, each.ack) for each in states(stores["a"])] == [(False, 0)]
        run_store("b", "disk", **DISK)
        for number in range(10):
            src.send(number.to_bytes(4, "big"), timeout=SHORT)
        everywhere(src)
        until("both have all", lambda: {at.stable_sequence_number for at in src.stats().stores.values()} == {9})
        with receiver(ctx, **BLOCKS) as rcv:
            take(rcv, *range(10))
