"""The card of a domain in shared memory: whose the objects with its prefix are, also when the domain's
directory is gone.

``/dev/shm/hf.<hash>.card`` is a small JSON file: path, device and inode of the directory, the boot, and the
mount namespace in which the path leads there. It is written before anything else with the prefix. Every
process that has joined the domain holds it by a shared ``flock``. The kernel ends that with the last process
that has the descriptor, and shows it to processes in other containers, which /proc does not. Whoever removes
what a domain has left holds the card alone meanwhile (engine/tools/orphans.py).

A child that was forked has the lock, too, whether it uses holdfast or not: that keeps too much, never too
little. Nothing else is decided by it; who is dead is the matter of csrc/base/process.h.

0.1 neither writes nor reads cards, and takes the name for none of its own. A card is best effort: shared
memory that is full, or a file of another user with this name, keeps nobody from working. What has no card is
of an unknown domain. A process that dies while it writes leaves text that does not decode, which is the same.

Nothing in a card is believed: whoever reads one gets text, and looks at the directory himself.
"""

from __future__ import annotations

import contextlib
import hashlib
from typing import TYPE_CHECKING
from urllib.parse import quote_from_bytes, unquote_to_bytes

import msgspec

from ..errors import Error
from ..native.core import ffi, lib
from ..native.private_directory import open_regular
from ..native.runtime import Path, fcntl, os, time

if TYPE_CHECKING:
    from _typeshed import StrPath

__all__ = [
    "BYTES_MAX",
    "Card",
    "HeldCard",
    "boot_id",
    "leads_to",
    "mount_namespace",
    "prefix_of",
    "try_lock",
    "withdraw",
]

BYTES_MAX = 16384
"""Of a card; a path has 4,096 at most, each of which is written as three."""
TRIES = 250
NAP_S = 0.002
"""Whoever removes orphans holds a card for milliseconds."""


class Card(msgspec.Struct, frozen=True):
    """What a card says."""

    path: str
    """Of the directory, absolute, without links; its bytes percent-encoded, for JSON takes no others than
    UTF-8."""
    device: int
    inode: int
    boot: str
    namespace: str = ""
    """Mount namespace, as /proc names it; empty: not known."""

    @classmethod
    def of(cls, path: StrPath, found: os.stat_result) -> Card:
        """For the directory at a path, in this boot and mount namespace."""
        place = quote_from_bytes(os.fsencode(os.path.realpath(path)))
        return cls(place, found.st_dev, found.st_ino, boot_id(), mount_namespace())

    @property
    def directory(self) -> str:
        """Path of the directory."""
        return os.fsdecode(unquote_to_bytes(self.path))


def prefix_of(device: int, inode: int) -> str:
    """How the names in shared memory begin that belong to the domain in this directory."""
    return f"hf.{hashlib.blake2b(f'{device}:{inode}'.encode(), digest_size=6).hexdigest()}."


def boot_id() -> str:
    """Of this boot; empty: not known."""
    out = ffi.new("uint8_t[16]")
    return bytes(out).hex() if lib.hf_boot_id(out) >= 0 else ""


def mount_namespace() -> str:
    """Of this process; empty: not known."""
    try:
        return os.readlink("/proc/self/ns/mnt")
    except OSError:
        return ""


def leads_to(place: Path, fd: int) -> bool:
    """The name is the one of this open file."""
    try:
        named, opened = os.stat(place, follow_symlinks=False), os.fstat(fd)
    except OSError:
        return False
    return (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)


def try_lock(fd: int, *, alone: bool) -> bool:
    """A ``flock`` on a card, which ends when its descriptor is closed in every process that has it. False:
    somebody has one that excludes it."""
    try:
        fcntl.flock(fd, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def withdraw(place: Path) -> None:
    """Removes a card that nobody holds, for who has found nothing else with its prefix. Best effort.

    Whoever looks for orphans of this user locks every card for a moment: that is waited for.
    """
    try:
        fd = open_regular(place, os.O_RDWR)
    except (Error, OSError):
        return
    try:
        for _ in range(TRIES):
            if try_lock(fd, alone=True):
                break
            time.sleep(NAP_S)
        else:
            return
        if leads_to(place, fd):
            os.unlink(place)
    except OSError:
        return
    finally:
        os.close(fd)


class HeldCard:
    """The card of a domain that this process has joined. One thread at a time."""

    def __init__(self, place: Path, card: Card) -> None:
        self.place = place
        self._text = msgspec.json.encode(card)
        self._fd = -1

    def show(self) -> None:
        """Makes sure that the card lies there and is held; somebody may have removed its name.

        Raises:
            ForeignOwnerError: something else has the name.
            OSError: as it says.
        """
        if self._fd >= 0 and leads_to(self.place, self._fd):
            return
        self.close()
        fd = self._opened()
        try:
            if os.pread(fd, BYTES_MAX, 0) != self._text:
                os.pwrite(fd, self._text, 0)
                os.ftruncate(fd, len(self._text))
        except OSError:  # shared memory is full: it is held, and says nothing
            with contextlib.suppress(OSError):
                os.ftruncate(fd, 0)
        self._fd = fd

    def _opened(self) -> int:
        """A descriptor with the lock, of the file that has the name."""
        for _ in range(TRIES):
            fd = self._tried()
            if fd >= 0:
                return fd
            time.sleep(NAP_S)
        # Who removes orphans stands still. He looks at the name again before each removal.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.place)
        fd = self._tried()
        if fd < 0:
            raise BlockingIOError(f"{self.place} is locked")
        return fd

    def _tried(self) -> int:
        fd = open_regular(self.place, os.O_RDWR | os.O_CREAT)
        try:
            if try_lock(fd, alone=False) and leads_to(self.place, fd):
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
        return -1

    def close(self) -> None:
        """Holds it no more. Idempotent."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)
