"""One receiver of a session at a time for each topic (docs/semantics.md A.3), also where no store has its
registration: of a topic whose sources are all over, nobody is registered with anything.

A receiver claims a topic when a store tells it of a source there that is over, or grants its registration.
The claim is a lock of its process on one byte of ``<domain>/sessions.lock``, which session and topic tell. So
to ask costs two calls and waits for nobody, a dead process's claims are free at once, and none is left in any
file. It lasts until the receiver is closed, whatever that is registered with. Who is refused asks again.

A receiver of single sources claims those, and no topic: two of them may share a topic. Where one of a topic
and one of single sources meet, and where the file cannot be opened, the stores decide alone: two are never
registered with one source. So they do where a program closes a descriptor of that file which it has opened
itself: the kernel takes the locks of its process away then.
"""

from __future__ import annotations

import hashlib
import logging
import struct
from typing import TYPE_CHECKING, NamedTuple

from ..errors import RegIdInUseError
from ..events import receiver as events
from ..native.core import lib
from ..native.runtime import OfProcess, fcntl, os, threading, time
from .waits import Wait

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..memory.domain import Domain
    from .waits import WaitFile

__all__ = ["Refused", "SessionClaims"]

_log = logging.getLogger("holdfast")

RETRY_NS = 100_000_000
"""Who is refused asks again so soon: the holder may be dead by then."""
NO_FILE_NS = 5_000_000_000
"""The same where the file cannot be opened."""
NAME = "sessions.lock"
_FLOCK = struct.Struct("hhqqi4x")
TICK_NS = 10_000_000
"""Of the kernel's start times: USER_HZ is 100."""


class Refused(NamedTuple):
    """Somebody else has it."""

    name: str
    """A topic, behind a ``/``; or a source, by uuid, hexadecimal."""
    pid: int
    """0: of another container."""
    session_id: int

    @property
    def topic(self) -> str:
        """Empty: it is a source."""
        return self.name[1:] if self.name.startswith("/") else ""

    @property
    def since_ns(self) -> int:
        """CLOCK_REALTIME: since when its process runs; 0: it has gone, or cannot be named."""
        ticks = int(lib.hf_process_start(self.pid)) if self.pid else 0
        return time.time_ns() - time.monotonic_ns() + ticks * TICK_NS if ticks else 0

    @property
    def text(self) -> str:
        """What an event says."""
        what = f"topic {self.topic!r}" if self.topic else f"source {self.name}"
        said = f"session ID {self.session_id:#x} is in use by a different receiver of {what} (pid {self.pid})"
        return f"{said}; {RegIdInUseError.hint}"

    @property
    def error(self) -> RegIdInUseError:
        """For a program that waits."""
        return RegIdInUseError(0, self.pid, self.since_ns / 1e9, self.session_id)


class SessionClaims:
    """What one receiver claims, see the module. Any thread.

    Args:
        session_id: 0: nothing is claimed.
        tell: is told once of each holder of each name.
    """

    def __init__(
        self, domain: Domain, waits: WaitFile, session_id: int, tell: Callable[[object], object]
    ) -> None:  # fmt: skip
        self._domain, self._waits, self._session_id, self._tell = domain, waits, session_id, tell
        self._file: _LockFile | None = None
        self._held: dict[str, int] = {}
        """Name -> its byte."""
        self._denied: dict[str, Refused] = {}
        self._again: dict[str, int] = {}
        """When a name is asked for again that is denied, or could not be claimed."""
        self._told: set[tuple[str, int]] = set()
        self._lock = threading.RLock()
        self._closed = not session_id

    def hold(self, *names: str) -> bool:
        """These are this receiver's; it claims what it has not, all or nothing. After :meth:`close` nothing
        is claimed."""
        with self._lock:
            new = [name for name in names if name not in self._held]
            if self._closed or not new:
                return True
            now = time.monotonic_ns()
            if any(now >= self._again.get(name, 0) for name in new):
                self._ask(new, now)
            return self._denied.keys().isdisjoint(new)

    def refused(self, name: str) -> Refused | None:
        """Who has this name, asked for now if this receiver has not."""
        with self._lock:
            if name in self._denied:
                self._again.pop(name, None)
            return None if self.hold(name) else self._denied.get(name)

    def turn(self) -> bool:
        """Asks again for what is denied, or could not be claimed: for one name, and if that is free for all.
        True: more is this receiver's now."""
        with self._lock:
            before = len(self._held)
            for name in list(self._again):
                if not self.hold(name):
                    break
            return len(self._held) > before

    @property
    def denied(self) -> bool:
        """Another receiver has something that this one is for."""
        return bool(self._denied)

    def refusal(self) -> RegIdInUseError | None:
        """Who has what this one is for, asked now."""
        with self._lock:
            for name in list(self._denied):
                if (said := self.refused(name)) is not None:
                    return said.error
        return None

    def close(self) -> None:
        """Lets go of everything, for good."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for name in self._denied:
                self._waits.show((self, name), None)
            self._denied.clear()
            self._again.clear()
            if self._file is not None:
                self._file.release(self._held.values())

    def _ask(self, new: list[str], now: int) -> None:
        taken: dict[str, int] = {}
        with _files.value.lock:
            try:
                self._file = _file_of(self._domain)
                for name in new:
                    byte = self._byte(name)
                    pid = self._file.take(byte, self)
                    if pid is not None:
                        self._deny(name, pid, now)
                        break
                    taken[name] = byte
            except OSError as error:
                if not self._again.keys() >= {*new}:
                    _log.warning(
                        "session %#x: a second receiver may be let in: %s: %s",
                        self._session_id, self._domain.path / NAME, error,
                    )  # fmt: skip
                self._again.update(dict.fromkeys(new, now + NO_FILE_NS))
            if len(taken) < len(new):
                if self._file is not None:
                    self._file.release(taken.values())
                return
        self._held.update(taken)
        for name in new:
            self._again.pop(name, None)
            if self._denied.pop(name, None) is not None:
                self._waits.show((self, name), None)

    def _byte(self, name: str) -> int:
        said = f"{self._session_id:x}{name}".encode()
        return int.from_bytes(hashlib.blake2b(said, digest_size=8).digest()) >> 2

    def _deny(self, name: str, pid: int, now: int) -> None:
        said = self._denied[name] = Refused(name, pid, self._session_id)
        self._again[name] = now + RETRY_NS
        if (name, pid) not in self._told:
            self._told.add((name, pid))
            source = "" if said.topic else name
            self._waits.show((self, name), Wait(said.topic, source, self._session_id, time.time_ns(), said.text))
            self._tell(events.RegistrationError(said.topic, "", said.text, "", said.pid, said.since_ns / 1e9))


class _LockFile:
    """The file of one domain, opened once in this process: to close another descriptor of it would let all
    its locks go. Closed with the last claim. Under the lock of ``files``."""

    def __init__(self, files: _Files, key: tuple[int, int], fd: int) -> None:
        self._files, self._key, self._fd = files, key, fd
        self._held: dict[int, object] = {}
        """Byte -> which of this process's receivers has it."""

    def take(self, byte: int, who: object) -> int | None:
        """Locks it. Who has it, where somebody has; 0: a process that cannot be named. Raises OSError."""
        if byte in self._held:
            return None if self._held[byte] is who else os.getpid()
        wanted = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
        while True:
            try:
                fcntl.fcntl(self._fd, fcntl.F_SETLK, wanted)
            except (BlockingIOError, PermissionError):
                kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(self._fd, fcntl.F_GETLK, wanted))
                if kind != fcntl.F_UNLCK:
                    return max(0, int(pid))
                continue  # it was let go in between
            self._held[byte] = who
            return None

    def release(self, given: Iterable[int]) -> None:
        """Lets these go. In a forked child they are its parent's."""
        with self._files.lock:
            if self._files is not _files.value or self._files.open.get(self._key) is not self:
                return
            for byte in given:
                del self._held[byte]
                fcntl.fcntl(self._fd, fcntl.F_SETLK, _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, byte, 1, 0))
            if not self._held:
                del self._files.open[self._key]
                self.close()

    def close(self) -> None:
        """For who has nothing in it."""
        os.close(self._fd)


class _Files:
    """Those that this process has open."""

    def __init__(self) -> None:
        self.open: dict[tuple[int, int], _LockFile] = {}
        """By device and inode of the domain's directory."""
        self.lock = threading.RLock()


def _leave(files: _Files) -> None:
    for file in files.open.values():
        file.close()


_files: OfProcess[_Files] = OfProcess(_Files, _leave)


def _file_of(domain: Domain) -> _LockFile:
    """Raises OSError."""
    files, place = _files.value, os.fstat(domain.fd)
    key = place.st_dev, place.st_ino
    with files.lock:
        found = files.open.get(key)
        if found is None:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            found = files.open[key] = _LockFile(files, key, os.open(NAME, flags, 0o600, dir_fd=domain.fd))
        return found
