"""Reaches a limit of the calling process for real, and gives room again. No setting of the machine is
touched."""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
from pathlib import Path

__all__ = ["LIMITS", "become", "give_room", "leave"]

PAGE = mmap.PAGESIZE
PROT_NONE = 0
LIMITS = {
    "descriptors": "RLIMIT_NOFILE",
    "addresses": "RLIMIT_AS",
    "mappings": "vm.max_map_count",
    "threads": "RLIMIT_NPROC",
}
"""What is called -> the name that the product gives it."""
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_before = {
    which: resource.getrlimit(which) for which in (resource.RLIMIT_NOFILE, resource.RLIMIT_AS, resource.RLIMIT_NPROC)
}
_areas: list[tuple[int, int]] = []
"""Address and length of what takes the mappings."""
_files: list[int] = []


def leave(what: str, spare: int) -> None:
    """Takes all but ``spare`` of the descriptors, the mappings, the bytes of addresses, or the threads of
    this user."""
    {
        "descriptors": _leave_descriptors, "addresses": _leave_addresses, "mappings": _leave_mappings,
        "threads": _leave_threads,
    }[what](spare)  # fmt: skip


def become(user: int) -> None:
    """Gives up all that root may, but to read any file and to enter any directory."""
    keep_capabilities, read_search = 8, 1 << 2
    assert _libc.prctl(keep_capabilities, 1, 0, 0, 0) == 0
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    sets = (ctypes.c_uint32 * 6)(read_search, read_search)
    assert _libc.capset(header, sets) == 0, os.strerror(ctypes.get_errno())


def give_room() -> None:
    """Gives back all that was taken."""
    while _areas:
        _libc.munmap(*_areas.pop())
    for which, before in _before.items():
        resource.setrlimit(which, before)
    while _files:
        os.close(_files.pop())


def _leave_descriptors(spare: int) -> None:
    """Under a limit just above what is open, so that few have to be taken."""
    top = max(int(name) for name in os.listdir("/proc/self/fd")) + spare + 2
    resource.setrlimit(resource.RLIMIT_NOFILE, (top, _before[resource.RLIMIT_NOFILE][1]))
    try:
        while True:
            _files.append(os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC))
    except OSError:
        for _ in range(spare):
            os.close(_files.pop())


def _leave_addresses(spare: int) -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * PAGE
    resource.setrlimit(resource.RLIMIT_AS, (used + spare, _before[resource.RLIMIT_AS][1]))


def _leave_threads(spare: int) -> None:
    """Root is not held to it. ``spare`` beside those of this process, which has its user for itself."""
    used = len(os.listdir("/proc/self/task"))
    resource.setrlimit(resource.RLIMIT_NPROC, (used + spare, _before[resource.RLIMIT_NPROC][1]))


def _leave_mappings(spare: int) -> None:
    """Pages of one area that may be read, in turn with pages that may not: each is a mapping."""
    most = int(Path("/proc/sys/vm/max_map_count").read_text())
    size = 2 * most * PAGE
    area = _libc.mmap(None, size, PROT_NONE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, -1, 0)  # NORESERVE
    assert area not in {None, ctypes.c_void_p(-1).value}, os.strerror(ctypes.get_errno())
    _areas.append((area, size))
    page = area + PAGE
    while _libc.mprotect(page, PAGE, mmap.PROT_READ) == 0:
        page += 2 * PAGE
    for _ in range((spare + 1) // 2):  # such a page and the one behind it become one with what is before them
        page -= 2 * PAGE
        assert _libc.mprotect(page, PAGE, PROT_NONE) == 0, os.strerror(ctypes.get_errno())
