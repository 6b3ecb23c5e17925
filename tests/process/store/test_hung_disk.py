"""The disk of a peer that is away does not answer: whoever reads there hangs. No thread of a store does
(docs/design.md 14)."""

from __future__ import annotations

import errno
import os
import threading
from typing import TYPE_CHECKING

import pytest
from support.kept_messages import kept, messages
from support.three_stores import SHORT, SOURCE, everywhere, send, waits
from support.workers import until

import holdfast as hf
from holdfast.engine.log import end
from holdfast.engine.native import private_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from process.conftest import ThreadStore

FOR_EVER = 10**18


class HungDisk:
    """Every open of a log below a directory hangs on the walkers' threads, and is a finding on any other."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        self.hangs = threading.Event()
        self.goes_on = threading.Event()
        self.touched: list[str] = []

    def hang(self, directory: Path) -> None:
        opens = private_directory.open_log

        def open_log(path: str | os.PathLike[str]) -> int:
            if not os.fspath(path).startswith(f"{directory}/") or self.goes_on.is_set():
                return opens(path)
            thread = threading.current_thread().name
            if thread != "holdfast-walk":
                self.touched.append(thread)
                raise OSError(errno.EIO, "this thread would hang")
            self.hangs.set()
            self.goes_on.wait()
            return opens(path)

        self._patch.setattr(private_directory, "open_log", open_log)

    def is_known_after(self, ns: int) -> None:
        self._patch.setattr(end, "STUCK_NS", ns)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[HungDisk]:
    made = HungDisk(monkeypatch)
    made.is_known_after(FOR_EVER)
    yield made
    made.goes_on.set()
    until("no walk is left", lambda: not any(end._walks.value.running.values()))


def test_a_store_serves_others_while_a_walk_hangs_and_then_goes_on_without_that_disk(
    run_store: Callable[..., ThreadStore], disk: HungDisk, tmp_path: Path
) -> None:
    stores = {name: run_store(name, "disk") for name in "abc"}
    with hf.Context(session_id=7) as ctx, ctx.source("quotes", options=SOURCE) as src:
        everywhere(src)
        sent = send(src, 10)
    for store in stores.values():  # else a walk that was over before the disk hung lets its store read there
        store.stop()
    disk.hang(tmp_path / "store-b")
    stores = {name: run_store(name, "disk") for name in "ac"}
    with hf.Context(session_id=7) as ctx, ctx.source("quotes", options=SOURCE) as src:
        assert disk.hangs.wait(SHORT)
        with ctx.source("trades", options={**SOURCE, "ume_store_name": ["a", "c"]}) as other:
            other.wait_registered(SHORT)
            send(other, 1)
        waits(src, "")
        disk.is_known_after(0)
        src.wait_registered(SHORT)
        assert src.next_sequence_number == 10, "it may have been stable without b, and not with b alone"
        sent += send(src, 1)
        assert kept_of(stores["a"], src) == sent
    assert disk.touched == []


def kept_of(store: ThreadStore, src: hf.Source) -> list[tuple[int, bytes]]:
    (source,) = [each for each in store.store.state.sources if each.topic == src.topic]
    return messages(store.store.directory.path / "logs" / source.uuid.hex())


def test_a_store_catches_up_from_the_others_while_a_disk_hangs(
    run_store: Callable[..., ThreadStore], disk: HungDisk, tmp_path: Path
) -> None:
    stores = {name: run_store(name, "disk") for name in "abc"}
    with hf.Context() as ctx, ctx.source("quotes", options=SOURCE) as src:
        everywhere(src)
        sent = send(src, 10)
        stores["c"].stop()
        sent += send(src, 10_000, 60)
        stores["b"].stop()
        disk.hang(tmp_path / "store-b")
        stores["c"] = run_store("c", "disk")
        assert disk.hangs.wait(SHORT)
        until("c is seen to be behind", lambda: src.stats().stores["c"].state != "active")
        disk.is_known_after(0)
        until("c has caught up", lambda: src.stats().stores["c"].state == "active")
        assert kept(stores["c"]) == sent
    assert disk.touched == []
