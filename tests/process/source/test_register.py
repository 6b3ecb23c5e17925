"""The host's register of what sources have declared (engine/log/register.py): where a list changes and the
one store that knew both lists is wiped, the stable messages of the other list are not numbered again."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from unittest import mock

import msgspec
import pytest
from support.changing_stores import SESSION, SHORT, options, sent, waited
from support.handmade_register import OTHER, PAIR, UUID, file_of, source_register
from support.other_user import STRANGER
from support.workers import until

import holdfast as hf
from holdfast.engine.log import register, register_file
from holdfast.engine.log.register import SourceRegister, elsewhere
from holdfast.engine.log.register_file import Entry, RegisterFile, line_of
from holdfast.engine.memory.domain import Domain
from holdfast.engine.rules.quorum import Groups
from holdfast.engine.store import acks

if TYPE_CHECKING:
    from collections.abc import Callable

    from process.conftest import ThreadStore


@pytest.mark.usefixtures("registers", "only_a_has_5_to_9")
def test_a_list_that_only_a_wiped_store_knew_still_counts() -> None:
    assert sent("bc", 1) == 10, "a runs, and its log is read although it is not declared"


@pytest.mark.usefixtures("registers", "only_a_has_5_to_9_and_is_away")
def test_who_cannot_be_read_is_waited_for_and_named(wipe: Callable[[str], None]) -> None:
    with hf.Context(session_id=SESSION) as ctx, ctx.source("quotes", options=options("bc")) as src:
        until("it says whom it waits for", lambda: "declare a again" in str(waited(src)))
        wipe("a")
        src.wait_registered(SHORT)
        assert src.next_sequence_number == 10


@pytest.mark.usefixtures("registers", "only_a_has_5_to_9")
def test_without_the_register_they_would_be_numbered_again(registers: Path) -> None:
    """What it is for: the same, and somebody has removed it."""
    shutil.rmtree(registers)
    assert sent("bc", 1) == 5


@pytest.mark.usefixtures("registers")
def test_a_list_that_was_left_is_not_waited_for(
    run_store: Callable[..., ThreadStore], wipe: Callable[[str], None]
) -> None:
    stores = {name: run_store(name, "disk") for name in "abcde"}
    assert sent("abc", 5, by_all=True) == 0
    assert sent("cde", 5, by_all=True) == 5
    for name in "ab":
        stores[name].stop()
        wipe(name)
    assert sent("cde", 5, by_all=True) == 10


def test_a_register_in_trouble_is_told_and_the_source_goes_on(
    run_store: Callable[..., ThreadStore], registers: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "holdfast")
    registers.write_text("no directory")
    run_store("a", "disk")
    assert sent("a", 2) == 0
    assert sent("a", 2) == 2
    assert "only its stores know whom topic 'quotes' has declared" in caplog.text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_register_that_another_user_has_made_is_told_and_the_source_goes_on(
    run_store: Callable[..., ThreadStore], registers: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its program ran once as root, say. What another user has written is not believed."""
    caplog.set_level(logging.WARNING, "holdfast")
    run_store("a", "disk")
    assert sent("a", 2) == 0
    for path in (file_of(registers), registers):
        os.chown(path, STRANGER, STRANGER)
    assert sent("a", 2) == 2
    assert "only its stores know whom topic 'quotes' has declared" in caplog.text


def test_sources_of_two_domains_share_no_line(registers: Path, tmp_path: Path) -> None:
    """The same topic and session, in one register: each has a file of its own."""
    made = [
        SourceRegister(
            cast("Domain", SimpleNamespace(path=tmp_path / name)), "quotes", SESSION, (), tuple(stores), PAIR
        )
        for name, stores in (("one", "ab"), ("two", "cd"))
    ]
    for each in made:
        each.declare(UUID, 1, {})
    assert len(list(registers.iterdir())) == 2
    found = [each.read()[UUID].configurations for each in made]
    assert [{store for each in lists for store in each.stores} for lists in found] == [set("ab"), set("cd")]


def test_exclusions_are_over_when_the_source_is_complete_and_not_before(registers: Path) -> None:
    """Who is killed between the two has used no word of the operator's up. A store that comes back later ends
    its own."""
    made = source_register()
    made.declare(UUID, 1, {"a": 3})
    made.end([7])
    assert not made.read()[UUID].over
    made.complete(0, [5])
    assert made.read()[UUID].over == (5,)
    made.end([5, 6])
    made.declare(UUID, 1, {"b": 4})
    assert source_register().read()[UUID].over == (5, 6)
    made.declare(UUID, 2, {"a": 3})
    assert source_register().read()[UUID].over == (5, 6)


@pytest.mark.usefixtures("registers")
def test_the_newest_incarnation_of_any_list_is_remembered() -> None:
    """Who opens the next one does not hear of it from a store that is away."""
    for names, number in (("ab", 1), ("cd", 4), ("ab", 3)):
        source_register(names).declare(UUID, number, {})
    source_register("ab").declare(OTHER, 9, {})
    assert {uuid: each.incarnation for uuid, each in source_register().read().items()} == {UUID: 4, OTHER: 9}


def test_a_torn_line_is_none_and_what_comes_after_it_is_kept(registers: Path) -> None:
    made = source_register()
    made.declare(UUID, 1, {"a": 3})
    whole = made.read()
    with file_of(registers).open("ab") as file:
        file.write(b'deadbeef ["torn')
    assert made.read() == whole
    made.declare(OTHER, 1, {"a": 4})
    assert set(made.read()) == {UUID, OTHER}
    assert file_of(registers).stat().st_mode & 0o77 == 0


@pytest.mark.parametrize(
    "change",
    [
        {"lives": {"a": -1}},
        {"list": (("a",), (1,), (0, 0), 0, 0)},
        {"list": (("a",), (1,), (-1,), 0, 0)},
        {"uuid": "x"},
        {"below": -2},
    ],
)
def test_what_nobody_writes_is_no_line(registers: Path, change: dict[str, Any]) -> None:
    """Its checksum is right: a later version may have written it."""
    made = source_register()
    made.declare(UUID, 1, {"a": 3})
    whole = made.read()
    entry = Entry(OTHER.hex(), (("a",), (1,), (0,), 0, 0), {"a": 1})
    with file_of(registers).open("ab") as file:
        file.write(line_of(msgspec.structs.replace(entry, **change)))
    assert made.read() == whole


def test_what_a_failed_sync_left_is_written_again(registers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = source_register()
    made.declare(UUID, 1, {"a": 3})
    size = file_of(registers).stat().st_size
    synced: list[int] = []

    def fail(fd: int) -> None:
        synced.append(fd)
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(register_file, "sync_data", fail)
        made.declare(OTHER, 1, {"a": 3})
    assert len(synced) == 1
    assert file_of(registers).stat().st_size == size, "the next one must not find it there, and take it for synced"
    made.declare(OTHER, 1, {"a": 3})
    assert OTHER in made.read()


def test_nothing_is_written_twice_and_a_large_file_is_written_anew(
    registers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(register_file, "COMPACT_BYTES", 2000)
    made = source_register()
    made.declare(UUID, 1, {"a": 3, "b": 7})
    size = file_of(registers).stat().st_size
    made.declare(UUID, 1, {"a": 3})
    assert file_of(registers).stat().st_size == size
    sizes = []
    for life in range(4, 60):
        made.declare(UUID, 1, {"a": life})
        sizes.append(file_of(registers).stat().st_size)
    assert max(sizes) < 2000 + 2 * size
    assert made.read()[UUID].lives == {"a": 59, "b": 7}
    assert elsewhere(made.read()) == {UUID: {"a": (59, -1), "b": (7, -1)}}


def test_another_list_bounds_those_before_it(registers: Path) -> None:
    made, later = source_register(), source_register("bc")
    made.declare(UUID, 1, {"a": 3})
    later.declare(UUID, 2, {"c": 1})
    later.complete(7)
    first, second = made.read()[UUID].configurations
    assert (first.stores, first.below) == (("a", "b"), 7)
    assert second.below > 7
    made.declare(UUID, 3, {"a": 3})
    assert [each.below > 7 for each in made.read()[UUID].configurations] == [True, True], "it is declared again"
    later.complete(7)  # a thread of the life before, that stood still
    assert [each.below > 7 for each in made.read()[UUID].configurations] == [True, True]
    made.complete(9)
    assert elsewhere(made.read()) == {UUID: {"a": (3, -1), "b": (-1, -1), "c": (1, 9)}}
    assert source_register(topic="orders").read() == {}
    assert len(list(registers.iterdir())) == 1


def test_a_disk_that_hangs_is_waited_for_once(
    registers: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made, mended, looked = source_register(), threading.Event(), []
    made.declare(UUID, 1, {"a": 3})
    load = RegisterFile.load

    def hang(file: Any) -> Any:
        looked.append(file)
        mended.wait()
        return load(file)

    with monkeypatch.context() as patch:
        patch.setattr(register, "PATIENCE_S", 0.01)
        patch.setattr(RegisterFile, "load", hang)
        assert made.read() == {}
        until("somebody looks", lambda: looked)
        made.declare(OTHER, 1, {"a": 4})
        assert made.read() == {}
        assert len(looked) == 1
    assert caplog.text.count("does not answer") == 1
    mended.set()
    until("it answers again", lambda: UUID in made.read())


def test_without_a_home_the_source_is_told_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    domain = SimpleNamespace(path=Path(f"/tmp/holdfast-{os.getuid()}/md"))  # a reboot takes what is beside it
    made = SourceRegister(cast("Domain", domain), "quotes", SESSION, (), ("a",), Groups.single(1))
    for name in ("HOLDFAST_DIR", "HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000_000)
    assert made.read() == {}
    assert "uid 4000000000 has no home directory" in caplog.text


@pytest.mark.usefixtures("registers")
def test_who_was_declared_and_never_began_is_not_waited_for(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source was killed before its BEGIN with the second list: d and e have had that life, and nothing of
    the source."""
    for name in "abcde":
        run_store(name, "disk")
    assert sent("abc", 5, by_all=True) == 0
    declared = threading.Event()
    declare = SourceRegister.declare

    def last(self: SourceRegister, *what: Any, **how: Any) -> None:
        declare(self, *what, **how)
        declared.set()
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(SourceRegister, "declare", last)
        with hf.Context(session_id=SESSION) as ctx, ctx.source("quotes", options=options("cde")):
            assert declared.wait(SHORT)
    assert sent("abc", 5, by_all=True) == 5


class KilledError(Exception):
    """Here the source's process ends."""


@pytest.mark.usefixtures("registers")
def test_a_backup_that_never_had_a_seat_is_not_waited_for(
    run_store: Callable[..., ThreadStore], wipe: Callable[[str], None]
) -> None:
    stores = {name: run_store(name, "disk") for name in "abcd"}
    more = {**options("abcd"), "ume_store_group": ["0:3"]}

    def life() -> int:
        with hf.Context(session_id=SESSION) as ctx, ctx.source("quotes", options=more) as src:
            src.wait_registered(SHORT)
            first = src.next_sequence_number
            for _ in range(5):
                src.send(b"x")
            src.wait_stable(timeout=SHORT)
        return first

    more["ume_registration_interval"] = 60_000  # nobody loses a seat
    assert life() == 0
    assert not [each for each in stores["d"].store.state.sources if each.incarnation], "d has had no BEGIN"
    stores["d"].stop()
    stores["a"].stop()
    wipe("a")
    more["ume_registration_interval"] = 100
    assert life() == 5


@pytest.mark.usefixtures("registers")
def test_who_is_wiped_while_its_source_lives_has_no_say_before_it_has_all_again(
    run_store: Callable[..., ThreadStore], wipe: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = {name: run_store(name, "disk") for name in "abc"}
    assert sent("abc", 5, by_all=True) == 0
    with hf.Context(session_id=SESSION) as ctx, ctx.source("quotes", options=options("abd")) as src:
        src.wait_registered(SHORT)
        for _ in range(5):
            src.send(b"x")
        src.wait_stable(timeout=SHORT)
        stores["b"].stop()
        wipe("b")
        save = acks.save  # where it gets its say again
        with monkeypatch.context() as patch:
            patch.setattr(acks, "save", lambda _: None)
            wiped, late = run_store("b", "disk").store, run_store("d", "disk").store
            both = [wiped, late]
            until(
                "both have begun",
                lambda: all(each.state.sources and each.state.sources[0].incarnation for each in both),
            )
            assert [each.state.sources[0].learner for each in both] == [True, False], "d has never had anything"
            repository = wiped.holdings.repository(wiped.state.sources[0].uuid)
            assert repository is not None
            until("what the ring has is known", lambda: repository.caught_up)
            assert repository.caught_up_at == 10
            repository.caught_up_at = 11
            save(wiped.holdings)
            assert wiped.state.sources[0].learner, "the ring had more"
            repository.caught_up_at = 10
        until("it has all again", lambda: not wiped.state.sources[0].learner)
        assert repository.next_sqn == 10


@pytest.mark.usefixtures("registers")
def test_a_backup_that_took_the_seat_is_waited_for_also_when_it_was_wiped_and_ran_once(
    run_store: Callable[..., ThreadStore],
    wipe: Callable[[str], None],
    tmp_path: Path,
) -> None:
    """a was never told that b took part: only the register knows. b's new directory knows nothing of the
    source."""
    stores = {name: run_store(name, "disk") for name in "ab"}
    more = {
        **options("ab"),
        "ume_store_group": ["0:1"],
        "ume_registration_interval": 60_000,
    }  # a has it first, however slow
    with hf.Context(session_id=SESSION) as ctx, ctx.source("quotes", options=more) as src:
        src.wait_registered(SHORT)
        stores["a"].stop()
        until("b has the seat", lambda: any(each.incarnation for each in stores["b"].store.state.sources))
        src.wait_registered(SHORT)
        src.send(b"x")
        src.wait_stable(timeout=SHORT)
    stores["b"].stop()
    wipe("b")
    hf.spawn_store(hf.StoreConfig("b", tmp_path / "store-b", type="disk"), SHORT).stop()
    run_store("a", "disk")
    with hf.Context(session_id=SESSION) as ctx, ctx.source("quotes", options=more) as src:
        said = waited(src)
        while said is not None and "may hold stable messages that no other store has: start it" not in str(said):
            said = waited(src)
        assert said is not None, "it has begun without b"


def test_each_registration_id_has_a_file_and_a_source_is_in_all_of_its_own(registers: Path) -> None:
    def by(*numbers: int) -> SourceRegister:
        domain = Domain()
        try:
            return SourceRegister(domain, "quotes", 0, numbers, ("a", "b"), PAIR)
        finally:
            domain.close()

    by(11, 12, 0).declare(UUID, 1, {"a": 3})
    by(22).declare(OTHER, 1, {"a": 4})
    assert [set(by(number).read()) for number in (11, 12, 22, 13)] == [{UUID}, {UUID}, {OTHER}, set()]
    assert by().read() == {}
    assert len(list(registers.iterdir())) == 3


def test_what_could_not_be_written_is_written_later(registers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, made = source_register("bc"), source_register()
    first.declare(UUID, 1, {"b": 1})
    with monkeypatch.context() as patch:
        patch.setattr(register_file, "sync_data", full)
        made.declare(UUID, 2, {"a": 3})
        made.complete(7)
    assert [each.below > 7 for each in made.read()[UUID].configurations] == [True]
    made.settle()
    found = {each.stores: each.below for each in made.read()[UUID].configurations}
    assert found[("b", "c")] == 7
    assert found[("a", "b")] > 7


def full(_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_file_whose_name_may_not_be_on_disk_is_another_one_the_next_time(
    registers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory sync that failed is never believed later: neither of a new file, nor of one that was
    written anew."""
    made = source_register()
    with monkeypatch.context() as patch:
        patch.setattr(register_file, "sync_directory", full)
        made.declare(UUID, 1, {"a": 3})
        assert list(registers.iterdir()) == [], "it goes again"
    made.declare(UUID, 1, {"a": 3})
    monkeypatch.setattr(register_file, "COMPACT_BYTES", 1)
    for life in range(4, 10):
        made.declare(UUID, 1, {"a": life})
    with monkeypatch.context() as patch:
        patch.setattr(RegisterFile, "_renew", renew_without_names)
        for life in range(10, 20):
            made.declare(UUID, 1, {"a": life})
    assert any(path.suffix == ".doubt" for path in registers.iterdir())
    before = {path.name: path.stat().st_ino for path in registers.iterdir()}
    made.declare(UUID, 1, {"a": 20})
    after = {path.name: path.stat().st_ino for path in registers.iterdir()}
    assert set(after) == {name for name in before if not name.endswith(".doubt")}
    assert after != before, "it was written once more"
    assert made.read()[UUID].lives == {"a": 20}


def renew_without_names(*arguments: Any) -> None:
    with mock.patch.object(register_file, "sync_directory", full):
        renew(*arguments)


renew = RegisterFile._renew


def test_of_two_that_write_at_once_neither_loses_a_line(registers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One stands still with the lock; the other waits, and writes behind it, also where the file is another
    one then."""
    monkeypatch.setattr(register_file, "COMPACT_BYTES", 1)
    monkeypatch.setattr(register, "PATIENCE_S", SHORT)
    one, other, inside, go = source_register(), source_register(), threading.Event(), threading.Event()
    one.declare(UUID, 1, {"a": 3})
    news = SourceRegister._news

    def stopped(self: SourceRegister, *arguments: Any) -> Any:
        if self is one:
            inside.set()
            assert go.wait(SHORT)
        return news(self, *arguments)

    monkeypatch.setattr(SourceRegister, "_news", stopped)
    first = threading.Thread(target=one.declare, args=(UUID, 2, {"a": 4}))
    second = threading.Thread(target=other.declare, args=(OTHER, 1, {"a": 5}))
    first.start()
    assert inside.wait(SHORT)
    second.start()
    go.set()
    first.join()
    second.join()
    found = one.read()
    assert (found[UUID].lives, found[OTHER].lives) == ({"a": 4}, {"a": 5})
