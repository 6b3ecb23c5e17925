"""Checks the logs of a store's directory: read-only, and safe beside a store that runs. csrc/log/check.c does
the reading."""

from __future__ import annotations

import errno
from dataclasses import dataclass

import msgspec

from ..errors import ConfigError, CorruptionError, Error, SystemCallError
from ..native.core import CData, ffi, lib
from ..native.private_directory import open_log, read_regular
from ..native.runtime import Path, os
from ..native.status import check, error_of
from .end import OpenLog
from .end import open_log as open_ended
from .reader import table_of
from .state_file import State, StateFile

__all__ = ["Finding", "LogReport", "StoreFiles", "StoreReport", "check_log", "check_store", "store_files"]

UNSURE_BYTES = 48
"""The most that is in the file `unsure` of a log."""
FINDINGS = 256
KINDS = {
    lib.HF_FOUND_DAMAGE: "damage",
    lib.HF_FOUND_TORN: "torn",
    lib.HF_FOUND_GAP: "gap",
    lib.HF_FOUND_HEADER: "header",
    lib.HF_FOUND_FILL: "fill",
    lib.HF_FOUND_UNREADABLE: "unreadable",
}


class Finding(msgspec.Struct, frozen=True):
    """A range of a log that does not verify."""

    kind: str
    """``damage`` (bytes are wrong), ``unreadable`` (the disk does not give them: a bad sector), ``gap`` (a
    segment is missing), ``header`` (a segment's header is wrong), ``fill`` (what was copied from another
    store is damaged here in its turn), or ``torn``: an end that a crash cut off, which the store steps over
    when it starts."""
    position: int
    """Of its first byte in the log."""
    bytes: int
    first: int
    """Sequence number of the first message that it costs."""
    next: int
    """And the number behind the last; equal to ``first`` when it costs none."""
    segment: str
    """File name; empty for ``fill``."""

    @property
    def costs(self) -> bool:
        """Messages are lost by it. What costs none is a second copy of a header, say, or was repaired."""
        return self.next > self.first


class LogReport(msgspec.Struct, frozen=True):
    """The log of one source. ``error`` is why it could not be read at all, or empty."""

    source: str
    topic: str
    path: str
    segments: int
    frames: int
    messages: int
    bytes: int
    oldest: int
    next: int
    findings: list[Finding]
    error: str = ""
    filled: int = 0
    """Numbers that the segments lack, and that were copied from another store."""

    @property
    def damaged(self) -> bool:
        """Messages are lost here."""
        return bool(self.error) or any(finding.costs for finding in self.findings)


class StoreReport(msgspec.Struct, frozen=True):
    """One directory. ``error``: neither slot of its state is valid."""

    directory: str
    name: str
    logs: list[LogReport]
    error: str = ""

    @property
    def damaged(self) -> bool:
        """As of any of its logs, or of its state."""
        return bool(self.error) or any(log.damaged for log in self.logs)


@dataclass(frozen=True, slots=True)
class StoreFiles:
    """What lies in a store's directory."""

    path: Path
    state: State | None
    error: str
    """Why there is no state though there are slots of it, or empty."""
    logs: list[Path]
    """Directories of its logs, by the uuid of their sources."""

    @property
    def name(self) -> str:
        """Of the store; empty when nobody knows."""
        return self.state.name if self.state is not None else ""

    def topic(self, log: Path) -> str:
        """Of the source whose log that is; empty when nobody knows."""
        sources = self.state.sources if self.state is not None else []
        return next((source.topic for source in sources if source.uuid.hex() == log.name), "")


def store_files(directory: str | os.PathLike[str]) -> StoreFiles:
    """Looks into ``directory``: a store's, or one with logs in it.

    Raises:
        ConfigError: it is no directory, or nothing of a store is in it.
    """
    path = Path(directory)
    if not path.is_dir():
        raise ConfigError(f"{path} is not a directory", hint="give the directory of a store: holdfast stat lists them")
    logs = path / "logs" if (path / "logs").is_dir() else path
    try:
        found = sorted(entry for entry in logs.iterdir() if (entry / "head").exists())
        state, error = StateFile(path).load(), ""
    except CorruptionError as damaged:
        state, error = None, str(damaged.args[0])
    except OSError as denied:
        if denied.errno in {
            errno.EMFILE,
            errno.ENFILE,
            errno.ENOMEM,
        }:  # this process's limit, and nothing about the store
            raise error_of(int(lib.HF_ERRNO) - denied.errno, what=str(path)) from None
        raise ConfigError(f"{path} cannot be read: {denied.strerror}", hint="run this as the store's user") from denied
    if state is None and not error and not found:
        raise ConfigError(f"{path} is not a store's directory", hint="it has neither state nor logs")
    return StoreFiles(path, state, error, found)


def check_store(directory: str | os.PathLike[str]) -> StoreReport:
    """Verifies every published frame of every log below ``directory``, and every fill. Raises as
    `store_files`."""
    files = store_files(directory)
    logs = [check_log(log, files.topic(log)) for log in files.logs]
    return StoreReport(str(files.path), files.name, logs, files.error)


def check_log(path: Path, topic: str = "") -> LogReport:
    """Verifies one log. What cannot be read is in the report, not raised."""
    summary = ffi.new("struct hf_check_summary *")
    found: list[Finding] = []
    error = ""
    try:
        fd = open_log(path)
    except OSError as denied:
        return LogReport(path.name, topic, str(path), 0, 0, 0, 0, 0, 0, [], str(denied))
    try:
        out = ffi.new("struct hf_finding[]", FINDINGS)
        count = check(lib.hf_log_check(fd, out, FINDINGS, summary), what=str(path))
        found = [_finding(out[i]) for i in range(min(count, FINDINGS))]
        if count > FINDINGS:
            error = f"{count} findings, the first {FINDINGS} are listed"
    except Error as refused:
        error = str(refused.args[0])
    finally:
        os.close(fd)
    error = error or _unsure(path) or _unbegun(path)
    return LogReport(
        path.name, topic, str(path), int(summary.segments), int(summary.frames), int(summary.messages),
        int(summary.bytes), int(summary.oldest_sqn), int(summary.next_sqn), found, error, int(summary.filled),
    )  # fmt: skip


def _unbegun(path: Path) -> str:
    """Its head does not say what has begun, and so not what is void; or empty."""
    opened = open_ended(path)
    if not isinstance(opened, OpenLog):
        return str(opened)
    try:
        table_of(opened.log)
    except (CorruptionError, SystemCallError) as unreadable:
        return str(unreadable.args[0])
    finally:
        opened.close()
    return ""


def _unsure(path: Path) -> str:
    """What a store that opened this log could not read behind what is known to be stable (csrc/log/unsure.c);
    or empty."""
    try:
        first, following = map(int, read_regular(path / "unsure", UNSURE_BYTES).split())
    except FileNotFoundError:
        return ""
    except (OSError, ValueError):
        first = following = 0
    which = f": {first}..{following - 1} may have been acknowledged" if first != following else ""
    return f"the disk does not give its end{which}; the other stores have it, or it is lost"


def _finding(found: CData) -> Finding:
    return Finding(
        KINDS.get(int(found.kind), f"kind {int(found.kind)}"), int(found.position), int(found.bytes),
        int(found.first_sqn), int(found.next_sqn),
        f"seg-{int(found.segment):016x}" if found.kind != lib.HF_FOUND_FILL else "",
    )  # fmt: skip
