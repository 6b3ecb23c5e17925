"""Files, clocks and chance of simulated processes, under the names that the standard library has. All of it
leads into the kernel (kernel/), as the core's calls do."""

from __future__ import annotations

import errno
import fcntl as real_fcntl
import os as real
import posixpath
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from simulator.native import ffi, lib
from simulator.world import Killed, world

if TYPE_CHECKING:
    from collections.abc import Iterator

AT_FDCWD = -100
SYMLINK = 0o120000


def answered(status: int, path: object = None) -> int:
    """A value of the kernel, or its OSError."""
    if status >= 0:
        return status
    if world.over:
        world.check()
    raise OSError(-status, real.strerror(-status), None if path is None else str(path))


def at(dir_fd: int | None) -> int:
    return AT_FDCWD if dir_fd is None else dir_fd


def encoded(path: object) -> bytes:
    return real.fsencode(path)  # type: ignore[arg-type]


class Stat(NamedTuple):
    """As os.stat_result."""

    st_dev: int
    st_ino: int
    st_mode: int
    st_nlink: int
    st_size: int
    st_blocks: int
    st_mtime_ns: int
    st_uid: int


_UID = real.geteuid()
_said = ffi.new("struct sim_stat *")
_words = ffi.cast("int64_t *", _said)
"""Its fields, which are those of Stat."""
_bytes = ffi.new("uint8_t[]", 1 << 20)
"""A call of the kernel fills it at its end: nobody runs before it is read."""


def room(size: int) -> Any:
    """For what a call reads."""
    return _bytes if size <= ffi.sizeof(_bytes) else ffi.new("uint8_t[]", size)


def _read_said() -> Stat:
    return Stat._make([*ffi.unpack(_words, 7), _UID])


def is_link(found: Stat) -> bool:
    return bool(found.st_mode & 0o170000 == SYMLINK)


class Entry:
    """As os.DirEntry."""

    __slots__ = ("_fd", "_stat", "name")

    def __init__(self, fd: int, name: str) -> None:
        self._fd, self.name = fd, name
        self._stat: Stat | None = None

    def stat(self, *, follow_symlinks: bool = True) -> Stat:
        """As os.DirEntry."""
        if follow_symlinks or self._stat is None:
            self._stat = _stat(self.name, self._fd, follow_symlinks)
        return self._stat

    def inode(self) -> int:
        """As os.DirEntry."""
        return int(self.stat(follow_symlinks=False).st_ino)

    def is_symlink(self) -> bool:
        """As os.DirEntry."""
        return is_link(self.stat(follow_symlinks=False))


class Listing:
    """As what os.scandir returns."""

    def __init__(self, path: object) -> None:
        self._fd = os.open(path, real.O_RDONLY | real.O_DIRECTORY)

    def __enter__(self) -> Iterator[Entry]:
        return iter([Entry(self._fd, name) for name in _names(self._fd)])

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


class File:
    """As an unbuffered binary file."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def read(self, size: int = -1) -> bytes:
        """As io."""
        if size < 0:
            size = os.fstat(self._fd).st_size
        out = room(size)
        return bytes(ffi.buffer(out, answered(lib.sim_read(self._fd, out, size))))

    def write(self, data: bytes) -> int:
        """As io."""
        return answered(lib.sim_write(self._fd, data, len(data)))

    def flush(self) -> None:
        """As io."""

    def fileno(self) -> int:
        """As io."""
        return self._fd

    def close(self) -> None:
        """As io."""
        os.close(self._fd)

    def __enter__(self) -> File:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _stat(path: object, dir_fd: int | None, follow: bool) -> Stat:
    answered(lib.sim_stat(at(dir_fd), encoded(path), follow, _said), path)
    return _read_said()


def _names(fd: int) -> list[str]:
    out = ffi.new("char[]", lib.SIM_NAME_MAX)
    found: list[str] = []
    while answered(lib.sim_name(fd, len(found), out)):
        found.append(ffi.string(out).decode())
    return found


class Os:
    """As os, as far as the engine asks."""

    PathLike, DirEntry, stat_result = real.PathLike, Entry, Stat
    SEEK_SET, ST_RDONLY = real.SEEK_SET, real.ST_RDONLY
    fspath, fsencode, fsdecode = staticmethod(real.fspath), staticmethod(real.fsencode), staticmethod(real.fsdecode)
    strerror = staticmethod(real.strerror)
    fdopen = staticmethod(lambda fd, _mode="rb", _buffering=0: File(fd))
    scandir = Listing

    def __init__(self) -> None:
        for name in dir(real):
            if name.startswith(("O_", "R_OK", "W_OK", "X_OK", "F_OK")):
                setattr(self, name, getattr(real, name))
        self.environ = {"XDG_RUNTIME_DIR": "/run", "XDG_STATE_HOME": "/var/lib"}
        self.path = Paths()

    def register_at_fork(self, **_: object) -> None:
        """No simulated process forks."""

    def geteuid(self) -> int:
        """The kernel's files are this user's."""
        return _UID

    getuid = geteuid

    def getpid(self) -> int:
        """As os."""
        return world.current.process.pid if world.current is not None else 1

    def open(self, path: object, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        """As os; no process can count what it has."""
        if str(path).startswith("/proc/self/"):
            raise FileNotFoundError(errno.ENOENT, real.strerror(errno.ENOENT), str(path))
        return answered(lib.sim_openat(at(dir_fd), encoded(path), flags, mode), path)

    def close(self, fd: int) -> None:
        """As os."""
        answered(lib.sim_close(fd))

    def stat(self, path: object, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> Stat:
        """As os."""
        return _stat(path, dir_fd, follow_symlinks)

    def fstat(self, fd: int) -> Stat:
        """As os."""
        answered(lib.sim_fstat(fd, _said))
        return _read_said()

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        """As os."""
        out = room(size)
        return bytes(ffi.buffer(out, answered(lib.sim_pread(fd, out, size, offset))))

    def pwrite(self, fd: int, data: bytes | bytearray, offset: int) -> int:
        """As os."""
        return answered(lib.sim_pwrite(fd, ffi.from_buffer(data), len(data), offset))

    def write(self, fd: int, data: bytes) -> int:
        """As os."""
        return answered(lib.sim_write(fd, data, len(data)))

    def ftruncate(self, fd: int, size: int) -> None:
        """As os."""
        answered(lib.sim_truncate(fd, size))

    def mkdir(self, path: object, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        """As os."""
        answered(lib.sim_mkdirat(at(dir_fd), encoded(path), mode), path)

    def unlink(self, path: object, *, dir_fd: int | None = None) -> None:
        """As os."""
        answered(lib.sim_unlinkat(at(dir_fd), encoded(path), 0), path)

    def rmdir(self, path: object) -> None:
        """As os."""
        answered(lib.sim_unlinkat(AT_FDCWD, encoded(path), 0x200), path)

    def replace(
        self, old: object, new: object, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
    ) -> None:  # fmt: skip
        """As os."""
        answered(lib.sim_renameat(at(src_dir_fd), encoded(old), at(dst_dir_fd), encoded(new)), old)

    def readlink(self, path: object) -> str:
        """As os; no descriptor says what it was opened by."""
        if str(path).startswith("/proc/self/fd/"):
            return str(path)
        out = ffi.new("char[]", 512)
        answered(lib.sim_readlinkat(AT_FDCWD, encoded(path), out, 512), path)
        return str(ffi.string(out).decode())

    def listdir(self, path: object) -> list[str]:
        """As os."""
        fd = self.open(path, real.O_RDONLY | real.O_DIRECTORY)
        try:
            return _names(fd)
        finally:
            self.close(fd)

    def chmod(self, path: object, mode: int) -> None:
        """Nobody asks for the mode of what this is called with."""

    def access(self, path: object, mode: int) -> bool:
        """As os."""
        del mode
        return self.path.exists(path)

    def statvfs(self, path: object) -> SimpleNamespace:
        """As os: whether it is read-only, room, and which file system it is."""
        found = self.fstat(path) if isinstance(path, int) else _stat(path, None, True)
        flag = real.ST_RDONLY if lib.sim_devices[found.st_dev - 1].read_only else 0
        files = {"f_files": 1 << 20, "f_favail": 1 << 20, "f_fsid": found.st_dev}
        return SimpleNamespace(f_flag=flag, f_bavail=1 << 20, f_frsize=4096, f_blocks=1 << 20, **files)


class Paths:
    """As os.path."""

    basename, dirname, join = (
        staticmethod(posixpath.basename),
        staticmethod(posixpath.dirname),
        staticmethod(posixpath.join),
    )
    isabs = staticmethod(posixpath.isabs)

    def lexists(self, path: object) -> bool:
        """As os.path."""
        return found(path, follow=False) is not None

    def exists(self, path: object) -> bool:
        """As os.path."""
        return found(path) is not None

    def isdir(self, path: object) -> bool:
        """As os.path."""
        there = found(path)
        return there is not None and there.st_mode & 0o170000 == 0o040000

    def realpath(self, path: object) -> str:
        """As os.path: of each part that is a link, what it leads to."""
        place = "/"
        for part in PurePosixPath(real.fspath(path)).parts[1:]:  # type: ignore[call-overload]
            place = posixpath.join(place, part)
            there = found(place, follow=False)
            if there is not None and is_link(there):
                target = os.readlink(place)
                place = posixpath.normpath(posixpath.join(posixpath.dirname(place), target))
        return place

    def expanduser(self, path: str) -> str:
        """Nobody has a home."""
        return path


def found(path: object, *, follow: bool = True) -> Stat | None:
    if lib.sim_stat(AT_FDCWD, encoded(path), follow, _said) < 0:  # no error is made that nobody reads
        if world.over:
            world.check()
        return None
    return _read_said()


os = Os()


class Fcntl:
    """As fcntl."""

    F_GETLK, F_SETLK, F_RDLCK, F_WRLCK, F_UNLCK = (
        real_fcntl.F_GETLK, real_fcntl.F_SETLK, real_fcntl.F_RDLCK, real_fcntl.F_WRLCK, real_fcntl.F_UNLCK,
    )  # fmt: skip
    F_OFD_SETLK, F_OFD_GETLK = real_fcntl.F_OFD_SETLK, real_fcntl.F_OFD_GETLK
    LOCK_EX, LOCK_SH, LOCK_NB, LOCK_UN = real_fcntl.LOCK_EX, real_fcntl.LOCK_SH, real_fcntl.LOCK_NB, real_fcntl.LOCK_UN

    def fcntl(self, fd: int, command: int, argument: bytes) -> bytes:
        """As fcntl."""
        lock = ffi.new("uint8_t[]", argument)
        answered(lib.sim_lock(fd, command, lock))
        return bytes(ffi.buffer(lock, len(argument)))

    def lockf(self, fd: int, operation: int) -> None:
        """As fcntl; who waits looks again."""
        kind = self.F_WRLCK if operation & self.LOCK_EX else self.F_UNLCK
        lock = ffi.new("int16_t[16]")
        while True:
            lock[0] = kind
            status = lib.sim_lock(fd, self.F_SETLK, lock)
            if status != -errno.EAGAIN or operation & self.LOCK_NB:
                answered(status)
                return
            time.sleep(0.001)

    def flock(self, fd: int, operation: int) -> None:
        """As fcntl."""
        while True:
            status = lib.sim_flock(fd, operation)
            if status != -errno.EAGAIN or operation & self.LOCK_NB:
                answered(status)
                return
            time.sleep(0.001)


fcntl = Fcntl()


class SharedMemory:
    """As posix_ipc, to create one."""

    def __init__(self, name: str, flags: int = 0, mode: int = 0o600) -> None:
        del flags
        self.fd = os.open(f"/dev/shm{name}", real.O_RDWR | real.O_CREAT | real.O_EXCL, mode)


class ExistentialError(Exception):
    """As posix_ipc."""


class PermissionsError(Exception):
    """As posix_ipc."""


resource = SimpleNamespace(
    RLIMIT_NOFILE=1, RLIMIT_AS=2, RLIM_INFINITY=-1, getrlimit=lambda _: (-1, -1), setrlimit=lambda *_: None
)
"""As resource: nothing is limited."""
posix_ipc = SimpleNamespace(
    SharedMemory=SharedMemory, O_CREX=0, ExistentialError=ExistentialError, PermissionsError=PermissionsError
)


LOOK_NS = 200
"""A look at the clock takes so long."""
look = lib.sim_look


class Time:
    """As time."""

    @staticmethod
    def monotonic_ns() -> int:
        """As time."""
        if world.over:
            raise Killed
        return look(LOOK_NS)  # type: ignore[no-any-return]

    @staticmethod
    def monotonic() -> float:
        """As time."""
        return time.monotonic_ns() / 1e9

    @staticmethod
    def time_ns() -> int:
        """As time."""
        return time.monotonic_ns() + int(lib.sim_real_ns)

    @staticmethod
    def time() -> float:
        """As time."""
        return time.time_ns() / 1e9

    @staticmethod
    def sleep(seconds: float) -> None:
        """As time."""
        world.block(object(), int(lib.sim_now_ns) + int(seconds * 1e9))


time = Time()


def token_bytes(size: int) -> bytes:
    """As secrets: the kernel's chance."""
    return b"".join(int(lib.sim_random()).to_bytes(8, "little") for _ in range((size + 7) // 8))[:size]


secrets = SimpleNamespace(
    token_bytes=token_bytes,
    token_hex=lambda size: token_bytes(size).hex(),
    randbelow=lambda n: int(lib.sim_random()) % n,
)
