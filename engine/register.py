"""The register: which stores each source of this host has declared, and the lives of these stores. A small file for each source.

A store remembers whom its source declared last. Where the list changes, and the one store that knew both lists is wiped or
restored, nobody else knows of the other list any more: so each source writes its own here, on disk, before its first BEGIN with
it. At the next start that adds to what the stores say, and takes nothing away: a register that is lost, or that another container
has, leaves what the stores themselves know. Where no declared store knows the source at all, it is a new one.

A line is an :class:`Entry` and its checksum, appended by one write. What a crash has torn is no line. The last line of a list
counts, and of a store's lives. A list counts up to the number from which another one was in force (``below``): so nobody waits
for ever for stores that were retired.

A disk may hang. So each look is a thread's of its own, which is waited for for :data:`PATIENCE_S`; who got no answer goes on with
what the stores know.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import pwd
import threading
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec
from msgspec import Meta

from .domain import base_directory
from .errors import ConfigError, Error
from .private_directory import open_private, open_regular
from .quorum import INTERGROUP, INTRAGROUP, Groups
from .reconcile import FOR_EVER
from .reports import Configuration
from .sync import sync_data, sync_directory
from .voting import Register, Written
from .wire import UNDECODABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .domain import Domain

__all__ = ["Entry", "SourceRegister", "entries_of", "register_directory"]

_log = logging.getLogger("holdfast")
_T = TypeVar("_T")

NAME = ".register"
"""No domain's name begins with a dot."""
PATIENCE_S = 2.0
"""Of a source that starts: so long it waits for this disk."""
COMPACT_BYTES = 1 << 16
"""A file of this size is written anew."""
READ_MAX = 1 << 22
OTHERS_MAX = 100
"""Stores that are asked for beside the declared ones: the newest."""

Small = Annotated[int, Meta(ge=0, le=25)]
List = tuple[tuple[str, ...], tuple[Small, ...], tuple[Small, ...], Small, Small]
"""Stores, sizes of the groups, the group of each store, and by number what they must agree on."""


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One list of one source."""

    uuid: str
    list: List
    lives: dict[str, Annotated[int, Meta(ge=0, le=2**63 - 1)]]
    """A store's own name -> the life that it was in, of those that had a seat when this was written."""
    below: Annotated[int, Meta(ge=-1, le=2**63 - 1)] = -1
    """From this number on another list has been in force; -1: this one may be."""

    @property
    def configuration(self) -> Configuration:
        """As the stores' answers have it."""
        stores, sizes, groups, intragroup, intergroup = self.list
        told = Groups.told(sizes, groups, intragroup, intergroup)
        return Configuration(stores, told, self.below if self.below >= 0 else FOR_EVER)


def register_directory() -> Path:
    """Where the register is: in ``$HOLDFAST_DIR`` if that is set, else where it outlives a reboot.

    Raises ConfigError: this user has no home.
    """
    if os.environ.get("HOLDFAST_DIR"):
        return base_directory() / NAME
    if os.geteuid() == 0:
        return Path("/var/lib/holdfast") / NAME
    state = os.environ.get("XDG_STATE_HOME")
    if state:
        return Path(state) / "holdfast" / NAME
    home = os.environ.get("HOME")
    if not home:
        try:
            home = pwd.getpwuid(os.geteuid()).pw_dir
        except KeyError as error:
            raise ConfigError(f"uid {os.geteuid()} has no home directory", hint="set HOLDFAST_DIR") from error
    return Path(home) / ".local" / "state" / "holdfast" / NAME


def entries_of(domain: Path, uuid: str, source: tuple[str, int] | None = None) -> list[Entry]:
    """The last line of each list of the source whose uuid begins so. For who only reads: nothing is made.

    ``source``: its topic and session ID, which say in which file it is; without, all are looked through. What cannot be read
    adds nothing.
    """
    directories = {domain.parent / NAME}  # a domain that is named by its path may be where $HOLDFAST_DIR does not say
    with contextlib.suppress(ConfigError):
        directories.add(register_directory())
    found: dict[tuple[str, List], Entry] = {}
    for directory in directories:
        with contextlib.suppress(OSError):
            for name in [_name_of(domain, *source)] if source is not None else sorted(os.listdir(directory)):
                for entry in _read(directory / name):
                    if entry.uuid.startswith(uuid):
                        found[entry.uuid, entry.list] = entry
    return list(found.values())


def _name_of(domain: Path, topic: str, session: int) -> str:
    """The file of a source."""
    key = json.dumps([os.fsencode(domain).hex(), topic, session]).encode()
    return hashlib.blake2b(key, digest_size=16).hexdigest()


def _read(path: Path) -> list[Entry]:
    try:
        fd = open_regular(path, os.O_RDONLY)
    except (Error, OSError):
        return []
    with open(fd, "rb", buffering=0) as file:
        return _parse(file.read(READ_MAX))


class SourceRegister:
    """What one source reads and writes there. A trouble with the file is told once, and costs what the file would add.

    ``named``: it has a RegID or a session ID. Nobody can come back as one that has none, so nothing of it is written. Sources by
    RegIDs have one file for their topic.
    """

    def __init__(
        self, domain: Domain, topic: str, session: int, names: Sequence[str], groups: Groups | None, *, named: bool
    ) -> None:
        self._topic = topic
        self._name = _name_of(domain.path, topic, session)
        self._named = named and groups is not None
        if groups is not None:
            agree = INTRAGROUP.index(groups.intragroup), INTERGROUP.index(groups.intergroup)
            self._list: List = (tuple(names), groups.sizes, groups.of, *agree)
        self._trouble = ""
        self._completed = (b"", -1)
        self._busy: threading.Thread | None = None

    def read(self) -> tuple[Register, dict[str, int]]:
        """What is there now, by identity; and the stores of all lists, as they were declared or call themselves: the life in
        which they last took part, -1 where that is not known."""
        nothing: list[Entry] = []
        entries = self._look(_File.load, nothing)
        found: dict[bytes, dict[List, Entry]] = {}
        lives: dict[str, int] = {}
        for entry in entries:
            lists = found.setdefault(bytes.fromhex(entry.uuid), {})
            lists[entry.list] = entry
            lives |= entry.lives
        others: dict[str, int] = {}
        for entry in reversed(entries):
            others |= {store: lives.get(store, -1) for store in (*entry.list[0], *entry.lives) if store not in others}
        register = {
            uuid: Written(
                tuple(entry.configuration for entry in lists.values()),
                {name: life for entry in entries if entry.uuid == uuid.hex() for name, life in entry.lives.items()},
            )
            for uuid, lists in found.items()
        }
        return register, dict(list(others.items())[:OTHERS_MAX])

    def declare(self, uuid: bytes, lives: Mapping[str, int]) -> None:
        """Before anybody begins under ``uuid`` with this list: on disk when it returns, unless the file is in trouble."""

        def write(file: _File) -> None:
            entries = [entry for entry in file.load() if entry.uuid == uuid.hex()]
            known = {name: life for entry in entries for name, life in entry.lives.items()}
            last = next((entry for entry in reversed(entries) if entry.list == self._list), None)
            if last is None or last.below >= 0 or not lives.items() <= known.items():
                file.append([Entry(uuid.hex(), self._list, dict(lives))])

        self._look(write, None)

    def complete(self, uuid: bytes, start: int) -> None:
        """The source is, with this list, from ``start`` on: no other one counts from there on."""
        if self._completed == (uuid, start):
            return
        self._completed = uuid, start

        def write(file: _File) -> None:
            last = {entry.list: entry for entry in file.load() if entry.uuid == uuid.hex()}
            others = [entry for entry in last.values() if entry.list != self._list and not 0 <= entry.below <= start]
            file.append([Entry(entry.uuid, entry.list, {}, start) for entry in others])

        self._look(write, None)

    def _look(self, work: Callable[[_File], _T], nothing: _T) -> _T:
        """``work`` with the file, elsewhere; ``nothing`` where that fails or takes too long."""
        if not self._named:
            return nothing
        done: list[_T] = []
        failed: list[Exception] = []

        def run() -> None:
            try:
                with contextlib.closing(_File(register_directory(), self._name)) as file:
                    done.append(work(file))
            except (Error, OSError, ValueError) as error:
                failed.append(error)

        if self._busy is None or not self._busy.is_alive():
            self._busy = threading.Thread(target=run, name="holdfast-register", daemon=True)
            self._busy.start()
            self._busy.join(PATIENCE_S)
        if done:
            self._trouble = ""
            return done[0]
        self._tell(str(failed[0]) if failed else "the disk of the register of sources does not answer")
        return nothing

    def _tell(self, trouble: str) -> None:
        if trouble != self._trouble:
            _log.warning("%s; only its stores know whom topic %r has declared", trouble, self._topic)
        self._trouble = trouble


class _File:
    """A source's file, in the register's directory, which is made. Raises ForeignOwnerError, ConfigError, OSError."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory, self._name = directory, name
        self._fd = open_private(directory)

    def close(self) -> None:
        """Closes the directory."""
        os.close(self._fd)

    def load(self) -> list[Entry]:
        """All lines, oldest first."""
        try:
            fd = open_regular(self._name, os.O_RDONLY, at=self._fd)
        except FileNotFoundError:
            return []
        with open(fd, "rb", buffering=0) as file:
            if os.fstat(fd).st_size > READ_MAX:
                raise ConfigError(f"{self._directory / self._name} is larger than {READ_MAX} bytes", hint="remove it")
            return _parse(file.read(READ_MAX))

    def append(self, entries: Sequence[Entry]) -> None:
        """By one write, synced. After a failed sync the next one would be believed: what was appended goes again."""
        if not entries:
            return
        text = b"\n" + b"".join(map(_line, entries))  # behind a line that was torn, too
        fd = open_regular(self._name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, at=self._fd)
        try:
            size = os.fstat(fd).st_size
            try:
                if os.write(fd, text) != len(text):
                    raise OSError(f"{self._directory / self._name}: no room")
                sync_data(fd)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(fd, size)
                raise
        finally:
            os.close(fd)
        if size == 0:
            sync_directory(self._directory)
        elif size > COMPACT_BYTES:
            self._compact()

    def _compact(self) -> None:
        """What counts, in a new file that takes the old one's place. One claimant has a source at a time; of two, one may lose a
        line here, and what it adds."""
        last: dict[tuple[str, List], Entry] = {}
        lives: dict[str, dict[str, int]] = {}
        for entry in self.load():
            last[entry.uuid, entry.list] = entry
            lives.setdefault(entry.uuid, {}).update(entry.lives)
        kept = [Entry(entry.uuid, entry.list, lives[entry.uuid], entry.below) for entry in last.values()]
        text = b"".join(map(_line, kept))
        if 2 * len(text) > COMPACT_BYTES:
            return
        fd = open_regular(f"{self._name}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, at=self._fd)
        try:
            if os.write(fd, text) != len(text):
                raise OSError(f"{self._directory / self._name}: no room")
            sync_data(fd)
        finally:
            os.close(fd)
        os.replace(f"{self._name}.new", self._name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        sync_directory(self._directory)


def _line(entry: Entry) -> bytes:
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
