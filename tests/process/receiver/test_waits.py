"""A receiver that waits for its stores says so, and other processes see it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from support.command_line import run as command
from support.receiving import SESSION, Told, send, source, take, until
from support.three_stores import everywhere

import holdfast as hf
from holdfast.engine.control.waits import wait_files, waiting
from holdfast.engine.events import receiver as events

if TYPE_CHECKING:
    from collections.abc import Callable

    from process.conftest import ThreadStore


def errors(told: Told) -> list[str]:
    return [event.text for event in told.of(events.RegistrationError)]


def shown(name: str) -> tuple[list[Any], list[Any]]:
    """What doctor finds of receivers, and stat shows of those that wait."""
    findings = json.loads(command("doctor", "--json", "--domain", name)[1])
    picture = json.loads(command("stat", "--json", "--domain", name)[1])
    return [each for each in findings if each["check"] == "receiver"], picture["waiting"]


def test_a_receiver_that_waits_for_a_quorum_says_so_and_doctor_and_stat_show_it(
    run_store: Callable[..., ThreadStore], own_domain: str
) -> None:
    stores = {name: run_store(name) for name in "abc"}
    told = Told()
    with hf.Context() as ctx, hf.Context(session_id=SESSION) as other:
        everywhere(source(ctx, 1, ume_store_name=["a", "b", "c"]))
        stores["b"].stop()
        stores["c"].stop()
        rcv = other.receiver("quotes", options={"ume_registration_interval": 50}, on_event=told)
        whole = (
            "registered with 1 of 3 stores, which are too few: store 0 [a]: registered; store 1 [b]: cannot be reached"
        )
        until("it is told again", lambda: sum(whole in text for text in errors(told)) >= 3)
        assert all(errors(told))
        (found,), (row,) = shown(own_domain)
        assert not found["ok"]
        assert whole in found["found"]
        assert f"session ID {SESSION:#x}" in found["found"]
        assert (row["topic"], row["session_id"]) == ("quotes", SESSION)
        assert whole in row["why"]
        assert "receivers that wait" in command("stat", "--domain", own_domain)[1]
        run_store("b")
        assert take(rcv) == [0]
        until("nobody waits", lambda: not waiting(other.domain))
        assert shown(own_domain) == ([], [])


SENDING = """
import sys
import holdfast as hf
ctx = hf.Context()
src = ctx.source("quotes", options={"ume_store_name": ["a:0:0"]})
src.wait_registered(90)
src.send(b"0")
src.wait_stable(timeout=90)
print("sent", flush=True)
sys.stdin.read()
"""


def test_a_receiver_whose_store_does_not_know_its_source_says_so(
    run_store: Callable[..., ThreadStore], wipe: Callable[[str], None]
) -> None:
    store = run_store(kind="disk")
    with subprocess.Popen(
        [sys.executable, "-c", SENDING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as sending:
        try:
            assert sending.stdout is not None
            assert sending.stdout.readline() == "sent\n"
            store.stop()
        finally:
            sending.kill()
    wipe("a")
    run_store(kind="disk")
    told = Told()
    with hf.Context() as ctx:
        ctx.receiver("quotes", options={"ume_registration_interval": 90_000}, on_event=told)
        text = told.wait(events.RegistrationError).text
        assert "registered with 0 of 1 stores" in text
        assert "store 0 [a]: the source has not registered with this store yet" in text
        assert waiting(ctx.domain)[0].why == text


WAITING = """
import sys
import holdfast as hf
ctx = hf.Context()
rcv = ctx.receiver("quotes", options={"ume_registration_interval": 50})
sys.stdin.read()
"""


def test_what_a_closed_or_killed_receiver_leaves_is_not_shown(run_store: Callable[..., ThreadStore]) -> None:
    stores = {name: run_store(name) for name in "abc"}
    with hf.Context() as ctx:
        everywhere(source(ctx, 1, ume_store_name=["a", "b", "c"]))
        stores["b"].stop()
        stores["c"].stop()
        rcv = ctx.receiver("quotes", options={"ume_registration_interval": 50})
        until("it waits", lambda: waiting(ctx.domain))
        rcv.close()
        assert not waiting(ctx.domain)
        assert not list(wait_files(ctx.domain))
        with subprocess.Popen([sys.executable, "-c", WAITING], stdin=subprocess.PIPE) as other:
            try:
                until("another process waits", lambda: [wait.pid for wait in waiting(ctx.domain)] == [other.pid])
            finally:
                other.kill()
        assert not waiting(ctx.domain)
        ((path, _, dead),) = wait_files(ctx.domain)
        assert dead
        junk = path.with_name("junk.json")
        junk.write_bytes(b"{")
        assert not waiting(ctx.domain)
        junk.unlink()
        command("gc", "--domain", ctx.domain.name)
        assert not path.exists()


def test_a_callback_that_raises_without_a_word_is_named(run_store: Callable[..., ThreadStore]) -> None:
    def wrong(info: object) -> None:
        raise AssertionError

    run_store()
    told = Told()
    with hf.Context() as ctx:
        source(ctx, 1)
        options = {"ume_recovery_sequence_number_info_function": wrong}
        with ctx.receiver("quotes", options=options, on_event=told):
            assert told.wait(events.RegistrationError).text.endswith(": AssertionError")


def test_a_closed_ring_that_is_read_again_from_farther_back_is_not_over(run_store: Callable[..., ThreadStore]) -> None:
    """A batch is held while the ring goes over it. The receiver reads on to the end of the closed ring; then
    the batch is evicted, and the feed goes back."""
    store = run_store("a")
    with hf.Context() as ctx, hf.Context(session_id=SESSION) as other:
        src = source(ctx, 1)
        rcv = other.receiver("quotes")
        assert take(rcv) == [0]
        send(src, 10)
        batch = rcv.receive_batch(10, timeout=90)
        assert batch is not None
        for _ in range(3000):  # three times what the ring holds: the log's last blocks are in it, too
            src.send(bytes(1000), timeout=90)
        src.wait_stable(timeout=90)
        assert take(rcv, 3000)[-1] == 3010
        store.stop()
        src.close(timeout=0)
        assert rcv.receive(timeout=0.1) is None
        with pytest.raises(hf.EvictedError):
            batch.release()
        feed = rcv.controllers[0].feed
        assert feed is not None
        (number,) = take(rcv)
        while feed.ring is None:
            (number,) = take(rcv)
        assert number < 3010
        assert feed.ready()
        assert take(rcv, 3010 - number)[-1] == 3010


@pytest.mark.parametrize("form", ["receive", "receive_batch"])
def test_a_closed_ring_that_no_store_takes_away_is_waited_at_asleep(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """Its end is known: nobody asks it again and again whether more comes."""
    store = run_store("a")
    looks = 0
    look = hf.Receiver._may_wait

    def counted(rcv: hf.Receiver, called_ns: int, timeout: float | None) -> int:
        nonlocal looks
        looks += 1
        return look(rcv, called_ns, timeout)

    with hf.Context() as ctx, hf.Context(session_id=SESSION) as other:
        src = source(ctx, 1)
        rcv = other.receiver("quotes")
        assert take(rcv) == [0]
        store.stop()
        src.close(timeout=0)
        assert rcv.receive(timeout=0.1) is None
        monkeypatch.setattr(hf.Receiver, "_may_wait", counted)
        assert getattr(rcv, form)(timeout=0.5) is None
        assert looks < 100
