"""A file system without room, in one sentence: how much was asked for, how much is free of how much, and what
helps. Bytes, inodes and a quota are told apart, because what helps is another thing each time."""

from __future__ import annotations

import errno

from ..errors import Error, SharedMemoryFullError, SystemCallError
from .runtime import os

__all__ = ["FULL", "SHARED_MEMORY", "room_error"]

FULL = {errno.ENOSPC, errno.EDQUOT}
SHARED_MEMORY = "/dev/shm"
MAKE_ROOM = "make room; it goes on by itself"
MAKE_INODES = (
    "remove files there, many small ones first (df -i), or make it anew with more inodes; it goes on by itself"
)
RAISE_QUOTA = (
    "raise that quota (quota -s says what is used; setquota, xfs_quota), or remove files; it goes on by itself"
)


def room_error(number: int, what: str, need: int, path: str) -> Error:
    """The error of a call that found no room at ``path``: ENOSPC, EDQUOT, or ENOMEM in shared memory.
    ``what``: the object. ``need``: bytes that were asked for; -1: unknown."""
    prefix = f"{what}: " if what else ""
    try:
        found = _look(path)
        size, free = found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
        inodes = found.f_files if found.f_files and not found.f_favail else 0  # some file systems count none
    except OSError:  # nobody can say
        size, free, inodes = -1, -1, 0
    needed = f"{need} bytes needed" if need >= 0 else "no space"
    if number == errno.EDQUOT:
        said, hint = f"the quota of uid {os.geteuid()} is used up, {needed}, {free} free for others", RAISE_QUOTA
    elif os.path.realpath(path).startswith(SHARED_MEMORY):
        return SharedMemoryFullError(need, free, size=size, inodes=inodes)
    elif inodes:
        said, hint = f"all {inodes} inodes are used, {free} bytes free", MAKE_INODES
    else:
        said, hint = f"{needed}, {free} free" + (f" of {size}" if size >= 0 else ""), MAKE_ROOM
    error = SystemCallError(f"{prefix}{path} is full: {said}", number, errno.errorcode[number])
    error.hint = hint
    error.retriable = True
    return error


def _look(path: str) -> os.statvfs_result:
    """Of the file system of ``path``, which may be what could not be made."""
    while True:
        try:
            return os.statvfs(path)
        except (FileNotFoundError, NotADirectoryError):
            parent = os.path.dirname(path)
            if parent in {"", path}:
                raise
            path = parent
