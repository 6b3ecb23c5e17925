"""Who writes to a register's file when: lines that come late, and children that were forked meanwhile."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
from typing import TYPE_CHECKING

import pytest
from support.handmade_register import UUID, file_of, source_register

from holdfast.engine.log.register_file import RegisterFile, read_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# Lines that are written late --------------------------------------------------------------------------------


@pytest.mark.parametrize("late", ["ab", "bc"], ids=["the same list", "another list"])
@pytest.mark.parametrize("anew", [False, True], ids=["appended", "written anew"])
def test_a_line_that_is_written_late_changes_no_life_that_a_later_incarnation_told(
    registers: Path, late: str, anew: bool
) -> None:
    """The thread of incarnation 1 stood still while incarnation 2 was declared, after b was wiped."""
    source_register("ab").declare(UUID, 2, {"a": 9, "b": 8})
    if anew:
        write_anew(registers)
    source_register(late).declare(UUID, 1, {"b": 3, "c": 5})
    assert source_register().read()[UUID].lives == {"a": 9, "b": 8, "c": 5}
    write_anew(registers)
    assert source_register().read()[UUID].lives == {"a": 9, "b": 8, "c": 5}


def test_a_life_that_is_told_late_counts_if_nobody_has_told_a_later_one(registers: Path) -> None:
    """Incarnation 3 took part without c: writing anew what was known before makes that no news of 3."""
    source_register("ac").declare(UUID, 1, {"a": 3, "c": 5})
    source_register("ab").declare(UUID, 3, {"a": 4})
    write_anew(registers)
    assert source_register().read()[UUID].lives == {"a": 4, "c": 5}
    source_register("ac").declare(UUID, 2, {"a": 2, "c": 7})
    write_anew(registers)
    found = source_register().read()[UUID]
    assert found.lives == {"a": 4, "c": 7}
    assert [each.stores for each in found.configurations] == [("a", "b"), ("a", "c")]


def write_anew(registers: Path) -> None:
    entries = read_file(file_of(registers))
    before = file_of(registers).stat().st_ino
    file = RegisterFile(registers, file_of(registers).name)
    file._renew(entries)
    file.close()
    assert file_of(registers).stat().st_ino != before


# The lock, and children -------------------------------------------------------------------------------------


def is_locked(registers: Path) -> bool:
    fd = os.open(file_of(registers), os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


class Child:
    """A process that is forked here, does ``work``, and lives on until it is let go."""

    def __init__(self, work: Callable[[], object] = lambda: None) -> None:
        (there, self._say), (self._hear, done) = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            with contextlib.suppress(BaseException):
                os.close(self._say)
                work()
                os.write(done, b"1")
                os.read(there, 1)
                code = 0
            os._exit(code)
        os.close(there)
        os.close(done)

    def worked(self) -> bool:
        return os.read(self._hear, 1) == b"1"

    def end(self) -> None:
        os.close(self._say)
        os.close(self._hear)
        assert os.waitpid(self.pid, 0)[1] == 0


@pytest.fixture
def locked(registers: Path) -> Iterator[contextlib.ExitStack]:
    """This process holds the lock of a file until this is closed."""
    source_register().declare(UUID, 1, {"a": 3})
    file = RegisterFile(registers, file_of(registers).name)
    with contextlib.ExitStack() as stack:
        stack.enter_context(file._locked())
        assert is_locked(registers)
        yield stack
    file.close()


def test_a_child_that_lives_on_does_not_keep_what_its_parent_unlocks(
    registers: Path, locked: contextlib.ExitStack
) -> None:
    child = Child()
    assert child.worked()
    locked.close()
    assert not is_locked(registers)
    child.end()


def test_a_descriptor_that_is_left_somewhere_does_not_keep_what_is_unlocked(registers: Path) -> None:
    """As a child has it that is just being forked: nobody has told it yet."""
    source_register().declare(UUID, 1, {"a": 3})
    file = RegisterFile(registers, file_of(registers).name)
    with file._locked() as fd:
        left = os.dup(fd)
    assert not is_locked(registers)
    os.close(left)
    file.close()


def test_a_child_that_lives_on_does_not_keep_what_its_killed_parent_had_locked(registers: Path) -> None:
    source_register().declare(UUID, 1, {"a": 3})
    (hear, say), (hold, let_go) = os.pipe(), os.pipe()

    def lock_and_die() -> None:
        file = RegisterFile(registers, file_of(registers).name)
        with file._locked():
            if os.fork() == 0:
                os.close(let_go)
                os.write(say, b"1")
                os.read(hold, 1)
                os._exit(0)
            os.read(hear, 1)
            os.kill(os.getpid(), signal.SIGKILL)

    pid = os.fork()
    if pid == 0:
        try:
            lock_and_die()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert not is_locked(registers), "its child has the file open no more"
    for fd in (hear, say, hold, let_go):
        os.close(fd)


def test_a_child_that_leaves_the_place_where_its_parent_has_the_lock_does_not_unlock_it(
    registers: Path, locked: contextlib.ExitStack
) -> None:
    def leave() -> None:
        assert is_locked(registers), "to the child, too"
        locked.close()
        assert is_locked(registers)

    child = Child(leave)
    assert child.worked()
    assert is_locked(registers)
    child.end()
    assert is_locked(registers)
    locked.close()
    assert not is_locked(registers)
