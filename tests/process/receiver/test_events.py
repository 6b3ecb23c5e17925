"""What a receiver tells and when: every row of docs/semantics.md L.2 that has a meaning on one host, in the
order of B.3."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from support.receiving import SESSION, SHORT, Told, options, send, source, take, until

import holdfast as hf
from holdfast.engine.events import receiver as events

if TYPE_CHECKING:
    from collections.abc import Callable

    from process.conftest import ThreadStore


PATIENT = {"ume_registration_interval": 90_000}
"""No store is said to be silent: one answers."""


@pytest.fixture
def store(run_store: Callable[..., ThreadStore]) -> ThreadStore:
    return run_store()


def test_the_life_of_a_source_is_told_in_order(store: object) -> None:
    told = Told()
    with hf.Context() as ctx:
        src = source(ctx, 2)
        rcv = ctx.receiver("quotes", options=PATIENT, on_event=told)
        assert take(rcv, 2) == [0, 1]
        src.close()
        assert rcv.receive(timeout=0.2) is None
        told.wait(events.EndOfStream)
        assert told.names() == ["RegistrationSuccess", "RegistrationComplete", "BeginOfStream", "EndOfStream"]
        assert {event.topic for event in told} == {"quotes"}
        assert len({event.source for event in told}) == 1


def test_data_says_its_last_number_and_retransmit_only_when_it_was_recovered(store: object) -> None:
    with hf.Context() as ctx:
        src = source(ctx, fragment_size=1024)
        src.send(bytes(2000))
        rcv = ctx.receiver("quotes")
        recovered = rcv.receive(SHORT)
        src.send(b"live")
        live = rcv.receive(SHORT)
        assert recovered is not None
        assert live is not None
        assert (recovered.first_sequence_number, recovered.sequence_number, recovered.flags) == (0, 1, 8)
        assert (live.sequence_number, live.flags, live.topic, live.source) == (2, 0, "quotes", recovered.source)


def test_events_and_messages_of_the_callback_form_come_in_one_order(store: object) -> None:
    order: list[str] = []
    with hf.Context() as ctx, hf.Context() as other:
        src = source(ctx, 3)
        other.receiver(
            "quotes", options=PATIENT, on_event=lambda event: order.append(type(event).__name__),
            on_message=lambda message: order.append(str(message.sequence_number)),
        )  # fmt: skip
        until("the messages came", lambda: "2" in order)
        src.close()
        until("the end was told", lambda: "EndOfStream" in order)
    assert order == ["RegistrationSuccess", "RegistrationComplete", "BeginOfStream", "0", "1", "2", "EndOfStream"]


def test_a_source_that_comes_again_begins_again(store: object) -> None:
    told = Told()
    with hf.Context() as ctx:
        rcv = ctx.receiver("quotes", on_event=told)
        for life in range(2):
            with ctx.source("quotes", options=options(ume_session_id=9)) as src:
                src.wait_registered(SHORT)
                send(src, 1)
                assert take(rcv) == [life]
            while len(told.of(events.EndOfStream)) <= life:
                assert rcv.receive(timeout=0.02) is None
        story = [name for name in told.names() if name.endswith("OfStream")]
        assert story == ["BeginOfStream", "EndOfStream"] * 2
        (change,) = told.of(events.RegistrationChange)
        assert change.text == "incarnation 2 began at 1"
        assert len(told.of(events.RegistrationComplete)) == 1


DYING = """
import holdfast as hf
ctx = hf.Context()
src = ctx.source("quotes", options={"ring_size": 65536 * 4, "ume_store_name": [STORES]})
src.wait_registered(90)
src.send(b"last words")
src.wait_stable(timeout=90)
print("sent", flush=True)
input()
"""


@pytest.mark.parametrize("stores", [True, False], ids=["persistent", "streaming"])
def test_the_end_of_a_source_that_was_killed_is_told(store: object, stores: bool) -> None:
    told = Told()
    code = DYING.replace("STORES", "'a:0:0'" if stores else "")
    with hf.Context() as ctx, subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "sent\n"
        rcv = ctx.receiver("quotes", on_event=told)
        assert take(rcv) == [0]
        process.send_signal(signal.SIGKILL)
        until("the end was told", lambda: not rcv.receive(timeout=0.02) and told.of(events.EndOfStream))
        assert rcv.receive(timeout=0.2) is None
        assert len(told.of(events.EndOfStream)) == 1


# No source --------------------------------------------------------------------------------------------------


def test_no_source_is_told_once(store: object) -> None:
    told = Told()
    with hf.Context() as ctx:
        source(ctx, 0, topic="others")
        rcv = ctx.receiver("quotes", on_event=told)
        assert told.wait(events.NoSource) == events.NoSource("quotes")
        source(ctx, 1)
        assert take(rcv) == [0]
        assert len(told.of(events.NoSource)) == 1


def test_a_receiver_that_finds_a_source_does_not_say_that_there_is_none(store: object) -> None:
    told = Told()
    with hf.Context() as ctx, hf.Context() as other:
        source(ctx, 1).close()  # only the store knows it
        other.receiver("nothing")  # then the context knows the store before it looks for sources of the topic
        until("the store is known", lambda: other.stats().stores == {"a": True})
        assert take(other.receiver("quotes", on_event=told)) == [0]
        last = Told()
        other.receiver("nothing", on_event=last)
        last.wait(events.NoSource)  # which is as late for the first one
        assert not told.of(events.NoSource)


# Registration with changing stores (B.2) --------------------------------------------------------------------


def test_a_source_that_names_other_stores(run_store: Callable[..., ThreadStore]) -> None:
    for name in "ab":
        run_store(name)
    told = Told()
    with hf.Context() as ctx, hf.Context(session_id=SESSION) as other:
        rcv = other.receiver("quotes", on_event=told)
        told.wait(events.NoSource)  # the stores have told of theirs: the next one is found by its ring
        starts = []
        for stores in (["a", "b"], ["b"], ["a", "b"]):
            with source(ctx, 0, ume_store_name=stores, ume_session_id=9) as src:
                starts.append(src.next_sequence_number)
                send(src, 2)
                assert take(rcv, 2) == [starts[-1], starts[-1] + 1]
                told.wait(events.RegistrationComplete)
                told.wait(events.RegistrationSuccess, len(stores))
                granted = sorted((each.store_index, each.store) for each in told.of(events.RegistrationSuccess))
                assert granted == list(enumerate(stores))
                for event in told.of(events.RegistrationSuccess):
                    told.remove(event)
        assert [event.text for event in told.of(events.RegistrationChange)] == [
            f"incarnation 2 began at {starts[1]}; stores b instead of a, b",
            f"incarnation 3 began at {starts[2]}; stores a, b instead of b",
        ]
        assert len(told.of(events.RegistrationComplete)) == 1


def test_a_store_that_returns_is_registered_with_again_and_no_other(run_store: Callable[..., ThreadStore]) -> None:
    stores = {name: run_store(name) for name in "abc"}
    told = Told()
    with hf.Context() as ctx, hf.Context() as other:
        src = source(ctx, 1, ume_store_name=["a", "b", "c"])
        rcv = other.receiver("quotes", on_event=told)
        assert take(rcv) == [0]
        told.wait(events.RegistrationSuccess, 3)
        told.clear()
        stores["b"].stop()
        run_store("b")
        told.wait(events.RegistrationSuccess)
        send(src, 1)
        assert take(rcv) == [1]
        assert {each.store for each in told.of(events.RegistrationSuccess)} == {"b"}
        assert not told.of(events.RegistrationChange)


def test_a_refusal_names_the_holder(store: object) -> None:
    told = Told()
    with hf.Context() as ctx, hf.Context(session_id=SESSION) as one, hf.Context(session_id=SESSION) as two:
        source(ctx, 1)
        assert take(one.receiver("quotes")) == [0]
        two.receiver("quotes", on_event=told)
        refused = told.wait(events.RegistrationError)
        assert (refused.topic, refused.store) == ("quotes", "a")
        assert refused.pid > 0
        assert refused.since > 0
        assert "in use by a different receiver" in refused.text


# Callbacks per source ---------------------------------------------------------------------------------------


def notes(seen: list[Any]) -> dict[str, Any]:
    def created(info: Any) -> object:
        seen.append(("create", info.topic, info.source_clientd))
        return len(seen)

    def deleted(info: Any) -> None:
        seen.append(("delete", info.topic, info.source_clientd))

    return {"source_notification_function": (created, deleted)}


def test_the_notification_callbacks_say_when_a_receiver_has_and_lets_go_a_source(store: object) -> None:
    seen: list[Any] = []
    with hf.Context() as ctx:
        source(ctx, 1)
        rcv = ctx.receiver("quotes", options=notes(seen))
        assert take(rcv) == [0]
        assert seen == [("create", "quotes", None)]
        rcv.close()
        assert seen == [("create", "quotes", None), ("delete", "quotes", 1)]
        rcv.close()
        assert len(seen) == 2


def test_what_the_create_callback_refused_is_not_deleted(store: object) -> None:
    seen: list[Any] = []

    def wrong(info: object) -> None:
        raise LookupError("not mine")

    with hf.Context() as ctx:
        source(ctx, 1)
        rcv = ctx.receiver("quotes", options={"source_notification_function": (wrong, seen.append)})
        with pytest.raises(hf.RegistrationError, match="not mine"):
            rcv.receive(SHORT)
    assert not seen


def test_a_source_that_was_deregistered_is_let_go(store: object) -> None:
    seen: list[Any] = []
    told = Told()
    with hf.Context() as ctx, hf.Context() as other:
        src = source(ctx, 2)
        rcv = other.receiver("quotes", options=notes(seen), on_event=told)
        assert take(rcv, 2) == [0, 1]
        src.deregister()
        src.close()
        until("it is let go", lambda: rcv.receive(timeout=0.02) is None and ("delete", "quotes", 1) in seen)
        assert rcv.stats().sources == 0
        assert told.wait(events.EndOfStream)
        source(ctx, 1)
        assert take(rcv) == [0], "another source of the topic"
    assert seen == [
        ("create", "quotes", None), ("delete", "quotes", 1), ("create", "quotes", None), ("delete", "quotes", 3),
    ]  # fmt: skip


def test_the_registration_callback_says_which_store_and_gets_the_registration_id(store: object) -> None:
    asked: list[Any] = []

    def registration(info: Any) -> int:
        asked.append((info.flags, info.src_registration_id, info.store_index, info.store, info.source_clientd))
        return 1100

    seen: list[Any] = []
    told = Told()
    with hf.Context() as ctx:
        src = source(ctx, 1)
        choice = {"ume_registration_extended_function": registration, **notes(seen)}
        assert take(ctx.receiver("quotes", options=choice, on_event=told)) == [0]
        assert asked == [(0, src.registration_ids["a"], 0, "a", 1)]
        assert told.wait(events.RegistrationSuccess).receiver_registration_id == 1100


def test_what_a_program_prints_is_useful(store: object) -> None:
    told = Told()
    with hf.Context() as ctx:
        source(ctx, 1)
        rcv = ctx.receiver("quotes", on_event=told)
        assert take(rcv) == [0]
        success = told.wait(events.RegistrationSuccess)
        assert repr(success).startswith("RegistrationSuccess(topic='quotes', source='holdfast:quotes:")
        assert repr(rcv).startswith("<Receiver quotes")
        assert repr(rcv.controllers[0]).endswith("next=1>")
