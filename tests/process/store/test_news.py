"""What a store's log says of the sources that come and go, and of what it catches up with: one line for each
change, with the topic's name (engine/store/news.py)."""

from __future__ import annotations

import contextlib
import logging
import re
import signal
from typing import TYPE_CHECKING

import pytest
from support.receiving import until_no_ring
from support.three_stores import SHORT, SOURCE, everywhere, send
from support.workers import Worker, until

import holdfast as hf
from holdfast.engine.memory.domain import Domain
from holdfast.engine.tools.snapshot import running_stores

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from process.conftest import ThreadStore
    from support.command_line import Program

PID = re.compile(r"\(pid \d+\)")
TOOK = re.compile(r"in \d+\.\d s")
REG_ID = re.compile(r"RegID \d+")


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Callable[[str], list[str]]:
    """What a store has said so far, without the numbers that differ from run to run."""
    caplog.set_level(logging.DEBUG, "holdfast.store")

    def lines(store: str = "a") -> list[str]:
        said = [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO]
        mine = [line.removeprefix(f"store {store}: ") for line in said if line.startswith(f"store {store}: ")]
        return [REG_ID.sub("RegID N", TOOK.sub("in T", PID.sub("(pid P)", line))) for line in mine]

    return lines


WHO = "RegID N (session ID 0x7) on topic 'quotes'"


def test_a_source_comes_and_goes_with_a_line_each(
    run_store: Callable[..., ThreadStore], told: Callable[[str], list[str]]
) -> None:
    run_store()
    options = {**SOURCE, "ume_store_name": ["a"]}
    with hf.Context(session_id=7) as ctx:
        for _ in range(2):
            with ctx.source("quotes", options=options) as src:
                src.wait_registered(SHORT)
                send(src, 5)
            until_no_ring(ctx.domain)
    assert told("a") == [
        f"{WHO} begins (pid P): incarnation 1, from number 0 on",
        f"{WHO} is closed (pid P): incarnation 1 is over, and kept up to number 4",
        f"{WHO} begins (pid P): incarnation 2, from number 5 on",
        f"{WHO} is closed (pid P): incarnation 2 is over, and kept up to number 9",
    ]


def test_a_source_that_is_killed_has_died(
    run_store: Callable[..., ThreadStore], told: Callable[[str], list[str]], tmp_path: Path, own_domain: str
) -> None:
    run_store()
    source = Worker("source", tmp_path, domain=own_domain, session=7, topic="quotes")
    try:
        source.start().wait_ready()
        source.strike()
        source.wait_died()
        until("it is told", lambda: "has died" in "".join(told("a")))
    finally:
        source.discard()
    assert [re.sub(r":.*", "", line) for line in told("a")] == [f"{WHO} begins (pid P)", f"{WHO} has died (pid P)"]


def test_a_store_that_comes_back_says_who_is_registered_again_and_when_it_has_caught_up(
    run_store: Callable[..., ThreadStore], told: Callable[[str], list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    stores = {name: run_store(name, "disk") for name in "abc"}
    with hf.Context(session_id=7) as ctx, ctx.source("quotes", options=SOURCE) as src:
        everywhere(src)
        send(src, 10)
        stores["c"].stop()
        send(src, 10_000, 60)
        caplog.clear()
        stores["c"] = run_store("c", "disk")
        until("c has said so", lambda: len(told("c")) >= 3)
        back = told("c")
        until("c has it", lambda: stores["c"].store.drainer.call(lambda: held(stores["c"])) == 10_010)
        assert told("a") == told("b") == [], "nothing has changed for the others"
    behind, caught = (
        f"{WHO}: this store is behind, and catches up from number 10 on",
        f"{WHO}: this store has caught up in T: numbers 10..",
    )
    assert back[0] == behind
    assert back[-1].startswith((caught, f"{WHO} is registered again"))
    assert sum(line.startswith(caught) for line in back) == 1
    assert (
        sum(line.startswith(f"{WHO} is registered again (pid P): incarnation 1, from number 0 on") for line in back)
        == 1
    )
    assert len(back) == 3


def held(store: ThreadStore) -> int:
    (repository,) = store.store.drainer.repositories.values()
    return repository.next_sqn


def test_a_store_that_missed_the_end_of_a_source_says_what_it_got_from_the_others(
    run_store: Callable[..., ThreadStore], told: Callable[[str], list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    stores = {name: run_store(name, "disk") for name in "abc"}
    with hf.Context(session_id=7) as ctx:
        with ctx.source("quotes", options=SOURCE) as src:
            everywhere(src)
            send(src, 10)
            stores["c"].stop()
            send(src, 90)
        until_no_ring(ctx.domain)
        caplog.clear()
        stores["c"] = run_store("c", "disk")
        until("c says so", lambda: told("c"))
    assert told("c") == [f"{WHO}: this store has caught up in T: numbers 10..99"]


def test_a_source_that_its_program_deregisters_is_named(
    run_store: Callable[..., ThreadStore], told: Callable[[str], list[str]]
) -> None:
    run_store()
    with hf.Context(session_id=7) as ctx, ctx.source("quotes", options={**SOURCE, "ume_store_name": ["a"]}) as src:
        src.wait_registered(SHORT)
        send(src, 5)
        src.deregister()
        until("it is told", lambda: f"{WHO}: deregistered with its messages" in told("a"))


@pytest.mark.parametrize("verbose", [True, False])
def test_the_command_says_it_where_it_is_asked_to(
    start: Callable[..., Program], tmp_path: Path, own_domain: str, verbose: bool
) -> None:
    more = ["--verbose"] if verbose else []
    daemon = start("store", "run", "--name", "a", "--directory", str(tmp_path / "a"), *more)
    until("it runs", lambda: "a" in running(own_domain))
    with hf.Context() as ctx, ctx.source("quotes", options={**SOURCE, "ume_store_name": ["a"]}) as src:
        src.wait_registered(SHORT)
    daemon.signal(signal.SIGTERM)
    code, _, said = daemon.end()
    assert code == 0
    assert ("on topic 'quotes' begins" in said) is verbose


def running(name: str) -> list[str]:
    with contextlib.closing(Domain(name)) as domain:
        return running_stores(domain)
