"""Directories and files of ours on paths that other users share: /dev/shm, /tmp, a cache, wherever a log file
is to lie.

What is there may be another user's, made to be taken for ours. So a name is opened first, in a way that
follows no link and waits for nobody, and what is open is looked at: its owner, its mode, its kind. Whoever
goes on by the descriptor (``dir_fd``) has what was looked at, whatever the name leads to by then.
"""

from __future__ import annotations

import contextlib
import errno
import stat
from typing import TYPE_CHECKING

from ..errors import ConfigError, ForeignOwnerError
from .runtime import Path, os
from .sync import sync_directory

if TYPE_CHECKING:
    from _typeshed import StrPath

__all__ = [
    "is_read_only", "movable_at", "open_log", "open_private", "open_regular", "private_directory", "read_regular",
]  # fmt: skip

SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""No link is followed, no FIFO waited for, nothing handed to a child."""


def private_directory(path: StrPath, *, closed: bool = False, links: bool = False, hint: str = "") -> None:
    """As :func:`open_private`, for who goes on by the path."""
    os.close(open_private(path, closed=closed, links=links, hint=hint))


def open_private(
    path: StrPath,
    *,
    at: int | None = None,
    make: bool = True,
    closed: bool = False,
    links: bool = False,
    durable: bool = False,
    hint: str = "",
) -> int:
    """A descriptor of a directory that is ours alone to write; it is made, mode 0700, with what lacks above
    it.

    Args:
        at: the descriptor of its parent, which was opened in this way: then only the last part of ``path`` is
            looked up.
        make: it is made where it is missing.
        closed: nobody else may even enter.
        links: an operator may name it by a link, of root's or our own.
        durable: the names that are made are on disk when this returns.
        hint: what to do where it cannot be used.

    Raises:
        ForeignOwnerError: it is another user's, or others may write to it, or enter it (``closed``).
        ConfigError: it is no directory, or cannot be made.
        FileNotFoundError: it is missing, and is not to be made.
    """
    name = path if at is None else os.path.basename(path)
    try:
        if make:
            _make(name, at, durable=durable)
        flags = os.O_RDONLY | os.O_DIRECTORY | SAFELY
        if links and os.stat(name, dir_fd=at, follow_symlinks=False).st_uid in {0, os.geteuid()}:
            flags &= ~os.O_NOFOLLOW
        fd = os.open(name, flags, dir_fd=at)
    except OSError as error:
        if error.errno == errno.ENOENT and not make:
            raise
        if error.errno in {errno.ENOTDIR, errno.ELOOP}:
            raise ConfigError(f"{path} is not a directory", hint=hint or "remove it, or choose another") from error
        if error.errno == errno.EACCES:
            _tell_owner(str(path), name, at)
        raise ConfigError(f"cannot use {path} as a directory: {error.strerror}", hint=hint) from error
    try:
        _check(str(path), os.fstat(fd), 0o077 if closed else 0o022)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _tell_owner(path: str, name: StrPath, at: int | None) -> None:
    """Raises ForeignOwnerError where that is why it cannot be opened."""
    try:
        found = os.stat(name, dir_fd=at, follow_symlinks=False)
    except OSError:
        return
    _check(path, found, 0)


def _make(path: StrPath, at: int | None, *, durable: bool = False) -> None:
    """With its parents, each of them ours alone: the mode that ``os.makedirs`` takes is not for parents."""
    try:
        os.mkdir(path, 0o700, dir_fd=at)
    except FileExistsError:
        return
    except FileNotFoundError:
        parent = Path(path).parent
        if at is not None or parent == Path(path):
            raise
        _make(parent, None, durable=durable)
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:  # another process of ours made it meanwhile
            return
    if durable and at is None:
        try:
            sync_directory(Path(path).absolute().parent)
        except PermissionError:  # it may be written to and not be read: its owner is who syncs it
            return
        except OSError:
            with contextlib.suppress(OSError):  # else the next sync would say that all is well (sync.py)
                os.rmdir(path)
            raise


def _check(path: str, found: os.stat_result, forbidden: int) -> None:
    if found.st_uid != os.geteuid():
        raise ForeignOwnerError(
            f"{path} belongs to uid {found.st_uid}, not to {os.geteuid()}",
            hint="choose another place, or have root remove it",
        )
    mode = stat.S_IMODE(found.st_mode)
    if mode & forbidden & 0o055:
        raise ForeignOwnerError(f"{path} has mode {mode:o}: others may enter; chmod 700 it")
    if mode & forbidden:
        hint = "choose one of your own inside it" if mode & stat.S_ISVTX else f"chmod go-w {path}"
        raise ForeignOwnerError(f"{path} has mode {mode:o}: others may write to it", hint=hint)


def movable_at(path: StrPath) -> Path | None:
    """The nearest directory above ``path`` where everybody may put another one in the place of what leads
    there. A volume of a container is often one, with no other user in it, so this is `holdfast doctor`'s to
    tell, and refused only where code lies."""
    for parent in Path(path).absolute().parents:
        with contextlib.suppress(OSError):
            mode = parent.stat().st_mode
            if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
                return parent
    return None


def open_regular(path: StrPath, flags: int, mode: int = 0o600, *, at: int | None = None) -> int:
    """A descriptor of a regular file of ours that has one name and that nobody else may write.

    Raises:
        ForeignOwnerError: it is not that.
        OSError: as ``os.open``; of a link ELOOP, of a FIFO that is to be written ENXIO.
    """
    fd = os.open(path if at is None else os.path.basename(path), flags | SAFELY, mode, dir_fd=at)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise ForeignOwnerError(f"{path} is not a regular file", hint="choose another place")
        _check(str(path), found, 0o022)
        if found.st_nlink > 1:
            raise ForeignOwnerError(f"{path} has {found.st_nlink} names", hint="remove the others")
    except BaseException:
        os.close(fd)
        raise
    return fd


def read_regular(path: StrPath, size: int) -> bytes:
    """The first ``size`` bytes of a file, whoever's: an operator may have a directory looked at in which
    another user put a FIFO.

    Raises:
        OSError: as ``os.open``; EINVAL where it is not a regular file.
    """
    fd = os.open(path, os.O_RDONLY | SAFELY)
    with os.fdopen(fd, "rb", 0) as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "is not a regular file", str(path))
        return file.read(min(size, found.st_size))


def open_log(path: StrPath) -> int:
    """A descriptor of the directory of a log. Its name may be a link, out of the directory of a store's logs
    and into shared memory, where after a reboot another user may have made what the link leads to.

    Raises:
        OSError: as ``os.open``; EPERM where it is not of the owner of the directory with its name, or others
            may write to it.
    """
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        if found.st_uid not in {os.geteuid(), os.stat(os.path.dirname(path) or ".").st_uid} or found.st_mode & 0o022:
            raise PermissionError(errno.EPERM, f"belongs to uid {found.st_uid}, or others may write to it", str(path))
    except BaseException:
        os.close(fd)
        raise
    return fd


def is_read_only(path: StrPath) -> bool:
    """The file system of a path says that it is read-only now; False also where it says nothing, being
    away."""
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except OSError:
        return False
