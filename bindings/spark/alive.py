"""Whether the driver of a batch write lives: as long as it does, a file in the write's directory is locked
(flock).

The kernel lets go of a lock when its holder ends, and shows it to everybody who sees the file: in another
container, where process numbers mean other processes, and on another host that shares the directory.

Spark's driver is a JVM, and the Python processes that it starts come and go while a write is under way. So a
small process keeps the lock, in a session of its own, until the JVM ends or the directory is removed: this
file, run as a program, which imports nothing of holdfast. Where there is no JVM above it, the writer's own
process keeps the lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ALIVE", "hold", "let_go", "over"]

ALIVE = "alive"
COMMITTING = "lock"
"""Locked by a commit (ledger.py), which may outlive its driver by a moment."""
LOOK_SECONDS = 1.0
"""How often the keeper looks after the JVM. The lock outlives it by this, at most."""

_held: dict[Path, int] = {}
"""Descriptors of this process, by directory."""


def hold(directory: Path) -> None:
    """Locks the file in ``directory`` for as long as the driver lives. It appears there locked: nobody meets
    it free."""
    fresh = directory / f"{ALIVE}-new"
    fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fresh.rename(directory / ALIVE)
        if (driver := _driver()) is not None:
            _keep(fd, driver, directory)
        else:
            _held[directory] = os.dup(fd)
    finally:
        os.close(fd)


def let_go(directory: Path) -> None:
    """The write is over. A keeper sees that the directory was removed."""
    if (fd := _held.pop(directory, None)) is not None:
        os.close(fd)


@contextlib.contextmanager
def over(directory: Path) -> Iterator[bool]:
    """Whether this write is over for certain: its driver is dead, and nobody commits for it. It stays so
    inside the block.

    A directory without the file is being made, or an older version has made it: nothing is known of its
    driver.
    """
    with contextlib.ExitStack() as stack:
        yield _free(stack, directory / ALIVE) is True and _free(stack, directory / COMMITTING) is not False


def _free(stack: contextlib.ExitStack, path: Path) -> bool | None:
    """Nobody had it locked, and ``stack`` has now. None: there is no such file."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    except OSError:
        return False
    stack.callback(os.close, fd)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


# The keeper -------------------------------------------------------------------------------------------------


def _driver() -> tuple[int, str] | None:
    """Process and start of the driver above this process: the JVM. None where this process is the driver
    itself."""
    pid = os.getppid()
    with contextlib.suppress(OSError):
        while pid > 0:
            name, parent, start = _process(pid)
            if name == "java":
                return pid, start
            pid = parent
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    if not str(getattr(main, "name", "")).startswith("pyspark."):
        return None
    return 1, _process(1)[2]  # a JVM by another name: the first of all processes outlives it


def _process(pid: int) -> tuple[str, int, str]:
    """Name, parent, and start in clock ticks since boot, of a process. A zombie has no start."""
    name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
    words = rest.split()
    return name, int(words[1]), words[19] if words[0] not in {"Z", "X"} else ""


def _keep(fd: int, driver: tuple[int, str], directory: Path) -> None:
    """Starts the keeper, which has ``fd`` as its descriptor 3. It is not waited for: it outlives this
    process."""
    null = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
    os.posix_spawn(
        sys.executable,
        [sys.executable, "-I", "-S", __file__, str(driver[0]), driver[1], str(directory.absolute())],
        os.environ,
        file_actions=[*null, (os.POSIX_SPAWN_DUP2, fd, 3)],
        setsid=True,
    )


def main() -> None:
    """See the module."""
    pid, start, directory = sys.argv[1:]
    os.chdir("/")
    alive = Path(directory) / ALIVE
    with contextlib.suppress(OSError):
        while _process(int(pid))[2] == start and alive.exists():
            time.sleep(LOOK_SECONDS)


if __name__ == "__main__":
    main()
