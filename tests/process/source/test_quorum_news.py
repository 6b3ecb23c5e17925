"""What a source's log says of its quorum (engine/source/quorum_news.py): who leaves and why, and who is back,
caught up in how long, with the topic's name."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

import pytest
from support.three_stores import SHORT, SOURCE, everywhere, send
from support.workers import until

import holdfast as hf

if TYPE_CHECKING:
    from collections.abc import Callable

    from process.conftest import ThreadStore
    from support.stalled_store import Scene

TOOK = re.compile(r"\d+\.\d s")
WHO = "topic 'quotes' (session ID 0x7)"


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """What a source has said so far, without the times, which differ from run to run."""
    caplog.set_level(logging.DEBUG, "holdfast.source")

    def lines() -> list[str]:
        said = [record.getMessage() for record in caplog.records if record.name == "holdfast.source"]
        return [TOOK.sub("T", line) for line in said]

    return lines


def test_a_store_that_stops_and_comes_back_is_named(
    run_store: Callable[..., ThreadStore], told: Callable[[], list[str]]
) -> None:
    stores = {name: run_store(name, "disk") for name in "abc"}
    with hf.Context(session_id=7) as ctx, ctx.source("quotes", options=SOURCE) as src:
        everywhere(src)
        until("all three are in it", lambda: "".join(told()).count("3 of 3") or "with a, b, c" in told()[0])
        before = len(told())
        send(src, 10)
        stores["c"].stop()
        until("it has left", lambda: len(told()) == before + 1)
        send(src, 90)
        run_store("c", "disk")
        until("it is back", lambda: len(told()) == before + 2)
        stores["b"].stop()
        until("the next one has left", lambda: len(told()) == before + 3)
        stores["a"].stop()
        until("too few are left", lambda: len(told()) == before + 4)
    assert told()[0].startswith(f"{WHO}: registered with ")
    assert told()[before:] == [
        f"{WHO}: store c has left the quorum at number 10: it is not there; 2 of 3 stores are in it",
        f"{WHO}: store c is in the quorum after T, caught up in T: numbers 10..99 were sent meanwhile; 3 of 3 stores are in it",
        f"{WHO}: store b has left the quorum at number 100: it is not there; 2 of 3 stores are in it",
        f"{WHO}: store a has left the quorum at number 100: it is not there; 1 of 3 stores are in it, too few: nothing new "
        "becomes stable",
    ]


def test_a_store_that_stands_still_is_named(scene: Scene, told: Callable[[], list[str]]) -> None:
    options = {"ume_store_name": ["a"], "ring_size": 1 << 16, "ume_store_activity_timeout": 500}
    with scene.context.source("still", options=options) as src:
        src.wait_registered(SHORT)
        src.wait_stable(src.send(b"before"), SHORT)
        scene.stand_still()
        until("it has left", lambda: "has left" in "".join(told()))
        scene.go_on()
        until("it is back", lambda: "is in the quorum" in "".join(told()))
    said = iter([line.replace(", caught up in T", "") for line in told()])  # on a busy machine it may leave twice
    expected = [
        "topic 'still': registered with a",
        "topic 'still': store a has left the quorum at number 1: its heartbeat stands still; 0 of 1 stores are in it, too few: "
        "nothing new becomes stable",
        "topic 'still': store a is in the quorum after T; 1 of 1 stores are in it",
    ]
    assert [line for line in expected if line in said] == expected


def test_a_source_that_streams_says_nothing(told: Callable[[], list[str]]) -> None:
    with hf.Context() as ctx, ctx.source("quotes", options={"ring_size": 1 << 16}) as src:
        src.wait_registered(SHORT)
        src.send(b"x")
    assert told() == []
