"""``holdfast recv`` where it ends: at the end of what was there, and of what is kept."""

from __future__ import annotations

import json
import os
import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.command_line import run
from support.receiving import source
from support.shelved_logs import over, shelve_at_once, shelved

import holdfast as hf
from holdfast.cli import recv
from holdfast.cli.options import Membership

if TYPE_CHECKING:
    from collections.abc import Callable

    from process.conftest import ThreadStore


def names(domain: str) -> list[str]:
    """All files of the domain."""
    return sorted(str(path) for path in Path(os.environ["HOLDFAST_DIR"], domain).rglob("*"))


def test_it_ends_beside_a_source_that_goes_on_and_on(run_store: Callable[..., ThreadStore]) -> None:
    run_store()
    with hf.Context() as ctx:
        src = source(ctx, 5)
        over = threading.Event()

        def go_on() -> None:
            while not over.wait(0.001):
                src.send(b"more")

        sender = threading.Thread(target=go_on)
        sender.start()
        try:
            code, out, err = run("recv", "quotes", "--exit-at-end", "--json")
        finally:
            over.set()
            sender.join()
    assert (code, err) == (0, "")
    numbers = [json.loads(line)["sequence_number"] for line in out.splitlines()]
    assert numbers == list(range(len(numbers)))
    assert len(numbers) >= 5


def test_what_is_kept_is_printed_with_all_stores_dead_and_nobody_notices_it(
    run_store: Callable[..., ThreadStore], domain: str
) -> None:
    store = run_store("a", "disk")
    assert run("send", "quotes", stdin=b"1\n2\n\xff\n")[0] == 0
    registered = run("recv", "quotes", "-e", "--json")[1]
    store.stop()
    before = names(domain)
    assert run("recv", "quotes", "--ephemeral", "--count", "2") == (0, "1\n2\n", "")
    code, out, err = run("recv", "quotes", "--ephemeral", "--json")
    assert (code, err) == (0, "")
    assert [json.loads(line) for line in out.splitlines()] == [
        {**json.loads(line), "retransmit": True} for line in registered.splitlines()
    ]
    assert [json.loads(line).get("data_base64") for line in out.splitlines()] == [None, None, "/w=="]
    assert names(domain) == before


def test_who_is_nobody_has_no_session() -> None:
    code, out, err = run("recv", "quotes", "--ephemeral", "--session", "7")
    assert (code, out) == (2, "")
    assert "who does not register has no --session" in err


def test_it_does_not_wait_for_ever_for_a_store_that_is_away(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It says what it lacks, and who may have it. What could be read is printed."""
    shelve_at_once(monkeypatch)
    monkeypatch.setattr(recv, "AWAY_S", 0.5)
    stores = {name: run_store(name, "disk") for name in "abc"}
    with hf.Context() as ctx:
        first, second = (over(ctx, session, stores="abc") for session in (7, 8))
    for store in stores.values():
        shelved(store, first, second)
        store.stop()
    for name in "ab":
        (segment,) = (stores[name].store.logs / first.hex()).glob("seg-*")
        segment.unlink()
    shutil.move(stores["c"].store.directory.path, stores["c"].store.directory.path.with_suffix(".away"))
    for name in "ab":
        run_store(name, "disk")
    with pytest.raises(
        hf.StoresAwayError, match=r"topic 'quotes' is not at its end: waits for 0: .* store 2 \[c\] may"
    ):
        recv.receive_lines("quotes", None, True, False, Membership(None, None, None, None), [])
    assert capfd.readouterr().out == "0\n1\n2\n"
