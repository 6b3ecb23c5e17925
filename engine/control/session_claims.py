"""One receiver of a session at a time for each topic (docs/semantics.md A.3), also where no store has its
registration: of a topic whose sources are all over, nobody is registered with anything.

A receiver claims a topic when a store tells it of a source there that is over, and when one grants its
registration. The claim is a lock of its process on one byte of ``<domain>/sessions.lock``, which session and
topic tell. So to ask waits for nobody, a dead process's claims are free at once, and none is left in any
file. It lasts until the receiver is closed, whatever that is registered with. Who is refused asks again: for
one topic of each process that refuses him, in turn, and if that is free for the others.

The stores decide alone, as they did before, where the file cannot be opened or locked, and where a program
closes a descriptor of that file which it has opened itself: the kernel takes its process's locks away then.
Two receivers are never registered with one source.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import struct
import weakref
from typing import TYPE_CHECKING, NamedTuple

from ..errors import RegIdInUseError
from ..events import receiver as events
from ..native.core import lib
from ..native.runtime import OfProcess, fcntl, os, threading, time
from .waits import Wait

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..memory.domain import Domain
    from .waits import WaitFile

__all__ = ["Refused", "SessionClaims"]

_log = logging.getLogger("holdfast")

RETRY_NS = 100_000_000
"""Who is refused asks again so soon: the holder may be dead by then."""
TRIES = 10
"""Looks at a lock that is let go whenever it is looked at."""
NAME = "sessions.lock"
_FLOCK = struct.Struct("hhqqi4x")
TICK_NS = 10_000_000
"""Of the kernel's start times: USER_HZ is 100."""


class Refused(NamedTuple):
    """Another receiver has it."""

    topic: str
    session_id: int
    pid: int
    """0: it cannot be named, being in another container."""
    since_ns: int
    """CLOCK_REALTIME: since when its process runs; 0: not known."""

    @property
    def text(self) -> str:
        """What an event says."""
        said = f"session ID {self.session_id:#x} is in use by a different receiver of topic {self.topic!r}"
        return f"{said} (pid {self.pid}); {RegIdInUseError.hint}"

    @property
    def error(self) -> RegIdInUseError:
        """For a program that waits."""
        return RegIdInUseError(0, self.pid, self.since_ns / 1e9, self.session_id)


class SessionClaims:
    """What one receiver claims, see the module. On the context's thread, but :meth:`refusal`.

    Args:
        session_id: 0: nothing is claimed.
        tell: is told once of each holder of each topic.
    """

    def __init__(
        self, domain: Domain, waits: WaitFile, session_id: int, tell: Callable[[object], object]
    ) -> None:  # fmt: skip
        self._domain, self._waits, self._session_id, self._tell = domain, waits, session_id, tell
        self._owner = object()
        """Stands for this one in the table of locks, which must not keep it alive."""
        self._held: set[str] = set()
        self._denied: dict[str, Refused] = {}
        self._told: set[tuple[str, int]] = set()
        self._shown: dict[int, Refused] = {}
        """By process: what `doctor` and `stat` are shown, for one topic."""
        self._again_ns = 0
        """When it asks again for what is denied."""
        self._regained = False
        self._refusal: tuple[Refused, int] | None = None
        """The first of the denied, and when that was found out (CLOCK_MONOTONIC). Replaced as a whole."""
        self._warned = False
        self._closed = not session_id
        weakref.finalize(self, _release, self._owner).atexit = False

    def hold(self, topic: str) -> bool:
        """It is this receiver's: claimed now, if it is not yet. After :meth:`close` nothing is claimed."""
        if not self._closed and topic not in self._held and topic not in self._denied:
            self._ask(topic)
            self._show()
        return topic not in self._denied

    def refused(self, topic: str) -> Refused | None:
        """Who had it when that was looked at last."""
        return self._denied.get(topic)

    def turn(self, now_ns: int) -> bool:
        """Asks again for what is denied. True: more is this receiver's since the last turn."""
        if self._denied and now_ns >= self._again_ns:
            self._again_ns = now_ns + RETRY_NS
            refusing: set[int] = set()
            for topic, said in list(self._denied.items()):
                if said.pid not in refusing and self._ask(topic) and said.pid != os.getpid():
                    refusing.add(said.pid)
            self._show()
        regained, self._regained = self._regained, False
        return regained

    @property
    def denied(self) -> bool:
        """Another receiver has something that this one is for."""
        return bool(self._denied)

    def refusal(self, since_ns: int = 0) -> RegIdInUseError | None:
        """Who has what this one is for. ``since_ns``: CLOCK_MONOTONIC; what was found out before is not
        believed. Any thread."""
        said = self._refusal
        return said[0].error if said is not None and said[1] >= since_ns else None

    def close(self) -> None:
        """Lets go of everything, for good."""
        self._closed = True
        self._denied.clear()
        self._show()
        _release(self._owner)

    def _ask(self, topic: str) -> bool:
        """Claims it. True: somebody else has it."""
        said = f"{self._session_id:x}/{topic}".encode()
        byte = int.from_bytes(hashlib.blake2b(said, digest_size=8).digest()) >> 2
        pid = None
        try:
            pid = _take(self._domain, byte, self._owner)
        except OSError as error:
            if not self._warned:
                _log.warning(
                    "session %#x: a second receiver may be let in: %s: %s",
                    self._session_id, self._domain.path / NAME, error,
                )  # fmt: skip
            self._warned = True
        else:
            if pid is None:
                self._held.add(topic)
        if self._closed:  # by a signal's handler, since
            _release(self._owner)
            return False
        if pid is not None:
            self._deny(topic, pid)
        elif self._denied.pop(topic, None) is not None:
            self._regained = True
        return pid is not None

    def _deny(self, topic: str, pid: int) -> None:
        known = self._denied.pop(topic, None)
        if known is None or known.pid != pid:
            known = Refused(topic, self._session_id, pid, _started_ns(pid))
        self._denied[topic] = known  # behind the others, which are asked for next: their holder may be another one
        self._again_ns = self._again_ns or time.monotonic_ns() + RETRY_NS
        if (topic, pid) not in self._told:
            self._told.add((topic, pid))
            self._tell(events.RegistrationError(topic, "", known.text, "", pid, known.since_ns / 1e9))

    def _show(self) -> None:
        """To `doctor`, `stat` and who waits."""
        first = {pid: said for pid, said in self._shown.items() if self._denied.get(said.topic) is said}
        for said in self._denied.values():
            first.setdefault(said.pid, said)
        self._refusal = (next(iter(first.values())), time.monotonic_ns()) if first else None
        for pid in self._shown.keys() - first.keys():
            self._waits.show((self._owner, pid), None)
        for pid, said in first.items():
            if self._shown.get(pid) != said:
                wait = Wait(said.topic, "", self._session_id, time.time_ns(), said.text)
                self._waits.show((self._owner, pid), wait)
        self._shown = first


def _started_ns(pid: int) -> int:
    ticks = int(lib.hf_process_start(pid)) if pid else 0
    return time.time_ns() - time.monotonic_ns() + ticks * TICK_NS if ticks else 0


# The locks of this process ----------------------------------------------------------------------------------


class _File:
    """The file of one domain, opened once in this process: to close another descriptor of it would let all
    its locks go."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.held: dict[int, object] = {}
        """Byte -> which of this process's receivers has it."""


class _Files:
    """Those that this process has open, each as long as something is claimed there."""

    def __init__(self) -> None:
        self.open: dict[tuple[int, int], _File] = {}
        """By device and inode of the domain's directory."""
        self.lock = threading.RLock()


def _leave(files: _Files) -> None:
    """A forked child has none of its parent's locks."""
    for file in files.open.values():
        os.close(file.fd)


_files: OfProcess[_Files] = OfProcess(_Files, _leave)


def _take(domain: Domain, byte: int, owner: object) -> int | None:
    """Locks it for one receiver. Which process has it, where another receiver does; 0: one that cannot be
    named. Raises OSError."""
    files, place = _files.value, os.fstat(domain.fd)
    with files.lock:
        key = place.st_dev, place.st_ino
        file = files.open.get(key)
        if file is None or not os.fstat(file.fd).st_nlink:
            file = files.open[key] = _opened(domain, file)
        if file.held.setdefault(byte, owner) is not owner:
            return os.getpid()
        pid = None
        try:
            pid = _lock(file.fd, byte)
        except BaseException:
            file.held.pop(byte, None)
            raise
        finally:
            if pid is not None:
                file.held.pop(byte, None)
            elif file.held.get(byte) is not owner:  # let go by a signal's handler, or it failed
                _unlock(file.fd, byte)
            _close_if_free(files)
        return pid


def _opened(domain: Domain, removed: _File | None) -> _File:
    """``removed``: its name is gone, so nobody else meets its locks any more."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    fd = os.open(NAME, flags, 0o600, dir_fd=domain.fd)
    if fd < 3:  # who puts standard streams in their place would let the locks go
        low, fd = fd, fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
        os.close(low)
    file = _File(fd)
    if removed is not None:
        for byte, owner in removed.held.items():
            with contextlib.suppress(OSError):
                if _lock(fd, byte) is None:
                    file.held[byte] = owner
        os.close(removed.fd)
    return file


def _lock(fd: int, byte: int) -> int | None:
    """None: it is this process's. Else whose it is. Raises OSError."""
    wanted = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
    for _ in range(TRIES):
        try:
            fcntl.fcntl(fd, fcntl.F_SETLK, wanted)
        except (BlockingIOError, PermissionError) as refused:
            error = refused
        else:
            return None
        kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, wanted))
        if kind != fcntl.F_UNLCK:
            return max(0, int(pid))
    raise error


def _release(owner: object) -> None:
    """All that one receiver has. Nothing in a forked child."""
    files = _files.value
    with files.lock:
        for file in files.open.copy().values():
            for byte, who in file.held.copy().items():  # a collection of garbage may come in between
                if who is owner:
                    file.held.pop(byte, None)
                    _unlock(file.fd, byte)
        _close_if_free(files)


def _unlock(fd: int, byte: int) -> None:
    with contextlib.suppress(OSError):
        fcntl.fcntl(fd, fcntl.F_SETLK, _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, byte, 1, 0))


def _close_if_free(files: _Files) -> None:
    for key, file in files.open.copy().items():
        if not file.held and files.open.pop(key, None) is not None:
            os.close(file.fd)
