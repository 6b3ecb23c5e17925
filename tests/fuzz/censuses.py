"""The census of a store: lines that somebody else wrote, and what reads them (engine/log/census.py).

What is taken for whole must be so by another reading. It can be gone on with, and proves nothing any more
once it is spoilt.
"""

from __future__ import annotations

import binascii
import json
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from holdfast.engine.errors import CorruptionError
from holdfast.engine.log.census import CensusFile, identity, key_of
from holdfast.engine.rules.census import goes_on

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

__all__ = ["WORDS", "run_census", "seeds_census", "the_torn_end_is_dropped"]

_files = tempfile.TemporaryDirectory(prefix="hf-fuzz-")
DOMAIN = Path(_files.name) / "domain"
WORDS = (b"DOMAIN", b"FILE", b"DIRECTORY", b"\n", b"-", b" ", b"0" * 32 + b"\n", b"g" * 32 + b"\n", b"\n\n")
KEYS = [key_of("orders", session, 0).encode() for session in range(1, 5)]
_LINE = re.compile(rb"([0-9a-f]{8}) ([^\n]*)\n")


class _File:
    """The file of store a. It stays the same one, whatever is written to it."""

    def __init__(self) -> None:
        self.file = CensusFile(DOMAIN, "a")
        self.file.directory.mkdir(0o700)
        directory = os.open(self.file.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._fd = os.open(self.file.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.identities = list(identity(self._fd)), list(identity(directory))
        os.close(directory)
        self.domain = os.fsencode(os.path.realpath(DOMAIN)).hex()

    def write(self, data: bytes) -> None:
        """It is this and nothing else."""
        os.pwrite(self._fd, data, 0)
        os.ftruncate(self._fd, len(data))

    def mended(self, text: bytes) -> bytes:
        """With right sums, and with the words for which file it is replaced in the first line."""
        lines, sum_ = text.split(b"\n"), 0
        words = {
            b"DOMAIN": self.domain.encode(),
            b"FILE": _json(self.identities[0]),
            b"DIRECTORY": _json(self.identities[1]),
        }
        for word, value in words.items():
            lines[0] = lines[0].replace(word, value)
        for number, line in enumerate(lines[:-1]):
            sum_ = binascii.crc32(line, sum_)
            lines[number] = b"%08x %s" % (sum_, line)
        return b"\n".join(lines)


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


_made: list[_File] = []


def _the_file() -> _File:
    """Made when it is first asked for: not where another target runs."""
    if not _made:
        _made.append(_File())
    return _made[0]


def run_census(data: bytes) -> None:
    """The first byte: whether the sums are mended. Raises nothing but CorruptionError."""
    there = _the_file()
    text = there.mended(data[1:]) if data[:1] and data[0] & 1 else data[1:]
    there.write(text)
    try:
        census = there.file.load()
    except CorruptionError:
        return
    assert census is not None
    header, keys = _read_again(text)
    assert header[0] == 1, "of this version"
    assert header[2:6] == ["a", there.domain, *there.identities]
    assert (census.mark.id, census.mark.lines) == (bytes.fromhex(header[1]), 1 + len(keys))
    assert (set(census.keys), census.size) == ({key.decode() for key in keys}, len(text))
    grown = there.file.append(census, {KEYS[0].decode()})
    assert there.file.load() == grown
    assert grown.keys == census.keys | {KEYS[0].decode()}
    assert goes_on(grown.mark, census.mark)
    there.file.spoil()
    try:
        there.file.load()
    except CorruptionError:
        return
    raise AssertionError("it was spoilt")


def _read_again(text: bytes) -> tuple[list[Any], list[bytes]]:
    """Its first line, and the keys, by another reading."""
    assert re.fullmatch(rb"(?:%s)*" % _LINE.pattern, text), "it is no row of lines"
    sum_, texts = 0, [line for _, line in _LINE.findall(text)]
    for said, line in _LINE.findall(text):
        sum_ = binascii.crc32(line, sum_)
        assert int(said, 16) == sum_, "a sum is wrong"
    assert all(len(each) == 32 for each in texts[1:])
    return json.loads(texts[0]), texts[1:]


def seeds_census() -> list[bytes]:
    """Whole ones, one of a later version, one that was spoilt, and one with sums that are not mended."""
    header = b'[%d,"000102030405060708090a0b0c0d0e0f","a","DOMAIN",FILE,DIRECTORY]\n'
    lines = b"".join(key + b"\n" for key in KEYS[1:])
    whole = header % 1 + lines
    raw = _the_file().mended(b'[1,"%s","a","00",[1,2,3],[4,5,6]]\n' % (b"0" * 32) + lines)
    return [b"\1" + header % 1, b"\1" + whole, b"\1" + header % 2 + lines, b"\1-" + whole, b"\0" + raw]


def the_torn_end_is_dropped() -> AbstractContextManager[Any]:
    """As if what is torn were of no matter."""
    parse = CensusFile._parse
    return mock.patch.object(
        CensusFile, "_parse", lambda file, data, *more: parse(file, data[: data.rfind(b"\n") + 1], *more)
    )
