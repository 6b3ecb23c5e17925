"""A task uses the place that its plan names, and ends before its first byte where that is not the place it is
at."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from spark.three_stores import NAMES, published
from spark.writes import OPTIONS, TOPIC_VALUE, Query, batch_tasks, by_topic, rows, staged

from holdfast.engine.memory.domain import Domain, domain_directory
from holdfast.spark import place as place_module
from holdfast.spark.batch_reader import BatchReader
from holdfast.spark.batch_writer import BatchWriter
from holdfast.spark.errors import PlacementError
from holdfast.spark.options import OptionError, parse
from holdfast.spark.place import place_of_write
from holdfast.spark.schema import columns_of
from holdfast.spark.writing import spark_directory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from process.conftest import ThreadStore
    from spark.three_stores import House

    import holdfast as hf
    from holdfast.spark.splits import Range

AT_LEAST_ONCE = {**OPTIONS, "delivery": "at_least_once"}


@pytest.fixture
def other_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_domain: str) -> Callable[[], Path]:
    """From its call on ``$HOLDFAST_DIR`` says something else than where the driver planned; returns what."""

    def move() -> Path:
        path = tmp_path / "elsewhere"
        monkeypatch.setenv("HOLDFAST_DIR", str(path))
        return path

    return move


@pytest.fixture
def other_boot(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From its call on this is another machine, or this one after it was booted again."""
    return lambda: monkeypatch.setattr(place_module, "boot_id", lambda: "5")


def take_over(directory: Path, other: Path) -> None:
    """It is another store's from now on."""
    for slot in directory.glob("state.?"):
        slot.unlink()
    for slot in other.glob("state.?"):
        shutil.copy(slot, directory)


# Writing ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [OPTIONS, AT_LEAST_ONCE], ids=["exactly_once", "at_least_once"])
def test_a_task_writes_where_the_driver_said_whatever_its_own_environment_says(
    house: House, other_base: Callable[[], Path], options: dict[str, str]
) -> None:
    here = domain_directory()
    writer = BatchWriter(options, TOPIC_VALUE, overwrite=False)
    with pytest.MonkeyPatch.context() as patch:
        away = other_base()
        patch.setenv("HOLDFAST_DIR", str(away))
        messages = batch_tasks(writer, [rows(0, 0)])
        assert not away.exists()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOLDFAST_DIR", str(here.parent))
        writer.commit(messages)
        assert published() == by_topic(rows(0, 0))


def nothing(*_: object) -> Any:
    raise AssertionError("a row was asked for")
    yield


@pytest.mark.parametrize("options", [OPTIONS, AT_LEAST_ONCE], ids=["exactly_once", "at_least_once"])
def test_a_writing_task_on_another_host_takes_no_row(
    house: House, tmp_path: Path, other_boot: Callable[[], None], options: dict[str, str]
) -> None:
    query = Query(options, tmp_path)
    batch = BatchWriter(options, TOPIC_VALUE, overwrite=False)
    other_boot()
    for write in (lambda: batch.write(nothing()), lambda: plan_made_here(query).task(0, 0, nothing())):
        with pytest.raises(
            PlacementError, match=r"on host .*; this task runs on .* \(boot 5\).*run the executors on that host"
        ):
            write()
    assert published() == {}
    assert staged(tmp_path) == staged(spark_directory(parse(OPTIONS, "write"))) == []


def plan_made_here(query: Query) -> Query:
    """The same query, whose writers were planned before the place changed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place_module, "boot_id", lambda: "4")
        writer = query.writer()
    query.writer = lambda: writer  # type: ignore[method-assign]
    return query


def test_another_directory_under_the_same_path_is_another_place(house: House, tmp_path: Path) -> None:
    """As in a container that has a domain of its own there."""
    place = place_of_write(None, [str(domain_directory())], NAMES)
    place.check("the domain is")
    moved = domain_directory().rename(tmp_path / "moved")
    try:
        with pytest.raises(PlacementError, match=r"cannot be looked at: No such file.*--ipc=host"):
            place.check("the domain is")
        Domain(join=False).close()
        with pytest.raises(
            PlacementError, match=r"is another directory: device and inode \d+:\d+, not \d+:\d+.*--ipc=host"
        ):
            place.check("the domain is")
        shutil.rmtree(domain_directory())
    finally:
        moved.rename(domain_directory())


def test_a_checkpoint_that_is_another_one_there_is_another_place(house: House, tmp_path: Path) -> None:
    query = Query(OPTIONS, tmp_path)
    writer = query.writer()
    query.checkpoint.rename(tmp_path / "moved")
    shutil.copytree(tmp_path / "moved", query.checkpoint)
    query.writer = lambda: writer  # type: ignore[method-assign]
    with pytest.raises(PlacementError, match="checkpoint is another directory"):
        query.task(0, 0, nothing())
    assert not query.place.exists()


def test_a_writer_need_not_see_the_directories_of_stores(house: House) -> None:
    place = place_of_write(None, [], NAMES)
    assert [store.name for store in place.stores] == ["a", "b", "c"]
    hidden = tuple(replace(store, directory=f"/nowhere{store.directory}") for store in place.stores)
    replace(place, stores=hidden).check("the domain is")
    wrong = replace(place, stores=(*hidden[:2], replace(place.stores[2], uuid="00" * 16)))
    with pytest.raises(PlacementError, match=rf"/c has uuid {place.stores[2].uuid}, not (00)+ of store c"):
        wrong.check("the domain is")


def test_a_store_that_was_wiped_before_the_plan_is_none_of_its_stores(house: House) -> None:
    """It has left its name in the domain, and whatever lies in its directory now is no reason to refuse a
    task."""
    house.stores["c"].stop()
    take_over(house.where / "c", house.where / "a")
    place = place_of_write(None, [], NAMES)
    assert [store.name for store in place.stores] == ["a", "b"]
    place.check("the domain is")


@pytest.mark.parametrize(
    "used",
    [{"stores": "a,b"}, {"stores": "", "option.ume_store_name": "a:0:0,b:0:0", "option.ume_store_group": "0:2"}],
    ids=["stores", "engine"],
)
def test_only_a_store_that_the_write_uses_can_stop_its_tasks(house: House, used: dict[str, str]) -> None:
    options = {name: text for name, text in {**OPTIONS, **used}.items() if text}
    writers = [BatchWriter(options, TOPIC_VALUE, overwrite=False), BatchWriter(OPTIONS, TOPIC_VALUE, overwrite=False)]
    house.stores["c"].stop()
    take_over(house.where / "c", house.where / "a")
    messages = batch_tasks(writers[0], [rows(0, 0)])
    with pytest.raises(PlacementError, match=r"/c has uuid .* of store c"):
        batch_tasks(writers[1], [rows(0, 0)])
    writers[0].commit(messages)


def test_stores_that_cannot_be_named_are_refused_before_the_first_row(own_domain: str) -> None:
    with pytest.raises(OptionError, match=r"option option.ume_store_name is 'a:b:c:d'; expected: "):
        BatchWriter({"option.ume_store_name": "a:b:c:d"}, TOPIC_VALUE, overwrite=False)


# Reading ----------------------------------------------------------------------------------------------------


@pytest.fixture
def task(
    run_store: Callable[..., ThreadStore], publish: Callable[..., hf.Source], own_domain: str
) -> tuple[BatchReader, Range]:
    """The only one of a read of five messages, which two stores have."""
    for name in "ab":
        run_store(name, "disk")
    publish("orders", [b"%d" % number for number in range(5)], "ab", ume_store_group=["0:2"])
    options = {"topic": "orders"}
    read = BatchReader(options, columns_of(parse(options, "batch")))
    (part,) = read.partitions()
    return read, part


def count(task: tuple[BatchReader, Range]) -> int:
    read, part = task
    return sum(batch.num_rows for batch in read.read(part))


def test_a_task_reads_where_the_driver_found_the_logs(
    task: tuple[BatchReader, Range], other_base: Callable[[], Path]
) -> None:
    away = other_base()
    assert count(task) == 5
    assert not away.exists()


def test_a_reading_task_on_another_host_opens_no_log(
    task: tuple[BatchReader, Range], other_boot: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.spark.batch_reader.Records", nothing)
    other_boot()
    with pytest.raises(
        PlacementError, match=r"the logs of topic orders, source .* are on host .*; this task runs on .* \(boot 5\)"
    ):
        count(task)


def test_a_container_with_a_name_of_its_own_is_no_other_host(
    task: tuple[BatchReader, Range], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "0b5c7e0e6f3a")
    assert count(task) == 5


@pytest.mark.parametrize("hidden", ["directory", "logs"])
def test_a_task_that_does_not_see_a_store_says_so(task: tuple[BatchReader, Range], hidden: str) -> None:
    """The others' logs alone may show as valid what that one knows to be void."""
    read, part = task
    first, second = part.place.stores
    assert second.logs is not None
    gone = replace(second, directory=f"/nowhere{second.directory}")
    if hidden == "logs":
        gone = replace(second, logs=replace(second.logs, path=f"/nowhere{second.logs.path}"))
    away = replace(part, place=replace(part.place, stores=(first, gone)))
    with pytest.raises(PlacementError, match=rf"does not see /nowhere.* of store {second.name}.*--ipc=host"):
        count((read, away))


def test_another_volume_where_a_store_has_its_logs_is_another_place(
    task: tuple[BatchReader, Range], store_directory: Callable[[str], Path]
) -> None:
    """The store's directory is in sight, the one of its logs is one of the same name."""
    logs = store_directory("b") / "logs"
    moved = logs.rename(store_directory("b") / "moved")
    logs.mkdir(mode=0o700)
    with pytest.raises(PlacementError, match=r"logs is not where store b has its logs.*inode .*, not .*--ipc=host"):
        count(task)
    logs.rmdir()
    moved.rename(logs)
    assert count(task) == 5


def test_another_store_in_the_same_directory_is_another_place(
    task: tuple[BatchReader, Range], store_directory: Callable[[str], Path]
) -> None:
    take_over(store_directory("b"), store_directory("a"))
    with pytest.raises(PlacementError, match="run the executors where the driver runs"):
        count(task)
    for slot in store_directory("b").glob("state.?"):
        slot.unlink()
    with pytest.raises(PlacementError, match="store-b has no store, not "):
        count(task)


def test_a_store_that_cannot_be_read_is_not_taken_for_another_one(
    task: tuple[BatchReader, Range], store_directory: Callable[[str], Path]
) -> None:
    def spoil(name: str) -> None:
        for slot in store_directory(name).glob("state.?"):
            slot.write_bytes(b"?" * 100)

    spoil("b")
    assert count(task) == 5
    spoil("a")
    with pytest.raises(PlacementError, match=r"can read none of its stores: a: .*; b: "):
        count(task)


def test_a_read_of_directories_names_no_domain(
    task: tuple[BatchReader, Range], store_directory: Callable[[str], Path]
) -> None:
    options = {"topic": "orders", "directory": f"{store_directory('a')},{store_directory('b')}"}
    (part,) = BatchReader(options, columns_of(parse(options, "batch"))).partitions()
    assert (part.place.domain, task[1].place.domain) == ("", str(domain_directory()))
