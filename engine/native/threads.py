"""Starts threads. One that cannot be started is told with the limit that is why, as far as that can be read.

The system says the same of all of them (EAGAIN): the user's processes, those of a control group (a
container), those of the machine, and memory for the stack.
"""

from __future__ import annotations

import contextlib
import errno
from typing import TYPE_CHECKING

from ..errors import Error, LimitReachedError, SystemCallError
from .limits import Use, limit_error, process_name, read_text
from .runtime import Path, os, resource, time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .runtime import threading

__all__ = ["no_thread", "start_thread"]

SPARE = 4
"""Who counts is a moment late: with fewer than these left, the limit is why."""
STACK = 8 << 20
"""Bytes of addresses that a thread asks for, where no limit of the stack says so."""
COUNT_NS = 1_000_000_000
"""How long a count of a user's threads holds: it reads a file of each process."""
RAISE_USER = "end what the user runs, or raise it (ulimit -u, LimitNPROC= of its systemd unit) and start it again"
RAISE_GROUP = "raise it (docker --pids-limit=N, TasksMax= of its systemd unit), or end what runs in that group"
RAISE_MACHINE = "raise it, as root: sysctl kernel.threads-max=N; or end what has too many threads"


def start_thread(thread: threading.Thread) -> None:
    """Starts it. Raises LimitReachedError, or SystemCallError where no limit is known to be why."""
    try:
        thread.start()
    except (RuntimeError, MemoryError) as error:
        raise no_thread(f"thread {thread.name}") from error


def no_thread(what: str) -> Error:
    """Why ``what`` could not be started just now. Raises nothing: what cannot be looked at is not blamed."""
    text = f"{what}: no thread can be started"
    with contextlib.suppress(OSError, MemoryError, ValueError):
        stack, _ = resource.getrlimit(resource.RLIMIT_STACK)
        memory = limit_error(errno.ENOMEM, what, STACK if stack == resource.RLIM_INFINITY else stack)
        if memory is not None:
            return memory
    with contextlib.suppress(OSError, MemoryError, ValueError):
        for use in _uses():
            if use.used + SPARE >= use.most:
                return LimitReachedError(
                    f"{text}: {use}", errno.EAGAIN, "EAGAIN", limit=use.limit, value=use.most, used=use.used,
                    hint=use.remedy,
                )  # fmt: skip
    error = SystemCallError(text, errno.EAGAIN, "EAGAIN")
    error.hint = "of the limits of processes (ulimit -u, pids.max, kernel.threads-max) none is known to be reached"
    return error


def _uses() -> Iterator[Use]:
    """The user's last: nobody has counted its threads."""
    for group in _groups():
        most, used = read_text(f"{group}/pids.max") or "", read_text(f"{group}/pids.current") or ""
        if most.strip().isdigit() and used.strip().isdigit():
            yield Use("pids.max", f"control group {group}", int(used), int(most), RAISE_GROUP)
    most, load = read_text("/proc/sys/kernel/threads-max") or "", (read_text("/proc/loadavg") or "").split()
    if most.strip().isdigit() and len(load) > 3:
        yield Use("kernel.threads-max", "the machine", int(load[3].partition("/")[2]), int(most), RAISE_MACHINE)
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    user = os.getuid()
    if soft != resource.RLIM_INFINITY and user != 0:  # root is not held to it
        yield Use("RLIMIT_NPROC", f"{process_name()}, for the threads of uid {user},", _counted(user), soft, RAISE_USER)


_counts: dict[int, tuple[int, int]] = {}
"""User -> when its threads were counted, and how many they were."""


def _counted(user: int) -> int:
    """Many starts may fail at a time, and a drain thread may be among those who ask why."""
    now, (then, count) = time.monotonic_ns(), _counts.get(user, (0, -1))
    if count < 0 or now - then >= COUNT_NS:
        count = _threads_of(user)
        _counts[user] = now, count
    return count


def _threads_of(user: int) -> int:
    """By the real uid, as the kernel counts."""
    found = 0
    for name in os.listdir("/proc"):
        said = (read_text(f"/proc/{name}/status") or "") if name.isdigit() else ""
        fields = dict(line.split(":", 1) for line in said.splitlines() if ":" in line)
        if fields.get("Uid", "").split()[:1] == [str(user)]:
            found += int(fields.get("Threads", "0"))
    return found


def _groups() -> Iterator[str]:
    """Directories of the control groups that count this process, its own first."""
    for line in (read_text("/proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers not in {"", "pids"}:
            continue
        root = Path("/sys/fs/cgroup") / controllers
        own = root / path.lstrip("/")
        while own != root.parent:
            yield str(own)
            own = own.parent
