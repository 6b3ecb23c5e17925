"""The state's two slots: what a power cut at any moment leaves (DESIGN 23)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from holdfast.engine.store_state import LIVES_MAX, ReceiverState, SourceState, State, StateFile


class Disk:
    """Knows what of a directory's files is on disk: what was there at their last fdatasync."""

    def __init__(self, directory: Path, patch: pytest.MonkeyPatch) -> None:
        self._directory = directory
        self._synced: dict[int, bytes] = {}
        """By inode."""
        patch.setattr(os, "fdatasync", self._sync)

    def _sync(self, fd: int) -> None:
        self._synced[os.fstat(fd).st_ino] = Path(f"/proc/self/fd/{fd}").read_bytes()

    def cut(self, where: Path) -> StateFile:
        """The directory after a power cut: a file that was written since its last sync holds something of both."""
        where.mkdir()
        for path in self._directory.glob("state.*"):
            data = path.read_bytes()
            known = self._synced.get(path.stat().st_ino, b"")
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


@pytest.mark.parametrize("call", ["pwrite", "fdatasync", "rename"])
def test_a_store_that_is_killed_while_it_writes_its_first_state_is_a_new_one(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class KilledError(BaseException):
        pass

    pwrite = os.pwrite

    def dies(*given: Any) -> None:
        if call == "pwrite":
            fd, data, at = given
            pwrite(fd, data[:10], at)
        raise KilledError

    state = State("a", bytes(16), 7, 1)
    with monkeypatch.context() as patch:
        patch.setattr(os, call, dies)
        with pytest.raises(KilledError):
            StateFile(tmp_path).save(state)
    assert any(tmp_path.iterdir())
    assert StateFile(tmp_path).load() is None
    StateFile(tmp_path).save(state)
    left = StateFile(tmp_path).load()
    assert left is not None
    assert left.opened == 7


def test_a_state_that_is_saved_while_a_begin_is_taken_in_never_has_the_new_table_with_what_is_older() -> None:
    """By the table alone the next start tells whether the log knows more: then it takes the rest over again."""
    seen = []

    class Watched(SourceState):
        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            seen.append((list(self.begins), self.incarnation, self.start_sqn, self.receivers[0].ack))

    source = Watched(b"u", "t", 1, 0, incarnation=1, begins=[(1, 0)], receivers=[ReceiverState(b"r", 2, 0, 50)])
    source.take(((1, 0), (2, 10)))
    assert seen[-1] == ([(1, 0), (2, 10)], 2, 10, 10)
    assert all(state == seen[-1] for state in seen if state[0] != [(1, 0)])


@pytest.mark.parametrize(("start", "lost_below"), [(10, 10), (0, 0), (30, 24)])
def test_what_was_never_here_is_void_with_its_incarnation(start: int, lost_below: int) -> None:
    source = SourceState(b"u", "t", 1, 0, incarnation=1, begins=[(1, 0)], lost_below=24)
    source.take(((1, 0), (2, start)))
    assert source.lost_below == lost_below


def test_each_life_has_a_number_of_its_own_and_the_last_ones_are_remembered(tmp_path: Path) -> None:
    """Two openings of one copy differ, so a restored backup does not pass for the directory that it replaces (DESIGN 15)."""
    file = StateFile(tmp_path)
    state = State("a", b"u" * 16, 3, 1)
    state.live()
    assert state.lives[:3] == [1, 2, 3], "of a directory from when lives were counted"
    file.save(state)
    numbers = set()
    for _ in range(20):
        twin = StateFile(tmp_path).load()
        assert twin is not None
        twin.live()
        assert twin.lives[:-1] == state.lives
        assert twin.opened == twin.lives[-1] > state.opened
        numbers.add(twin.opened)
    assert len(numbers) > 1
    for _ in range(LIVES_MAX):
        state.live()
    assert len(state.lives) == LIVES_MAX
    assert state.lives == sorted(set(state.lives))
