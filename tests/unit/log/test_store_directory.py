"""The names that lead to a store: a power cut must not take a directory whose messages are stable."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

import holdfast as hf
from holdfast.engine.log.store_directory import StoreDirectory
from holdfast.engine.native import private_directory, sync
from holdfast.engine.native.core import lib

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


def test_each_new_directory_is_on_disk_before_the_next_is_made_in_it(tmp_path: Path, syncs: Syncs) -> None:
    StoreDirectory(tmp_path / "x" / "y" / "store").close()
    assert syncs.done == [tmp_path, tmp_path / "x", tmp_path / "x" / "y"]
    syncs.done.clear()
    StoreDirectory(tmp_path / "x" / "y" / "store").close()
    assert syncs.done == []


@pytest.mark.parametrize("fails", [".", "x"])
def test_a_directory_whose_name_is_in_doubt_is_not_left_there(tmp_path: Path, syncs: Syncs, fails: str) -> None:
    """The next start makes it again, and syncs it again: asking twice for the same name says nothing."""
    syncs.fails = {(tmp_path / fails)}
    with pytest.raises(hf.ConfigError, match="planted"):
        StoreDirectory(tmp_path / "x" / "store")
    assert not (tmp_path / fails / ("store" if fails == "x" else "x")).exists()
    syncs.fails = set()
    StoreDirectory(tmp_path / "x" / "store").close()
    assert syncs.done[-1] == tmp_path / "x"


def test_a_parent_that_may_be_written_to_and_not_read_is_no_hindrance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sync needs a descriptor: it is its owner who syncs such a directory."""

    def sync_it(path: Path) -> None:
        raise PermissionError(errno.EACCES, "planted", str(path))

    monkeypatch.setattr(private_directory, "sync_directory", sync_it)
    StoreDirectory(tmp_path / "x" / "store").close()
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
