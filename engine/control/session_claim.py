"""One receiver of a session at a time for one topic or pattern (docs/semantics.md A.3), also where no store
has its registration: of a topic whose sources are all over, nobody is registered with anything.

A receiver claims its session when a store tells it of a source that is over, and when its registration with
one is complete; it has it until it is closed. The claim is a lock of its process on one byte of
``<domain>/sessions.lock``, which session and name tell. So to ask waits for nobody, and what the dead had is
free at once. Who is refused leaves all sources with stores alone, and asks again.

The stores decide alone, as they did before, where a topic meets a pattern, where the file cannot be opened
or locked, where somebody removes it, and where a program closes a descriptor of it that it has opened itself:
the kernel takes its process's locks away then. Two receivers are never registered with one source.
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
from ..memory.turn import flock_of, holder_of
from ..native.runtime import OfProcess, fcntl, os, threading, time
from .waits import Wait

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..memory.domain import Domain
    from .waits import WaitFile

__all__ = ["SessionClaim"]

_log = logging.getLogger("holdfast")

RETRY_NS = 100_000_000
"""Who is refused asks again so soon: the holder may be dead by then."""
NO_FILE_NS = 5_000_000_000
"""The same where nothing can be locked."""
TRIES = 10
"""Looks at a lock that is let go whenever it is looked at."""
NAME = "sessions.lock"
_NOTE = struct.Struct("<QQ")
"""In the file, of the last one who has locked a byte that shares its place: which byte, and when
(CLOCK_REALTIME)."""
NOTES = 4096


class _Holder(NamedTuple):
    """Who refuses: a process. ``pid`` 0: it cannot be named, being in another container."""

    pid: int
    since_ns: int
    """CLOCK_REALTIME: since when; 0: not known."""


class _Owner:
    """Stands for a claim in the table of locks, which must not keep it alive."""

    gone = False

    def goes(self) -> None:
        """Its claim was collected, on whatever thread: the next look at the table frees what it has."""
        self.gone = True


class SessionClaim:
    """What one receiver claims, see the module. On the context's thread, but :meth:`refusal`.

    Args:
        session_id: 0: nothing is claimed.
        name: a topic, or a pattern between slashes.
        tell: is told once of each process that refuses.
    """

    def __init__(
        self, domain: Domain, waits: WaitFile, session_id: int, name: str, tell: Callable[[object], object]
    ) -> None:  # fmt: skip
        self._domain, self._waits, self._session_id, self._name, self._tell = domain, waits, session_id, name, tell
        said = f"{session_id:x}/{name}".encode()
        self._byte = int.from_bytes(hashlib.blake2b(said, digest_size=8).digest()) >> 2
        self._owner = _Owner()
        self._held = self._wanted = False
        self._denied: _Holder | None = None
        self._found_ns = 0
        """When that was found out last (CLOCK_MONOTONIC)."""
        self._told: set[int] = set()
        self._again_ns = 0
        """Not asked again before."""
        self._warned = False
        self._closed = not session_id
        weakref.finalize(self, self._owner.goes).atexit = False

    def hold(self) -> bool:
        """The session is this receiver's: claimed now, if it is not yet. After :meth:`close` nothing is
        claimed."""
        self._wanted = True
        if not (self._closed or self._held) and self._denied is None and time.monotonic_ns() >= self._again_ns:
            self._ask()
        return self._denied is None

    def turn(self, now_ns: int) -> bool:
        """Asks again where it was refused, or nothing could be locked. True: it was refused, and is not
        now."""
        if self._closed or self._held or not self._wanted or now_ns < self._again_ns:
            return False
        denied = self._denied
        self._ask()
        return denied is not None and self._denied is None and not self._closed

    @property
    def denied(self) -> bool:
        """Another receiver has the session."""
        return self._denied is not None

    def refusal(self, since_ns: int = 0) -> RegIdInUseError | None:
        """Who has it. ``since_ns``: CLOCK_MONOTONIC; what was found out before is not believed. Any
        thread."""
        holder = self._denied if self._found_ns >= since_ns else None
        return RegIdInUseError(0, holder.pid, holder.since_ns / 1e9, self._session_id) if holder is not None else None

    def close(self) -> None:
        """Lets go of it, for good."""
        self._closed = True
        self._denied = None
        self._waits.show(self._owner, None)
        _release(self._owner)

    def _ask(self) -> None:
        asked_ns = time.monotonic_ns()
        self._again_ns = asked_ns + RETRY_NS
        try:
            holder = _take(self._domain, self._byte, self._owner)
        except OSError as error:  # a refusal that stands is believed on
            self._again_ns, self._found_ns = asked_ns + NO_FILE_NS, asked_ns
            if not self._warned and self._denied is None:
                self._warned = True
                _log.warning(
                    "session %#x: a second receiver may be let in: %s: %s",
                    self._session_id, self._domain.path / NAME, error,
                )  # fmt: skip
            return
        self._held, self._found_ns = holder is None, asked_ns
        if holder is None:
            self._denied = None
            self._waits.show(self._owner, None)
        elif self._denied != holder:
            self._refuse(holder)
        if self._closed:  # by a signal's handler, meanwhile
            self.close()

    def _refuse(self, holder: _Holder) -> None:
        pid, self._denied = holder.pid, holder
        what = f"session ID {self._session_id:#x} is in use by a different receiver of {self._name!r}"
        text = f"{what} ({f'pid {pid}' if pid else 'in another container'}); {RegIdInUseError.hint}"
        self._waits.show(self._owner, Wait(self._name, "", self._session_id, time.time_ns(), text))
        if pid not in self._told:
            self._told.add(pid)
            self._tell(events.RegistrationError(self._name, "", text, "", pid, holder.since_ns / 1e9))


# The locks of this process ----------------------------------------------------------------------------------


class _File:
    """The file of one domain, opened once in this process: to close another descriptor of it would let all
    its locks go."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.held: dict[int, _Owner] = {}
        """Byte -> which of this process's receivers has it."""


class _Files:
    """Those that this process has open, each as long as something is claimed there."""

    def __init__(self) -> None:
        self.open: dict[tuple[int, int], _File] = {}
        """By device and inode of the domain's directory."""
        self.lock = threading.RLock()
        self.busy = 0
        """Under the lock: how many on this thread are at it. A signal's handler may come in between: what it
        lets go waits for the outermost."""


def _leave(files: _Files) -> None:
    """A forked child has none of its parent's locks."""
    for file in files.open.values():
        with contextlib.suppress(OSError):
            os.close(file.fd)


_files: OfProcess[_Files] = OfProcess(_Files, _leave)


def _take(domain: Domain, byte: int, owner: _Owner) -> _Holder | None:
    """Locks it for one receiver. Who has it, where another receiver does. Raises OSError."""
    files, place = _files.value, os.fstat(domain.fd)
    with files.lock:
        files.busy += 1
        try:
            file = files.open.get((place.st_dev, place.st_ino))
            if file is None:
                file = files.open[place.st_dev, place.st_ino] = _File(_opened(domain))
            before = file.held.get(byte)
            if before is not None and before.gone:  # what was locked for it serves
                del file.held[byte]
            if file.held.setdefault(byte, owner) is not owner:
                return _Holder(os.getpid(), _since_ns(file.fd, byte))
            pid: int | None = -1
            try:
                pid = _lock(file.fd, byte)
            finally:
                if pid is not None:
                    del file.held[byte]
                    _unlock(file.fd, byte)
            if pid is not None:
                return _Holder(pid, _since_ns(file.fd, byte))
            _note(file.fd, byte)
            return None
        finally:
            _let_go(files)


def _opened(domain: Domain) -> int:
    fd = os.open(NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600, dir_fd=domain.fd)
    if fd > 2:
        return fd
    try:  # who puts standard streams in its place would let the locks go
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    finally:
        os.close(fd)


def _lock(fd: int, byte: int) -> int | None:
    """None: it is this process's. Else whose it is. Raises OSError."""
    for _ in range(TRIES):
        try:
            fcntl.fcntl(fd, fcntl.F_SETLK, flock_of(fcntl.F_WRLCK, byte, 1))
        except (BlockingIOError, PermissionError) as refused:
            error = refused
        else:
            return None
        pid = holder_of(fd, byte, 1)
        if pid is not None:
            return pid
    raise error


def _unlock(fd: int, byte: int) -> None:
    with contextlib.suppress(OSError):
        fcntl.fcntl(fd, fcntl.F_SETLK, flock_of(fcntl.F_UNLCK, byte, 1))


def _note(fd: int, byte: int) -> None:
    with contextlib.suppress(OSError):
        os.pwrite(fd, _NOTE.pack(byte, time.time_ns()), byte % NOTES * _NOTE.size)


def _since_ns(fd: int, byte: int) -> int:
    with contextlib.suppress(OSError, struct.error):
        noted, since_ns = _NOTE.unpack(os.pread(fd, _NOTE.size, byte % NOTES * _NOTE.size))
        return int(since_ns) if noted == byte else 0
    return 0


def _release(owner: _Owner) -> None:
    """All that one receiver has. Nothing in a forked child."""
    files = _files.value
    with files.lock:
        owner.gone = True
        files.busy += 1
        _let_go(files)


def _let_go(files: _Files) -> None:
    """The end of being busy."""
    try:
        for key, file in list(files.open.items()) if files.busy == 1 else ():
            for byte in [byte for byte, who in list(file.held.items()) if who.gone]:
                del file.held[byte]
                _unlock(file.fd, byte)
            if not file.held:
                del files.open[key]
                with contextlib.suppress(OSError):
                    os.close(file.fd)
    finally:
        files.busy -= 1
