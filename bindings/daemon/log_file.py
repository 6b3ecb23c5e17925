"""Log lines of the daemon, ``DATE [SEVERITY]: MODULE: text``, on standard error or in a file that is rolled
(rolling.py).

A log that cannot be written never stops a store: lines are lost, and the first that is written again says how
many.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ..engine.errors import ConfigError, Error
from ..engine.native.private_directory import open_regular
from .rolling import Rolling

if TYPE_CHECKING:
    from collections.abc import Callable

    from .config import LogConfig

__all__ = ["DaemonLog"]

ROLLED = r"_[0-9]+\.[0-9]{4}-[0-9]{2}-[0-9]{2}\.[0-9]+"


def local_time() -> datetime:
    """Now, in the zone of this host."""
    return datetime.now().astimezone()


def utc_time() -> datetime:
    """Now, in UTC."""
    return datetime.now(UTC)


def _unusable(path: str, error: OSError) -> ConfigError:
    if error.errno in {errno.ELOOP, errno.ENXIO}:
        return ConfigError(f"log file {path} is not a regular file", hint='for standard error: type="console"')
    return ConfigError(f"log file {path}: {error.strerror}", hint="its directory must exist")


class DaemonLog(logging.Handler):
    """A handler for the root logger.

    Raises:
        ConfigError: the file cannot be opened.
        ForeignOwnerError: it is no regular file of ours: a link or a FIFO that another user may have put
            there.
    """

    def __init__(self, config: LogConfig, clock: Callable[[], datetime]) -> None:
        super().__init__()
        self._clock = clock
        self._config = config
        self._lost = 0
        self._fd = sys.stderr.fileno()
        self._rolling: Rolling | None = None
        if config.path is not None:
            try:
                self._fd = self._open(config.path)
            except OSError as error:
                raise _unusable(config.path, error) from error
            self._rolling = Rolling(config, os.getpid(), os.fstat(self._fd).st_size, clock())

    @staticmethod
    def _open(path: str) -> int:
        return open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)

    def ask_roll(self) -> bool:
        """The next line goes into a new file; False: there is no file."""
        if self._rolling is None:
            return False
        self._rolling.ask()
        return True

    def emit(self, record: logging.LogRecord) -> None:
        """Writes one record; loses it where that fails."""
        now = self._clock()
        try:
            lost = self._line(now, "WARNING", __name__, f"{self._lost} lines were lost here") if self._lost else b""
            line = lost + self._line(now, record.levelname, record.name, self.format(record))
            if self._rolling is not None:
                if self._rolling.due(now):
                    self._roll(self._rolling, now)
                self._rolling.wrote(len(line))
            while line:
                line = line[os.write(self._fd, line) :]
            self._lost = 0
        except OSError:
            self._lost += 1
        except Exception:
            self.handleError(record)

    @staticmethod
    def _line(now: datetime, severity: str, module: str, text: str) -> bytes:
        stamp = f"{now:%Y-%m-%d %H:%M:%S}.{now.microsecond // 1000:03}"
        return f"{stamp} [{severity}]: {module}: {text}\n".encode(errors="backslashreplace")

    def _roll(self, rolling: Rolling, now: datetime) -> None:
        """Whatever fails in it, lines go on into the file that is open."""
        path = self._config.path
        assert path is not None
        with contextlib.suppress(Error, OSError):
            name = rolling.next_name(now)
            while os.path.lexists(name):
                name = rolling.next_name(now)
            os.rename(path, name)
            try:
                fresh = self._open(path)
            except (Error, OSError):
                os.rename(name, path)
                raise
            os.close(self._fd)
            self._fd = fresh
            rolling.rolled()
            if self._config.keep:
                self._remove_old(Path(path))

    def _remove_old(self, path: Path) -> None:
        rolled = [each for each in path.parent.iterdir() if re.fullmatch(re.escape(path.name) + ROLLED, each.name)]
        rolled.sort(key=lambda each: (each.stat().st_mtime_ns, int(each.name.rpartition(".")[2])))
        for old in rolled[: -self._config.keep]:
            old.unlink()

    def close(self) -> None:
        """Closes the file."""
        if self._rolling is not None:
            os.close(self._fd)
            self._rolling = None
            self._fd = sys.stderr.fileno()
        super().close()
