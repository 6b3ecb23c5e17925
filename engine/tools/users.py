"""Whether a living process has shared memory of a domain open or mapped, or the domain's directory open.

*By /proc.* The text of the links and maps is compared, not the file behind it: it is there when the name is
gone (``… (deleted)``), a stat may wait for a file server that is away, and a mount namespace may have other
paths in front. A process whose text only looks like it is taken for one that has it: that keeps too much.

*By a lease.* /proc does not show processes of other PID namespaces, nor tell this user about those that
are protected. The kernel grants a read lease on a file only while nobody has it open, or mapped from such a
descriptor, for writing. Whoever takes part in a domain has its doorbells and boards mapped so, a source its
ring, a store the files of its logs. The lease is given back at once. Who opens the file meanwhile waits that
long, and the signal about it is one that is ignored.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..native.private_directory import open_regular
from ..native.runtime import Path, fcntl, os

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["is_written", "users"]

PREFIX = re.compile(r"(?:^|/)(hf\.[0-9a-f]{12}\.)")
PROC = Path("/proc")


SIGURG = 23
"""Of Linux on the machines that we run on."""


def users(directories: Mapping[str, str]) -> dict[str, int]:
    """Prefix of a domain's names -> a process that has something of it, among those that can be looked at.

    What this process has open itself does not count, what it has mapped does.

    Args:
        directories: path of a domain's directory -> its prefix.

    Raises:
        OSError: there is no /proc.
    """
    found: dict[str, int] = {}
    me, names = str(os.getpid()), os.listdir(PROC)
    if me not in names:
        raise FileNotFoundError(f"{PROC} does not show this process")
    for pid in filter(str.isdigit, names):
        try:
            for text in _texts(PROC / pid, own=pid == me):
                if prefix := _prefix(text, directories):
                    found.setdefault(prefix, int(pid))
        except (PermissionError, FileNotFoundError, ProcessLookupError):  # another user's; protected; it has ended
            continue
    return found


def is_written(path: Path) -> bool:
    """Somebody has this file of ours open for writing, or mapped.

    Raises:
        FileNotFoundError, ForeignOwnerError: as open_regular.
        OSError: nobody can say, as where the file system knows no leases.
    """
    fd = open_regular(path, os.O_RDONLY)
    try:
        fcntl.fcntl(fd, fcntl.F_SETSIG, SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _prefix(text: str, directories: Mapping[str, str]) -> str:
    if named := PREFIX.search(text):
        return named[1]
    place = text.removesuffix(" (deleted)")
    for path, prefix in directories.items():
        if place == path or place.startswith(f"{path}/"):
            return prefix
    return ""


def _texts(folder: Path, *, own: bool) -> Iterator[str]:
    """Whatever the process has open or mapped, by name."""
    for line in (folder / "maps").read_text(errors="replace").splitlines():
        fields = line.split(None, 5)
        if len(fields) == 6:
            yield fields[5]
    for name in [] if own else os.listdir(folder / "fd"):
        try:
            yield os.readlink(folder / "fd" / name)
        except FileNotFoundError:  # closed meanwhile
            continue
