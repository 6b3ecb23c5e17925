"""The file of a store's census (engine/log/census.py)."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import msgspec
import pytest

from holdfast.engine.errors import ConfigError, CorruptionError, Error
from holdfast.engine.log import census
from holdfast.engine.log.census import CensusFile, Header, NamesUnsureError, key_of, keys_of
from holdfast.engine.native.sync import sync_directory
from holdfast.engine.rules.census import goes_on

if TYPE_CHECKING:
    from collections.abc import Callable

K, L, M = (key_of("quotes", session, 0) for session in (1, 2, 3))


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CensusFile:
    (tmp_path / "domain").mkdir()
    monkeypatch.setattr(census, "register_directory", lambda _: tmp_path / ".register")
    return CensusFile(tmp_path / "domain", "c")


def path_of(file: CensusFile) -> Path:
    (path,) = file.directory.iterdir()
    return path


def test_a_source_is_known_by_its_session_or_by_each_of_its_reg_ids() -> None:
    assert keys_of("quotes", 1, [7, 8]) == {key_of("quotes", 1, 99)} == {K}
    assert keys_of("quotes", 0, [7, 0, 8]) == {key_of("quotes", 0, 7), key_of("quotes", 0, 8)}
    assert keys_of("quotes", 0, [0]) == set()
    assert len({K, L, key_of("other", 1, 0), key_of("quotes", 0, 1)}) == 4


def test_what_is_written_is_read(file: CensusFile) -> None:
    began = file.renew({K})
    assert file.load() == began
    grown = file.append(began, {K, L})
    assert file.load() == grown
    assert grown.keys == {K, L}
    assert (grown.mark.id, grown.mark.lines) == (began.mark.id, began.mark.lines + 1)
    assert file.append(grown, {L}) == grown
    again = file.renew({L})
    assert file.load() == again
    assert again.mark.id != began.mark.id
    assert path_of(file).stat().st_mode & 0o77 == 0


def test_where_nothing_is_left_there_is_none(file: CensusFile) -> None:
    with pytest.raises(FileNotFoundError):
        file.load()
    file.renew(set())
    path = path_of(file)
    path.rename(path.with_suffix(".new"))
    with pytest.raises(CorruptionError, match="never completed"):
        file.load()
    path.with_suffix(".new").unlink()
    assert file.load() is None


def torn(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def changed(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)


def without_a_line(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:1] + lines[2:]))


def empty(path: Path) -> None:
    os.truncate(path, 0)


def another_ones(path: Path) -> None:
    other = CensusFile(path.parent.parent / "domain", "d")
    other.renew({K})
    path.unlink()
    path_of(other).rename(path)


def copied(path: Path) -> None:
    shutil.copy2(path, path.with_suffix(".copy"))
    path.with_suffix(".copy").rename(path)


def copied_with_its_directory(path: Path) -> None:
    there = path.parent.with_suffix(".copy")
    shutil.copytree(path.parent, there)
    shutil.rmtree(path.parent)
    there.rename(path.parent)


def later(path: Path) -> None:
    with mock.patch.object(census, "VERSION", 2):
        CensusFile(path.parent.parent / "domain", "c").renew({K})


def without_keys(path: Path) -> None:
    """Its checksums are right."""
    CensusFile(path.parent.parent / "domain", "c").renew({"no key", "\xff"})


@pytest.mark.parametrize(
    "harm",
    [torn, changed, without_a_line, empty, another_ones, copied, copied_with_its_directory, later, without_keys],
)
def test_what_is_not_the_whole_file_of_this_store_is_not_believed(
    file: CensusFile, harm: Callable[[Path], None]
) -> None:
    began = file.renew({K, L})
    harm(path_of(file))
    with pytest.raises(CorruptionError):
        file.load()
    if harm is not changed:
        with pytest.raises((CorruptionError, OSError)):
            file.append(began, {M})
    file.renew({M})
    assert file.load() is not None


def test_whatever_byte_of_it_is_changed_it_proves_nothing(file: CensusFile) -> None:
    """Nor where its end is cut off within a line; else it is one that was set back, which its mark shows."""
    began = file.renew({K, L})
    whole = (path := path_of(file)).read_bytes()
    for at in range(len(whole)):
        for bit in (1, 0x80):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :])
            with pytest.raises(CorruptionError):
                file.load()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        if length and whole[length - 1] == ord("\n"):
            set_back = file.load()
            assert set_back is not None
            assert not goes_on(set_back.mark, began.mark)
            continue
        with pytest.raises(CorruptionError):
            file.load()


def test_of_another_domain_it_is_another_file(file: CensusFile, tmp_path: Path) -> None:
    file.renew({K})
    (tmp_path / "other").mkdir()
    assert CensusFile(tmp_path / "other", "c").load() is None


def test_a_spoilt_one_proves_nothing(file: CensusFile) -> None:
    began = file.renew({K})
    assert not file.proves_nothing()
    assert file.spoil()
    assert path_of(file).stat().st_size == began.size
    with pytest.raises(CorruptionError):
        file.load()
    with pytest.raises(CorruptionError, match="was spoilt by somebody else"):
        file.append(began, {L})
    path_of(file).unlink()
    assert not file.spoil()


def test_nothing_but_a_census_is_spoilt(file: CensusFile, tmp_path: Path) -> None:
    """The path of an earlier one comes from a store's state."""
    file.renew({K})
    others = [tmp_path / path_of(file).name, file.directory / "notes", file.directory / f"{path_of(file).name}.new"]
    for other in others:
        other.write_bytes(b"mine")
        assert not census.spoil(os.fsencode(other))
        assert other.read_bytes() == b"mine"
    assert census.spoil(file.path)


def test_a_read_that_stops_before_a_bad_sector_is_no_shorter_census(
    file: CensusFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may stop behind a line."""
    file.renew({K, L})
    good, pread = path_of(file).stat().st_size - 42, os.pread

    def stops(fd: int, size: int, offset: int) -> bytes:
        if offset >= good:
            raise OSError(errno.EIO, "a bad sector")
        return pread(fd, min(size, good - offset), offset)

    monkeypatch.setattr(os, "pread", stops)
    with pytest.raises(OSError, match="a bad sector"):
        file.load()


@pytest.fixture
def unsynced(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """From the N-th on no sync of names succeeds."""
    done = itertools.count(1)

    def from_(first: int) -> None:
        def fails(path: Path) -> None:
            if next(done) >= first:
                raise OSError(errno.EIO, "names are not on disk")
            sync_directory(path)

        monkeypatch.setattr(census, "sync_directory", fails)

    return from_


@pytest.mark.parametrize("first", [1, 2])
def test_where_the_names_are_not_on_disk_the_earlier_one_is_spoilt(
    file: CensusFile, unsynced: Callable[[int], None], first: int
) -> None:
    """After a power cut it may be there again."""
    file.renew({K})
    earlier = os.open(path_of(file), os.O_RDONLY)
    try:
        unsynced(first)
        with pytest.raises(OSError, match="names are not on disk") as told:
            file.renew({K, L})
        assert not isinstance(told.value, NamesUnsureError)
        assert os.pread(earlier, 1, 0) == b"-"
    finally:
        os.close(earlier)


def test_where_there_was_no_earlier_one_or_it_cannot_be_spoilt_that_is_told(
    file: CensusFile, unsynced: Callable[[int], None]
) -> None:
    unsynced(1)
    with pytest.raises(NamesUnsureError):
        file.renew({K})
    with mock.patch.object(os, "pwrite", side_effect=OSError(errno.EIO, "no")), pytest.raises(NamesUnsureError):
        file.renew({K})
    with pytest.raises(OSError, match="names are not on disk"):
        file.spoil()


def test_more_keys_than_anybody_reads_are_not_written(file: CensusFile, monkeypatch: pytest.MonkeyPatch) -> None:
    long = CensusFile(Path("/" + "x" * 4000), "\0" * 255)
    header = msgspec.json.encode(Header(1, "f" * 32, long._store, long._domain, (2**63,) * 3, (2**63,) * 3))
    line, _ = census._lines([K.encode()], 0)
    assert 10 + len(header) + census.KEYS_MAX * len(line) <= census.READ_MAX < 10 + (census.KEYS_MAX + 2000) * len(line)
    monkeypatch.setattr(census, "KEYS_MAX", 2)
    full = file.renew({K, L})
    before = path_of(file).read_bytes()
    for write, keys in ((partial(file.append, full), {M}), (file.renew, {K, L, M})):
        with pytest.raises(ConfigError, match="has 2 sources at most, and this one would have 3"):
            write(keys)
    assert path_of(file).read_bytes() == before
    assert file.append(full, {K}) == full


def test_no_descriptor_is_left_open(file: CensusFile, unsynced: Callable[[int], None]) -> None:
    """Whatever fails."""
    began = file.renew({K})
    before = sorted(os.listdir("/proc/self/fd"))
    for call in ("write", "replace", "pread", "fstat"):
        with mock.patch.object(os, call, side_effect=OSError(errno.EIO, "no")):
            works: list[Callable[[], object]] = [file.load, partial(file.renew, {L}), partial(file.append, began, {L})]
            for work in works:
                with contextlib.suppress(Error, OSError):
                    work()
    unsynced(1)
    for work in (file.spoil, partial(file.renew, {L}), partial(file.set_alias, alias=True)):
        with pytest.raises(OSError, match="names are not on disk"):
            work()
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_it_can_be_written_anew_as_the_same_one(file: CensusFile) -> None:
    """By a store that starts: what it reads may not be on disk."""
    began = file.renew({K})
    again = file.renew({K, L}, began.mark.id)
    assert goes_on(again.mark, began.mark)
    assert again.file != began.file
    assert file.load() == again


def test_a_number_of_an_inode_of_64_bits_can_be_told(file: CensusFile, monkeypatch: pytest.MonkeyPatch) -> None:
    fstat = os.fstat
    monkeypatch.setattr(
        os,
        "fstat",
        lambda fd: mock.Mock(
            wraps=fstat(fd),
            st_ino=2**64 - 1,
            st_mode=fstat(fd).st_mode,
            st_uid=os.geteuid(),
            st_nlink=1,
            st_size=fstat(fd).st_size,
        ),
    )
    assert max(file.renew({K}).file) < 2**63


def test_without_births_nothing_is_proved(file: CensusFile, monkeypatch: pytest.MonkeyPatch) -> None:
    file.renew({K})

    def none(_: int, born: list[int]) -> int:
        born[0] = 0
        return 0

    monkeypatch.setattr(census, "lib", mock.Mock(hf_file_birth=none))
    with pytest.raises(CorruptionError, match="when a file was made"):
        file.load()
    with mock.patch.object(os, "unlink"), pytest.raises(CorruptionError, match="when a file was made"):
        file.renew({L})
    assert not list(file.directory.glob("*.new")), "none is made for nothing"
    assert file.proves_nothing()


@pytest.mark.parametrize("call", ["write", "replace"])
def test_what_could_not_be_written_is_told(file: CensusFile, call: str) -> None:
    began = file.renew({K})
    with mock.patch.object(os, call, side_effect=OSError(errno.ENOSPC, "no room")), pytest.raises(OSError):  # noqa: PT011
        file.renew({L})
    with mock.patch.object(os, "write", return_value=3), pytest.raises(OSError, match="no room"):
        file.append(began, {L})
