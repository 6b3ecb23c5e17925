"""The only place where results of the C core become Python errors (csrc/base/status.h)."""

from __future__ import annotations

import errno

from ..errors import (
    ClosedError,
    CorruptionError,
    Error,
    EvictedError,
    FencedError,
    ForeignOwnerError,
    ForkedHandleError,
    LayoutMismatchError,
    MessageTooLargeError,
    SystemCallError,
    UsageError,
    WouldBlockError,
    WouldBlockReason,
)
from .core import lib
from .limits import limit_error
from .room import FULL, SHARED_MEMORY, room_error
from .runtime import os

_REASONS: dict[int, WouldBlockReason] = {
    lib.HF_FLIGHT_SIZE: "flight_size",
    lib.HF_FLIGHT_BYTES: "flight_bytes",
    lib.HF_RETENTION: "retention",
    lib.HF_PINNED: "ring",
}

# Results that drivers handle themselves. One that gets here is still named, with what it means.
_PLAIN: dict[int, tuple[str, str, bool]] = {
    lib.HF_AGAIN: ("HF_AGAIN", "nothing there, or not yet", True),
    lib.HF_LAPPED: ("HF_LAPPED", "the ring overtook this position", True),
    lib.HF_POISONED: (
        "HF_POISONED",
        "a sync failed: nothing is published here until the store is started again and can write it anew",
        False,
    ),
    lib.HF_GONE: ("HF_GONE", "no longer retained", False),
    lib.HF_FULL: ("HF_FULL", "the table or log is full", True),
    lib.HF_SMALL: ("HF_SMALL", "the buffer is too small", False),
    lib.HF_ROLL: ("HF_ROLL", "the log needs its next segment", True),
    lib.HF_LOST: ("HF_LOST", "recorded as lost for ever", False),
    lib.HF_HOLE: ("HF_HOLE", "not in this log; another store may have it", True),
    lib.HF_EXISTS: ("HF_EXISTS", "exists already", False),
}

_USAGE: dict[int, str] = {
    lib.HF_AHEAD: "that number does not exist yet",
    lib.HF_BUSY: "another thread is in, or a claim is open",
    lib.HF_USAGE: "a rule of the interface was broken",
}


def would_block(status: int) -> bool:
    """Tell whether `status` is one that a blocking send waits out."""
    return status in _REASONS


def check(
    status: int,
    *,
    what: str = "",
    size: int = -1,
    limit: int = -1,
    option: str = "ring_size",
    path: str | None = None,
    theirs: object = "another",
) -> int:
    """Return `status` when it is a value (>= 0), else raise its error.

    `what` names the object in the message. `size` (bytes) is what was asked for: the message for
    MessageTooLargeError (with `limit` and the `option` to raise), the object for SharedMemoryFullError.
    `path` lies in the file system of the object: without it `what` if that is an absolute path, else
    /dev/shm. `theirs` is the layout version found, if known.
    """
    if status >= 0:
        return status
    raise error_of(status, what=what, size=size, limit=limit, option=option, path=path, theirs=theirs)


def error_of(
    status: int,
    *,
    what: str = "",
    size: int = -1,
    limit: int = -1,
    option: str = "ring_size",
    path: str | None = None,
    theirs: object = "another",
) -> Error:
    """Return the error of a status < 0 without raising it; arguments as for `check`."""
    if status <= lib.HF_ERRNO:
        place = path or (what if os.path.isabs(what) else SHARED_MEMORY)
        return _system_error(lib.HF_ERRNO - status, what, size, place)
    reason = _REASONS.get(status)
    if reason is not None:
        return WouldBlockError(reason)
    prefix = f"{what}: " if what else ""
    if status in _PLAIN:
        code, text, retriable = _PLAIN[status]
        error = Error(prefix + text, code=code)
        error.retriable = retriable
        return error
    if status in _USAGE:
        return UsageError(prefix + _USAGE[status])
    if status == lib.HF_TOO_LARGE:
        return MessageTooLargeError(size, limit, option)
    if status == lib.HF_LAYOUT:
        return LayoutMismatchError(theirs, f"version {lib.HF_LAYOUT_VERSION} ({lib.HF_HEAD_VERSION} of a log's head)")
    if status == lib.HF_DAMAGED:
        return CorruptionError(prefix + "bytes that no correct writer leaves")
    if status == lib.HF_FORKED:
        return ForkedHandleError(what or "handle")
    if status == lib.HF_CLOSED:
        return ClosedError(what or "handle")
    if status == lib.HF_EVICTED:
        return EvictedError(prefix + "the source went on over this view")
    if status == lib.HF_FENCED:
        return FencedError(what)
    if status == lib.HF_FOREIGN:
        return ForeignOwnerError(prefix + "owned by another user, or open to others")
    return Error(f"{prefix}result {status} of the C core is unknown")


def _system_error(number: int, what: str, size: int, path: str) -> Error:
    """Turn an errno into an error. A full file system under /dev/shm has a type of its own."""
    prefix = f"{what}: " if what else ""
    limit = limit_error(number, what, size)
    if limit is not None:
        return limit
    # Without a size nothing was to be made: this process has no memory, or ext4 has lost its device, and says
    # the same.
    if number in FULL or (number == errno.ENOMEM and size >= 0):
        return room_error(number, what, size, path)
    name = errno.errorcode.get(number, f"errno {number}")
    return SystemCallError(f"{prefix}{os.strerror(number)}", number, name)
