"""The file of a store's census (engine/log/census.py)."""

from __future__ import annotations

import errno
import os
import shutil
from typing import TYPE_CHECKING
from unittest import mock

import pytest

from holdfast.engine.errors import CorruptionError
from holdfast.engine.log import census
from holdfast.engine.log.census import CensusFile, key_of, keys_of
from holdfast.engine.rules.census import goes_on

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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
    assert file.spoil()
    assert path_of(file).stat().st_size == began.size
    with pytest.raises(CorruptionError):
        file.load()
    with pytest.raises(CorruptionError, match="was spoilt by somebody else"):
        file.append(began, {L})
    path_of(file).unlink()
    assert not file.spoil()


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


@pytest.mark.parametrize("call", ["write", "replace"])
def test_what_could_not_be_written_is_told(file: CensusFile, call: str) -> None:
    began = file.renew({K})
    with mock.patch.object(os, call, side_effect=OSError(errno.ENOSPC, "no room")), pytest.raises(OSError):  # noqa: PT011
        file.renew({L})
    with mock.patch.object(os, "write", return_value=3), pytest.raises(OSError, match="no room"):
        file.append(began, {L})
