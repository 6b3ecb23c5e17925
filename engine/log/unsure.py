"""What the disk does not give of a store's own log, and the store may have acknowledged (csrc/log/unsure.c).

It has no say until the numbers are there again, from its peers or the ring, or a later BEGIN has settled
them.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ..native.core import CData, ffi, lib
from ..native.status import check
from .info_file import log_reader

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["is_repaired", "readable", "settle", "tell"]

_log = logging.getLogger("holdfast.store")


def tell(called: str, path: Path, info: CData) -> None:
    """``called``: the store and the source of the log. ``info``: struct hf_log_info *, of a log that is
    unsure."""
    first, following = int(info.unsure_first), int(info.unsure_next)
    lost = f"{first}..{following - 1}, which may have been acknowledged" if first < following else "what its head said"
    _log.error("%s: the disk does not give %s: no say until that is repaired or settled (%s)", called, lost, path)


def is_repaired(path: Path, info: CData) -> bool:
    """What the disk did not give can be read again, as far as the log goes."""
    return readable(path, int(info.unsure_first), min(int(info.unsure_next), int(info.next_sqn)))


def settle(log: CData, called: str, path: Path) -> None:
    """The log is sure of its end from now on, durably. ``called``: as of :func:`tell`."""
    check(lib.hf_log_sure(log), what=str(path))
    _log.info("%s: what the disk did not give is repaired or settled", called)


def readable(path: Path, first: int, following: int) -> bool:
    """The log in ``path`` gives all numbers of [``first``, ``following``), or says that nobody has them."""
    size = 1 << 16
    memory, number = ffi.new("uint8_t[]", size), ffi.new("uint64_t *")
    with log_reader(path) as log:
        while log is not None and first < following:
            got = lib.hf_logr_read(log, first, memory, size, number)
            if got == lib.HF_SMALL:
                size = int(number[0])
                memory = ffi.new("uint8_t[]", size)
            elif got > 0 or got == lib.HF_LOST or (got == lib.HF_GONE and first < _oldest(log)):
                first = int(number[0])
            else:
                return False
        return log is not None


def _oldest(log: CData) -> int:
    numbers = ffi.new("uint64_t[2]")
    return int(numbers[0]) if lib.hf_logr_range(log, numbers, numbers + 1) == lib.HF_OK else 0
