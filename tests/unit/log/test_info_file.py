"""The files that say who a store is: anybody may have written them, and some are gone."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.engine.log.info_file import (
    Own,
    StoreInfo,
    Unknown,
    excluded_by,
    knows,
    never_held,
    peer_logs,
    peer_view,
    read_info,
    write_info,
)
from holdfast.engine.log.reader import Block, Logs
from holdfast.engine.log.state_file import SourceState, State, StateFile
from holdfast.engine.tools import snapshot
from holdfast.engine.tools.doctor import examine

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.engine.memory.domain import Domain

OWN, OTHER, SOURCE = b"o" * 16, b"p" * 16, b"s" * 16
WRITTEN = {
    "name": "a", "uuid": base64.b64encode(OWN).decode(), "directory": "/d", "logs": "/d/logs", "type": "disk",
    "pid": 2**32 - 1, "start": 2**64 - 1, "token": 2**64 - 1,
}  # fmt: skip


def test_what_a_store_writes_is_read(place: Domain) -> None:
    info = StoreInfo("a", OWN, "/d", "/d/logs", "disk", 1, 2**64 - 1, 2**64 - 1, standing=(SOURCE,))
    write_info(place, info)
    assert read_info(place, "a") == info
    place.info_path("a").write_text(json.dumps(WRITTEN))
    assert read_info(place, "a") is not None


@pytest.mark.parametrize(
    "wrong",
    [
        {"pid": -1}, {"pid": 2**32}, {"pid": "1"}, {"pid": None}, {"start": -1}, {"start": 2**64}, {"token": -1},
        {"token": 10**40}, {"uuid": "AAAA"}, {"uuid": "!"}, {"directory": "/a\0b"}, {"logs": "\0"}, {"logs": 7}, {"token": 1.5},
    ],
)  # fmt: skip
def test_an_info_file_that_no_store_writes_is_none_and_the_doctor_says_so(place: Domain, wrong: dict[str, Any]) -> None:
    place.info_path("a").write_text(json.dumps({**WRITTEN, **wrong}))
    assert read_info(place, "a") is None
    assert knows(place, "a", "t", 7, 0) is None
    (row,) = snapshot.take(place).stores
    assert (row.name, row.state) == ("a", "unknown")
    said = [finding for finding in examine(place) if "store a: its info file cannot be read" in finding.found]
    assert [finding.ok for finding in said] == [False]


def test_a_store_of_which_nothing_is_known_counts_as_one_that_cannot_be_read(place: Domain, tmp_path: Path) -> None:
    """It may have what the others lack: who learns from the others has not learned everything (docs/design.md
    15)."""
    write_info(place, StoreInfo("own", OWN, "/o", "/o/logs", "disk", 1, 1, 1))
    write_info(place, StoreInfo("a", OTHER, "/a", "/a/logs", "disk", 1, 1, 1))
    paths = peer_logs(place, ["own", "a", "b", "c", "a/b"], SOURCE, Own(OWN, "own", tmp_path), {"b": "/b"})
    hexed = SOURCE.hex()
    assert [str(path) for path in paths[:2]] == [f"/a/logs/{hexed}", f"/b/logs/{hexed}"]
    assert len(paths) == 4, "c, and what can be no store's name"
    logs = Logs([str(path) for path in paths[2:]], marks=False)
    assert not logs.read(0, Block())
    assert (logs.undecided, len(logs.unread)) == (2, 2)
    logs.close()


def test_a_store_of_an_earlier_list_is_awaited_below_its_end_and_not_from_there_on() -> None:
    logs = Logs(["/declared", "/earlier"], {"/earlier": 10}, marks=False)
    for number, awaited in ((9, ["/declared", "/earlier"]), (10, ["/declared"])):
        assert not logs.read(number, Block())
        assert sorted(logs.awaited) == awaited
        assert sorted(logs.unread) == awaited
    logs.close()


def test_a_log_that_cannot_be_read_is_unknown_and_says_why(tmp_path: Path) -> None:
    log = tmp_path / SOURCE.hex()
    assert peer_view(log) == Unknown(f"{log}: No such file or directory")
    log.mkdir()
    assert peer_view(log) == Unknown(f"{log}: it has no head")
    (log / "head").write_bytes(bytes(4096))
    assert peer_view(log) == Unknown(f"{log}: its head is damaged")
    (log / "head").unlink()
    (log / "head").mkdir()
    assert isinstance(peer_view(log), Unknown)


@pytest.mark.parametrize(
    ("kept", "never"),
    [
        (None, False),  # no state: it may have been wiped, or lie elsewhere
        ([], True),
        ([SourceState(SOURCE, "t", 7, 0)], True),  # asked, and nothing has begun
        ([SourceState(SOURCE, "t", 7, 0, incarnation=1)], False),  # its log is gone, with what was in it
    ],
)
def test_a_store_without_a_log_has_had_no_message_only_where_its_state_says_so(
    tmp_path: Path, kept: list[SourceState] | None, never: bool
) -> None:
    if kept is not None:
        StateFile(tmp_path).save(State("a", OWN, 1, 1, kept))
    assert never_held(tmp_path / "logs" / SOURCE.hex()) == never


def test_who_is_excluded_is_what_the_readable_stores_remember_for_their_source(tmp_path: Path) -> None:
    """By b alone; c has begun since."""
    source = SourceState(b"s" * 16, "quotes", 7, 0)
    for name, over in (("b", []), ("c", [5])):
        source.over = over
        (tmp_path / name).mkdir()
        StateFile(tmp_path / name).save(State(name, name.encode() * 16, 1, 1, sources=[source], excluded={"a": 5}))
    logs = [tmp_path / name / "logs" / source.uuid.hex() for name in ("b", "c", "gone")]
    assert excluded_by([logs[0], logs[2]]) == {"a"}
    assert excluded_by(logs) == set(), "b has missed the start that was decided with it"
