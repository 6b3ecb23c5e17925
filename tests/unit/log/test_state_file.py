"""The state's two slots: what a power cut at any moment leaves (docs/design.md 23)."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.engine.log import state_file
from holdfast.engine.log.state_file import LIVES_MAX, ReceiverState, SourceState, State, StateFile
from holdfast.engine.native import sync
from holdfast.engine.native.core import lib
from holdfast.engine.native.private_directory import read_regular
from holdfast.engine.native.sync import Doubt, make_directory, sync_log_directory


class Disk:
    """Knows what of a directory is on disk: the bytes and names of the last syncs.

    A sync that fails drops what it should have written: the next good one does not write it either, unless it
    changes once more.
    """

    def __init__(self, directory: Path, patch: pytest.MonkeyPatch) -> None:
        self._directory = directory
        self._bytes: dict[int, bytes] = {}
        """By inode."""
        self._dropped_bytes: dict[int, bytes] = {}
        self._names: dict[str, int] = {}
        self._dropped_names: dict[str, int | None] = {}
        self.syncs = 0
        self.fails: set[int] = set()
        """Numbers of syncs."""
        self._kept: list[int] = []
        """Descriptors, so that no inode is another file's later."""
        patch.setattr(state_file, "sync_data", self._sync)
        patch.setattr(state_file, "sync_directory", self._sync_directory)

    def _failing(self) -> bool:
        self.syncs += 1
        return self.syncs in self.fails

    def _sync(self, fd: int) -> None:
        inode, data = os.fstat(fd).st_ino, Path(f"/proc/self/fd/{fd}").read_bytes()
        if inode not in self._bytes:
            self._kept.append(os.dup(fd))
        self._bytes.setdefault(inode, b"")
        if self._failing():
            self._dropped_bytes[inode] = data
            raise OSError(errno.EIO, "planted")
        if self._dropped_bytes.get(inode) != data:
            self._dropped_bytes.pop(inode, None)
            self._bytes[inode] = data

    def _now(self) -> dict[str, int]:
        return {path.name: path.stat().st_ino for path in self._directory.iterdir()}

    def _sync_directory(self, path: Path) -> None:
        assert path == self._directory
        now = self._now()
        if self._failing():
            changed = {name for name in now.keys() | self._names.keys() if now.get(name) != self._names.get(name)}
            self._dropped_names |= {name: now.get(name) for name in changed}
            raise OSError(errno.EIO, "planted")
        for name in now.keys() | self._names.keys():
            if name not in self._dropped_names or self._dropped_names[name] != now.get(name):
                self._dropped_names.pop(name, None)
                self._names.pop(name, None)
                if name in now:
                    self._names[name] = now[name]

    def cut(self, where: Path) -> StateFile:
        """The directory after a power cut: a file that was written since its last sync holds something of
        both."""
        where.mkdir()
        there = {path.stat().st_ino: path for path in self._directory.iterdir()}
        for name, inode in self._names.items():
            known = self._bytes[inode]
            data = there[inode].read_bytes() if inode in there else known
            torn = data != known and self._dropped_bytes.get(inode) != data
            (where / name).write_bytes(data[: len(data) - 1] + b"\xff" if torn else known)
        return StateFile(where)

    def close(self) -> None:
        for fd in self._kept:
            os.close(fd)


@pytest.fixture
def doubts(tmp_path: Path) -> Path:
    """Off the device that fails."""
    path = tmp_path / "doubts"
    path.mkdir()
    return path


@pytest.mark.parametrize("syncs", ["sl", "sll", "slll", "sslll", "slsl", "sllsllll"])
def test_a_power_cut_leaves_the_newest_state_that_was_promised(
    syncs: str, tmp_path: Path, doubts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """s: synced before an answer; l: lazily."""
    directory = tmp_path / "store"
    directory.mkdir()
    disk = Disk(directory, monkeypatch)
    file, state = StateFile(directory, doubts), State("a", bytes(16), 0, 1)
    promised = 0
    for step, kind in enumerate(syncs):
        state.opened = step
        file.save(state, sync=kind == "s")
        promised = step if kind == "s" else promised
        left = disk.cut(tmp_path / f"after-{step}").load()
        assert left is not None
        assert promised <= left.opened <= step
    disk.close()


SAVES = "sslsllsssl"


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("second", [0, 1, 2, 4])
@pytest.mark.parametrize("failing", range(1, 11))
def test_a_sync_that_failed_is_never_believed_later(
    failing: int, second: int, restarts: bool, tmp_path: Path, doubts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one returns 0, and has not written what the first one dropped: of a file as of a directory."""
    directory = tmp_path / "store"
    directory.mkdir()
    disk = Disk(directory, monkeypatch)
    disk.fails = {failing, failing + second}
    file, state = StateFile(directory, doubts), State("a", bytes(16), 0, 1)
    promised, failed, cuts = -1, 0, 0
    for step, kind in enumerate(SAVES):
        state.opened = step
        while True:
            try:
                file.save(state, sync=kind == "s")
                promised = step if kind == "s" else promised
                break
            except OSError:  # the store answers nothing, and tries again when it is asked again; or after a restart
                failed += 1
                if restarts:
                    file = StateFile(directory, doubts)
                    found = file.load()
                    assert found is None or found.opened <= step
            finally:
                cuts += 1
                left = disk.cut(tmp_path / f"after-{cuts}").load() if promised >= 0 else None
                assert promised < 0 or (left is not None and promised <= left.opened <= step)
    assert failed == len([number for number in disk.fails if number <= disk.syncs]) > 0
    assert not Doubt(doubts / bytes(16).hex()), "all was written once more"
    assert file._anew == set()
    disk.close()


def test_a_doubt_of_another_boot_is_none(doubts: Path, tmp_path: Path) -> None:
    state, doubt = State("a", bytes(16), 0, 1), Doubt(doubts / bytes(16).hex())
    StateFile(tmp_path, doubts).save(state)
    doubt.set()
    file = StateFile(tmp_path, doubts)
    file.load()
    assert file._anew == {0, 1}
    (doubts / bytes(16).hex()).write_bytes(b"of another boot!")
    file = StateFile(tmp_path, doubts)
    file.load()
    assert file._anew == set()
    (doubts / bytes(16).hex()).unlink()
    (doubts / bytes(16).hex()).mkdir()
    (doubts / bytes(16).hex()).rmdir()
    (doubts / bytes(16).hex()).symlink_to("nowhere")
    with pytest.raises(OSError, match="symbolic links"):  # nobody knows
        StateFile(tmp_path, doubts).load()


def test_a_directory_whose_name_may_not_be_on_disk_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sync failed, or its maker was killed before it: a sync says nothing of a name that was there
    before."""
    log = tmp_path / "log"
    synced: list[Path] = []

    def fails(_: Path) -> None:
        raise OSError(errno.EIO, "planted")

    with monkeypatch.context() as patch:
        patch.setattr("holdfast.engine.native.sync.sync_directory", fails)
        with pytest.raises(OSError, match="planted"):
            make_directory(log)
    assert not log.exists()
    log.mkdir()
    before = os.open(log, os.O_RDONLY)
    monkeypatch.setattr("holdfast.engine.native.sync.sync_directory", synced.append)
    make_directory(log)
    assert log.stat().st_ino != os.fstat(before).st_ino
    assert synced == [tmp_path]
    os.close(before)
    (log / "seg-0000000000000000").touch()
    make_directory(log)  # a log whose head is lost
    assert (log / "seg-0000000000000000").exists()
    assert synced == [tmp_path]


def test_what_the_core_says_of_a_sync_is_an_error_with_its_name(tmp_path: Path) -> None:
    file = os.open(tmp_path, os.O_RDONLY | os.O_PATH)
    try:
        with pytest.raises(OSError, match=f"Bad file descriptor: 'sync of {tmp_path}'"):
            sync.sync_data(file)
    finally:
        os.close(file)
    with pytest.raises(OSError, match="Invalid argument"):
        sync_log_directory(Path("/proc/self/fdinfo"))
    sync.sync_directory(tmp_path)
    assert lib.hf_doubt_get(os.fsencode(tmp_path / "none")) == 0


def test_a_store_that_starts_makes_sure_of_what_it_found(
    tmp_path: Path, doubts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "store"
    directory.mkdir()
    disk = Disk(directory, monkeypatch)
    file, state = StateFile(directory, doubts), State("a", bytes(16), 0, 1)
    file.save(state)
    state.opened = 1
    file.save(state, sync=False)
    again = StateFile(directory, doubts)  # its process was killed
    found = again.load()
    assert found is not None
    assert found.opened == 1
    found.opened = 2
    again.save(found, sync=False)
    left = disk.cut(tmp_path / "after").load()
    assert left is not None
    assert left.opened >= 1
    disk.close()


def test_a_crash_in_the_middle_of_a_write_leaves_the_state_before(tmp_path: Path, doubts: Path) -> None:
    file, state = StateFile(tmp_path, doubts), State("a", bytes(16), 0, 1)
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


def _many(count: int) -> State:
    return State("a", bytes(16), 1, 1, [SourceState(b"%016d" % n, "t", n + 1, 0) for n in range(count)])


def test_one_source_among_thousands_costs_some_pages(
    tmp_path: Path, doubts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, state, written = StateFile(tmp_path, doubts), _many(5000), [0]
    file.save(state)
    file.save(state)
    whole = (tmp_path / "state.0").stat().st_size
    pwrite = os.pwrite

    def counted(fd: int, data: bytes, at: int) -> int:
        written[0] += len(data)
        return pwrite(fd, data, at)

    monkeypatch.setattr(os, "pwrite", counted)
    for uuid in (b"x" * 16, b"y" * 16, b"z" * 16):
        written[0] = 0
        state.sources.append(SourceState(uuid, "t", 9999, 0, incarnation=1, begins=[(1, 0)]))
        file.save(state)
        assert written[0] <= 4 * 4096 < whole / 10
        assert StateFile(tmp_path).load() == state


def test_each_process_writes_both_slots_whole_once(
    tmp_path: Path, doubts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the cache has of them need not be on disk: of a sync that failed before, a doubt may be lost."""
    file, state, written = StateFile(tmp_path, doubts), _many(2000), list[int]()
    for _ in range(3):
        file.save(state)
    again, pwrite = StateFile(tmp_path, doubts), os.pwrite
    assert again.load() == state

    def counted(fd: int, data: bytes, at: int) -> int:
        written.append(len(data))
        return pwrite(fd, data, at)

    monkeypatch.setattr(os, "pwrite", counted)
    for _ in range(4):
        again.save(state)
    whole = (tmp_path / "state.0").stat().st_size
    assert written == [whole, whole, 4096, 4096]


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_whatever_a_slot_held_it_holds_the_state_afterwards(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        doubts = directory / "doubts"
        doubts.mkdir()
        file, state = StateFile(directory, doubts), _many(60)
        for step in range(data.draw(st.integers(1, 6))):
            state.opened = step
            for source in data.draw(st.lists(st.sampled_from(state.sources), max_size=3)) if state.sources else []:
                source.start_sqn = data.draw(st.integers(0, 2**40))
            del state.sources[: data.draw(st.integers(0, 20))]
            state.sources += _many(data.draw(st.integers(0, 40))).sources
            older = directory / f"state.{(file._generation + 1) % 2}"
            if older.exists() and data.draw(st.booleans()):  # as a crash leaves it
                held = bytearray(older.read_bytes())
                held[data.draw(st.integers(0, len(held) - 1))] ^= 255
                older.write_bytes(held[: data.draw(st.integers(0, len(held)))])
            file.save(state, sync=data.draw(st.booleans()))
            assert StateFile(directory).load() == state


def test_a_slot_that_cannot_be_read_is_written_whole(
    tmp_path: Path, doubts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, state = StateFile(tmp_path, doubts), _many(50)
    for _ in range(2):
        file.save(state)

    def fails(*_: object) -> bytes:
        raise OSError(errno.EIO, "planted")

    (tmp_path / "state.1").write_bytes(b"x" * 9)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", fails)
        file.save(state)
    (tmp_path / "state.0").unlink()
    assert StateFile(tmp_path).load() == state


@pytest.mark.parametrize("call", ["pwrite", "sync_data", "rename"])
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
        patch.setattr(state_file if call == "sync_data" else os, call, dies)
        with pytest.raises(KilledError):
            StateFile(tmp_path).save(state)
    assert any(tmp_path.iterdir())
    assert StateFile(tmp_path).load() is None
    StateFile(tmp_path).save(state)
    left = StateFile(tmp_path).load()
    assert left is not None
    assert left.opened == 7


def test_a_state_that_is_saved_while_a_begin_is_taken_in_never_has_the_new_table_with_what_is_older() -> None:
    """By the table alone the next start tells whether the log knows more: then it takes the rest over
    again."""
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
    """Two openings of one copy differ, so a restored backup does not pass for the directory that it replaces
    (docs/design.md 15)."""
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


@pytest.mark.parametrize("slot", [0, 1])
def test_a_slot_that_the_disk_does_not_give_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slot: int
) -> None:
    """It may be the newer one: with the older one a store would promise again what it has promised."""
    file = StateFile(tmp_path)
    for opened in (1, 2):
        file.save(State("a", b"u" * 16, opened, 1))
    read = read_regular

    def fails(path: Path, size: int) -> bytes:
        if path.name == f"state.{slot}":
            raise OSError(errno.EIO, "Input/output error", str(path))
        return read(path, size)

    monkeypatch.setattr(state_file, "read_regular", fails)
    with pytest.raises(OSError, match=f"state.{slot}"):
        StateFile(tmp_path).load()


@pytest.mark.parametrize(
    ("begins", "agrees", "kept", "learns"),
    [
        ((), True, [(1, 0), (3, 5)], True),
        (((1, 0), (3, 5)), True, [(1, 0), (3, 5)], False),
        (((1, 0), (3, 5), (4, 9)), True, [(1, 0), (3, 5), (4, 9)], False),
        (((1, 0),), False, [(1, 0), (3, 5)], True),
    ],
    ids=["no log", "the same", "killed before the state was saved", "set back"],
)
def test_what_a_source_makes_of_what_its_log_knows(
    begins: tuple[tuple[int, int], ...], agrees: bool, kept: list[tuple[int, int]], learns: bool
) -> None:
    source = SourceState(bytes(16), "quotes", 7, 0)
    source.take(((1, 0), (3, 5)))
    assert source.meet(begins) is agrees
    assert (source.begins, source.learner) == (kept, learns)
