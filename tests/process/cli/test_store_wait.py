"""`holdfast store wait`: as a program, beside stores that catch up, are stopped, or are spare."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from process.conftest import ThreadStore
from support.command_line import one_error, run
from support.kept_messages import log_of
from support.three_stores import SHORT, SOURCE, everywhere, send
from support.workers import until

import holdfast as hf
from holdfast.cli.store_wait import _names
from holdfast.engine.options.store_config import StoreConfig
from holdfast.engine.rules.reconcile import CatchUpRule
from holdfast.engine.tools import snapshot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.command_line import Program


def states(ctx: hf.Context, name: str) -> list[str]:
    """What a store is to each source."""
    return [at.state for row in snapshot.take(ctx.domain).sources for at in row.stores if at.name == name]


@pytest.mark.usefixtures("unnoticed")
def test_a_store_that_catches_up_is_waited_for(
    run_store: Callable[..., ThreadStore],
    start: Callable[..., Program],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It cannot go on before it can read its peers' logs."""
    monkeypatch.setattr("holdfast.engine.store.catch_up.CatchUpRule", partial(CatchUpRule, patience_ns=10**18))
    stores = {name: run_store(name, "disk") for name in "abc"}
    with hf.Context() as ctx, ctx.source("quotes", options=SOURCE) as src:
        everywhere(src)
        send(src, 10)
        stores["c"].stop()
        one_error(run("store", "wait", "c", "--timeout", "0"), 4, "store c is not active", "the store is stopped")
        send(src, 10_000, 60)
        hidden = [log_of(tmp_path / f"store-{name}") for name in "ab"]
        for log in hidden:
            log.rename(log.with_name("hidden"))
        run_store("c", "disk")
        until("it shows", lambda: states(ctx, "c") == ["catching_up"])
        text = "it is catching up for source RegID", "on topic 'quotes', 10000 messages behind"
        one_error(run("store", "wait", "c", "--timeout", "0"), 4, "store c is not active after 0 s: ", *text)
        assert run("store", "wait", "c", "--state", "running", "--timeout", "0") == (0, "store c is running\n", "")
        assert run("store", "wait", "a", "--timeout", "0")[0] == 0
        waiting = start("store", "wait", "c")
        for log in hidden:
            log.with_name("hidden").rename(log)
        assert waiting.end() == (0, "store c is active\n", "")
        assert states(ctx, "c") == ["active"]
        src.wait_registered(SHORT)


def test_a_name_that_no_store_has_is_refused_with_those_that_there_are(run_store: Callable[..., ThreadStore]) -> None:
    for name in "ab":
        run_store(name)
    one_error(run("store", "wait", "quotes"), 2, "no store named quotes ever ran in domain", "stores there: a, b")
    one_error(run("store", "wait", "a", "--state", "up"), 2, "'up'", "active or running")


def test_a_spare_store_is_not_waited_for_and_one_with_an_empty_seat_is(run_store: Callable[..., ThreadStore]) -> None:
    a, _ = run_store("a"), run_store("b")
    options = {"ume_store_name": ["a:0:0", "b:0:0", "c:0:0"], "ume_store_group": ["0:2"]}
    with hf.Context() as ctx, ctx.source("quotes", options=options) as src:
        src.wait_registered(SHORT)
        send(src, 5)
        run_store("c")
        assert states(ctx, "c") == ["idle"]
        assert run("store", "wait", "c", "--timeout", "0") == (0, "store c is active\n", "")
        a.stop()
        one_error(run("store", "wait", "a", "--timeout", "0"), 4, "the store is stopped")


def test_a_store_goes_by_its_port_as_well(tmp_path: Path) -> None:
    store = ThreadStore(StoreConfig("a", tmp_path / "store-a", port=14599))
    try:
        with hf.Context() as ctx, ctx.source("quotes", options={"ume_store": ["127.0.0.1:14599"]}) as src:
            src.wait_registered(SHORT)
            assert _names(ctx.domain, "a", snapshot.take(ctx.domain)) == {"127.0.0.1:14599"}
            for name in ("a", "127.0.0.1:14599"):
                assert run("store", "wait", name, "--timeout", "5") == (0, f"store {name} is active\n", "")
    finally:
        store.stop()
