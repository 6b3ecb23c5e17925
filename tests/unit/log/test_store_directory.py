"""The names that lead to a store: a power cut must not take a directory whose messages are stable."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

import holdfast as hf
from holdfast.engine.log.store_directory import StoreDirectory
from holdfast.engine.native import private_directory, sync
from holdfast.engine.native.core import lib
from holdfast.engine.store.first_state import adopt_empty

if TYPE_CHECKING:
    from pathlib import Path


class Syncs:
    """What directories were synced, in order; those in ``fails`` cannot be."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.done: list[Path] = []
        self.fails: set[Path] = set()
        for module in (private_directory, sync):
            patch.setattr(module, "sync_directory", self._sync)

    def _sync(self, path: Path) -> None:
        assert path.is_dir()
        if path in self.fails:
            raise OSError(errno.EIO, "planted")
        self.done.append(path)


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> Syncs:
    return Syncs(monkeypatch)


def made(path: Path) -> None:
    """As who has no store that syncs the way."""
    os.close(private_directory.open_private(path, durable=True))


def test_each_new_directory_is_on_disk_before_the_next_is_made_in_it(tmp_path: Path, syncs: Syncs) -> None:
    made(tmp_path / "x" / "y" / "register")
    assert syncs.done == [tmp_path, tmp_path / "x", tmp_path / "x" / "y"]
    syncs.done.clear()
    made(tmp_path / "x" / "y" / "register")
    assert syncs.done == []


@pytest.mark.parametrize("fails", [".", "x"])
def test_a_directory_whose_name_is_in_doubt_is_not_left_there(tmp_path: Path, syncs: Syncs, fails: str) -> None:
    """The next one makes it again, and syncs it again: asking twice for the same name says nothing."""
    syncs.fails = {(tmp_path / fails)}
    with pytest.raises(hf.ConfigError, match="planted"):
        made(tmp_path / "x" / "register")
    assert not (tmp_path / fails / ("register" if fails == "x" else "x")).exists()
    syncs.fails = set()
    made(tmp_path / "x" / "register")
    assert syncs.done[-1] == tmp_path / "x"


def test_the_directory_of_a_store_is_made_without_a_sync_that_could_hide_a_failure(
    tmp_path: Path, syncs: Syncs
) -> None:
    """Of the names beside it, a failed one takes some: who asks next is told that all is well. So the one who
    notes it asks first (sync.sync_way)."""
    StoreDirectory(tmp_path / "x" / "store").close()
    assert syncs.done == []


def test_a_parent_that_may_be_written_to_and_not_read_is_no_hindrance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sync needs a descriptor: it is its owner who syncs such a directory."""

    def sync_it(path: Path) -> None:
        raise PermissionError(errno.EACCES, "planted", str(path))

    monkeypatch.setattr(private_directory, "sync_directory", sync_it)
    made(tmp_path / "x" / "store")
    monkeypatch.setattr(sync, "sync_directory", sync_it)
    sync.sync_way(tmp_path / "x" / "store", tmp_path)


def test_who_was_killed_before_the_sync_is_made_good_for(tmp_path: Path, syncs: Syncs) -> None:
    """A directory that is there says nothing of whether its name is on disk."""
    (tmp_path / "x" / "store").mkdir(parents=True, mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "x")
    sync.sync_way(tmp_path / "link" / "store")
    assert syncs.done[:3] == [tmp_path / "x" / "store", tmp_path / "x", tmp_path]
    device = tmp_path.stat().st_dev
    assert all(each.stat().st_dev == device for each in syncs.done)
    above = syncs.done[-1].parent
    assert above == syncs.done[-1] or above.stat().st_dev != device, "up to where its file system begins"


@pytest.mark.parametrize("fails", ["x/store", "x", "."])
def test_names_whose_sync_has_failed_stay_in_doubt_until_the_machine_starts_again(
    tmp_path: Path, syncs: Syncs, fails: str
) -> None:
    """The next sync returns 0, and has written nothing of what the first one dropped."""
    place, doubts = tmp_path / "x" / "store", tmp_path / "doubts"
    place.mkdir(parents=True)
    doubts.mkdir()
    syncs.fails = {tmp_path / fails}
    with pytest.raises(OSError, match="planted"):
        sync.sync_way(place, doubts)
    syncs.fails = set()
    for _ in range(2):
        with pytest.raises(OSError, match="a sync failed since the machine was started") as raised:
            sync.sync_way(place, doubts)
        assert raised.value.filename == str(tmp_path / fails)
    (doubt,) = doubts.iterdir()
    doubt.write_bytes(b"")  # nobody could write the boot into it
    with pytest.raises(OSError, match="a sync failed since the machine was started"):
        sync.sync_way(place, doubts)
    boot = f"{lib.hf_doubt_word():016x}"
    assert boot in doubt.name
    doubt.rename(doubts / doubt.name.replace(boot, f"{lib.hf_doubt_word() ^ 4:016x}"))  # a power cut took its bytes
    sync.sync_way(place, doubts)


def test_a_failure_that_another_process_is_told_of_meanwhile_counts(
    tmp_path: Path, syncs: Syncs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel tells it once: who comes a moment later is told that all is well."""
    doubts = tmp_path / "doubts"
    doubts.mkdir()

    def fails_elsewhere(path: Path) -> None:
        monkeypatch.setattr(sync, "sync_directory", syncs._sync)
        syncs.fails = {path}
        with pytest.raises(OSError, match="planted"):
            sync.sync_way(path, doubts)
        syncs.fails = set()

    monkeypatch.setattr(sync, "sync_directory", fails_elsewhere)
    with pytest.raises(OSError, match="a sync failed since the machine was started"):
        sync.sync_way(tmp_path, doubts)


def test_notes_of_earlier_boots_go_with_the_next_failure(tmp_path: Path, syncs: Syncs) -> None:
    doubts = tmp_path / "doubts"
    doubts.mkdir()
    (doubts / f"names-{lib.hf_doubt_word() ^ 4:016x}-0123456789abcdef").touch()
    (doubts / "of a store").touch()
    syncs.fails = {tmp_path}
    with pytest.raises(OSError, match="planted"):
        sync.sync_way(tmp_path, doubts)
    assert sorted(each.name[:23] for each in doubts.iterdir()) == [
        f"names-{lib.hf_doubt_word():016x}-",
        "of a store",
    ]


def test_a_note_that_cannot_be_read_is_no_directory_of_another_users(
    tmp_path: Path, syncs: Syncs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: sync.Doubt) -> bool:
        raise PermissionError(errno.EACCES, "planted")

    monkeypatch.setattr(sync.Doubt, "__bool__", refused)
    with pytest.raises(OSError, match="nobody knows whether a sync failed"):
        sync.sync_way(tmp_path, tmp_path)
    assert syncs.done == []


def test_an_empty_store_is_not_adopted_where_its_names_are_in_doubt(tmp_path: Path, syncs: Syncs) -> None:
    doubts, place = tmp_path / "doubts", tmp_path / "store"
    doubts.mkdir()
    syncs.fails = {tmp_path}
    with pytest.raises(OSError, match="planted"):
        sync.sync_way(tmp_path, doubts)
    syncs.fails = set()
    with pytest.raises(hf.ConfigError, match=r"the names that lead to .*store may not be on disk"):
        adopt_empty(place, "a", doubts)
    assert not list(place.glob("state.*"))
