"""A log that was lost, and was filled again from the peers' logs while no source lives, is a log as any other
(docs/semantics.md I.4)."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from support.receiving import until_no_ring
from support.three_stores import SHORT, SOURCE, everywhere, send
from support.workers import until

import holdfast as hf
from holdfast.engine.log.info_file import log_view

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from process.conftest import ThreadStore

FIRST = 10
"""Messages of the source that ended before any log was lost."""


@pytest.fixture
def refilled(run_store: Callable[..., ThreadStore], tmp_path: Path) -> dict[str, ThreadStore]:
    """Stores a, b and c: b and c have lost their logs, and have got them again from a."""
    stores = {name: run_store(name, "disk") for name in "abc"}
    with hf.Context(session_id=5) as ctx:
        with ctx.source("quotes", options=SOURCE) as src:
            everywhere(src)
            send(src, FIRST)
        until_no_ring(ctx.domain)
    for store in stores.values():
        store.stop()
    for name in "bc":
        shutil.rmtree(only_log(tmp_path, name))
    stores = {name: run_store(name, "disk") for name in "abc"}
    for store in stores.values():
        (one,) = store.store.drainer.repositories.values()
        until("it is filled again", lambda: one.next_sqn == FIRST and one.catch_up is None)  # noqa: B023
    return stores


def only_log(tmp_path: Path, store: str) -> Path:
    (log,) = (tmp_path / f"store-{store}" / "logs").iterdir()
    return log


def received(count: int) -> list[int]:
    """Numbers of the first messages that a new receiver gets."""
    with hf.Context(session_id=9) as ctx, ctx.receiver("quotes") as rcv:
        numbers = []
        for _ in range(count):
            message = rcv.receive(timeout=SHORT)
            assert message is not None
            numbers.append(message.sequence_number)
            message.release()
    return numbers


@pytest.mark.usefixtures("registers")
def test_whoever_reads_it_finds_what_the_peers_have_lost_since(
    refilled: dict[str, ThreadStore], tmp_path: Path
) -> None:
    a, b = log_view(only_log(tmp_path, "a")), log_view(only_log(tmp_path, "b"))
    assert b == a
    refilled["a"].stop()
    shutil.rmtree(tmp_path / "store-a")
    assert received(FIRST) == list(range(FIRST))


def test_the_next_begin_does_not_make_it_void(
    refilled: dict[str, ThreadStore], run_store: Callable[..., ThreadStore], tmp_path: Path
) -> None:
    refilled["a"].stop()
    shutil.rmtree(tmp_path / "store-a")
    run_store("a", "disk")
    with hf.Context(session_id=5) as ctx, ctx.source("quotes", options=SOURCE) as src:
        everywhere(src)
        send(src, 1)
        assert received(FIRST + 1) == list(range(FIRST + 1))


def test_a_store_that_loses_its_state_later_takes_part_again(
    refilled: dict[str, ThreadStore], run_store: Callable[..., ThreadStore], tmp_path: Path
) -> None:
    """Simulator seed 120432: it refused every BEGIN that was built without incarnation 0."""
    refilled["c"].stop()
    for file in (tmp_path / "store-c").glob("state.*"):
        file.unlink()
    run_store("c", "disk")
    with hf.Context(session_id=5) as ctx, ctx.source("quotes", options=SOURCE) as src:
        everywhere(src)
        send(src, 1)
        assert received(FIRST + 1) == list(range(FIRST + 1))
