"""The state's two slots: what a power cut at any moment leaves (DESIGN 23)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from holdfast.engine.store_state import State, StateFile

if TYPE_CHECKING:
    from pathlib import Path


class Disk:
    """Knows what of a directory's files is on disk: what was there at their last fdatasync."""

    def __init__(self, directory: Path, patch: pytest.MonkeyPatch) -> None:
        self._directory = directory
        self._synced: dict[str, bytes] = {}
        patch.setattr(os, "fdatasync", self._sync)

    def _sync(self, fd: int) -> None:
        path = self._directory / os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))
        self._synced[path.name] = path.read_bytes()

    def cut(self, where: Path) -> StateFile:
        """The directory after a power cut: a file that was written since its last sync holds something of both."""
        where.mkdir()
        for path in self._directory.glob("state.*"):
            data = path.read_bytes()
            known = self._synced.get(path.name, b"")
            (where / path.name).write_bytes(data if data == known else data[: len(data) - 1] + b"\xff")
        return StateFile(where)


@pytest.mark.parametrize("syncs", ["sl", "sll", "slll", "sslll", "slsl", "sllsllll"])
def test_a_power_cut_leaves_the_newest_state_that_was_promised(
    syncs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """s: synced before an answer; l: lazily."""
    directory = tmp_path / "store"
    directory.mkdir()
    disk = Disk(directory, monkeypatch)
    file, state = StateFile(directory), State("a", bytes(16), 0, 1)
    promised = 0
    for step, kind in enumerate(syncs):
        state.opened = step
        file.save(state, sync=kind == "s")
        promised = step if kind == "s" else promised
        left = disk.cut(tmp_path / f"after-{step}").load()
        assert left is not None
        assert promised <= left.opened <= step


def test_a_store_that_starts_makes_sure_of_what_it_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "store"
    directory.mkdir()
    disk = Disk(directory, monkeypatch)
    file, state = StateFile(directory), State("a", bytes(16), 0, 1)
    file.save(state)
    state.opened = 1
    file.save(state, sync=False)
    again = StateFile(directory)  # its process was killed
    found = again.load()
    assert found is not None
    assert found.opened == 1
    found.opened = 2
    again.save(found, sync=False)
    left = disk.cut(tmp_path / "after").load()
    assert left is not None
    assert left.opened == 1


def test_a_crash_in_the_middle_of_a_write_leaves_the_state_before(tmp_path: Path) -> None:
    file, state = StateFile(tmp_path), State("a", bytes(16), 0, 1)
    for opened in range(5):
        state.opened = opened
        file.save(state, sync=False)
        if not opened:
            continue
        newest = tmp_path / f"state.{(opened + 1) % 2}"
        data = newest.read_bytes()
        newest.write_bytes(data[:-1])
        left = StateFile(tmp_path).load()
        assert left is not None
        assert left.opened == opened - 1
        newest.write_bytes(data)
