"""Repair of stores that do not run, from directories that the tests write by hand
(engine/tools/store_repair.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.handmade_stores import Shelves

from holdfast.engine.errors import ConfigError, DirectoryInUseError
from holdfast.engine.log.check import StoreReport, check_store
from holdfast.engine.log.info_file import StoreInfo, write_info
from holdfast.engine.log.repair import Gap
from holdfast.engine.log.state_file import StateFile
from holdfast.engine.log.store_directory import StoreDirectory
from holdfast.engine.memory.domain import Domain
from holdfast.engine.tools.store_repair import RepairedStore, repair_stores

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def shelves(tmp_path: Path) -> Iterator[Shelves]:
    made = Shelves(tmp_path)
    yield made
    made.close()


def keep(shelves: Shelves, name: str, *lost: int, count: int = 20) -> Path:
    """Discovery of a store that has ``count`` messages except for the ``lost``, whose bytes no longer
    verify."""
    log = shelves.store(name)
    assert log is not None
    log.begin(1, 0)
    log.append(0, *([b"message %3d" % number] for number in range(count)))
    for number in lost:
        log.flip(b"message %3d" % number)
    return log.path.parent.parent


def report(repaired: RepairedStore) -> tuple[str, list[tuple[str, int, list[Gap]]]]:
    return repaired.name, [(log.topic, log.filled, log.left) for log in repaired.logs]


def costs(found: StoreReport) -> list[int]:
    return [finding.first for log in found.logs for finding in log.findings if finding.costs]


def test_stores_mend_each_other_and_each_says_what_it_got(shelves: Shelves) -> None:
    a, b = keep(shelves, "a", 3), keep(shelves, "b", 7, 8)
    repaired = repair_stores([a, b])
    assert [report(store) for store in repaired] == [("a", [("quotes", 1, [])]), ("b", [("quotes", 2, [])])]
    assert not any(store.damaged for store in repaired)
    assert all(log.bytes > 0 for store in repaired for log in store.logs)
    assert costs(check_store(a)) == costs(check_store(b)) == []


def test_what_no_other_has_stays_damaged(shelves: Shelves) -> None:
    a, b = keep(shelves, "a", 3, 12), keep(shelves, "b", 3)
    first, second = repair_stores([a, b])
    assert report(first) == ("a", [("quotes", 1, [Gap(3, 4, "damage")])])
    assert report(second) == ("b", [("quotes", 0, [Gap(3, 4, "damage")])])
    assert first.damaged
    assert second.damaged
    assert costs(check_store(a)) == [3]


def test_one_directory_is_mended_from_the_stores_of_its_domain(shelves: Shelves, own_domain: str) -> None:
    a, b = keep(shelves, "a", 5), keep(shelves, "b")
    domain = Domain(own_domain)
    try:
        for directory in (a, b):
            state = StateFile(directory).load()
            assert state is not None
            write_info(
                domain, StoreInfo(state.name, state.uuid, str(directory), str(directory / "logs"), "disk", 0, 0, 0)
            )
    finally:
        domain.close()
    (repaired,) = repair_stores([a], own_domain)
    assert report(repaired) == ("a", [("quotes", 1, [])])
    assert costs(check_store(a)) == []


def test_a_store_alone_in_its_domain_is_no_peer_of_its_own(shelves: Shelves, own_domain: str) -> None:
    a = keep(shelves, "a", 5)
    (repaired,) = repair_stores([a], own_domain)
    assert report(repaired) == ("a", [("quotes", 0, [Gap(5, 6, "damage")])])


def test_a_log_that_cannot_be_read_is_told_and_the_others_are_mended(shelves: Shelves) -> None:
    a, b = keep(shelves, "a", 5), keep(shelves, "b")
    broken = a / "logs" / ("0" * 32)
    broken.mkdir()
    (broken / "head").write_bytes(b"no head of ours")
    repaired = repair_stores([a, b])[0]
    assert [(log.source, log.filled) for log in repaired.logs] == [("0" * 32, 0), (shelves.uuid.hex(), 1)]
    assert "is not a readable log" in repaired.logs[0].error
    assert repaired.damaged
    assert not repaired.logs[1].report.damaged


def test_logs_are_mended_though_the_state_is_gone_and_that_is_damage(shelves: Shelves) -> None:
    a, b = keep(shelves, "a", 5), keep(shelves, "b")
    for slot in a.glob("state*"):
        slot.write_bytes(b"neither slot is valid")
    repaired = repair_stores([a, b])[0]
    assert report(repaired) == ("", [("", 1, [])])
    assert repaired.error
    assert repaired.damaged


def test_a_directory_that_only_has_logs_in_it_is_refused(shelves: Shelves) -> None:
    a = keep(shelves, "a")
    with pytest.raises(ConfigError, match="is not a store's directory"):
        repair_stores([a, a / "logs"])


def test_a_directory_that_a_store_holds_is_refused_and_the_others_are_left_free(shelves: Shelves) -> None:
    a, b = keep(shelves, "a", 3), keep(shelves, "b", 4)
    with StoreDirectory(b), pytest.raises(DirectoryInUseError, match="store-b"):
        repair_stores([a, b])
    assert costs(check_store(a)) == [3]
    assert not any(store.damaged for store in repair_stores([a, b]))
