"""Limits of a process and of the machine that a store, a source or a receiver can reach, how much of each is
used, and the one sentence that names a limit with its value, its use and the remedy.

What cannot be read is unknown, and no limit is blamed for it.
"""

from __future__ import annotations

import contextlib
import errno
from typing import TYPE_CHECKING, NamedTuple

from ..errors import Error, LimitReachedError, SystemCallError
from .room import FULL, room_error
from .runtime import Path, os, resource

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "Use",
    "descriptors",
    "descriptors_to_the_hard_limit",
    "file_size_limit",
    "lacking",
    "limit_error",
    "mappings",
    "named",
    "process_name",
    "read_text",
    "uses_of",
]

NUMBERS = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
"""Errors of system calls behind which a limit may be."""
MAPPINGS_SPARE = 64
"""One call may need several mappings: with fewer than these left, the limit is why there was none."""
ADDRESSES_SPARE = 64 << 20
"""Bytes; the same of the address space."""
LONE = {"This process already has the maximum number of files open": errno.EMFILE,
        "The system limit on the total number of open files has been reached": errno.ENFILE}  # fmt: skip
"""What posix_ipc says instead of a number."""
RAISE_FILES = "raise it (ulimit -n, LimitNOFILE= of its systemd unit, docker --ulimit nofile=N) and start it again"
RAISE_MAPPINGS = "raise it, as root: sysctl vm.max_map_count=N; nothing has to be started again"
RAISE_ADDRESSES = "raise it (ulimit -v, LimitAS= of its systemd unit) and start it again"
RAISE_MACHINE = "raise it, as root: sysctl fs.file-max=N; or end what holds too many files: lsof"


class Use(NamedTuple):
    """How much of one limit is used."""

    limit: str
    """As RLIMIT_NOFILE, vm.max_map_count, RLIMIT_AS or fs.file-max."""
    whose: str
    """Process PID, or the machine."""
    used: int
    """-1: unknown."""
    most: int
    """-1: unknown."""
    remedy: str

    def __str__(self) -> str:
        """The sentence without the remedy."""
        most = f"{self.most:,}" if self.most >= 0 else "unknown"
        used = f"{self.used:,} are used" if self.used >= 0 else "how many are used is unknown"
        return f"{self.limit} of {self.whose} is {most}, {used}"


def descriptors() -> Use | None:
    """Descriptors of this process; None: no limit, or unknown. Opens none where the kernel counts (6.2)."""
    most = _own_limit(resource.RLIMIT_NOFILE)
    if most is None:
        return None
    used = _open_files("self")
    return None if used is None else Use("RLIMIT_NOFILE", process_name(), used, most, RAISE_FILES)


def mappings() -> Use | None:
    """Mappings of memory of this process; None: unknown."""
    return _mappings("self", os.getpid())


def uses_of(pid: int) -> list[Use]:
    """What another process has of its limits, as far as this one may read that."""
    found = []
    limits, used = _limits_of(pid), _open_files(str(pid))
    files, addresses = limits.get("Max open files"), limits.get("Max address space")
    if files is not None and used is not None:
        found.append(Use("RLIMIT_NOFILE", process_name(pid), used, files, RAISE_FILES))
    mapped = _mappings(str(pid), pid)
    if mapped is not None:
        found.append(mapped)
    size = _addresses(str(pid))
    if addresses is not None and size is not None:
        found.append(Use("RLIMIT_AS", process_name(pid), size, addresses, RAISE_ADDRESSES))
    return found


def file_size_limit(pid: int) -> int | None:
    """RLIMIT_FSIZE of a process, bytes; None: there is none, or it cannot be read."""
    return _limits_of(pid).get("Max file size")


def limit_error(number: int, what: str = "", size: int = -1) -> LimitReachedError | None:
    """The error of a system call that this process's limits refused; None: they are not why. ``size``: bytes
    that were asked for."""
    use = _reached(number, size)
    if use is None:
        return None
    prefix = f"{what}: " if what else ""
    text = f"{prefix}{os.strerror(number)}: {use}"
    return LimitReachedError(
        text, number, errno.errorcode[number], limit=use.limit, value=use.most, used=use.used, hint=use.remedy
    )


def named(error: Exception, what: str = "", *, where: str | os.PathLike[str] = "") -> Exception:
    """``error``, or what takes its place where a limit, or a full file system, is why: whatever is raised is
    told with a name. ``where``: a path in the file system that was written to, if the error names none."""
    if isinstance(error, (MemoryError, ImportError)):
        return _of_python(what) or error
    if isinstance(error, Error) or not isinstance(error, OSError):
        return error
    number = error.errno if error.errno is not None else LONE.get(str(error), 0)
    file = os.fsdecode(error.filename or "") if not isinstance(error.filename, int) else ""
    if number in FULL:
        path = file or os.fspath(where) or (what if os.path.isabs(what) else "")
        return room_error(number, "" if path == what else what, -1, path) if path else error
    return limit_error(number, what or file) or error


def lacking(error: Exception) -> Exception | None:
    """``error``, named, if this process or the machine has run out of something, also where no limit is known
    to be why: threads, memory, descriptors. None: it is another trouble, as ENOMEM is that no limit explains:
    ext4 says it of a device that has gone, for ever."""
    found = named(error)
    if isinstance(found, MemoryError | LimitReachedError):
        return found
    number = getattr(found, "errno", 0)
    no_thread = isinstance(found, SystemCallError) and number == errno.EAGAIN
    return found if no_thread or number in NUMBERS - {errno.ENOMEM} else None


@contextlib.contextmanager
def descriptors_to_the_hard_limit() -> Iterator[None]:
    """Meanwhile the soft limit of descriptors is the hard one.

    For a process that is a store. A library does not change the limits of the program that it is in.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):  # fs.nr_open was lowered since the hard one was set
        hard = soft
    try:
        yield
    finally:
        if resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard):  # nobody has changed it since
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _of_python(what: str) -> LimitReachedError | None:
    """Python gives no number where it gets no memory, or cannot open or map a module that is needed only
    now."""
    files = descriptors()
    full = files is not None and files.used >= files.most
    return limit_error(errno.ENOMEM, what) or (limit_error(errno.EMFILE, what) if full else None)


def _reached(number: int, size: int) -> Use | None:
    if number == errno.EMFILE:
        most = _own_limit(resource.RLIMIT_NOFILE)
        return Use("RLIMIT_NOFILE", process_name(), most or -1, most or -1, RAISE_FILES)
    if number == errno.ENFILE:
        return _machine_files()
    if number != errno.ENOMEM:
        return None
    mapped = mappings()
    if mapped is not None and mapped.used + MAPPINGS_SPARE >= mapped.most:
        return mapped
    most, used = _own_limit(resource.RLIMIT_AS), _addresses("self")
    if most is None or used is None or used + max(size, ADDRESSES_SPARE) < most:
        return None
    return Use("RLIMIT_AS", process_name(), used, most, RAISE_ADDRESSES)


def _machine_files() -> Use:
    """What root has left of the machine's table; who has no descriptor cannot read it."""
    said = (read_text("/proc/sys/fs/file-nr") or "").split()
    used, most = (int(said[0]), int(said[2])) if len(said) == 3 else (-1, -1)
    return Use("fs.file-max", "the machine", used, most, RAISE_MACHINE)


def process_name(pid: int = 0) -> str:
    """How :attr:`Use.whose` names a process; 0: this one."""
    return f"process {pid or os.getpid()}"


def _own_limit(which: int) -> int | None:
    """The soft one; None: there is none."""
    soft, _ = resource.getrlimit(which)
    return None if soft == resource.RLIM_INFINITY else int(soft)


def _open_files(who: str) -> int | None:
    path = f"/proc/{who}/fd"
    try:
        return os.stat(path).st_size or len(os.listdir(path))
    except OSError:
        return None


def _mappings(who: str, pid: int) -> Use | None:
    try:
        used = Path(f"/proc/{who}/maps").read_bytes().count(b"\n")
    except OSError:
        return None
    most = read_text("/proc/sys/vm/max_map_count")
    return Use("vm.max_map_count", process_name(pid), used, int(most), RAISE_MAPPINGS) if most and used else None


def _addresses(who: str) -> int | None:
    """Bytes."""
    said = read_text(f"/proc/{who}/statm")
    return int(said.split()[0]) * os.sysconf("SC_PAGE_SIZE") if said else None


def _limits_of(pid: int) -> dict[str, int]:
    """Name as in /proc/PID/limits -> soft limit; without those that are none."""
    found = {}
    for line in (read_text(f"/proc/{pid}/limits") or "").splitlines()[1:]:
        name, soft = line[:26].strip(), line[26:].split()[:1]
        if soft and soft[0].isdigit():
            found[name] = int(soft[0])
    return found


def read_text(path: str) -> str | None:
    """A small file of the kernel's; None: it cannot be read."""
    try:
        return Path(path).read_text(errors="replace")  # a process may be called as it likes
    except OSError:
        return None
