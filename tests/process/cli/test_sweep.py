"""What a sweep finds, takes and leaves, and why: objects made by hand, of owners that are dead
(engine/tools/gc.py)."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from support.handmade_feed import Ring, Stage

from holdfast.cli.gc import _tell
from holdfast.engine.errors import ForeignOwnerError
from holdfast.engine.log.info_file import StoreInfo, write_info
from holdfast.engine.log.state_file import State, StateFile
from holdfast.engine.memory.domain import SHM_DIR, Domain, open_object
from holdfast.engine.memory.mapping import own_board, read_lines
from holdfast.engine.memory.new_ring import SriStore, write_sri
from holdfast.engine.native.core import ffi, lib
from holdfast.engine.rules.quorum import Groups
from holdfast.engine.tools import gc as module
from holdfast.engine.tools.gc import Item, sweep

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DEAD = 0xABCDEF
"""Token of a process whose lock file is there, and whose lock nobody holds."""
OWNER = DEAD << 16
NO_PID = 2**31
"""More than any process has: when the lock file is gone, the pid proves the death."""
UUID = b"source of a test"


@pytest.fixture
def stage(tmp_path: Path, own_domain: str) -> Iterator[Stage]:
    """A source of this process; so somebody lives in the domain."""
    made = Stage(tmp_path, own_domain)
    yield made
    made.close()


@pytest.fixture
def empty(own_domain: str) -> Iterator[Domain]:
    """A domain in which nobody lives: this process has not joined it."""
    domain = Domain(own_domain, join=False)
    yield domain
    domain.close()


@dataclass
class Field:
    """Of every object's preamble."""

    offset: int
    form: str

    def write(self, name: str, value: object) -> None:
        with (SHM_DIR / name).open("r+b") as file:
            file.seek(self.offset)
            file.write(struct.pack(self.form, value))


def field(name: str, form: str) -> Field:
    return Field(int(ffi.offsetof("struct hf_preamble", name)), form)


OWNED_BY, LAYOUT, BOOT = field("owner", "<Q"), field("layout_version", "<I"), field("boot_id", "<16s")


def lock_of(domain: Domain, age_s: float = 60.0) -> Path:
    """The dead process's lock file, last written so long ago."""
    path = domain.path / "processes" / f"{DEAD:012x}"
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.touch()
    then = path.stat().st_mtime - age_s
    os.utime(path, (then, then))
    return path


def dead(stage: Stage, count: int, *stores: str) -> str:
    """Name of the ring of a source that was killed when it had sent this many; ``stores``: had registered
    it."""
    lock_of(stage.domain)
    ring = Ring(stage, 1, 0)
    said = [SriStore(name, name.encode() * 16, 7, 0, 1) for name in stores]
    write_sri(ring.handle, said, Groups.single(len(said)))
    ring.send(count)
    OWNED_BY.write(ring.name, OWNER)
    return ring.name


def one(found: list[Item], kind: str) -> tuple[bool, str]:
    """Whether the only item of that kind goes, and why."""
    (item,) = [item for item in found if item.kind == kind]
    return item.remove, item.why


def there(name: str) -> bool:
    return (SHM_DIR / name).exists()


# Rings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "why"), [(0, "nothing was sent in it"), (3, "it had no store")])
def test_a_dead_sources_ring_goes_when_no_store_wants_it(stage: Stage, count: int, why: str) -> None:
    name = dead(stage, count)
    removed, told = one(sweep(stage.domain), "stream")
    assert removed
    assert told.endswith(f"is dead, {why}")
    assert not there(name)


def test_what_a_store_has_not_drained_is_given_up_by_the_operator_alone(stage: Stage) -> None:
    name = dead(stage, 3, "a")
    removed, told = one(sweep(stage.domain), "stream")
    assert not removed
    assert "store a has not drained it up to number 2; start the store, or give it up with --all" in told
    assert there(name)
    assert one(sweep(stage.domain, everything=True), "stream")[0]
    assert not there(name)


def test_a_lock_file_stays_while_something_that_stays_names_its_process(stage: Stage) -> None:
    dead(stage, 3, "a")
    assert one(sweep(stage.domain), "lock") == (False, "its process is dead; objects that stay name it")
    assert one(sweep(stage.domain, everything=True), "lock") == (True, "its process is dead")
    assert not (stage.domain.path / "processes" / f"{DEAD:012x}").exists()


def test_the_ring_of_a_source_that_lives_is_not_mentioned(stage: Stage) -> None:
    name = Ring(stage, 1, 0).name
    assert [item for item in sweep(stage.domain, everything=True) if item.kind == "stream"] == []
    assert there(name)


def test_a_ring_of_another_version_stays_while_somebody_lives_here(stage: Stage) -> None:
    name = dead(stage, 3)
    LAYOUT.write(name, 2**31)
    for everything in (False, True):
        removed, told = one(sweep(stage.domain, everything=everything), "stream")
        assert not removed
        assert told.endswith("(removed by --all when nobody lives here)")
    assert there(name)


def test_a_ring_of_another_boot_goes(stage: Stage) -> None:
    name = dead(stage, 3, "a")
    BOOT.write(name, b"another boot's..")
    assert one(sweep(stage.domain), "stream") == (True, "of another boot")
    assert not there(name)


def test_another_users_ring_stays(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    name = dead(stage, 3)

    def refuse(name: str, **_: object) -> None:
        raise ForeignOwnerError(f"{name} belongs to another user")

    monkeypatch.setattr(module, "attach_stream", refuse)
    assert one(sweep(stage.domain, everything=True), "stream") == (False, f"{name} belongs to another user")
    assert there(name)


def test_a_ring_that_is_gone_between_the_listing_and_the_look_is_not_mentioned(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead(stage, 3)

    def gone(name: str, **_: object) -> None:
        raise FileNotFoundError(name)

    monkeypatch.setattr(module, "attach_stream", gone)
    assert [item for item in sweep(stage.domain) if item.kind == "stream"] == []


def unfinished(name: str) -> None:
    """An object whose creator died before it published it."""
    fd = open_object(name, create=True)
    os.ftruncate(fd, 1 << 20)
    os.close(fd)


def test_what_was_never_finished_goes_where_nobody_lives(empty: Domain) -> None:
    name = empty.stream_name(UUID, 1)
    unfinished(name)
    assert one(sweep(empty), "stream") == (True, "whoever made it died before it was done")
    assert not there(name)


def test_a_ring_that_is_not_finished_may_still_be_while_somebody_lives(stage: Stage) -> None:
    name = stage.domain.stream_name(UUID, 1)
    unfinished(name)
    assert [item for item in sweep(stage.domain, everything=True) if item.kind == "stream"] == []
    assert there(name)


# Boards and doorbells ---------------------------------------------------------------------------------------


def abandoned_board(domain: Domain) -> str:
    """Name of a board that a dead process made, and on which nobody is."""
    board = own_board(domain, UUID)
    board.close()
    OWNED_BY.write(board.name, 0)
    return board.name


def test_a_board_that_was_never_finished_goes_though_somebody_lives(stage: Stage) -> None:
    name = stage.domain.board_name(UUID)
    unfinished(name)
    assert one(sweep(stage.domain), "board") == (True, "whoever made it died before it was done")
    assert not there(name)


def test_a_board_stays_while_a_ring_of_its_source_does(stage: Stage) -> None:
    name = dead(stage, 3, "a")
    stage.board.preamble.owner = 0
    lib.hf_board_release(stage.board.handle, stage.line)
    assert [item.kind for item in sweep(stage.domain) if item.kind == "board"] == []
    assert one(sweep(stage.domain, everything=True), "board") == (True, "nobody on it lives")
    assert not there(name)


def test_a_board_stays_while_a_store_may_know_its_source(stage: Stage, tmp_path: Path) -> None:
    name = abandoned_board(stage.domain)
    store_died(stage.domain, tmp_path / "a")
    for slot in (0, 1):
        (tmp_path / "a" / f"state.{slot}").write_bytes(b"is not valid")
    assert one(sweep(stage.domain), "board") == (
        False,
        "the state of store a cannot be read: it may know the source",
    )
    assert there(name)
    for slot in (0, 1):
        (tmp_path / "a" / f"state.{slot}").unlink()
    StateFile(tmp_path / "a").save(State("a", b"a" * 16, 1, 8))
    assert one(sweep(stage.domain), "board") == (True, "no store knows its source")
    assert not there(name)


def test_doorbells_go_with_the_last_who_lives(empty: Domain) -> None:
    unfinished(empty.bells_name)
    assert one(sweep(empty), "bells") == (True, "nobody lives here")
    assert not there(empty.bells_name)


def test_a_doorbell_of_the_dead_is_released_and_their_lock_file_goes(stage: Stage) -> None:
    path = lock_of(stage.domain)
    bells = ffi.cast("struct hf_bells *", stage.bells.handle.base)
    bell = next(bell for bell in bells.bells if not bell.owner)
    bell.owner = OWNER
    assert one(sweep(stage.domain, dry_run=True), "lock") == (True, "its process is dead")
    assert (bell.owner, path.exists()) == (OWNER, True), "it was only asked"
    assert one(sweep(stage.domain), "lock") == (True, "its process is dead")
    assert (bell.owner, path.exists()) == (0, False)
    mine = [bell for bell in bells.bells if bell.owner]
    assert [int(bell.owner) >> 16 for bell in mine] == [lib.hf_process_token() >> 16], "who lives keeps its own"


def test_a_dead_receivers_line_keeps_its_ack_and_names_nobody(stage: Stage) -> None:
    path = lock_of(stage.domain)
    line = lib.hf_board_line_at(stage.board.handle, stage.line)
    line.ack, line.owner = 41, OWNER
    assert one(sweep(stage.domain, dry_run=True), "lock") == (True, "its process is dead")
    assert (line.owner, path.exists()) == (OWNER, True), "it was only asked"
    assert one(sweep(stage.domain), "lock") == (True, "its process is dead")
    assert (line.owner, line.ack, line.state, path.exists()) == (0, 41, lib.HF_LINE_ACTIVE, False)
    assert [int(view.alive) for view in read_lines(stage.board, stage.domain, test=True)] == [0]


@pytest.mark.parametrize("role", ["HF_ROLE_STORE", "HF_ROLE_CONTEXT"])
def test_a_lock_file_that_another_line_names_stays(stage: Stage, role: str) -> None:
    path = lock_of(stage.domain)
    line = lib.hf_board_line_at(stage.board.handle, stage.line)
    line.owner, line.role = OWNER, getattr(lib, role)
    assert one(sweep(stage.domain), "lock") == (False, "its process is dead; objects that stay name it")
    assert (line.owner, path.exists()) == (OWNER, True)


# Stores and lock files --------------------------------------------------------------------------------------


def store_died(domain: Domain, directory: Path) -> None:
    """A store called ``a`` of this directory was killed."""
    directory.mkdir(exist_ok=True)
    lock_of(domain)
    write_info(domain, StoreInfo("a", b"a" * 16, str(directory), str(directory / "logs"), "disk", NO_PID, 1, OWNER))


def test_a_dead_store_without_a_directory_is_forgotten_by_the_operator_alone(empty: Domain, tmp_path: Path) -> None:
    store_died(empty, tmp_path / "a")
    empty.socket_path("a").touch()
    assert [item.kind for item in sweep(empty) if item.kind in {"socket", "info"}] == ["socket"]
    assert not empty.socket_path("a").exists()
    (tmp_path / "a").rmdir()
    why = f"store a is dead and its directory {tmp_path / 'a'} does not exist"
    assert one(sweep(empty), "info") == (False, f"{why} (removed by --all)")
    assert empty.store_names() == ["a"]
    assert one(sweep(empty, everything=True), "info") == (True, why)
    assert empty.store_names() == []


def test_the_logs_of_a_dead_memory_store_go_with_the_operators_word(empty: Domain, tmp_path: Path) -> None:
    store_died(empty, tmp_path / "a")
    logs = empty.memory_logs("a", b"a" * 16)
    (logs / "log").mkdir(parents=True)
    (logs / "log" / "seg-0").write_bytes(bytes(300))
    (found,) = [item for item in sweep(empty) if item.kind == "logs"]
    assert (found.remove, found.bytes) == (False, 300)
    assert found.why == "messages of memory store a, which does not run (removed by --all)"
    assert one(sweep(empty, everything=True, dry_run=True), "logs")[0]
    assert logs.exists()
    sweep(empty, everything=True)
    assert not logs.exists()


def test_an_empty_lock_file_is_a_process_that_starts_for_some_seconds(empty: Domain) -> None:
    path = lock_of(empty, age_s=0)
    assert one(sweep(empty), "lock") == (False, "its process may be starting")
    lock_of(empty, age_s=module.GRACE_S + 1)
    assert one(sweep(empty), "lock") == (True, "its process is dead")
    assert not path.exists()


def test_a_domain_that_nobody_ever_joined_has_nothing_to_sweep(empty: Domain) -> None:
    assert sweep(empty) == []


@pytest.mark.parametrize("locks", [1, 2, 1000])
def test_many_lock_files_that_stay_are_one_line(capsys: pytest.CaptureFixture[str], locks: int) -> None:
    kept = [Item("lock", f"/run/d/processes/{number}", 0, False, "it is new") for number in range(locks)]
    _tell("d", [Item("board", "/dev/shm/b", 9, True, "nobody"), *kept], False)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("removed board /dev/shm/b")
    assert lines[1].startswith(
        "kept lock /run/d/" if locks == 1 else f"kept {locks} lock files of dead processes in /run/d/"
    )
    assert lines[2] == "domain d: removed 1 things, 9 bytes"
