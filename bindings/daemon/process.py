"""What makes a process a daemon: its pidfile, whom it runs as, on which processors, and that it lets go of
its terminal."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import sys
from typing import TYPE_CHECKING, Self

from ..engine.errors import ConfigError, DirectoryInUseError
from ..engine.native.private_directory import open_regular
from .ready import decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Affinity", "PidFile", "become", "detach"]


class PidFile:
    """A file with the daemon's pid, locked as long as the daemon lives. One that is not locked is stale, and
    is taken.

    Raises:
        ConfigError: it cannot be written.
        DirectoryInUseError: a daemon that lives has it.
        ForeignOwnerError: it is no regular file of ours.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            self._fd = open_regular(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise ConfigError(f"pidfile {path}: {error.strerror}", hint="its directory must exist") from error
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            said = os.pread(self._fd, 32, 0).strip()
            os.close(self._fd)
            pid = int(said) if said.isdigit() else 0
            raise DirectoryInUseError(pid, path, "pidfile", hint="stop that daemon, or name another pidfile") from None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):  # who is no longer root may be unable to: a stale file does no harm
            os.unlink(self._path)
        os.close(self._fd)


def become(uid: int | None, gid: int | None) -> None:
    """Gives up root for a user and a group; without a group, for the user's own.

    Raises:
        ConfigError: this is not root, or the user has no group that is known.
    """
    if (uid is None or uid == os.geteuid()) and (gid is None or gid == os.getegid()):
        return
    if os.geteuid() != 0:
        wanted = f"uid {uid}, gid {gid}"
        raise ConfigError(
            f"{wanted}: only root can become another user, this is uid {os.geteuid()}", hint="start it as root"
        )
    if gid is None:
        assert uid is not None
        try:
            gid = pwd.getpwuid(uid).pw_gid
        except KeyError:
            raise ConfigError(f"uid {uid} is no user of this host", hint="say which group as well: <gid>") from None
    os.setgroups([])
    os.setgid(gid)
    if uid is not None:
        os.setuid(uid)


class Affinity:
    """UM's ``-a``: the first processor for everything else, then four per store: reception, proxy, recovery,
    auxiliary.

    Reception is the drain thread (with the threads that sync for it), proxy the control thread, recovery the
    one that makes segments and repairs; there is nothing for the fourth.

    Raises:
        ConfigError: not a list of processors that this process may run on.
    """

    PER_STORE = 4

    def __init__(self, given: str) -> None:
        allowed = os.sched_getaffinity(0)
        self._processors: list[int] = []
        for part in given.split(","):
            text = part.strip()
            if not text.isascii() or not text.isdigit() or int(text) not in allowed:
                known = ",".join(str(one) for one in sorted(allowed))
                raise ConfigError(
                    f"affinity {given!r}: {text!r} is no processor of this process", hint=f"it has {known}"
                )
            self._processors.append(int(text))

    def apply(self) -> None:
        """To this thread, and to those that it starts from now on."""
        os.sched_setaffinity(0, {self._processors[0]})

    def apply_to_store(self, index: int, threads: tuple[int, ...]) -> None:
        """To the threads of the store with this index (native ids): reception, proxy, recovery."""
        first = 1 + self.PER_STORE * index
        for thread, processor in zip(threads, self._processors[first : first + self.PER_STORE], strict=False):
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(thread, {processor})


def detach() -> Callable[[BaseException | None], None] | None:
    """Goes on in a child without a terminal. There it returns what is to be called: with None when all is
    ready, or with the error. In the parent it returns None when the child is ready, and raises that error.
    """
    read_end, write_end = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        os.close(write_end)
        with open(read_end, "rb") as pipe:
            error = decode(pipe.read())
        if error is not None:
            os.waitpid(pid, 0)
            raise error
        return None
    os.close(read_end)
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(null, fd)
    os.close(null)

    waiting = [write_end]

    def tell(error: BaseException | None) -> None:
        while waiting:
            pipe = waiting.pop()
            with contextlib.suppress(BrokenPipeError):
                os.write(pipe, encode(error))
            os.close(pipe)

    return tell
