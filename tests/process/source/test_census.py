"""A quorum starts a source that is new, where the censuses of the others prove that these never had it
(engine/rules/census.py)."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from support.three_stores import SHORT, SOURCE, send, waits
from support.workers import Worker, stand_still, until

import holdfast as hf
from holdfast.engine.log import census
from holdfast.engine.log.census import CensusFile
from holdfast.engine.log.register import register_directory
from holdfast.engine.memory.domain import Domain
from holdfast.engine.rules.census import TROUBLE
from holdfast.engine.source import unheard

if TYPE_CHECKING:
    from collections.abc import Callable

    from process.conftest import ThreadStore

Stores = dict[str, "ThreadStore"]
BACKUP: dict[str, Any] = {"ume_store_name": list("abcd"), "ume_store_group": ["0:3"]}


@pytest.fixture(autouse=True)
def censuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where those of this test are."""
    monkeypatch.setattr(census, "register_directory", lambda _: tmp_path / "host" / ".register")
    return tmp_path / "host" / ".census"


@pytest.fixture
def run_store(run_store: Callable[..., ThreadStore]) -> Callable[..., ThreadStore]:
    """Each keeps a census."""
    return lambda *given, **options: run_store(*given, **{"holdfast-census": 1, **options})


@pytest.fixture
def stores(run_store: Callable[..., ThreadStore]) -> Stores:
    return {name: run_store(name, "disk") for name in "abc"}


def begins(session: int, at: int = 0, count: int = 3, **options: Any) -> None:
    """A life of a source; its first number is this one."""
    with hf.Context(session_id=session) as ctx, ctx.source("quotes", options={**SOURCE, **options}) as src:
        src.wait_registered(SHORT)
        assert src.next_sequence_number == at
        send(src, count)


def waited(session: int, reason: str, **options: Any) -> None:
    """It does not begin, and says why."""
    with hf.Context(session_id=session) as ctx, ctx.source("quotes", options={**SOURCE, **options}) as src:
        waits(src, reason)


def file_of(name: str, own_domain: str) -> Path:
    domain = Domain(own_domain)
    try:
        file = CensusFile(domain.path, name)
        return file.directory / file._name
    finally:
        domain.close()


def forget_info(name: str, own_domain: str) -> None:
    """As a reboot does."""
    domain = Domain(own_domain)
    try:
        domain.info_path(name).unlink()
    finally:
        domain.close()


# What begins ------------------------------------------------------------------------------------------------


def test_where_one_of_three_has_lost_its_disk_a_new_source_begins(
    stores: Stores, wipe: Callable[[str], None], run_store: Callable[..., ThreadStore]
) -> None:
    begins(1)
    stores["c"].stop()
    wipe("c")
    begins(2)
    begins(2, 3)
    run_store("c", "disk")
    begins(2, 6)


def test_after_a_reboot_too(stores: Stores, wipe: Callable[[str], None], own_domain: str) -> None:
    """Nothing of the store is left but its census, and what others remember of that."""
    begins(1)
    stores["c"].stop()
    wipe("c")
    forget_info("c", own_domain)
    assert stores["a"].store.state.censuses["c"].lines == 2
    begins(2)


def test_a_store_that_hangs_is_not_waited_for_and_takes_part_when_it_goes_on(
    run_store: Callable[..., ThreadStore], tmp_path: Path, own_domain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The store is a process, and has its census where the domain says.
    monkeypatch.setattr(census, "register_directory", register_directory)
    for name in "ab":
        run_store(name, "disk")
    given: dict[str, Any] = {"directory": str(tmp_path / "store-c"), "kind": "disk", "options": {"holdfast-census": 1}}
    worker = Worker("store", tmp_path, domain=own_domain, name="c", **given)
    try:
        worker.start().wait_ready()
        assert worker.process is not None
        stand_still(worker.process.pid)
        with hf.Context(session_id=2) as ctx, ctx.source("quotes", options=SOURCE) as src:
            src.wait_registered(SHORT)
            assert src.next_sequence_number == 0
            send(src, 3)
            worker.send(signal.SIGCONT)
            until("it takes part", lambda: {at.state for at in src.stats().stores.values()} == {"active"})
    finally:
        worker.discard()


def test_a_backup_that_never_ran_is_not_waited_for(stores: Stores) -> None:
    begins(1, **BACKUP)
    begins(1, 3, **BACKUP)


def test_it_is_the_same_for_reg_ids(stores: Stores) -> None:
    stores["c"].stop()
    ids = {"ume_store_name": ["a:7:0", "b:8:0", "c:9:0"]}
    with hf.Context() as ctx, ctx.source("quotes", options={**SOURCE, **ids}) as src:
        src.wait_registered(SHORT)
        assert src.next_sequence_number == 0
        send(src, 3)


def test_a_reg_id_that_a_store_has_given_is_in_its_census(stores: Stores) -> None:
    """Its source comes back with it: it is no new one."""
    with hf.Context() as ctx, ctx.source("quotes", options=SOURCE) as src:
        src.wait_registered(SHORT)
        send(src, 3)
        until("c has it", lambda: len(stores["c"].store.state.sources) == 1)
        given = stores["c"].store.state.sources[0].registration_id
    stores["c"].stop()
    shutil.rmtree(stores["c"].store.directory.path)
    with hf.Context() as ctx:
        ids = {"ume_store_name": ["a:1:0", "b:2:0", f"c:{given}:0"]}
        with ctx.source("quotes", options={**SOURCE, **ids}) as src:
            waits(src, "c may have had it: it has granted this source once")


def test_a_store_that_comes_with_the_source_of_another_life_is_heard(
    stores: Stores, run_store: Callable[..., ThreadStore]
) -> None:
    """What was begun without it holds, and it catches up."""
    stores["c"].stop()
    begins(1)
    again = run_store("c", "disk")
    with hf.Context(session_id=1) as ctx, ctx.source("quotes", options=SOURCE) as src:
        src.wait_registered(SHORT)
        assert src.next_sequence_number == 3
        until("c takes part", lambda: {at.state for at in src.stats().stores.values()} == {"active"})
        (kept,) = again.store.state.sources
        until("it has all", lambda: again.store.holdings.held(kept) == 3)


# What waits -------------------------------------------------------------------------------------------------


def only_c_has_it(stores: Stores, run_store: Callable[..., ThreadStore]) -> None:
    """Life 1 was on c, d and e; a and b have not heard of it. Then c and the others go away."""
    for name in "de":
        stores[name] = run_store(name, "disk")
    begins(9, ume_store_name=list("cde"))
    for name in "cde":
        stores[name].stop()


def test_what_only_c_has_is_not_numbered_again(
    stores: Stores, run_store: Callable[..., ThreadStore], registers: Path, own_domain: str
) -> None:
    """Also without the register of sources, and after a reboot."""
    begins(1)
    only_c_has_it(stores, run_store)
    waited(9, "c may have had it: it has taken part, or was to, as the register of sources says")
    shutil.rmtree(registers)
    waited(9, "c may have had it: it has granted this source once, as its census says")
    forget_info("c", own_domain)
    waited(9, "c may have had it: it has granted this source once, as its census says")
    begins(8)
    file_of("c", own_domain).unlink()
    waited(9, "c may have had it: its census is gone")
    run_store("c", "disk")
    with hf.Context(session_id=9) as ctx, ctx.source("quotes", options=SOURCE) as src:
        src.wait_registered(SHORT)
        assert src.next_sequence_number == 3


def test_a_store_that_was_wiped_and_is_back_is_asked(
    stores: Stores, run_store: Callable[..., ThreadStore], wipe: Callable[[str], None], registers: Path
) -> None:
    """It says that it has had the source, so that nothing is proved of others: as if there were no
    censuses."""
    only_c_has_it(stores, run_store)
    shutil.rmtree(registers)
    wipe("c")
    stores["c"] = run_store("c", "disk")
    stores["b"].stop()
    waited(9, "b may have had it: c has had this source, and has forgotten it")
    assert stores["c"].store.state.sources[0].forgotten
    run_store("b", "disk")


def copied(path: Path) -> None:
    shutil.copy2(path, path.with_suffix(".copy"))
    path.with_suffix(".copy").rename(path)


def damaged(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (copied, "is a copy, or another store's"),
        (damaged, "its last line is torn"),
        (Path.unlink, "its census is gone"),
    ],
)
def test_a_census_that_was_tampered_with_proves_nothing(
    stores: Stores, own_domain: str, harm: Callable[[Path], None], reason: str
) -> None:
    begins(1)
    stores["c"].stop()
    harm(file_of("c", own_domain))
    waited(2, f"c may have had it: .*{reason}")


def test_a_census_that_was_set_back_proves_nothing(stores: Stores, own_domain: str) -> None:
    """In place, so that it is the same file. The others know how long it was."""
    begins(1)
    path = file_of("c", own_domain)
    before = path.read_bytes()
    begins(2)
    until("it is on c, too", lambda: path.read_bytes() != before)
    stores["c"].stop()
    path.write_bytes(before)
    waited(3, "c may have had it: its census has been set back")
    forget_info("c", own_domain)
    waited(3, "c may have had it: its census has been set back")


def test_what_another_container_sees_proves_nothing(
    stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source that has another directory for censuses than the stores that answer."""
    stores["c"].stop()
    other = lambda _: tmp_path / "other" / ".register"  # noqa: E731
    look_at = census.look_at

    def looks(*given: Any) -> Any:
        with mock.patch.object(census, "register_directory", other):
            return look_at(*given)

    monkeypatch.setattr(unheard, "look_at", looks)
    waited(2, "c may have had it: there is no .*other")
    (tmp_path / "other/.census").mkdir(0o700, parents=True)
    waited(2, "c may have had it: a keeps its census in another directory")


def test_a_store_that_cannot_write_its_census_is_waited_for(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, own_domain: str
) -> None:
    def no_room(*_: object) -> None:
        raise OSError("no room")

    with monkeypatch.context() as full:
        full.setattr(CensusFile, "append", no_room)
        begins(1)
        until("c has granted it", lambda: stores["c"].store.state.sources)
    assert stores["c"].store._census.mark == TROUBLE
    stores["c"].stop()
    waited(2, "c may have had it: its census cannot be read: .* line 1 is damaged")


def test_the_trouble_of_a_store_is_remembered(stores: Stores, monkeypatch: pytest.MonkeyPatch, own_domain: str) -> None:
    """Its info file is gone with a reboot, and its census has been brought back."""
    begins(1)
    path = file_of("c", own_domain)
    append = CensusFile.append

    def fails(file: CensusFile, *given: Any) -> Any:
        if file._name == path.name:
            raise OSError("no room")
        return append(file, *given)

    before = path.read_bytes()
    with monkeypatch.context() as full:
        full.setattr(CensusFile, "append", fails)
        begins(2)
        until("a knows", lambda: stores["a"].store.state.censuses["c"][:2] == TROUBLE)
    stores["c"].stop()
    path.write_bytes(before)
    waited(3, "c may have had it: it could not write its census once")
    forget_info("c", own_domain)
    waited(3, "c may have had it: it could not write its census once")


def test_another_name_of_a_store_is_not_taken_for_one_that_never_ran(
    run_store: Callable[..., ThreadStore], own_domain: str
) -> None:
    for name in "ab":
        run_store(name, "disk")
    run_store("x", "disk", aliases=("c",)).stop()
    begins(1)
    forget_info("c", own_domain)
    forget_info("x", own_domain)
    waited(2, "c may have had it: that is another name of some store")


def test_where_a_store_that_keeps_none_answers_nothing_is_proved(
    stores: Stores, run_store: Callable[..., ThreadStore], own_domain: str
) -> None:
    """And what it kept before is spoilt."""
    stores["c"].stop()
    stores["a"].stop()
    run_store("a", "disk", **{"holdfast-census": 0})
    assert file_of("a", own_domain).read_bytes()[:1] == b"-"
    waited(2, "c may have had it: a keeps no census")


def test_where_no_store_keeps_one_nothing_is_looked_at_or_written(
    run_store: Callable[..., ThreadStore], censuses: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is by default."""
    monkeypatch.setattr(unheard, "look_at", mock.Mock(side_effect=AssertionError))
    off = {"holdfast-census": 0}
    a, b = run_store("a", "disk", **off), run_store("b", "disk", **off)
    with hf.Context(session_id=2) as ctx, ctx.source("quotes", options=SOURCE) as src:
        waits(src, "c")
        run_store("c", "disk", **off)
        src.wait_registered(SHORT)
        until("a has it", lambda: a.store.state.sources[0].incarnation)
        assert a.store.state.censuses == b.store.state.censuses == {}
        assert a.store.state.census is None
    assert not censuses.exists()


def test_a_disk_that_hangs_is_no_proof(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on = threading.Event()
    look_at = census.look_at

    def hangs(*given: Any) -> Any:
        assert goes_on.wait(SHORT)
        return look_at(*given)

    stores["c"].stop()
    monkeypatch.setattr(unheard, "look_at", hangs)
    monkeypatch.setattr(unheard, "PATIENCE_NS", 1)
    with hf.Context(session_id=2) as ctx, ctx.source("quotes", options=SOURCE) as src:
        waits(src, "c may have had it: the disk of its census does not answer")
        monkeypatch.setattr(unheard, "PATIENCE_NS", SHORT * 10**9)
        monkeypatch.setattr(unheard, "SHARE", 0)  # else the next look waits twenty times as long
        goes_on.set()
        src.wait_registered(SHORT)


def test_a_register_that_cannot_be_read_proves_nothing(stores: Stores, registers: Path) -> None:
    stores["c"].stop()
    registers.write_text("no directory")
    waited(2, "c may have had it: the register of sources cannot be read")
