"""What is said of a file system without room: how much was asked for, how much is free, and what helps."""

from __future__ import annotations

import errno
import os
import re
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from holdfast.engine.errors import SharedMemoryFullError, SystemCallError
from holdfast.engine.native import room, runtime, status
from holdfast.engine.native.core import lib
from holdfast.engine.native.limits import named

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ENOSPC, EDQUOT = (lib.HF_ERRNO - number for number in (errno.ENOSPC, errno.EDQUOT))


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Says what statvfs finds from now on: 1,000 blocks of 4096 bytes."""

    def holds(free: int, inodes: int = 500, inodes_free: int = 1) -> None:
        found = SimpleNamespace(f_frsize=4096, f_blocks=1000, f_bavail=free, f_files=inodes, f_favail=inodes_free)
        monkeypatch.setattr(runtime.os, "statvfs", lambda _: found)

    return holds


def test_bytes_that_are_missing_are_named_with_need_free_and_size(disk: Callable[..., None]) -> None:
    disk(2)
    error = status.error_of(ENOSPC, what="/logs/u", size=65536)
    assert str(error) == (
        "ENOSPC: /logs/u: /logs/u is full: 65536 bytes needed, 8192 free of 4096000; make room; it goes on by itself"
    )
    assert error.retriable
    assert "no space, 8192 free of 4096000" in str(status.error_of(ENOSPC, what="/logs/u"))


def test_inodes_that_are_used_up_are_not_taken_for_bytes(disk: Callable[..., None]) -> None:
    disk(900, 500, 0)
    error = status.error_of(ENOSPC, what="/logs/u", size=65536)
    assert "/logs/u is full: all 500 inodes are used, 3686400 bytes free; remove files there" in str(error)
    assert "df -i" in str(error)
    disk(0, 0, 0)  # as btrfs, which counts none
    assert "65536 bytes needed, 0 free" in str(status.error_of(ENOSPC, what="/logs/u", size=65536))


def test_a_quota_is_told_as_a_quota(disk: Callable[..., None]) -> None:
    disk(900, 500, 0)
    error = status.error_of(EDQUOT, what="/logs/u", size=65536)
    assert isinstance(error, SystemCallError)
    assert (error.errno, error.code, error.retriable) == (errno.EDQUOT, "EDQUOT", True)
    assert f"the quota of uid {os.geteuid()} is used up, 65536 bytes needed, 3686400 free for others" in str(error)
    assert "raise that quota" in str(error)


def test_shared_memory_is_named_with_its_size(disk: Callable[..., None]) -> None:
    disk(2)
    error = status.error_of(ENOSPC, what="hf.x", size=65536)
    assert isinstance(error, SharedMemoryFullError)
    assert (error.need, error.free, error.size, error.inodes) == (65536, 8192, 4096000, 0)
    assert "shared memory is full: 65536 bytes needed, 8192 free of 4096000 in /dev/shm; enlarge /dev/shm" in str(error)
    disk(900, 500, 0)
    error = status.error_of(ENOSPC, what="hf.x", size=65536)
    assert isinstance(error, SharedMemoryFullError)
    assert error.inodes == 500
    assert "shared memory is full: all 500 inodes are used, 65536 bytes needed" in str(error)
    assert "nr_inodes" in error.hint


def test_what_could_not_be_made_is_looked_for_where_it_was_to_be(tmp_path: Path) -> None:
    size = os.statvfs(tmp_path).f_blocks * os.statvfs(tmp_path).f_frsize
    error = status.error_of(ENOSPC, what=f"{tmp_path}/not/there", size=7)
    assert re.search(rf"/not/there is full: 7 bytes needed, \d+ free of {size}; make room", str(error))


def test_what_nobody_can_say_is_unknown() -> None:
    assert "nowhere is full: no space, -1 free; make room" in str(room.room_error(errno.ENOSPC, "", -1, "nowhere"))


def test_a_system_call_that_found_no_room_is_named_where_its_place_is_known(disk: Callable[..., None]) -> None:
    disk(2)
    nameless, with_name = OSError(errno.ENOSPC, "no"), OSError(errno.ENOSPC, "no", "/logs/u/head")
    assert named(nameless) is nameless
    assert "/state is full: no space, 8192 free" in str(named(nameless, where="/state"))
    assert "/logs/u/head is full: no space, 8192 free" in str(named(with_name, where="/state"))
    assert "/logs/u is full: no space" in str(named(nameless, "/logs/u"))
    ring = named(OSError(errno.ENOSPC, "no"), "/dev/shm/hf.x")
    assert isinstance(ring, SharedMemoryFullError)
    assert ring.size == 4096000
