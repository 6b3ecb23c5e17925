"""The file by which a store proves which sources it has not granted in this boot (engine/log/census.py)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from holdfast.engine.errors import CorruptionError, ForeignOwnerError
from holdfast.engine.log import census
from holdfast.engine.log.census import Census, add, boot_id, carried_over, doubt, key_of, keys_of, look_at, read, write
from holdfast.engine.log.info_file import StoreInfo, write_info

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.engine.memory.domain import Domain

LIFE, OTHER, BOOT = b"1" * 16, b"2" * 16, b"b" * 16
KEYS = [key_of("quotes", session, 0) for session in range(1, 5)]
WHOLE = Census(BOOT, LIFE, True, b"".join(KEYS[:2]))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "c.census"


def test_what_is_written_is_read(path: Path) -> None:
    write(path, LIFE, KEYS[:1], whole=True)
    add(path, KEYS[1])
    assert read(path) == Census(boot_id(), LIFE, True, b"".join(KEYS[:2]))
    assert read(path).each() == {*KEYS[:2]}
    write(path, OTHER, (), whole=False)
    assert read(path) == Census(boot_id(), OTHER, False, b"")
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_a_key_is_one_of_its_places_and_not_bytes_between_two() -> None:
    """Keys stand one after another."""
    first, second = bytes(range(16)), bytes(range(16, 32))
    found = Census(BOOT, LIFE, True, first + second + first)
    assert found.lists(first)
    assert found.lists(second)
    assert not found.lists(bytes(range(8, 24)))
    assert not found.lists((second + first)[1:17])
    assert Census(BOOT, LIFE, True, (first + second)[8:] + bytes(range(8)) + bytes(range(8, 24))).lists(
        bytes(range(8, 24))
    )


def test_a_key_that_was_not_written_to_its_end_is_none(path: Path) -> None:
    """Its source was not granted."""
    write(path, LIFE, KEYS[:1], whole=True)
    with path.open("ab") as file:
        file.write(KEYS[1][:15])
    assert read(path).keys == KEYS[0]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "is no census"),
        (b"HFCENSUS", "is no census"),
        (b"x" * 48, "is no census"),
        (b"HFCENSUS" + b"\2\0\0\0\1\0\0\0" + bytes(32), "of a later version"),
        (b"HFCENSUS" + b"\1\0\0\0\2\0\0\0" + bytes(32), "of a later version"),
    ],
)
def test_what_is_no_census_is_refused(path: Path, data: bytes, why: str) -> None:
    path.write_bytes(data)
    with pytest.raises(CorruptionError, match=why):
        read(path)


def test_one_that_is_too_long_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(census, "KEYS_MAX", 2)
    write(path, LIFE, KEYS[:2], whole=True)
    assert len(read(path).each()) == 2
    add(path, KEYS[2])
    with pytest.raises(CorruptionError, match="has more than 2 keys"):
        read(path)


def test_one_that_others_could_have_written_is_refused(path: Path) -> None:
    write(path, LIFE, (), whole=True)
    path.chmod(0o666)
    with pytest.raises(ForeignOwnerError):
        read(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ForeignOwnerError):
        read(path)


def test_where_there_is_none_no_key_is_added(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        add(path, KEYS[0])
    assert not path.exists()


def test_a_source_is_known_by_its_session_or_by_each_of_its_reg_ids() -> None:
    assert keys_of("quotes", 7, [1, 2]) == {key_of("quotes", 7, 0)} == {key_of("quotes", 7, 9)}
    assert keys_of("quotes", 0, [1, 2, 0]) == {key_of("quotes", 0, 1), key_of("quotes", 0, 2)}
    assert keys_of("quotes", 0, [0]) == set()
    assert key_of("quotes", 7, 0) != key_of("quotes", 0, 7)


@pytest.mark.parametrize(
    ("found", "life", "why"),
    [
        (WHOLE, LIFE, ""),
        (WHOLE, b"", "of an earlier version"),
        (None, LIFE, "is gone"),
        (WHOLE._replace(boot=OTHER), LIFE, "not run since the last boot"),
        (WHOLE._replace(life=OTHER), LIFE, "of another life"),
        (WHOLE._replace(keys=b"".join(KEYS)), LIFE, "has granted this source once"),
        (WHOLE._replace(whole=False), LIFE, "nobody knows any more"),
    ],
)
def test_what_a_census_proves(found: Census | None, life: bytes, why: str) -> None:
    said = doubt(found, life, {KEYS[2], KEYS[3]}, BOOT)
    assert why in said
    assert bool(said) == bool(why)


@pytest.mark.parametrize(
    ("found", "life", "same", "carried", "whole"),
    [
        (None, None, False, 0, True),  # it has never run here in this boot
        (None, LIFE, True, 0, True),  # its state knows what it has granted
        (None, LIFE, False, 0, False),  # its files are others
        (None, b"", False, 0, False),
        (WHOLE, LIFE, False, 2, True),
        (WHOLE, OTHER, True, 2, True),  # the life between was killed before it had said who it is
        (WHOLE, b"", True, 2, True),  # an older version ran since: its state has what that granted
        (WHOLE, b"", False, 2, False),
        (WHOLE._replace(whole=False), LIFE, True, 2, False),
        (WHOLE._replace(boot=OTHER), LIFE, False, 0, True),  # with its files went what it had in an earlier boot
        (WHOLE._replace(boot=OTHER), OTHER, False, 0, False),
    ],
)
def test_what_a_life_carries_over(
    found: Census | None, life: bytes | None, same: bool, carried: int, whole: bool
) -> None:
    assert carried_over(found, BOOT, life=life, same=same) == (frozenset(KEYS[:carried]), whole)


def test_a_store_is_looked_at_by_what_its_info_file_says(place: Domain) -> None:
    assert "has not run here" in look_at(place, "c", KEYS[:1]).why
    assert look_at(place, "no/name", ()).name == "no/name"
    write_info(place, StoreInfo("c", OTHER, "/c", "/c/logs", "disk", 1, 1, 1, census=LIFE))
    assert "is gone" in look_at(place, "c", KEYS[:1]).why
    write(place.census_path("c"), LIFE, KEYS[:1], whole=True)
    assert "has granted" in look_at(place, "c", KEYS[:1]).why
    assert look_at(place, "c", KEYS[1:]) == ("c", "")
    place.info_path("other").symlink_to("c.info")
    assert look_at(place, "other", KEYS[1:]) == ("c", "")
    place.census_path("c").write_bytes(b"")
    assert "is no census" in look_at(place, "c", KEYS[1:]).why
    place.census_path("c").unlink()
    place.census_path("c").mkdir()
    assert "its census cannot be read" in look_at(place, "c", KEYS[1:]).why
