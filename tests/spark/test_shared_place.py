"""Staged rows and records where other users have directories, too: only in a place that is ours alone to
write, and closed."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from spark.three_stores import published
from spark.writes import OPTIONS, TOPIC_VALUE, Query, batch_tasks, by_topic, rows, staged, write
from support.other_user import STRANGER
from support.stranger import stranger

import holdfast as hf
from holdfast.spark import staging
from holdfast.spark.batch_writer import BatchWriter
from holdfast.spark.errors import DataLossError
from holdfast.spark.ledger import Ledger
from holdfast.spark.losses import record
from holdfast.spark.publishing import slot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from spark.three_stores import House

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")


@pytest.fixture
def shared() -> Iterator[Path]:
    """As /tmp is, and as deep: everybody may make something there."""
    place = Path(tempfile.mkdtemp(dir="/tmp", prefix="hfo"))
    place.chmod(0o1777)
    yield place
    shutil.rmtree(place)


@pytest.fixture
def open_umask() -> Iterator[None]:
    """What a process makes without saying how, everybody may write."""
    before = os.umask(0)
    yield
    os.umask(before)


def theirs(kind: str, path: Path, ours: Path) -> None:
    """Another user makes what a writer then finds at ``path``. ``ours``: where a link of his leads."""
    ours.mkdir(mode=0o700)
    stranger(kind, *([path] if kind == "directory" else [ours, path]))


def writer(place: Path) -> BatchWriter:
    return BatchWriter({**OPTIONS, "stagingDirectory": str(place)}, TOPIC_VALUE, overwrite=False)


def modes(place: Path) -> set[tuple[str, int]]:
    """Kind and mode of what is in it."""
    found = [(path.is_dir(), path.stat().st_mode & 0o7777) for path in (place, *place.rglob("*"))]
    return {("directory" if is_directory else "file", mode) for is_directory, mode in found}


PLANTED = pytest.mark.parametrize(
    ("kind", "error", "said"),
    [
        ("directory", hf.ForeignOwnerError, f"belongs to uid {STRANGER}, not to 0"),
        ("symlink", hf.ConfigError, "is not a directory"),
    ],
)


@needs_root
@PLANTED
def test_another_users_staging_directory_is_refused(
    own_domain: str, shared: Path, kind: str, error: type[hf.Error], said: str
) -> None:
    theirs(kind, shared / "staging", shared / "ours")
    with pytest.raises(error, match=f"{shared}/staging {said}") as caught:
        writer(shared / "staging")
    assert caught.value.hint
    assert os.listdir(shared / "staging") == []


@pytest.mark.parametrize(("mode", "remedy"), [(0o777, "chmod go-w"), (0o770, "chmod go-w"), (0o1777, "inside it")])
def test_a_staging_directory_that_others_may_write_is_refused(
    own_domain: str, tmp_path: Path, mode: int, remedy: str
) -> None:
    (tmp_path / "staging").mkdir()
    (tmp_path / "staging").chmod(mode)
    with pytest.raises(hf.ForeignOwnerError, match="others may write to it") as caught:
        writer(tmp_path / "staging")
    assert remedy in str(caught.value.hint)
    assert os.listdir(tmp_path / "staging") == []


@needs_root
@PLANTED
def test_in_a_checkpoint_only_what_we_make_is_ours(
    own_domain: str, shared: Path, kind: str, error: type[hf.Error], said: str
) -> None:
    """The checkpoint itself is Spark's: here everybody may write to it."""
    query = Query(OPTIONS, shared)
    query.checkpoint.chmod(0o1777)
    theirs(kind, query.place, shared / "ours")
    with pytest.raises(error, match=f"{query.place} {said}"):
        query.tasks(0, [rows(0, 0)])
    with pytest.raises(error, match=f"{query.place} {said}"):
        Ledger(query.place, 0)
    assert os.listdir(query.place) == []


@needs_root
@PLANTED
@pytest.mark.parametrize("enter", ["commit", "task", "slot", "losses"])
def test_every_way_in_looks(
    own_domain: str, shared: Path, kind: str, error: type[hf.Error], said: str, enter: str, caplog: Any
) -> None:
    place = shared / "spark"
    theirs(kind, place, shared / "ours")
    ways: dict[str, Callable[[], Any]] = {
        "commit": lambda: Ledger(place, 0),
        "task": lambda: staging.entered(place, make=True).__enter__(),
        "slot": lambda: slot(place).__enter__(),
    }
    if enter == "losses":
        assert not record(shared, "q", DataLossError("t", "7/11111111", 0, 9, "expired"))
        assert said in caplog.text
    else:
        with pytest.raises(error, match=f"{place} {said}"):
            ways[enter]()
    assert os.listdir(place) == []


@needs_root
def test_staged_rows_of_another_users_are_not_published(own_domain: str, tmp_path: Path) -> None:
    with staging.entered(tmp_path / "w", make=True) as place:
        stranger_file = tmp_path / "w" / "rows" / "0-0-ab.arrow"
        stranger_file.touch()
        os.chown(stranger_file, STRANGER, STRANGER)
        file = staging.StagedFile("0-0-ab.arrow", 0, {"t": 1}, {"t": 1}, 0, 0, "host")
        with pytest.raises(hf.ForeignOwnerError, match=f"{stranger_file} belongs to uid {STRANGER}"):
            staging.check(place, file)


@pytest.mark.usefixtures("open_umask")
def test_what_a_write_makes_is_closed_whatever_the_umask(house: House, tmp_path: Path) -> None:
    place = tmp_path / "new" / "deep"
    made = writer(place)
    messages = batch_tasks(made, [rows(0, 0)])
    assert len(staged(place)) == 1
    assert modes(tmp_path / "new") == {("directory", 0o700), ("file", 0o600)}
    made.commit(messages)
    query = Query({**OPTIONS, "stagingDirectory": str(place)}, tmp_path)
    query.run(0, [rows(1, 0)])
    write({**OPTIONS, "stagingDirectory": str(place), "txnAppId": "job", "txnVersion": "1"}, [rows(2, 0)])
    assert {path.name for path in place.rglob("*")} >= {"ledger", "lock", "rows"}
    assert modes(tmp_path / "new") == {("directory", 0o700), ("file", 0o600)}


def test_our_own_link_names_a_staging_directory(house: House, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "staging").symlink_to("elsewhere")
    made = writer(tmp_path / "staging")
    messages = batch_tasks(made, [rows(0, 0)])
    assert len(staged(tmp_path / "elsewhere")) == 1
    made.commit(messages)
    assert published() == by_topic(rows(0, 0))
