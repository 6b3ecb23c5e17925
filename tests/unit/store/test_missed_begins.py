"""What a store takes in, and what it copies, beside BEGINs that it has missed (engine/store/missed_begins.py,
engine/store/catch_up.py)."""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING, Any

import pytest
from support.handmade_feed import Log

from holdfast.engine.log import believed, end
from holdfast.engine.log.end import Walk
from holdfast.engine.log.info_file import log_view
from holdfast.engine.log.state_file import SourceState, State, StateFile
from holdfast.engine.native.core import ffi, lib
from holdfast.engine.native.status import check
from holdfast.engine.rules.reconcile import LogView, Lost
from holdfast.engine.rules.reports import Seen
from holdfast.engine.store import missed_begins
from holdfast.engine.store.catch_up import ASK_MAX_NS, CatchUp
from holdfast.engine.store.missed_begins import to_take_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.engine.native.core import CData
    from holdfast.engine.rules.reconcile import Table

UUID = secrets.token_bytes(16)
ONE: Table = ((1, 0),)
TWO: Table = (*ONE, (2, 100))
THREE: Table = (*TWO, (3, 150))
"""Incarnation 3 began with nothing sent."""
NOW_NS = 1 << 50


opened: list[Log] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """No log stays mapped."""
    yield
    while opened:
        opened.pop().close()


def made(root: Path, name: str, table: Table, end: int) -> Log:
    """The log of a store with everything below ``end``."""
    place = root / name / "logs"
    place.mkdir(parents=True)
    log = Log(place / UUID.hex(), UUID)
    opened.append(log)
    for (number, start), (_, following) in zip(table, (*table[1:], (0, end)), strict=True):
        log.begin(number, start)
        if following > start:
            log.plain(start, following - 1)
    return log


def taken_in(root: Path, tables: dict[str, Table], ends: dict[str, int]) -> Table | None:
    """What c does, of three stores. What is there of one already stays."""
    sources = {}
    for name, table in tables.items():
        if not (root / name).is_symlink():
            made(root, name, table, ends[name])
        source = sources[name] = SourceState(UUID, "quotes", 7, 0)
        source.take(table)
        source.stores, source.sizes, source.groups = list(tables), [3], [0, 0, 0]
        source.directories = {each: str(root / each) for each in tables}
        source.declared = table[-1][0]
        state = State(name=name, uuid=secrets.token_bytes(16), opened=1, next_registration_id=8)
        state.sources = [source]
        StateFile(root / name).save(state)
    logs = {name: root / name / "logs" / UUID.hex() for name in tables}
    view = LogView(tables["c"], ends["c"])
    seen = [
        Seen("c", "c", view),
        *(Seen(name, name, None if end.is_stuck(logs[name]) else log_view(logs[name])) for name in "ab"),
    ]
    return to_take_in(sources["c"], seen, logs["c"], view, [logs["a"], logs["b"]])


@pytest.mark.parametrize(
    ("a", "b", "taken"),
    [
        ((TWO, 150), (TWO, 150), TWO),  # complete, and sent under
        ((TWO, 100), (TWO, 100), TWO),  # complete
        ((TWO, 150), (ONE, 100), TWO),  # sent under
        ((TWO, 100), (ONE, 100), ONE),  # an orphan
        ((THREE, 150), (TWO, 150), TWO),  # an orphan behind one that is complete
    ],
)
def test_a_begin_is_taken_in_that_is_complete_or_was_sent_under(
    tmp_path: Path, a: tuple[Table, int], b: tuple[Table, int], taken: Table
) -> None:
    tables, ends = {"a": a[0], "b": b[0], "c": ONE}, {"a": a[1], "b": b[1], "c": 100}
    assert taken_in(tmp_path, tables, ends) == taken


def test_a_disk_that_does_not_answer_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a link leads to it, as the states of the others have it."""
    hangs = str(tmp_path / "b" / "logs")
    disk = tmp_path / "disk"
    disk.mkdir()
    (tmp_path / "b").symlink_to(disk)
    read: list[Path] = []

    def state(directory: Path) -> State | None:
        read.append(directory.resolve())
        return StateFile(directory).load()

    monkeypatch.setattr(believed, "_state", state)
    for module in (believed, missed_begins, end):
        monkeypatch.setattr(module, "is_stuck", lambda path: os.path.dirname(path) == hangs)
    tables, ends = {"a": TWO, "b": TWO, "c": ONE}, {"a": 100, "b": 100, "c": 100}
    assert taken_in(tmp_path, tables, ends) == ONE
    assert read
    assert disk not in read


class Port:
    """c, which has 100 messages of incarnation 1 and reads no ring; what it asks is counted."""

    path, called, stream, table = "c", "c", None, ONE

    def __init__(self, root: Path, *peers: Log) -> None:
        self.log = made(root, "c", ONE, 100)
        self.item = ffi.new("struct hf_drain_item *", {"block_bytes": 1 << 18})
        self._info = ffi.new("struct hf_log_info *")
        self._peers = [peer.path for peer in peers]
        self.asked = 0
        self.right: Table | None = None
        self.lacks: list[Any] = []

    @property
    def info(self) -> CData:
        lib.hf_log_info(self.log.handle, self._info)
        return self._info

    def peers(self) -> list[Path]:
        return self._peers

    def until(self) -> dict[str, int]:
        return {}

    def right_table(self) -> Table | None:
        self.asked += 1
        return self.right

    def ring_goes_on(self, held: int) -> int | None:
        return None

    def owner_lives(self) -> bool:
        return False

    def append(self, frames: CData, size: int) -> None:
        check(lib.hf_log_append(self.log.handle, frames, size))
        check(lib.hf_log_sync(self.log.handle))

    def lack(self, what: Any) -> None:
        self.lacks.append(what)


def catching_up(port: Port) -> CatchUp:
    found = CatchUp(port)  # type: ignore[arg-type]
    assert Walk(port.peers()).over(90)
    assert found._walked.over(90)
    return found


def test_no_message_of_a_newer_incarnation_is_copied_before_its_begin(tmp_path: Path) -> None:
    """It would be one of the store's own incarnation, of which no such message was ever sent."""
    peer = made(tmp_path, "a", TWO, 100)
    port = Port(tmp_path, peer)
    filling = catching_up(port)
    assert filling.turn(NOW_NS)  # nothing was sent under it
    filling = catching_up(port)
    peer.plain(100, 119)
    for turn in range(3):
        assert not filling.turn(NOW_NS + turn)
        assert (filling.waits, filling.held, port.asked) == (True, 100, 2)
    port.right = TWO
    assert filling.turn(NOW_NS + ASK_MAX_NS)
    assert (filling.overtaken, filling.held) == (True, 100)
    filling.close()


def test_nothing_is_lacked_that_is_of_a_newer_incarnation(tmp_path: Path) -> None:
    """A peer that has let go its messages says where it goes on: behind that BEGIN."""
    peer = made(tmp_path, "a", (*ONE, (2, 120)), 400)
    check(lib.hf_log_release(peer.handle, 300))
    port = Port(tmp_path, peer)
    filling = catching_up(port)
    assert not filling.turn(NOW_NS)
    assert (filling.waits, filling.held, port.lacks) == (True, 120, [Lost(100, 119)])
    filling.close()


def test_beside_an_orphan_the_others_give_what_is_missing(tmp_path: Path) -> None:
    port = Port(tmp_path, made(tmp_path, "a", TWO, 100), made(tmp_path, "b", ONE, 130))
    filling = catching_up(port)
    assert filling.turn(NOW_NS)
    assert (filling.overtaken, filling.held, filling.all_read) == (False, 130, True)
    filling.close()


def test_what_was_sent_while_it_looked_is_seen(tmp_path: Path) -> None:
    """A message proves that the BEGIN before it holds."""
    peer = made(tmp_path, "a", ONE, 120)
    port = Port(tmp_path, peer)
    filling = catching_up(port)
    filling.newer()
    peer.begin(2, 120)
    peer.plain(120, 129)
    assert not filling.turn(NOW_NS)
    assert (filling.waits, filling.held, filling.newer(), port.asked) == (True, 120, True, 1)
    filling.close()


def test_it_asks_ever_less_often_whether_a_begin_holds(tmp_path: Path) -> None:
    port = Port(tmp_path, made(tmp_path, "a", TWO, 120))
    filling = catching_up(port)
    for second in range(60):
        assert not filling.turn(NOW_NS + second * 1_000_000_000)
    assert port.asked == 7  # at 0, 1, 3, 7, 15, 31 and, with 16 s at most, 47
    filling.close()
