"""The files of the register (engine/log/register.py): what a line is, which lines count, and who may write.

A line is an :class:`Entry` and its checksum, appended by one write under a lock. What a crash has torn is no
line. Of each list of an identity the last line counts. Of each store the life counts that was written under
the greatest incarnation, whenever that line came: a thread may have stood still with it.
"""

from __future__ import annotations

import contextlib
import zlib
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from ..control.wire import UNDECODABLE, Number
from ..errors import ConfigError, Error
from ..native.private_directory import open_private, open_regular
from ..native.runtime import OfProcess, fcntl, os
from ..native.sync import sync_data, sync_directory
from ..rules.exclusions import OVER_MAX
from ..rules.quorum import Groups
from ..rules.reconcile import FOR_EVER
from ..rules.reports import Configuration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

__all__ = ["Entry", "List", "RegisterFile", "all_over", "last_lines", "last_lives", "line_of", "read_file"]

COMPACT_BYTES = 1 << 16
"""A file of this size is written anew, if that halves it."""
READ_MAX = 1 << 22
LISTS_MAX = 100
"""Lists that a file remembers when it is written anew: the newest."""

Small = Annotated[int, Meta(ge=0, le=25)]
List = tuple[tuple[str, ...], tuple[Small, ...], tuple[Small, ...], Small, Small]
"""Stores, sizes of the groups, the group of each store, and by number what they must agree on."""


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One list of one source."""

    uuid: str
    list: List
    lives: dict[str, Number]
    """A store's own name -> the life that it was in, of those whose BEGIN was about to be sent when this was
    written."""
    incarnation: Number = 0
    """Under which the list was declared last."""
    below: Annotated[int, Meta(ge=-1, le=2**63 - 1)] = -1
    """From this number on another list has been in force; -1: this one may be."""
    over: tuple[Number, ...] = ()
    """Exclusions by the operator that the BEGIN knew of: they are over."""

    @property
    def configuration(self) -> Configuration:
        """As the stores' answers have it."""
        stores, sizes, groups, intragroup, intergroup = self.list
        told = Groups.told(sizes, groups, intragroup, intergroup)
        return Configuration(stores, told, self.below if self.below >= 0 else FOR_EVER)


def read_file(path: Path) -> list[Entry]:
    """All lines, oldest first; none where they cannot be read. For who only reads: nothing is made."""
    try:
        fd = open_regular(path, os.O_RDONLY)
    except (Error, OSError):
        return []
    with os.fdopen(fd, "rb", 0) as file:
        return _parse(file.read(READ_MAX))


def last_lines(entries: Sequence[Entry]) -> list[Entry]:
    """The last line of each list, in the order in which these were declared last: a bound changes no
    order."""
    last: dict[tuple[str, List], Entry] = {}
    for entry in entries:
        if entry.below < 0:
            last.pop((entry.uuid, entry.list), None)
        last[entry.uuid, entry.list] = entry
    return list(last.values())


def last_lives(entries: Sequence[Entry]) -> dict[str, dict[str, tuple[int, int]]]:
    """By identity, the last life of each store, behind the incarnation that it was written under: a thread of
    an earlier one may have written its line late."""
    last: dict[str, dict[str, tuple[int, int]]] = {entry.uuid: {} for entry in entries}
    for entry in entries:
        of_uuid = last[entry.uuid]
        for store, life in entry.lives.items():
            if entry.incarnation >= of_uuid.get(store, (0, 0))[0]:
                of_uuid[store] = entry.incarnation, life
    return last


def all_over(entries: Iterable[Entry]) -> dict[str, tuple[int, ...]]:
    """By identity, all exclusions that are over, the newest last."""
    found: dict[str, dict[int, None]] = {}
    for entry in entries:
        found.setdefault(entry.uuid, {}).update(dict.fromkeys(entry.over))
    return {uuid: tuple(numbers)[-OVER_MAX:] for uuid, numbers in found.items()}


def _compact(entries: Sequence[Entry]) -> list[Entry]:
    """What counts of them, in few lines. A life stays with its incarnation, or one that is still to be
    written late would not count: so some lists have another line before their last one."""
    kept, lives, over = last_lines(entries)[-LISTS_MAX:], last_lives(entries), all_over(entries)
    lines = []
    for entry in kept:
        by_incarnation: dict[int, dict[str, int]] = {entry.incarnation: {}}
        for store, (incarnation, life) in lives.pop(entry.uuid, {}).items():
            by_incarnation.setdefault(incarnation, {})[store] = life
        own = by_incarnation.pop(entry.incarnation)
        for incarnation, found in [*sorted(by_incarnation.items()), (entry.incarnation, own)]:
            ended = over.pop(entry.uuid, ())
            lines.append(msgspec.structs.replace(entry, lives=found, incarnation=incarnation, over=ended))
    return lines


def _leave_locks(locks: set[int]) -> None:
    """A child has its parent's lock as long as it has the file open: its parent may be killed, and the child
    live on."""
    while locks:
        os.close(locks.pop())


_locks: OfProcess[set[int]] = OfProcess(set, _leave_locks)
"""Descriptors of files that this process has locked, or is about to."""


class RegisterFile:
    """One file, in the register's directory, which is made. Raises ForeignOwnerError, ConfigError,
    OSError."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory, self._name = directory, name
        self._fd = open_private(directory, durable=True)

    def close(self) -> None:
        """Closes the directory."""
        os.close(self._fd)

    def load(self) -> list[Entry]:
        """All lines, oldest first."""
        try:
            fd = open_regular(self._name, os.O_RDONLY, at=self._fd)
        except FileNotFoundError:
            return []
        try:
            return self._entries(fd)
        finally:
            os.close(fd)

    def append(self, news: Callable[[Sequence[Entry]], Sequence[Entry]]) -> None:
        """What ``news`` makes of the lines, by one write, synced. After a failed sync the next one would be
        believed: what was appended goes again."""
        with self._locked() as fd:
            entries = news(self._entries(fd))
            if not entries:
                return
            text = b"\n" + b"".join(map(line_of, entries))  # behind a line that was torn, too
            size = os.fstat(fd).st_size
            try:
                self._write(fd, text)
                sync_directory(self._directory)  # who made the file may have been killed before it did
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(fd, size)
                    if size == 0:  # whether its name is on disk no later sync tells: the next one is another file
                        os.unlink(self._name, dir_fd=self._fd)
                raise
            if size > COMPACT_BYTES:
                self._renew(self._entries(fd), size // 2)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        """The file, made if need be, for one process at a time: two sources may have one RegID at different
        stores."""
        while True:
            fd = open_regular(self._name, os.O_RDWR | os.O_APPEND | os.O_CREAT, at=self._fd)
            _locks.value.add(fd)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX)
                if not os.fstat(fd).st_nlink:
                    continue  # it was written anew meanwhile
                if self._is_in_doubt():
                    self._renew(self._entries(fd))
                    os.unlink(f"{self._name}.doubt", dir_fd=self._fd)
                    continue
                yield fd
                return
            finally:
                if fd in _locks.value:  # else this is a child, and both are its parent's
                    _locks.value.discard(fd)
                    fcntl.flock(fd, fcntl.LOCK_UN)  # a child that is being forked has the file open, too
                    os.close(fd)

    def _entries(self, fd: int) -> list[Entry]:
        size = os.fstat(fd).st_size
        if size > READ_MAX:
            raise ConfigError(f"{self._directory / self._name} is larger than {READ_MAX} bytes", hint="remove it")
        return _parse(os.pread(fd, READ_MAX, 0))

    def _write(self, fd: int, text: bytes) -> None:
        if os.write(fd, text) != len(text):
            raise OSError(f"{self._directory / self._name}: no room")
        sync_data(fd)

    def _is_in_doubt(self) -> bool:
        with contextlib.suppress(FileNotFoundError):
            os.stat(f"{self._name}.doubt", dir_fd=self._fd, follow_symlinks=False)
            return True
        return False

    def _renew(self, entries: Sequence[Entry], most: int = READ_MAX) -> None:
        """What counts, in a new file that takes the old one's place, if it has ``most`` bytes at most. By who
        has the lock."""
        text = b"".join(map(line_of, _compact(entries)))
        if len(text) > most:
            return
        fd = open_regular(f"{self._name}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, at=self._fd)
        try:
            self._write(fd, text)
        finally:
            os.close(fd)
        os.replace(f"{self._name}.new", self._name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        try:
            sync_directory(self._directory)
        except OSError:  # the disk may have the old file under that name, without what comes later
            os.close(open_regular(f"{self._name}.doubt", os.O_WRONLY | os.O_CREAT, at=self._fd))
            raise


def line_of(entry: Entry) -> bytes:
    """As it stands in a file."""
    text = msgspec.json.encode(entry)
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _parse(data: bytes) -> list[Entry]:
    """A line that was torn, or that somebody has changed, is none."""
    found = []
    for line in data.splitlines():
        checksum, _, text = line.partition(b" ")
        if checksum != b"%08x" % zlib.crc32(text):
            continue
        try:
            entry = msgspec.json.decode(text, type=Entry)
            bytes.fromhex(entry.uuid)
        except (ValueError, *UNDECODABLE):
            continue
        if len(entry.list[0]) == len(entry.list[2]):
            found.append(entry)
    return found
