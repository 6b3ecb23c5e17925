"""A store that has a BEGIN of a claimant which died, and whose quorum shared no store with that of the source
that lives now: it was away meanwhile, and a reboot has taken the board (docs/design.md 13)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from support.kept_messages import kept
from support.leftovers import remove_objects
from support.recorded_events import Events
from support.restarted_source import SHORT, SOURCE, has_begun, read
from support.workers import until

import holdfast as hf
from holdfast.engine.store.sources import SourceDesk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from process.conftest import ThreadStore

    from holdfast.engine.control import wire
    from holdfast.engine.store.clients import Client

OPTIONS = {
    **SOURCE,
    "ume_store_name": [f"{name}:0:0" for name in "abcd"],
    "ume_store_group": ["0:3"],
    "ume_store_check_interval": 50,
}
PATIENT = {**OPTIONS, "ume_registration_interval": 60_000}
"""Three have the seats, and d is their backup: two quorums of two need not meet."""


def state(src: hf.Source, name: str) -> str:
    return src.stats().stores[name].state


def send(src: hf.Source, numbers: range) -> None:
    assert src.next_sequence_number == numbers[0]
    for number in numbers:
        src.send(b"%d" % number)
    src.wait_stable(timeout=SHORT)


@pytest.fixture
def c_and_d(
    run_store: Callable[..., ThreadStore],
    tmp_path: Path,
    own_domain: str,
    registers: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> dict[str, ThreadStore]:
    """0..9 are stable. BEGINs 3 and 4 are at a alone, promised by a and b; a is away, and b is down: c and d
    run, and know nothing of them."""
    stores = {name: run_store(name, "disk") for name in "abcd"}
    begin = SourceDesk.begin

    def not_at_b(self: SourceDesk, client: Client, request: wire.Begin) -> wire.Answer | None:
        return None if self._holdings.name == "b" else begin(self, client, request)

    with hf.Context(session_id=7) as ctx:
        with ctx.source("quotes", options=PATIENT) as src:  # d takes part once
            src.wait_registered(SHORT)
            until("three take part", lambda: all(state(src, name) == "active" for name in "abc"))
            stores["a"].stop()
            until("d has the seat", lambda: state(src, "d") == "active")
            send(src, range(5))
            until("all have it", lambda: all(len(kept(stores[name])) == 5 for name in "bcd"))
        stores["a"] = run_store("a", "disk")
        with ctx.source("quotes", options=PATIENT) as src:
            src.wait_registered(SHORT)
            until("three take part", lambda: all(state(src, name) == "active" for name in "abc"))
            send(src, range(5, 10))
            until("all have it", lambda: all(len(kept(stores[name])) == 10 for name in "abc"))
        for name in "cd":
            stores[name].stop()
        with monkeypatch.context() as patched:
            patched.setattr(SourceDesk, "begin", not_at_b)
            for orphan in (3, 4):
                with ctx.source("quotes", options=OPTIONS):
                    until("a has its BEGIN", partial(has_begun, stores["a"], orphan))
    for name in "ab":
        stores[name].stop()
    (tmp_path / "store-a").rename(tmp_path / "away")
    remove_objects(own_domain)
    assert len(list(registers.iterdir())) == 1, "it outlives a reboot"
    return {name: run_store(name, "disk") for name in "cd"}


def returns(run_store: Callable[..., ThreadStore], tmp_path: Path) -> ThreadStore:
    (tmp_path / "away").rename(tmp_path / "store-a")
    return run_store("a", "disk")


@pytest.mark.usefixtures("c_and_d")
def test_it_takes_part_when_it_returns_while_the_source_lives(
    run_store: Callable[..., ThreadStore], tmp_path: Path
) -> None:
    """It was refused for the source's life: that had begun a lower number than the orphan has."""
    events = Events()
    with (
        hf.Context(session_id=7) as ctx,
        ctx.source("quotes", options=OPTIONS, on_event=events) as src,
    ):
        src.wait_registered(SHORT)
        send(src, range(10, 15))
        a = returns(run_store, tmp_path)
        until("it takes part", lambda: state(src, "a") == "active")
        send(src, range(15, 20))
        until("it has it all", lambda: len(kept(a)) == 20)
        assert not [event.text for event in events.of("RegistrationError") if "is over" in event.text]
    with hf.Context() as ctx:
        assert read(ctx, 20) == [(number, b"%d" % number) for number in range(20)]


@pytest.mark.usefixtures("c_and_d")
def test_where_the_register_was_lost_it_takes_part_from_the_next_start_on(
    run_store: Callable[..., ThreadStore], tmp_path: Path, registers: Path
) -> None:
    """Nothing says then which number the orphan has. The source goes on without the store, and nothing is
    lost."""
    for path in registers.iterdir():
        path.unlink()
    events = Events()
    with hf.Context(session_id=7) as ctx:
        with ctx.source("quotes", options=OPTIONS, on_event=events) as src:
            src.wait_registered(SHORT)
            send(src, range(10, 15))
            a = returns(run_store, tmp_path)
            until("it is refused", lambda: any("is over" in event.text for event in events.of("RegistrationError")))
            send(src, range(15, 20))
        run_store("b", "disk")
        with ctx.source("quotes", options=PATIENT) as src:
            src.wait_registered(SHORT)
            until("it takes part", lambda: state(src, "a") == "active")
            send(src, range(20, 25))
            until("it has it all", lambda: len(kept(a)) == 25)
    with hf.Context() as ctx:
        assert read(ctx, 25) == [(number, b"%d" % number) for number in range(25)]
