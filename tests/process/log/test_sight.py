"""Which stores of a source can be read, and which ones on record are away: nobody takes these for stores
without it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.leftovers import remove_objects
from support.receiving import SHORT, options, until

import holdfast as hf
from holdfast.cli.store_exclude import exclude
from holdfast.engine.log.catalog import TopicSource, logs_away, topic_sources
from holdfast.engine.log.register import Entry, entries_of, register_directory
from holdfast.engine.log.sight import on_record, stores_away
from holdfast.engine.log.state_file import SourceState
from holdfast.engine.memory.domain import Domain, domain_directory
from holdfast.engine.rules.reconcile import BEGINS_MAX, FOR_EVER

if TYPE_CHECKING:
    from collections.abc import Callable

    from process.conftest import ThreadStore

    Run = Callable[..., ThreadStore]

UUID = bytes(range(16))


def state(incarnation: int, stores: list[str], *begins: tuple[int, int]) -> SourceState:
    return SourceState(UUID, "quotes", 7, 0, incarnation, stores=stores, begins=list(begins))


def entry(*stores: str, below: int = -1) -> Entry:
    return Entry(UUID.hex(), (stores, (len(stores), 0, 0, 0, 0), (0,) * len(stores), 0, 0), {}, below=below)


def test_a_list_counts_up_to_where_another_one_began() -> None:
    new, old = state(3, ["a", "c"], (1, 0), (2, 40), (3, 90)), state(1, ["a", "b"], (1, 0))
    assert on_record([new, old]) == {"a": FOR_EVER, "c": FOR_EVER, "b": 40}
    assert on_record([new], [entry("a", "b", below=50)]) == {"a": FOR_EVER, "c": FOR_EVER, "b": 50}
    assert on_record([], [entry("d")]) == {"d": FOR_EVER}
    assert on_record([]) == {}


def test_a_list_that_is_older_than_all_begins_on_record_counts_up_to_the_least_that_is() -> None:
    begins = [(number, 10 * number) for number in range(9, 9 + BEGINS_MAX)]
    new, old = state(begins[-1][0], ["a", "c"], *begins), state(1, ["a", "b"], (1, 0))
    assert on_record([new, old]) == {"a": FOR_EVER, "c": FOR_EVER, "b": 90}
    old.declared, old.incarnation, old.begins = 1, new.incarnation, new.begins  # it has followed its peers
    assert on_record([new, old]) == on_record([old, new]) == {"a": FOR_EVER, "c": FOR_EVER, "b": 90}


def reboot() -> None:
    """What it takes, of a domain that lives where nothing stays."""
    remove_objects(domain_directory())
    shutil.rmtree(domain_directory())


def one() -> TopicSource:
    (found,) = topic_sources(None)
    return found


def away() -> dict[str, str]:
    return {each.store: each.why for each in one().away}


@pytest.fixture
def stores(run_store: Run, request: pytest.FixtureRequest) -> list[ThreadStore]:
    """a and b, which have five messages each, dead."""
    made = [run_store(name, getattr(request, "param", "disk")) for name in "ab"]
    with hf.Context() as ctx:
        src = ctx.source("quotes", options=options("a", "b", ume_session_id="7"))
        src.wait_registered(SHORT)
        for number in range(5):
            src.send(b"%d" % number)
        src.wait_stable(timeout=SHORT)
        until("both have them", lambda: [log.next for log in one().logs] == [5, 5])
    for store in made:
        store.stop()
    return made


def test_a_store_whose_volume_is_not_mounted_is_away(
    stores: object, tmp_path: Path, wipe: Callable[[str], None]
) -> None:
    assert away() == {}
    logs = one().logs
    wipe("a")
    directory = tmp_path / "store-a"
    assert away() == {"a": f"{directory} is not there"}
    directory.mkdir(mode=0o700)  # where it is mounted
    assert away() == {"a": f"{directory} has no state of a store"}
    assert [each.store for each in logs_away(logs)] == ["a"]
    directory.rmdir()
    shutil.copytree(tmp_path / "store-b", directory)
    assert away() == {"a": f"{directory} has another store's state"}
    assert [each.store for each in logs_away(logs)] == ["a"]
    assert exclude("a", 10, None) == 0
    assert away() == {}
    shutil.rmtree(directory)
    wipe("a")
    assert [log.store for log in one().logs] == ["a", "b"], "and what is in sight is read, whatever was said"


def test_a_store_whose_log_cannot_be_read_is_away(stores: object, tmp_path: Path) -> None:
    found = one()
    log = tmp_path / "store-a" / "logs" / found.uuid
    (log / "head").write_bytes(b"?" * 4096)
    assert "head" in away()["a"]
    shutil.rmtree(log)
    assert "No such file" in away()["a"]
    assert [each.store for each in logs_away(found.logs)] == ["a"]
    shutil.rmtree(tmp_path / "store-b" / "logs" / found.uuid)
    assert topic_sources(None) == []
    assert [each.store for each in stores_away(None, "quotes", found.uuid[:8])] == ["a", "b"]


@pytest.mark.parametrize("stores", ["memory"], indirect=True)
def test_a_log_in_memory_that_a_reboot_took_is_lost(stores: list[ThreadStore]) -> None:
    found = one()
    for log in found.logs:
        shutil.rmtree(Path(log.path).resolve())
    assert stores_away(None, "quotes", found.uuid[:8]) == ()
    assert logs_away(found.logs) == ()


def test_after_a_reboot_a_store_says_where_its_peers_are(
    stores: object, run_store: Run, tmp_path: Path, wipe: Callable[[str], None]
) -> None:
    reboot()
    wipe("a")
    run_store("b", "disk")
    assert ([log.store for log in one().logs], away()) == (["b"], {"a": f"{tmp_path / 'store-a'} is not there"})
    wipe("a")
    assert ([log.store for log in one().logs], away()) == (["a", "b"], {})


def test_the_register_knows_whose_source_it_is(stores: object, run_store: Run, tmp_path: Path) -> None:
    """No store that has it is in sight: by the first digits of its uuid, as Spark's offsets name it."""
    uuid = one().uuid
    reboot()
    run_store("z", "disk")
    assert [each.store for each in stores_away(None, "quotes", uuid[:8])] == ["a", "b"]
    assert [each.list[0] for each in entries_of(domain_directory(), uuid, ("quotes", 7, ()))] == [("a", "b")]
    assert entries_of(domain_directory(), uuid, ("quotes", 8, ())) == []
    shutil.rmtree(register_directory(domain_directory()))
    assert stores_away(None, "quotes", uuid[:8]) == ()
    assert [each.store for each in stores_away(None, "quotes", uuid[:8], ["a"])] == ["a"]
    assert not register_directory(domain_directory()).exists(), "who reads makes none"


def test_a_domain_in_which_no_store_ran_knows_nothing(own_domain: str) -> None:
    Domain(join=False).close()
    (nobody,) = stores_away(None, "quotes", "00000000")
    assert nobody.store == "any store"
