"""What was written with a sync that failed, or that its writer did not live to do, counts only when it was
written once more."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from holdfast.engine.errors import SystemCallError
from holdfast.spark import ledger as ledger_module
from holdfast.spark import staging, whole_file
from holdfast.spark.errors import DataLossError
from holdfast.spark.ledger import Ledger
from holdfast.spark.losses import losses_in, record
from holdfast.spark.pipeline.checkpoint import CheckpointFile
from holdfast.spark.pipeline.table import TableState
from holdfast.spark.whole_file import WholeFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class Killed(BaseException):
    """Nothing catches it."""


EIO = OSError(errno.EIO, "for the test")


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def fails(patch: pytest.MonkeyPatch, holder: Any, name: str, error: BaseException = EIO) -> None:
    """The next call of a sync fails, and those after it return: as the kernel's do."""
    sync, left = getattr(holder, name), [error]

    def synced(what: Any) -> None:
        if left:
            raise left.pop()
        sync(what)

    patch.setattr(holder, name, synced)


def inode(path: Path) -> int:
    return path.stat().st_ino


@pytest.mark.parametrize("error", [EIO, Killed()], ids=["failed", "killed"])
def test_a_file_whose_name_was_not_synced_is_written_anew_before_it_counts(
    tmp_path: Path, directory: int, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    path = tmp_path / "file"
    fails(monkeypatch, whole_file, "sync_directory", error)
    with pytest.raises(type(error)):
        WholeFile(path, directory).write(b"new")
    before = inode(path)
    assert WholeFile(path, directory).read() == b"new"
    assert inode(path) != before
    again = inode(path)
    assert WholeFile(path, directory).read() == b"new"
    assert inode(path) == again, "once"
    assert os.listdir(tmp_path) == ["file"]


def test_as_long_as_it_cannot_be_written_anew_it_does_not_count(
    tmp_path: Path, directory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for sync in ("sync_directory", "sync_data", "sync_directory"):
        with monkeypatch.context() as patch:
            fails(patch, whole_file, sync)
            file = WholeFile(tmp_path / "file", directory)
            with pytest.raises(OSError, match="for the test"):
                file.read() if (tmp_path / "file").exists() else file.write(b"new")
    assert WholeFile(tmp_path / "file", directory).read() == b"new"


def test_bytes_whose_sync_failed_are_written_into_a_new_file(
    tmp_path: Path, directory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = WholeFile(tmp_path / "file", directory)
    file.write(b"old")
    fails(monkeypatch, whole_file, "sync_data")
    with pytest.raises(OSError, match="for the test"):
        file.write(b"new")
    assert file.read() == b"old"
    with open(tmp_path / "file.new", "rb") as kept:  # so that its inode is not used again
        file.write(b"new")
        assert inode(tmp_path / "file") != os.fstat(kept.fileno()).st_ino


def test_a_doubt_that_cannot_be_remembered_ends_the_write(tmp_path: Path, directory: int) -> None:
    file = WholeFile(tmp_path / "file", directory)
    file.write(b"old")
    (tmp_path / "file.doubt").symlink_to("nowhere/at/all")
    with pytest.raises(OSError, match="doubt"):
        file.write(b"new")
    (tmp_path / "file.doubt").unlink()
    assert file.read() == b"old"


def test_a_doubt_of_an_earlier_boot_is_none(tmp_path: Path, directory: int) -> None:
    """What is read then is on the disk."""
    WholeFile(tmp_path / "file", directory).write(b"new")
    (tmp_path / "file.doubt").write_bytes(b"of another boot.")
    before = inode(tmp_path / "file")
    assert WholeFile(tmp_path / "file", directory).read() == b"new"
    assert inode(tmp_path / "file") == before


def save_record(where: Path) -> None:
    with Ledger(where, 0) as ledger:
        ledger.record.done = 7
        ledger.save()


def load_record(where: Path) -> bool:
    with Ledger(where, 0) as ledger:
        return ledger.record.done == 7


def tell_loss(where: Path) -> None:
    if not record(where, "q", DataLossError("t", "7/11111111", 0, 9, "expired")):
        raise EIO


def loss_is_told(where: Path) -> bool:
    tell_loss(where)
    return len(losses_in(where)) == 1


def save_state(where: Path) -> None:
    with CheckpointFile(where / "state", TableState) as file:
        file.save(TableState("batch", "q", "c"))


def load_state(where: Path) -> bool:
    with CheckpointFile(where / "state", TableState) as file:
        return file.load() == TableState("batch", "q", "c")


@pytest.mark.parametrize(
    ("path", "save", "load"),
    [
        ("ledger", save_record, load_record),
        ("spark/losses", tell_loss, loss_is_told),
        ("state", save_state, load_state),
    ],
)
def test_each_of_these_files_is_written_so(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    save: Callable[[Path], None],
    load: Callable[[Path], bool],
) -> None:
    fails(monkeypatch, whole_file, "sync_directory")
    with pytest.raises(OSError, match="for the test"):
        save(tmp_path)
    before = inode(tmp_path / path)
    assert load(tmp_path)
    assert inode(tmp_path / path) != before


def test_a_sync_above_the_first_record_is_not_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directories above are Spark's, or the operator's: nobody can make them anew."""
    fails(monkeypatch, ledger_module, "sync_directory")
    with pytest.raises(OSError, match="for the test"):
        Ledger(tmp_path / "w", 0)
    with pytest.raises(SystemCallError, match=f"directories above {tmp_path}/w has failed.*another stagingDirectory"):
        Ledger(tmp_path / "w", 0)
    Ledger(tmp_path / "elsewhere", 0).close()


def test_rows_whose_sync_failed_are_not_reported_and_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fails(monkeypatch, staging, "sync_data")
    with staging.entered(tmp_path / "w", make=True) as place:
        with pytest.raises(OSError, match="for the test"):
            staging.stage(place, 0, 0, [("t", pa.array([b"a"]))])
        assert os.listdir(place.path) == []
        assert staging.stage(place, 0, 0, [("t", pa.array([b"a"]))]) is not None
