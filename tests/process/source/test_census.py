"""A quorum starts a source that is new, where the censuses of the others prove that these never had it
(engine/log/census.py)."""

from __future__ import annotations

import os
import shutil
import signal
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from support.census_scene import ALL, Stores, begins, file_of, forget, lose_files, only_c_has_it, waited
from support.three_stores import SHORT, SOURCE, send, waits
from support.workers import Worker, stand_still, until

import holdfast as hf
from holdfast.engine.log import census, own_census
from holdfast.engine.log.info_file import read_info, write_info
from holdfast.engine.memory.domain import Domain

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from process.conftest import ThreadStore

BACKUP: dict[str, Any] = {"ume_store_name": list("abcd"), "ume_store_group": ["0:3"]}
IN_CENSUS = "c may have had it: it has granted this source once, as its census says"


@pytest.fixture
def stores(run_store: Callable[..., ThreadStore]) -> Stores:
    return {name: run_store(name, "disk") for name in "abc"}


# What begins ------------------------------------------------------------------------------------------------


def test_where_one_of_three_has_lost_its_disk_a_new_source_begins(
    stores: Stores, wipe: Callable[[str], None], run_store: Callable[..., ThreadStore]
) -> None:
    """The first one of this domain, and the next."""
    stores["c"].stop()
    wipe("c")
    begins(1)
    begins(2)
    begins(2, 3)
    run_store("c", "disk")
    begins(2, 6)


def test_a_store_that_hangs_is_not_waited_for_and_takes_part_when_it_goes_on(
    run_store: Callable[..., ThreadStore], tmp_path: Path, own_domain: str
) -> None:
    for name in "ab":
        run_store(name, "disk")
    given: dict[str, Any] = {"directory": str(tmp_path / "store-c"), "kind": "disk"}
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


def test_a_backup_that_never_ran_is_waited_for_until_it_has_run_once(
    stores: Stores, run_store: Callable[..., ThreadStore]
) -> None:
    """Nobody knows what it had before this boot."""
    begins(2)
    waited(1, "d may have had it: it has not run here since the last boot", **BACKUP)
    d = run_store("d", "disk")
    d.stop()
    lose_files(d)
    begins(1, **BACKUP)
    begins(1, 3, **BACKUP)


def test_it_is_the_same_for_reg_ids(stores: Stores) -> None:
    stores["c"].stop()
    lose_files(stores["c"])
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
    lose_files(stores["c"])
    with hf.Context() as ctx:
        ids = {"ume_store_name": ["a:1:0", "b:2:0", f"c:{given}:0"]}
        with ctx.source("quotes", options={**SOURCE, **ids}) as src:
            waits(src, IN_CENSUS)


def test_a_store_that_comes_with_the_source_of_another_life_is_heard(
    stores: Stores, run_store: Callable[..., ThreadStore], wipe: Callable[[str], None]
) -> None:
    """What was begun without it holds, and it catches up."""
    stores["c"].stop()
    wipe("c")
    begins(1, **ALL)
    again = run_store("c", "disk")
    with hf.Context(session_id=1) as ctx, ctx.source("quotes", options=SOURCE) as src:
        src.wait_registered(SHORT)
        assert src.next_sequence_number == 3
        until("c takes part", lambda: {at.state for at in src.stats().stores.values()} == {"active"})
        (kept,) = again.store.state.sources
        until("it has all", lambda: again.store.holdings.held(kept) == 3)


# What waits -------------------------------------------------------------------------------------------------


def test_what_only_c_has_is_not_numbered_again(
    stores: Stores, run_store: Callable[..., ThreadStore], registers: Path, own_domain: str
) -> None:
    """Also without the register of sources, and after a reboot."""
    begins(1, **ALL)
    only_c_has_it(stores, run_store)
    waited(9, "c may have had it: it has taken part, or was to, as the register of sources says")
    shutil.rmtree(registers)
    lose_files(stores["c"])
    waited(9, IN_CENSUS)
    forget("c", own_domain)
    waited(9, "c may have had it: it has not run here since the last boot")


def test_a_store_that_was_wiped_since_remembers_what_it_has_had_in_this_boot(
    stores: Stores, run_store: Callable[..., ThreadStore], wipe: Callable[[str], None], registers: Path
) -> None:
    only_c_has_it(stores, run_store)
    wipe("c")
    stores["c"] = run_store("c", "disk")
    stores["c"].stop()
    lose_files(stores["c"])
    shutil.rmtree(registers)
    waited(9, IN_CENSUS)


def test_a_store_that_has_lost_its_files_and_its_census_is_waited_for_until_the_next_boot(
    stores: Stores, run_store: Callable[..., ThreadStore], wipe: Callable[[str], None], registers: Path, own_domain: str
) -> None:
    only_c_has_it(stores, run_store)
    wipe("c")
    file_of("c", own_domain).unlink()
    for _ in range(2):  # it is not forgotten with a life
        stores["c"] = run_store("c", "disk")
        stores["c"].stop()
    lose_files(stores["c"])
    shutil.rmtree(registers)
    waited(9, "c may have had it: nobody knows any more what it has granted in this boot")


def of_an_earlier_boot(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The domain is on a disk."""
    monkeypatch.setattr(census, "boot_id", lambda: b"another boot id.")


def damaged(path: Path, _: pytest.MonkeyPatch) -> None:
    os.truncate(path, 7)


def gone(path: Path, _: pytest.MonkeyPatch) -> None:
    path.unlink()


def another_life(path: Path, _: pytest.MonkeyPatch) -> None:
    """As of a store that was killed before it had said who it is."""
    census.write(path, b"another life....", (), whole=True)


def a_link(path: Path, _: pytest.MonkeyPatch) -> None:
    path.rename(path.with_suffix(".moved"))
    path.symlink_to(path.with_suffix(".moved"))


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (of_an_earlier_boot, "it has not run since the last boot"),
        (damaged, "its census cannot be read: .* is no census"),
        (gone, "its census is gone, or could not be written"),
        (another_life, "its census is of another life"),
        (a_link, "its census cannot be read"),
    ],
)
def test_a_census_that_is_not_as_its_store_left_it_proves_nothing(
    stores: Stores, own_domain: str, monkeypatch: pytest.MonkeyPatch, reason: str,
    harm: Callable[[Path, pytest.MonkeyPatch], None],
) -> None:  # fmt: skip
    stores["c"].stop()
    lose_files(stores["c"])
    harm(file_of("c", own_domain), monkeypatch)
    waited(2, f"c may have had it: {reason}")


def test_an_older_store_that_ran_since_is_not_taken_for_the_one_of_the_census(stores: Stores, own_domain: str) -> None:
    """What it says of itself names no census."""
    stores["c"].stop()
    lose_files(stores["c"])
    domain = Domain(own_domain)
    try:
        info = read_info(domain, "c")
        assert info is not None
        write_info(domain, msgspec.structs.replace(info, census=b""))
    finally:
        domain.close()
    waited(2, "c may have had it: it is of an earlier version, which keeps no census")


def test_a_store_that_cannot_write_its_census_is_waited_for(
    stores: Stores, run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch, registers: Path,
    own_domain: str, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """It grants all the same, and takes its census away. When it can write again it writes all of it."""

    def no_room(path: Path, _: bytes) -> None:
        if path.name.startswith("c."):
            raise OSError("no room")

    monkeypatch.setattr(own_census, "RETRY_NS", 1 << 62)
    with monkeypatch.context() as full:
        full.setattr(own_census, "add", no_room)
        only_c_has_it(stores, run_store, stop="de")
    assert not file_of("c", own_domain).exists()
    assert "store c keeps no census now: no room" in caplog.text
    monkeypatch.setattr(own_census, "RETRY_NS", 0)
    until("it is written again", lambda: file_of("c", own_domain).exists())
    stores["c"].stop()
    lose_files(stores["c"])
    shutil.rmtree(registers)
    waited(9, IN_CENSUS)
    file_of("c", own_domain).unlink()
    waited(9, "c may have had it: its census is gone, or could not be written")


def test_a_register_that_cannot_be_read_proves_nothing(stores: Stores, registers: Path) -> None:
    stores["c"].stop()
    lose_files(stores["c"])
    registers.write_text("no directory")
    waited(2, "c may have had it: the register of sources cannot be read")
