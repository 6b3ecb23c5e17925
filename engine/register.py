"""The register: which stores each source of this host has declared, and the lives of these stores.

A store remembers whom its source declared last. Where the list changes, and the one store that knew both lists is wiped or
restored, nobody else knows of the other list any more. So each source writes its list here, on disk, before its first BEGIN with
it, and the life of each store before that store's BEGIN, so before what it acknowledges counts. At the next start that adds to
what the stores say, and takes nothing away: a register that is lost, or that another container has, leaves what the stores
themselves know. Where no declared store knows the source at all, it is a new one.

A session ID of a topic has one file, and so has a RegID of a topic. A line is an :class:`Entry` and its checksum, appended by one
write under a lock. What a crash has torn is no line. Of each list of an identity the last line counts, and of each store the last
life. A list counts up to the number from which another one was in force (``below``), so nobody waits for ever for stores that
were retired.

A disk may hang. So each look is a thread's of its own, which is waited for for :data:`PATIENCE_S`. Who got no answer goes on with
what was read before, and writes again later what is not written yet.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import pwd
import threading
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

from .domain import volatile_bases
from .errors import ConfigError, Error
from .private_directory import open_private, open_regular
from .quorum import INTERGROUP, INTRAGROUP, Groups
from .reconcile import FOR_EVER
from .reports import Configuration
from .sync import sync_data, sync_directory
from .voting import Register, Written
from .wire import UNDECODABLE, Elsewhere, Number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from .domain import Domain

__all__ = ["Entry", "SourceRegister", "earlier_stores", "elsewhere", "entries_of", "every_store", "register_directory"]

_log = logging.getLogger("holdfast")
_T = TypeVar("_T")

NAME = ".register"
"""No domain's name begins with a dot."""
PATIENCE_S = 2.0
"""Of a source that starts: so long it waits for this disk."""
COMPACT_BYTES = 1 << 16
"""A file of this size is written anew, if that halves it."""
READ_MAX = 1 << 22
LISTS_MAX = 100
"""Lists that a file remembers when it is written anew: the newest."""
OTHERS_MAX = 32
"""Stores that are asked for beside the declared ones: of the newest lists."""

Small = Annotated[int, Meta(ge=0, le=25)]
List = tuple[tuple[str, ...], tuple[Small, ...], tuple[Small, ...], Small, Small]
"""Stores, sizes of the groups, the group of each store, and by number what they must agree on."""


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One list of one source."""

    uuid: str
    list: List
    lives: dict[str, Number]
    """A store's own name -> the life that it was in, of those whose BEGIN was about to be sent when this was written."""
    incarnation: Number = 0
    """Under which the list was declared last."""
    below: Annotated[int, Meta(ge=-1, le=2**63 - 1)] = -1
    """From this number on another list has been in force; -1: this one may be."""

    @property
    def configuration(self) -> Configuration:
        """As the stores' answers have it."""
        stores, sizes, groups, intragroup, intergroup = self.list
        told = Groups.told(sizes, groups, intragroup, intergroup)
        return Configuration(stores, told, self.below if self.below >= 0 else FOR_EVER)


def register_directory(domain: Path) -> Path:
    """Where the register of a domain is: beside the domain's directory, or, where that goes with a reboot, in a place that stays.

    Raises ConfigError: this user has no home.
    """
    if domain.parent not in volatile_bases():
        return domain.parent / NAME
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


def entries_of(domain: Path, uuid: str, source: tuple[str, int, Iterable[int]] | None = None) -> list[Entry]:
    """The last line of each list of the source whose uuid begins so. For who only reads: nothing is made.

    ``source``: its topic, session ID and RegIDs, which say in which files it is; without, all are looked through. What cannot be
    read adds nothing.
    """
    found: dict[tuple[str, List], Entry] = {}
    with contextlib.suppress(ConfigError, OSError):
        directory = register_directory(Path(os.path.realpath(domain)))
        names = _file_names(domain, *source) if source is not None else sorted(os.listdir(directory))
        for name in names:
            for entry in _read(directory / name):
                if entry.uuid.startswith(uuid):
                    found[entry.uuid, entry.list] = entry
    return list(found.values())


def _file_names(domain: Path, topic: str, session: int, registration_ids: Iterable[int]) -> list[str]:
    """Of the files of a source: one for its session ID, or one for each RegID."""
    path = os.fsencode(os.path.realpath(domain)).hex()
    given = [(session, 0)] if session else [(0, number) for number in dict.fromkeys(registration_ids) if number]
    keys = [json.dumps([path, topic, *each]).encode() for each in given]
    return [hashlib.blake2b(key, digest_size=16).hexdigest() for key in keys]


def _read(path: Path) -> list[Entry]:
    try:
        fd = open_regular(path, os.O_RDONLY)
    except (Error, OSError):
        return []
    with open(fd, "rb", buffering=0) as file:
        return _parse(file.read(READ_MAX))


def every_store(domain: Path) -> set[str]:
    """Names of all stores that some source of this host has ever declared; empty where the register cannot be read."""
    return {store for entry in entries_of(domain, "") for store in (*entry.list[0], *entry.lives)}


def elsewhere(register: Register) -> dict[bytes, dict[str, Elsewhere]]:
    """By identity, the stores of all lists: the life in which each last took part, and the number below which a list with it may
    still count; -1 where that is not known, or not bounded."""
    found: dict[bytes, dict[str, Elsewhere]] = {}
    left = OTHERS_MAX
    for uuid, written in reversed(list(register.items())):
        below: dict[str, int] = {}
        for each in reversed(written.configurations):
            for store in each.stores:
                below[store] = max(below.get(store, 0), each.below)
        names = list(dict.fromkeys([*below, *written.lives]))[:left]
        left -= len(names)
        bounds = {name: below.get(name, FOR_EVER) for name in names}
        found[uuid] = {
            name: (written.lives.get(name, -1), bound if bound < FOR_EVER else -1) for name, bound in bounds.items()
        }
    return found


def earlier_stores(register: Register, uuid: bytes, start: int) -> dict[str, int]:
    """The stores of all lists of one source -> the number below which they may have messages of it, with ``start`` begun now."""
    of_uuid = elsewhere(register).get(uuid, {})
    return {name: below if 0 <= below < start else start for name, (_, below) in of_uuid.items()}


class _Claim(NamedTuple):
    """What is to be written. ``start``: the first number that this list is in force from; -1: it is not yet."""

    uuid: bytes = b""
    incarnation: int = 0
    lives: tuple[tuple[str, int], ...] = ()
    start: int = -1


class SourceRegister:
    """What one source reads and writes there. A trouble with a file is told once, and costs what the file would add.

    ``registration_ids``: those that it gives. One without any of them and without ``session`` has nothing written: nobody can
    come back as it.
    """

    def __init__(
        self, domain: Domain, topic: str, session: int, registration_ids: Sequence[int], names: Sequence[str],
        groups: Groups | None,
    ) -> None:  # fmt: skip
        self._topic = topic
        self._domain = Path(os.path.realpath(domain.path))
        self._names = _file_names(domain.path, topic, session, registration_ids) if groups is not None else []
        if groups is not None:
            agree = INTRAGROUP.index(groups.intragroup), INTERGROUP.index(groups.intergroup)
            self._list: List = (tuple(names), groups.sizes, groups.of, *agree)
        self._trouble = ""
        self._known: Register = {}
        """What was read last."""
        self._claim = self._written = _Claim()
        self._busy: threading.Thread | None = None
        self._hangs = False
        """It was waited for in vain."""

    def read(self) -> Register:
        """What is there now, by identity; what was there before, where it cannot be read now."""
        entries = self._look(lambda files: [entry for file in files for entry in file.load()], PATIENCE_S)
        if entries is not None:
            self._known = _register(entries)
        return self._known

    def declare(self, uuid: bytes, incarnation: int, lives: Mapping[str, int]) -> None:
        """Before these stores begin under ``uuid`` with this list: on disk when it returns, unless a file is in trouble."""
        same = self._claim[:2] == (uuid, incarnation)
        known = dict(self._claim.lives) if same else {}
        start = self._claim.start if same else -1
        self._claim = _Claim(uuid, incarnation, tuple(sorted({**known, **lives}.items())), start)
        self.settle()

    def complete(self, start: int) -> None:
        """The source is, with what it has declared, from ``start`` on: no other list counts from there on."""
        self._claim = self._claim._replace(start=start)
        self.settle()

    def settle(self, patience_s: float = PATIENCE_S) -> None:
        """Writes what is not written yet. To be called again and again: a file may have been in trouble."""
        claim = self._claim
        if claim == self._written:
            return

        def write(files: Sequence[_File]) -> None:
            for file in files:
                file.append(lambda entries: self._news(entries, claim))
            self._written = claim

        self._look(write, patience_s)

    def _news(self, entries: Sequence[Entry], claim: _Claim) -> list[Entry]:
        """What is to be appended to these lines."""
        own = [entry for entry in entries if entry.uuid == claim.uuid.hex()]
        last = {entry.list: entry for entry in own}
        known = {name: life for entry in own for name, life in entry.lives.items()}
        news, lives = [], dict(claim.lives)
        mine = last.get(self._list)
        if (
            mine is None
            or mine.below >= 0
            or mine.incarnation < claim.incarnation
            or not lives.items() <= known.items()
        ):
            news.append(Entry(claim.uuid.hex(), self._list, lives, claim.incarnation))
        if claim.start >= 0:  # a later claimant may have declared that list again, while this thread stood still
            news += [
                Entry(entry.uuid, entry.list, {}, entry.incarnation, claim.start)
                for entry in last.values()
                if entry.list != self._list
                and entry.incarnation < claim.incarnation
                and not 0 <= entry.below <= claim.start
            ]
        return news

    def _look(self, work: Callable[[Sequence[_File]], _T], patience_s: float) -> _T | None:
        """``work`` with the files, on another thread; None where that fails or takes too long."""
        if not self._names:
            return None
        done: list[_T] = []
        failed: list[Exception] = []

        def run() -> None:
            try:
                directory = register_directory(self._domain)
                with contextlib.ExitStack() as stack:
                    done.append(
                        work([stack.enter_context(contextlib.closing(_File(directory, name))) for name in self._names])
                    )
            except (Error, OSError, ValueError) as error:
                failed.append(error)

        if self._is_free(patience_s):
            self._busy = threading.Thread(target=run, name="holdfast-register", daemon=True)
            self._busy.start()
            self._is_free(patience_s)
        if done:
            self._trouble = ""
            return done[0]
        if failed or patience_s:
            self._tell(str(failed[0]) if failed else "the disk of the register of sources does not answer")
        return None

    def _is_free(self, patience_s: float) -> bool:
        """No look is under way, or it ends in time. Who has been waited for in vain is not waited for again."""
        busy = self._busy
        if busy is None:
            return True
        busy.join(0 if self._hangs else patience_s)
        self._hangs = busy.is_alive() and (self._hangs or patience_s > 0)
        return not busy.is_alive()

    def _tell(self, trouble: str) -> None:
        if trouble != self._trouble:
            _log.warning("%s; only its stores know whom topic %r has declared", trouble, self._topic)
        self._trouble = trouble


def _register(entries: Sequence[Entry]) -> Register:
    """By identity, in the order in which they were declared last: so are their lists."""
    lists: dict[str, dict[List, Entry]] = {}
    lives = _lives(entries)
    for entry in _last(entries):
        of_uuid = lists[entry.uuid] = lists.pop(entry.uuid, {})
        of_uuid[entry.list] = entry
    return {
        bytes.fromhex(uuid): Written(tuple(entry.configuration for entry in found.values()), lives[uuid])
        for uuid, found in lists.items()
    }


def _last(entries: Sequence[Entry]) -> list[Entry]:
    """The last line of each list, in the order in which these were declared last: a bound changes no order."""
    last: dict[tuple[str, List], Entry] = {}
    for entry in entries:
        if entry.below < 0:
            last.pop((entry.uuid, entry.list), None)
        last[entry.uuid, entry.list] = entry
    return list(last.values())


def _lives(entries: Sequence[Entry]) -> dict[str, dict[str, int]]:
    """By identity, the last life of each store: a thread of an earlier incarnation may have written its line late."""
    last: dict[tuple[str, str], tuple[int, int]] = {}
    for entry in entries:
        for store, life in entry.lives.items():
            if entry.incarnation >= last.get((entry.uuid, store), (0, 0))[0]:
                last[entry.uuid, store] = entry.incarnation, life
    found: dict[str, dict[str, int]] = {entry.uuid: {} for entry in entries}
    for (uuid, store), (_, life) in last.items():
        found[uuid][store] = life
    return found


class _File:
    """One file, in the register's directory, which is made. Raises ForeignOwnerError, ConfigError, OSError."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory, self._name = directory, name
        missing = [each for each in (directory, *directory.parents) if not each.exists()]
        self._fd = open_private(directory)
        try:
            for each in missing:
                sync_directory(each.parent)
        except OSError:
            os.close(self._fd)
            raise

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
        """What ``news`` makes of the lines, by one write, synced. After a failed sync the next one would be believed: what was
        appended goes again."""
        with self._locked() as fd:
            entries = news(self._entries(fd))
            if not entries:
                return
            text = b"\n" + b"".join(map(_line, entries))  # behind a line that was torn, too
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
        """The file, made if need be, for one process at a time: two sources may have one RegID at different stores."""
        while True:
            fd = open_regular(self._name, os.O_RDWR | os.O_APPEND | os.O_CREAT, at=self._fd)
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
                fcntl.flock(fd, fcntl.LOCK_UN)  # a child that was forked meanwhile has the file open, too
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
        """What counts, in a new file that takes the old one's place, if it has ``most`` bytes at most. By who has the lock."""
        lives = _lives(entries)
        kept = [msgspec.structs.replace(entry, lives=lives[entry.uuid]) for entry in _last(entries)[-LISTS_MAX:]]
        text = b"".join(map(_line, kept))
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
