"""Limits have names: a store, a source and a receiver that reach one say which, and what helps; a store says
it before, and what is there goes on."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import resource
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from support.command_line import SHORT, Program, run, stat
from support.limited_store import MOST, OPTIONS, LimitedStore, named

import holdfast as hf
from holdfast.engine.control import wire
from holdfast.engine.control.link import HINDERED_NS, StoreLink
from holdfast.engine.control.request import FIRST, ask
from holdfast.engine.memory.domain import Domain
from holdfast.engine.store.limits import FILES_KEPT, FILES_LAST

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def one_message(ctx: hf.Context, topic: str) -> None:
    with ctx.source(topic, options=OPTIONS) as src:
        src.wait_registered(SHORT)
        src.wait_stable(src.send(topic.encode()), SHORT)


def more_messages(ctx: hf.Context) -> None:
    """One each from new sources, for ever."""
    for number in itertools.count():
        one_message(ctx, f"new-{number}")


def until_refused(ctx: hf.Context, stack: contextlib.ExitStack, most: int = 100) -> tuple[int, hf.RegistrationError]:
    """Sources that live on in ``stack``, until the store takes no more; how many it took."""
    for number in range(most):
        src = ctx.source(f"live-{number}", options=OPTIONS)
        try:
            src.wait_registered(SHORT)
        except hf.RegistrationError as error:
            src.close()
            return number, error
        stack.enter_context(src)
        src.wait_stable(src.send(src.topic.encode()), SHORT)
    raise AssertionError(f"{most} sources were taken")


def test_a_store_at_its_limit_names_it_and_the_sources_that_are_there_go_on(
    limited: Callable[..., LimitedStore],
) -> None:
    store = limited()
    with contextlib.ExitStack() as stack:
        ctx, reading = stack.enter_context(hf.Context()), stack.enter_context(hf.Context())
        there = stack.enter_context(ctx.source("there", options=OPTIONS))
        rcv = reading.receiver("there")
        there.wait_registered(SHORT)
        there.wait_stable(there.send(b"before"), SHORT)
        taken, refused = until_refused(ctx, stack)
        assert taken > 20
        named(str(refused), store.pid)
        assert str(refused).startswith("HF_REGISTRATION: store a failed to do this: EMFILE: ")
        for number in range(3):
            with pytest.raises(hf.RegistrationError, match="RLIMIT_NOFILE"):
                one_message(ctx, f"more-{number}")
        assert store.descriptors() <= MOST - FILES_LAST
        for number in range(3000):  # through several segments
            there.send(b"%d" % number * 50, timeout=SHORT)
        there.wait_stable(timeout=SHORT)
        got = 0
        while got < 3001:
            message = rcv.receive(timeout=SHORT)
            assert message is not None
            message.release()
            got += 1
        with ctx.receiver("live-0") as late:  # a receiver of a log that is open costs nothing
            message = late.receive(timeout=SHORT)
            assert message is not None
            assert bytes(message) == b"live-0"
        (row,) = stat()["stores"]
        assert (row["state"], row["sources"]) == ("running", taken + 1), "nothing of a refused source is kept"
        named(f"{row['near'][0]}; ulimit -n", store.pid)
        assert re.search(r"running, close to a limit: RLIMIT_NOFILE of process", run("stat")[1])
        code, out, _ = run("doctor")
        assert code == 1
        named(out, store.pid)
        assert "all is well" not in out
    assert len(store.lines("is close to a limit")) == 1
    assert len(store.lines("failed to do this")) == 1, "once, and no traceback"
    assert store.lines("Traceback") == []
    text = store.log.read_text()
    assert text.index("is close to a limit") < text.index("failed to do this"), "before it is reached"


def test_a_store_raises_its_soft_limit_to_the_hard_one(limited: Callable[..., LimitedStore]) -> None:
    store = limited(64, 500)
    assert resource.prlimit(store.pid, resource.RLIMIT_NOFILE) == (500, 500)
    with contextlib.ExitStack() as stack:
        ctx = stack.enter_context(hf.Context())
        for number in range(20):
            stack.enter_context(ctx.source(f"short-{number}", options=OPTIONS)).wait_registered(SHORT)
        assert store.descriptors() > 64


def test_a_spawned_store_raises_its_own_limit_and_a_program_with_a_context_keeps_its(tmp_path: Path) -> None:
    soft, hard = before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        most = len(os.listdir("/proc/self/fd")) + 256
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, most), hard))
        own = resource.getrlimit(resource.RLIMIT_NOFILE)
        with hf.spawn_store(hf.StoreConfig("a", tmp_path / "a")) as store, hf.Context() as ctx:
            assert resource.prlimit(store.pid, resource.RLIMIT_NOFILE) == (hard, hard)
            one_message(ctx, "quotes")
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == own
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_who_comes_to_a_store_without_room_for_clients_is_told_at_the_door(
    limited: Callable[..., LimitedStore],
) -> None:
    store = limited()
    with contextlib.ExitStack() as stack:
        ctx = stack.enter_context(hf.Context())
        there = stack.enter_context(ctx.source("there", options=OPTIONS))
        there.wait_registered(SHORT)
        full = store.descriptors() + FILES_LAST // 2  # some may have been of a look that is over
        resource.prlimit(store.pid, resource.RLIMIT_NOFILE, (full, MOST))
        seen: list[object] = []
        late = stack.enter_context(hf.Context())
        src = stack.enter_context(late.source("late", options=OPTIONS, on_event=seen.append))
        with pytest.raises(hf.RegistrationError) as refused:
            src.wait_registered(SHORT)
        named(str(refused.value), store.pid, full)
        assert "store a lets no client in" in str(refused.value)
        domain = Domain()
        try:
            with pytest.raises(hf.RegistrationError, match=r"lets no client in.*RLIMIT_NOFILE"):
                ask(domain, "a", wire.Mark(FIRST, 7, [(1, 2)]), SHORT)
        finally:
            domain.close()
        there.wait_stable(there.send(b"goes on"), SHORT)
        resource.prlimit(store.pid, resource.RLIMIT_NOFILE, (MOST, MOST))
        deadline = time.monotonic() + SHORT
        while True:  # by itself
            try:
                src.wait_registered(SHORT)
                break
            except hf.RegistrationError:
                assert time.monotonic() < deadline
        src.wait_stable(src.send(b"let in"), SHORT)
    told = [event for event in seen if isinstance(event, hf.events.source.RegistrationError)]
    assert [("lets no client in" in event.text, event.store) for event in told] == [(True, "a")], "once"
    assert len(store.lines("lets no client in")) == 1


OWN = """
import os, resource, sys
import holdfast as hf

def fill():
    taken = []
    top = max(int(name) for name in os.listdir("/proc/self/fd")) + 3
    resource.setrlimit(resource.RLIMIT_NOFILE, (top, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    try:
        while True:
            taken.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        return taken

soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
seen = []
ctx = hf.Context()
if sys.argv[1] == "source":
    taken = fill()
    child = ctx.source("quotes", options={"ume_store_name": ["a:0:0"], "ring_size": 1 << 16}, on_event=seen.append)
    try:
        child.wait_registered(60)
    except hf.Error as error:
        print(error, flush=True)
else:
    taken = fill()
    child = ctx.receiver("quotes", on_event=seen.append)
    while not seen:
        child.receive(timeout=0.05)
    print(seen[0].text, flush=True)
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
for fd in taken:
    os.close(fd)
if sys.argv[1] == "source":
    while True:
        try:
            child.wait_registered(60)
            break
        except hf.Error:
            pass
    child.wait_stable(child.send(b"after"), 60)
else:
    got = child.receive(timeout=60)
    assert bytes(got) == b"one", got
print("goes on", flush=True)
child.close()
ctx.close()
"""


@pytest.mark.parametrize("role", ["source", "receiver"])
def test_a_process_without_descriptors_is_told_its_own_limit_and_goes_on_when_it_has_some(
    limited: Callable[..., LimitedStore], role: str
) -> None:
    limited()
    with hf.Context() as ctx:
        with ctx.source("quotes", options={**OPTIONS, "ume_session_id": 5}) as src:
            src.wait_registered(SHORT)
            src.wait_stable(src.send(b"one"), SHORT)
        with subprocess.Popen([sys.executable, "-c", OWN, role], stdout=subprocess.PIPE, text=True) as process:
            out, _ = process.communicate(timeout=SHORT)
    said, goes_on = out.splitlines()
    assert re.search(rf"RLIMIT_NOFILE of process {process.pid} is \d+, \d+ are used", said), said
    assert "ulimit -n" in said
    assert goes_on == "goes on"


def test_why_a_store_was_not_reached_is_over_when_it_is_gone(own_domain: str) -> None:
    domain = Domain(own_domain)
    try:
        link = StoreLink(domain, "a", 0)
        link._hinder("store a lets no client in")
        again_ns = link.hindered_ns + HINDERED_NS
        link.turn(again_ns - 1)
        assert link.hindrance == "store a lets no client in"
        link.turn(again_ns)
        assert link.hindrance == "", "nobody is there: it is not a limit that is waited for"
    finally:
        domain.close()


def test_a_store_that_starts_with_more_logs_than_it_may_open_keeps_room_for_clients(
    limited: Callable[..., LimitedStore], start: Callable[..., Program]
) -> None:
    first = limited(MOST, MOST)
    with contextlib.ExitStack() as stack:
        taken, _ = until_refused(stack.enter_context(hf.Context()), stack)
        first.process.terminate()
        first.process.wait(SHORT)
        half = MOST // 2
        second = limited(half, half)
        assert second.descriptors() <= half - FILES_KEPT + 8
        with hf.Context() as ctx:
            with pytest.raises(hf.RegistrationError) as refused:
                more_messages(ctx)  # those that live come back, and take all
            named(str(refused.value), second.pid, half)
        assert stat()["stores"][0]["sources"] >= taken
        second.process.terminate()
        second.process.wait(SHORT)
        limited(2 * MOST, 2 * MOST)  # the remedy
        with hf.Context() as ctx:
            one_message(ctx, "new")


def test_sources_that_are_over_take_nothing_from_it(limited: Callable[..., LimitedStore]) -> None:
    """Years of short-lived programs: their logs are closed (engine/store/shelf.py)."""
    store = limited()
    with hf.Context() as ctx:
        for number in range(100):
            one_message(ctx, f"short-{number}")
    assert store.lines("failed to do this") == []
