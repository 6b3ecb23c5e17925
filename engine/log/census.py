"""The census of a store: a file with the key of each source that it has ever granted (engine/rules/census.py
says what that proves).

It lies in ``.census``, beside the register of sources, so it outlives the store's disk and the machine's
boots. One store writes it, under the lock of its name in the domain. Each line has a checksum that goes on
from the line before: what is torn, damaged or taken out makes the whole file prove nothing. The first line
says which census it is, of which store and domain, and which file and directory it stands in. A copy, also
one that a backup brings back, is another file, and proves nothing.

A store that is known by other names leaves a mark for each of them: by such a name alone nobody knows whose
census to read.

A census that is not what its store left there is not mended: the store begins another one.
"""

from __future__ import annotations

import contextlib
import errno
import re
import zlib
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ..control.wire import UNDECODABLE
from ..errors import ConfigError, CorruptionError, Error
from ..native.core import ffi, lib
from ..native.private_directory import open_private, open_regular
from ..native.runtime import Path, os, secrets
from ..native.status import check
from ..native.sync import sync_data, sync_directory
from ..rules.census import TROUBLE, Found, Identity, Mark
from .info_file import read_info
from .register import register_directory
from .source_key import digest_of, given, given_by

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from ..memory.domain import Domain

__all__ = [
    "KEYS_MAX", "RENEW_BYTES", "Census", "CensusFile", "NamesUnsureError", "census_directory", "key_of", "keys_of", "look_at",
    "spoil",
]  # fmt: skip

NAME = ".census"
VERSION = 1
KEY_CHARACTERS = 32
READ_MAX = 1 << 24
HEADER_MAX = 1 << 16
KEYS_MAX = (READ_MAX - HEADER_MAX) // (8 + 1 + KEY_CHARACTERS + 1)
"""More are not written: nobody would read the file."""
SPOILT = b"-"
"""Its first byte, where it is."""
RENEW_BYTES = 1 << 22
"""A census of this size is begun anew, if that halves it: of a source that the store was told to forget, or
whose time is over, nobody asks."""
_FILE_NAME = re.compile(r"[0-9a-f]{32}")


class Header(msgspec.Struct, frozen=True, array_like=True):
    """The first line."""

    version: int
    id: str
    store: str
    domain: str
    file: Identity
    directory: Identity


class Census(NamedTuple):
    """A whole one."""

    mark: Mark
    keys: frozenset[str]
    directory: Identity
    file: Identity
    size: int
    """Of the file."""
    sum: int
    """What the checksum of its next line goes on from."""


class NamesUnsureError(OSError):
    """Nobody knows which file has the name of a census after a power cut; an earlier one is not spoilt."""


def census_directory(domain: Path) -> Path:
    """Where the censuses of a domain's stores are. Raises ConfigError: this user has no home."""
    return register_directory(domain).parent / NAME


def key_of(topic: str, session: int, registration_id: int) -> str:
    """Of a source: by its session ID, or by the RegID that it has at a store."""
    return digest_of(topic, *given(session, registration_id))


def keys_of(topic: str, session: int, registration_ids: Iterable[int]) -> set[str]:
    """Of a source that comes with these, by all of which a store may know it."""
    return {digest_of(topic, *each) for each in given_by(session, registration_ids)}


class CensusFile:
    """The file of one store. ``domain``: its directory. Raises ConfigError, ForeignOwnerError, OSError."""

    def __init__(self, domain: Path, store: str) -> None:
        path = Path(os.path.realpath(domain))
        self.directory = census_directory(path)
        self._store = store
        self._domain = os.fsencode(str(path)).hex()
        self._name = digest_of(self._domain, store)

    @contextlib.contextmanager
    def _entered(self, *, make: bool = False) -> Iterator[int]:
        """A descriptor of the directory."""
        at = open_private(self.directory, make=make, durable=make)
        try:
            yield at
        finally:
            os.close(at)

    @contextlib.contextmanager
    def _opened(self, at: int, name: str, flags: int) -> Iterator[int]:
        """A descriptor of a file in it."""
        fd = open_regular(name, flags, at=at)
        try:
            yield fd
        finally:
            os.close(fd)

    def load(self) -> Census | None:
        """What is there; None: there is nothing, and nothing of it is left.

        Raises:
            CorruptionError: it is not whole, not this store's, or not the file that it says it is.
            Error, OSError: it cannot be read.
        """
        return self.look()[1]

    def look(self) -> tuple[Identity, Census | None]:
        """As :meth:`load`, with the directory in which it was looked for."""
        with self._entered() as at:
            directory = identity(at)
            try:
                with self._opened(at, self._name, os.O_RDONLY) as fd:
                    return directory, self._parse(_bytes_of(fd), directory, identity(fd))
            except FileNotFoundError:
                left = [name for name in os.listdir(self.directory) if name.startswith(self._name)]
                if left:
                    raise CorruptionError(f"{self.directory / left[0]} was never completed") from None
                return directory, None

    def _parse(self, data: bytes, directory: Identity, file: Identity) -> Census:
        lines = data.split(b"\n")
        if lines.pop():
            raise CorruptionError(f"{self.directory / self._name}: its last line is torn")
        sum_, texts = 0, list[bytes]()
        for line in lines:
            checksum, _, text = line.partition(b" ")
            sum_ = zlib.crc32(text, sum_)
            if checksum != b"%08x" % sum_:
                raise CorruptionError(f"{self.directory / self._name}: line {len(texts) + 1} is damaged")
            texts.append(text)
        header = self._header(texts)
        said, found = (header.store, header.domain, header.file, header.directory), (file, directory)
        if said != (self._store, self._domain, *found):
            raise CorruptionError(f"{self.directory / self._name} is a copy, or another store's")
        if any(len(text) != KEY_CHARACTERS or not text.isalnum() for text in texts[1:]):
            raise CorruptionError(f"{self.directory / self._name}: a line of it is no key")
        keys = frozenset(text.decode() for text in texts[1:])
        return Census(Mark(bytes.fromhex(header.id), len(texts)), keys, directory, file, len(data), sum_)

    def _header(self, texts: Sequence[bytes]) -> Header:
        try:
            header = msgspec.json.decode(texts[0], type=Header)
            if header.version == VERSION and len(bytes.fromhex(header.id)) == 16:
                return header
        except (IndexError, ValueError, *UNDECODABLE) as error:
            raise CorruptionError(f"{self.directory / self._name}: it does not say what it is") from error
        raise CorruptionError(f"{self.directory / self._name}: it is of a later version")

    @property
    def path(self) -> bytes:
        """Where it is."""
        return os.fsencode(str(self.directory / self._name))

    def renew(self, keys: Collection[str], id_: bytes = b"") -> Census:
        """Begins another census with these keys, in the place of any, or writes the one with this id anew. It
        is on disk when this returns, and so are the names that lead to it.

        Raises NamesUnsureError, and else as the class; ConfigError also where there are too many.
        """
        made = f"{self._name}.new"
        _require_room(len(keys))
        with self._entered(make=True) as at:
            directory = identity(at)  # first: where this says nothing, no file is made
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.directory / made)
            with self._opened(at, made, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as fd:
                file = identity(fd)
                id_ = id_ or secrets.token_bytes(16)
                header = Header(VERSION, id_.hex(), self._store, self._domain, file, directory)
                data, sum_ = _lines([msgspec.json.encode(header), *(key.encode() for key in sorted(keys))], 0)
                self._write(fd, data)
                self._put_in_place(at, made)
        return Census(Mark(id_, 1 + len(keys)), frozenset(keys), directory, file, len(data), sum_)

    def _put_in_place(self, at: int, made: str) -> None:
        """Where the names could not be synced the earlier file may be there again after a power cut, or none.
        A file that is spoilt says so."""
        with contextlib.ExitStack() as stack:
            earlier = -1
            with contextlib.suppress(Error, OSError):
                earlier = stack.enter_context(self._opened(at, self._name, os.O_RDWR))
            os.replace(made, self._name, src_dir_fd=at, dst_dir_fd=at)
            try:
                sync_directory(self.directory)
                sync_directory(self.directory.parent)
            except OSError as unsynced:
                try:
                    _spoil(earlier)
                except OSError:
                    raise NamesUnsureError(*unsynced.args) from unsynced
                raise

    def append(self, census: Census, keys: Iterable[str]) -> Census:
        """Adds these; they are on disk when this returns, and what is there before them.

        Raises CorruptionError: the file is not the one that ``census`` was. ConfigError: there are too many.
        After any other error nobody knows what of it is on disk.
        """
        new = sorted(set(keys) - census.keys)
        _require_room(census.mark.lines - 1 + len(new))
        data, sum_ = _lines([key.encode() for key in new], census.sum)
        with self._entered() as at, self._opened(at, self._name, os.O_RDWR | os.O_APPEND) as fd:
            if (identity(fd), os.fstat(fd).st_size) != (census.file, census.size):
                raise CorruptionError(f"{self.directory / self._name} was changed by somebody else")
            if os.pread(fd, 1, 0) == SPOILT:
                raise CorruptionError(f"{self.directory / self._name} was spoilt by somebody else")
            self._write(fd, data)
        mark = Mark(census.mark.id, census.mark.lines + len(new))
        return census._replace(mark=mark, keys=census.keys.union(new), size=census.size + len(data), sum=sum_)

    def _write(self, fd: int, data: bytes) -> None:
        if data and os.write(fd, data) != len(data):
            raise OSError(f"{self.directory / self._name}: no room")
        sync_data(fd)

    @property
    def _mark_of_alias(self) -> Path:
        return self.directory / f"{self._name}.alias"

    @property
    def is_alias(self) -> bool:
        """Some store has had this as another name."""
        return os.path.lexists(self._mark_of_alias)

    def set_alias(self, *, alias: bool) -> None:
        """Whether that is so. On disk when this returns, if it was not so before. Raises as the class."""
        if alias == self.is_alias:
            return
        if alias:
            with self._entered(make=True) as at, self._opened(at, self._mark_of_alias.name, os.O_WRONLY | os.O_CREAT):
                sync_directory(self.directory)
        else:
            os.unlink(self._mark_of_alias)

    def spoil(self) -> bool:
        """From now on it proves nothing, also on a disk without room: no byte is added. False: there is no
        file. Raises as the class."""
        return spoil(self.path)

    def proves_nothing(self) -> bool:
        """Nothing in its directory does: the file system does not say when a file was made. Raises as the
        class."""
        with self._entered(make=True) as at:
            try:
                identity(at)
            except CorruptionError:
                return True
        return False


def spoil(path: bytes) -> bool:
    """As :meth:`CensusFile.spoil`, of the file that is there. What has not the name of a census is none."""
    place = os.fsdecode(path)
    directory = os.path.dirname(place)
    if os.path.basename(directory) != NAME or not _FILE_NAME.fullmatch(os.path.basename(place)):
        return False
    try:
        fd = open_regular(place, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        _spoil(fd)
    finally:
        os.close(fd)
    sync_directory(Path(directory))  # who put the file in its place may have been killed before it did this
    return True


def _spoil(fd: int) -> None:
    if fd < 0:
        raise OSError(errno.EBADF, "there is no file")
    os.pwrite(fd, SPOILT, 0)
    sync_data(fd)


def _require_room(keys: int) -> None:
    if keys > KEYS_MAX:
        raise ConfigError(
            f"the census of a store has {KEYS_MAX} sources at most, and this one would have {keys}",
            hint="declare other stores for some of them",
        )


def _bytes_of(fd: int) -> bytes:
    """To the end: a read stops before a sector that is bad, and the next one tells."""
    data = bytearray()
    while len(data) <= READ_MAX and (piece := os.pread(fd, READ_MAX + 1 - len(data), len(data))):
        data += piece
    if len(data) > READ_MAX:
        raise CorruptionError(f"a census of more than {READ_MAX} bytes")
    return bytes(data)


def _lines(texts: Iterable[bytes], sum_: int) -> tuple[bytes, int]:
    lines = []
    for text in texts:
        sum_ = zlib.crc32(text, sum_)
        lines.append(b"%08x %s\n" % (sum_, text))
    return b"".join(lines), sum_


def identity(fd: int) -> Identity:
    """Which file or directory this is. Raises CorruptionError where its file system does not say when it was
    made: an inode's number is used again."""
    born = ffi.new("int64_t *")
    check(lib.hf_file_birth(fd, born), what="a census")
    if born[0] <= 0:
        raise CorruptionError("the file system of the censuses does not say when a file was made")
    return int(os.fstat(fd).st_ino) & (2**63 - 1), int(os.statvfs(fd).f_fsid) & (2**63 - 1), int(born[0])


def look_at(domain: Domain, declared: str, keys: Collection[str]) -> Found:
    """What the census of a store says of a source with these keys; ``declared``: the store's name in the
    list. Nothing is made. A disk may hang with it."""
    info = read_info(domain, declared)
    name = info.name if info is not None else declared
    says = Mark(*(info.census or TROUBLE)) if info is not None else None
    try:
        file = CensusFile(domain.path, name)
        if info is None and os.path.lexists(domain.info_path(declared)):
            return Found(name, why=f"{domain.info_path(declared)} cannot be read")
        if info is None and file.is_alias:
            return Found(name, why="that is another name of some store, and nobody knows of which")
        directory, census = file.look()
    except FileNotFoundError as missing:
        return Found(name, why=f"there is no {missing.filename}")
    except Error as unread:
        return Found(name, why=f"its census cannot be read: {unread.args[0]}")
    except OSError as unread:
        return Found(name, why=f"its census cannot be read: {unread}")
    if census is None:
        return Found(name, directory, info=says)
    return Found(name, directory, "", census.mark, bool(census.keys & {*keys}), says)
