"""The census of a store: a key of each source that it has granted in this boot, and of each that it knew when
it first ran in it (docs/design.md 15).

It lies in the domain, beside the file that says who the store is. So it outlives the store's process and its
disk, and not the boot, and nothing of it is synced. A key is in it before its source is granted. Who finds a
whole census without a source knows what its store would say: that it has never heard of it.

One store writes it: a header, and keys of :data:`KEY_BYTES`. The header says in which boot it was begun and
in which life of its store, whose info file names that life too. A store of an earlier version names none, so
an old census proves nothing of what that grants.
"""

from __future__ import annotations

import contextlib
import struct
from typing import TYPE_CHECKING, NamedTuple

from ..errors import CorruptionError, Error
from ..memory import card
from ..native.private_directory import open_regular
from ..native.runtime import Path, os
from ..rules.election import Found
from .info_file import read_info
from .source_key import digest_of, given, given_by

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ..memory.domain import Domain

__all__ = [
    "KEYS_MAX",
    "KEY_BYTES",
    "Census",
    "add",
    "boot_id",
    "carried_over",
    "doubt",
    "key_of",
    "keys_of",
    "look_at",
    "read",
    "write",
]

MAGIC = b"HFCENSUS"
VERSION = 1
_HEADER = struct.Struct("<8sII16s16s")
"""Magic, version, 1 where it is whole, boot, life."""
KEY_BYTES = 16
KEYS_MAX = 1 << 20
"""More are not written: who waits reads all of them, again and again."""


class Census(NamedTuple):
    """One that was read."""

    boot: bytes
    life: bytes
    whole: bool
    """Else the store has granted sources in this boot, and nobody knows which."""
    keys: bytes
    """One after another."""

    def lists(self, key: bytes) -> bool:
        """It has this one."""
        at = self.keys.find(key)
        while at % KEY_BYTES and at >= 0:
            at = self.keys.find(key, at + 1)
        return at >= 0

    def each(self) -> frozenset[bytes]:
        """All of them."""
        return frozenset(self.keys[at : at + KEY_BYTES] for at in range(0, len(self.keys), KEY_BYTES))


def key_of(topic: str, session: int, registration_id: int) -> bytes:
    """Of a source: by its session ID, or by the RegID that it has at a store."""
    return bytes.fromhex(digest_of(topic, *given(session, registration_id)))


def keys_of(topic: str, session: int, registration_ids: Iterable[int]) -> set[bytes]:
    """Of a source that comes with these, by all of which a store may know it."""
    return {bytes.fromhex(digest_of(topic, *each)) for each in given_by(session, registration_ids)}


def boot_id() -> bytes:
    """Of this boot: 16 bytes. Raises CorruptionError: it is not known."""
    found = bytes.fromhex(card.boot_id())
    if not found:
        raise CorruptionError("the id of this boot is not known")
    return found


def read(path: Path, most: int = KEYS_MAX) -> Census:
    """What is there, with ``most`` keys of it. A key that was not written to its end is not among them: its
    source was not granted.

    Raises:
        FileNotFoundError: there is none.
        CorruptionError: it is no census, of a later version, or too long.
        Error, OSError: it cannot be read.
    """
    end = _HEADER.size + most * KEY_BYTES
    data, fd = bytearray(), open_regular(path, os.O_RDONLY)
    try:
        too_long = os.fstat(fd).st_size >= _HEADER.size + (KEYS_MAX + 1) * KEY_BYTES
        while not too_long and len(data) < end and (piece := os.pread(fd, end - len(data), len(data))):
            data += piece
    finally:
        os.close(fd)
    if too_long:
        raise CorruptionError(f"{path} has more than {KEYS_MAX} keys")
    if len(data) < _HEADER.size or data[: len(MAGIC)] != MAGIC:
        raise CorruptionError(f"{path} is no census")
    _, version, whole, boot, life = _HEADER.unpack_from(data)
    if version != VERSION or whole not in {0, 1}:
        raise CorruptionError(f"{path} is a census of a later version")
    end = len(data) - (len(data) - _HEADER.size) % KEY_BYTES
    return Census(boot, life, bool(whole), bytes(data[_HEADER.size : end]))


def write(path: Path, life: bytes, keys: Collection[bytes], *, whole: bool) -> None:
    """Another one, of this boot, in its place. Raises Error, OSError: the earlier one may be there still."""
    made = path.with_name(f"{path.name}.new")
    made.unlink(missing_ok=True)
    header = _HEADER.pack(MAGIC, VERSION, int(whole), boot_id(), life)
    try:
        _append(made, header + b"".join(keys), os.O_CREAT | os.O_EXCL)
        made.rename(path)
    except BaseException:
        made.unlink(missing_ok=True)
        raise


def add(path: Path, keys: bytes) -> None:
    """More keys, one after another. Raises FileNotFoundError: there is no census. Error, OSError: they may be
    there in part."""
    _append(path, keys)


def _append(path: Path, data: bytes, flags: int = 0) -> None:
    fd = open_regular(path, os.O_WRONLY | os.O_APPEND | flags)
    try:
        if (written := os.write(fd, data)) != len(data):
            raise OSError(f"{path}: no room: {written} of {len(data)} bytes were written")
    finally:
        os.close(fd)


def look_at(domain: Domain, declared: str, keys: Collection[bytes]) -> Found:
    """What the census of a store says of a source with these keys; ``declared``: the store's name in the
    list. Nothing is made."""
    info = read_info(domain, declared)
    if info is None:
        return Found(declared, "it has not run here since the last boot, or its info file cannot be read")
    path, boot, census = domain.census_path(info.name), b"", None
    try:
        with contextlib.suppress(FileNotFoundError):
            boot, census = boot_id(), read(path, 0)
            if not doubt(census, info.census, (), boot):  # all of it is read only where that could prove something
                census = read(path)
        return Found(info.name, doubt(census, info.census, keys, boot))
    except Error as unread:
        return Found(info.name, f"its census cannot be read: {unread.args[0]}")
    except (OSError, MemoryError) as unread:
        return Found(info.name, f"its census cannot be read: {unread or 'no memory'}")


def doubt(census: Census | None, life: bytes, keys: Collection[bytes], boot: bytes) -> str:
    """Why this does not prove that its store has never had a source with these keys; empty: it does.
    ``census`` None: there is none. ``life``: the last one, as the store's info file has it. ``boot``: this
    one."""
    if not life:
        return "it is of an earlier version, which keeps no census"
    if census is None:
        return "its census is gone, or could not be written"
    if census.boot != boot:
        return "it has not run since the last boot"
    if census.life != life:
        return "its census is of another life"
    if any(census.lists(key) for key in keys):
        return "it has granted this source once, as its census says"
    return "" if census.whole else "nobody knows any more what it has granted in this boot"


def carried_over(
    census: Census | None, boot: bytes, *, life: bytes | None, same: bool
) -> tuple[frozenset[bytes], bool]:
    """What a store that starts has to put into its census beside what its state knows, and whether that is
    all that it has granted in this boot. ``census``: the one that is there, if any. ``life``: the last one,
    as the store's info file has it, None: there is none; ``same``: its directory is the one of that life."""
    goes_on = life is None or same
    if census is not None and census.boot == boot:
        return census.each(), census.whole and (goes_on or bool(life))
    ended = census is not None and census.life == life  # with an earlier boot
    return frozenset(), goes_on or ended
