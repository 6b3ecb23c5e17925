"""What a store left in files for everybody: who it is, and how far its logs go. Readable with the store dead."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from .core import CData, ffi, lib
from .errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .domain import Domain

__all__ = ["LogEnd", "StoreInfo", "log_range", "newest_end", "read_info", "write_info"]


class StoreInfo(msgspec.Struct, frozen=True):
    """The file ``<domain>/stores/<name>.info``."""

    name: str
    uuid: bytes
    directory: str
    logs: str
    type: str
    pid: int
    start: int
    token: int


def write_info(domain: Domain, info: StoreInfo) -> None:
    """Replaces the file as a whole."""
    path = domain.info_path(info.name)
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_bytes(msgspec.json.encode(info))
    temporary.rename(path)


def read_info(domain: Domain, name: str) -> StoreInfo | None:
    """None when no such store ever ran here, its file cannot be read, or there can be none of this name."""
    try:
        return msgspec.json.decode(domain.info_path(name).read_bytes(), type=StoreInfo)
    except (ConfigError, OSError, msgspec.DecodeError):
        return None


class LogEnd(NamedTuple):
    """How far a log goes; of two logs of one source, the greater one is right: the newest incarnation wins (DESIGN 13)."""

    incarnation: int
    """Of its newest BEGIN, 0 without one."""
    next_sqn: int


@contextlib.contextmanager
def _reader(path: Path) -> Iterator[CData | None]:
    """A struct hf_logr * of the log in ``path``; None when there is no readable log."""
    out = ffi.new("struct hf_logr **")
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        status = lib.hf_logr_open(fd, out)
    finally:
        os.close(fd)
    if status != lib.HF_OK:
        yield None
        return
    try:
        yield out[0]
    finally:
        lib.hf_logr_close(out[0])


def log_range(path: Path) -> tuple[int, int] | None:
    """Oldest and next published number of the log in ``path``; None when there is no readable log."""
    numbers = ffi.new("uint64_t[2]")
    with _reader(path) as log:
        if log is None or lib.hf_logr_range(log, numbers, numbers + 1) != lib.HF_OK:
            return None
    return int(numbers[0]), int(numbers[1])


def _end(path: Path) -> LogEnd | None:
    begin = ffi.new("uint64_t[2]")
    numbers = ffi.new("uint64_t[2]")
    with _reader(path) as log:
        if log is None or lib.hf_logr_begin(log, begin, begin + 1) <= 0:
            return None
        if lib.hf_logr_range(log, numbers, numbers + 1) != lib.HF_OK:
            return None
    return LogEnd(int(begin[0]), max(int(numbers[1]), int(begin[1])))


def newest_end(domain: Domain, names: Iterable[str], uuid: bytes, own: LogEnd) -> LogEnd:
    """The greatest of ``own`` and of what the logs of a source at these stores say, as far as they can be read."""
    infos = [info for name in names if (info := read_info(domain, name)) is not None]
    ends = [end for info in infos if (end := _end(Path(info.logs) / uuid.hex())) is not None]
    return max([own, *ends])
