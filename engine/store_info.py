"""What a store left in files for everybody: who it is, and what its logs say. Readable with the store dead."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from .core import CData, ffi, lib
from .errors import ConfigError, CorruptionError, Error, SystemCallError
from .logs import table_of
from .reconcile import LogView
from .store_state import SourceState, StateFile
from .wire import U32, UNDECODABLE, Uuid

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from .domain import Domain

__all__ = [
    "StoreInfo",
    "kept_view",
    "knows_nothing",
    "log_range",
    "log_reader",
    "log_view",
    "never_held",
    "peer_logs",
    "read_info",
    "readable",
    "write_info",
]

EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}


class StoreInfo(msgspec.Struct, frozen=True):
    """The file ``<domain>/stores/<name>.info``."""

    name: str
    uuid: Uuid
    directory: str
    logs: str
    type: str
    pid: U32
    start: int
    token: int
    """start and token: 64 bits."""
    proxies: bool = False
    """It may stand in for a dead source (allow-proxy-source)."""
    standing: tuple[bytes, ...] = ()
    """uuids of the sources that it stands in for."""

    def __post_init__(self) -> None:
        if not (0 <= self.start < 2**64 and 0 <= self.token < 2**64) or "\0" in self.directory + self.logs:
            raise ValueError("no store writes such an info file")  # msgspec makes a ValidationError of it


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
    except (ConfigError, OSError, *UNDECODABLE):
        return None


@contextlib.contextmanager
def log_reader(path: Path) -> Iterator[CData | None]:
    """A struct hf_logr * of the log in ``path``; None when there is no readable log.

    Raises SystemCallError: this process has run out of file descriptors or memory, which says nothing of the log.
    """
    out = ffi.new("struct hf_logr **")
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as refused:
        _check_supplied(refused.errno or 0, path)
        yield None
        return
    try:
        status = lib.hf_logr_open(fd, out)
    finally:
        os.close(fd)
    if status != lib.HF_OK:
        _check_supplied(int(lib.HF_ERRNO) - int(status), path)
        yield None
        return
    try:
        yield out[0]
    finally:
        lib.hf_logr_close(out[0])


def _check_supplied(number: int, path: Path) -> None:
    if number in EXHAUSTED:
        error = SystemCallError(f"{path}: {os.strerror(number)}", number, errno.errorcode[number])
        error.hint, error.retriable = "raise the limit of this process (ulimit -n, -v)", True
        raise error


def log_range(path: Path) -> tuple[int, int] | None:
    """Oldest and next published number of the log in ``path``; None when none can be read now."""
    numbers = ffi.new("uint64_t[2]")
    with contextlib.suppress(SystemCallError), log_reader(path) as log:
        if log is not None and lib.hf_logr_range(log, numbers, numbers + 1) == lib.HF_OK:
            return int(numbers[0]), int(numbers[1])
    return None


def log_view(path: Path) -> LogView | None:
    """BEGIN table and next number of the log in ``path``; None when there is no readable log, or nothing has begun in it.

    Raises as :func:`log_reader`: what is decided by it must not take a whole log for none.
    """
    numbers = ffi.new("uint64_t[2]")
    with log_reader(path) as log:
        table = table_of(log) if log is not None else ()  # first: a BEGIN lowers the end before it is in the table
        if log is None or lib.hf_logr_range(log, numbers, numbers + 1) != lib.HF_OK:
            return None
    return LogView(table, int(numbers[1])) if table else None


def readable(path: Path, first: int, following: int) -> bool:
    """The log in ``path`` gives all numbers of [``first``, ``following``), or says that nobody has them."""
    size = 1 << 16
    memory, number = ffi.new("uint8_t[]", size), ffi.new("uint64_t *")
    with log_reader(path) as log:
        while log is not None and first < following:
            got = lib.hf_logr_read(log, first, memory, size, number)
            if got == lib.HF_SMALL:
                size = int(number[0])
                memory = ffi.new("uint8_t[]", size)
            elif got > 0 or got == lib.HF_LOST or (got == lib.HF_GONE and first < _oldest(log)):
                first = int(number[0])
            else:
                return False
        return log is not None


def _oldest(log: CData) -> int:
    numbers = ffi.new("uint64_t[2]")
    return int(numbers[0]) if lib.hf_logr_range(log, numbers, numbers + 1) == lib.HF_OK else 0


def kept_view(log: Path) -> LogView | None:
    """As :func:`log_view`; where there is no log any more, what its store's state remembers (a memory store after a reboot)."""
    view = log_view(log)
    if view is None:
        with contextlib.suppress(OSError, CorruptionError):
            kept = _remembered(log)
            view = LogView(tuple(kept.begins), 0) if kept is not None and kept.begins else None
    return view


def never_held(log: Path) -> bool:
    """The store of this log has never acknowledged a message of its source, as its files say. False where they do not say it.

    What a store acknowledges has begun in its state, durably: so one that remembers no BEGIN has acknowledged nothing. One that
    does must show an empty log: a log that is gone may have had anything.
    """
    try:
        kept, view = _remembered(log), log_view(log)
    except (OSError, Error):
        return False
    if view is None:
        return kept is not None and not kept.incarnation
    return view.next_sqn == 0 and not (kept is not None and kept.learner)


def _remembered(log: Path) -> SourceState | None:
    """What the state of a log's store has of its source; without incarnation if it does not know it. None: there is no state.

    Raises OSError, CorruptionError.
    """
    state, source = StateFile(log.parent.parent).load(), bytes.fromhex(log.name)
    if state is None:
        return None
    unknown = SourceState(source, "", 0, 0)
    return next((kept for kept in state.sources if kept.uuid == source), unknown)


def knows_nothing(domain: Domain, name: str, topic: str, registration_id: int, session_id: int) -> bool:
    """This store is dead, and its state file says that it has never heard of such a source. A session ID goes before a RegID."""
    info = read_info(domain, name)
    if info is None or lib.hf_process_alive(domain.fd, info.token, info.pid, info.start) != 0:
        return False
    try:
        state = StateFile(Path(info.directory)).load()
    except (OSError, CorruptionError):
        return False
    if state is None or state.uuid != info.uuid:  # wiped since
        return False
    return not any(
        (source.topic, source.session_id) == (topic, session_id)
        if session_id
        else source.registration_id == registration_id
        for source in state.sources
    )


def peer_logs(
    domain: Domain, names: Iterable[str], source: bytes, own: bytes, known: Mapping[str, str] = MappingProxyType({})
) -> list[Path]:
    """Where the stores of these names keep the log of a source, in this order, without the store whose uuid is ``own``.

    ``known``: directories of stores whose info files may be gone, as they are after a reboot. For a store of which nothing is
    known there is a path that cannot be read: it may have more than the others, as any that is out of reach.
    """
    places: list[Path] = []
    for name in names:
        info = read_info(domain, name)
        if info is not None and info.uuid != own:
            places.append(Path(info.logs))
        elif info is None and name in known:
            places.append(Path(known[name]) / "logs")
        elif info is None:
            places.append(domain.stores / f"{name}.info")
    return list(dict.fromkeys(place / source.hex() for place in places))
