"""What counts as an orphan, what is unknown, and what a removal leaves alone (engine/tools/orphans.py)."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import msgspec
import pytest
from support.orphan_scene import ALL, HOUR_NS, UUID, Left, Scene

from holdfast.engine.memory import card as card_module
from holdfast.engine.memory import domain as domain_module
from holdfast.engine.memory.card import Card, HeldCard, leads_to, prefix_of, try_lock
from holdfast.engine.tools import orphans as module
from holdfast.engine.tools.orphans import KnownDomain, known_domains, orphans

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    made = Scene(tmp_path)
    monkeypatch.setattr(module, "SHM_DIR", made.shm)
    monkeypatch.setattr(domain_module, "SHM_DIR", made.shm)
    monkeypatch.setenv("HOLDFAST_DIR", str(tmp_path / "base"))
    monkeypatch.setattr(module, "volatile_bases", set)  # whoever tests here may have domains of his own
    return made


@pytest.fixture
def gone(scene: Scene, tmp_path: Path) -> Left:
    """What is left of a domain whose directory is gone: it lies elsewhere, so that nobody beside this test
    gets its inode."""
    left = scene.left()
    left.directory.rename(tmp_path / "away")
    return left


def said(found: list[module.Orphan]) -> set[tuple[bool, str]]:
    return {(each.gone, each.why) for each in found}


def kept(left: Left, *, older_ns: int | None = None) -> str:
    """A removal leaves all of it, for one reason."""
    names = left.names()
    (why,) = {each.kept for each in orphans(remove=True, everything=True, older_ns=older_ns)}
    assert left.names() == names
    return why


# What is an orphan ------------------------------------------------------------------------------------------


def test_what_is_left_of_a_removed_domain_is_listed_and_removed_on_request(gone: Left) -> None:
    found = orphans(everything=True)
    assert [each.path.removeprefix(f"{gone.shm}/{gone.prefix}") for each in found] == ALL
    assert {(each.domain, each.kept) for each in found} == {(str(gone.directory), "")}
    assert said(found) == {(True, "its directory does not exist")}
    assert sum(each.bytes for each in found if each.kind == "logs") >= 8192, "with what is in it"
    assert gone.names() == ALL, "it was only listed"
    assert [each.kept for each in orphans(remove=True, everything=True)] == [""] * len(ALL)
    assert gone.names() == []
    assert orphans(everything=True) == []


def test_a_domain_whose_directory_is_there_has_no_orphans(scene: Scene) -> None:
    left = scene.left()
    assert orphans(remove=True, everything=True, older_ns=0) == []
    assert left.names() == ALL
    assert known_domains() == [KnownDomain(str(left.directory))]


def test_a_directory_that_was_moved_is_found_by_its_inode(scene: Scene) -> None:
    left = scene.left()
    moved = left.directory.rename(left.directory.with_name("moved"))
    assert orphans(remove=True, everything=True) == []
    assert known_domains() == [KnownDomain(str(moved))]


def test_a_directory_that_was_moved_to_where_domains_live_is_found(scene: Scene) -> None:
    left = scene.left()
    (scene.place / "base").mkdir()
    left.directory.rename(scene.place / "base" / "here")
    left.directory.mkdir()
    assert orphans(remove=True, everything=True) == []
    left.card.unlink()
    assert orphans(remove=True, everything=True, older_ns=0) == [], "also of 0.1, which has no cards"


def test_another_directory_in_that_place_proves_it(scene: Scene) -> None:
    left = scene.left()
    (scene.place / "away").mkdir()
    left.directory.rename(scene.place / "away" / "old")  # it lives on, where nobody looks
    left.directory.mkdir()
    assert said(orphans(everything=True)) == {(True, "another directory is in the place of its own")}


def test_a_path_that_is_no_utf8_is_kept_as_it_is(scene: Scene) -> None:
    left = scene.left("od\udcffd")
    left.directory.rmdir()
    assert {each.domain for each in orphans(everything=True)} == {str(left.directory)}


# What is unknown --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "cannot be read"),
        (b"\xff\x00 nothing", "cannot be read"),
        (b'{"path":"/x"}', "cannot be read"),
        (msgspec.json.encode(Card("/nowhere", 1, 2, "")), "of another domain"),
    ],
)
def test_a_card_that_nobody_understands_names_no_domain(gone: Left, text: bytes, why: str) -> None:
    gone.card.write_bytes(text)
    ((proved, reason),) = said(orphans(everything=True))
    assert not proved
    assert why in reason
    assert kept(gone) == "its domain is unknown (removed with --older-than AGE)"


def test_what_has_no_card_is_unknown(gone: Left) -> None:
    gone.card.unlink()
    ((proved, why),) = said(orphans(everything=True))
    assert (proved, "it has no card" in why) == (False, True)
    kept(gone)


@pytest.mark.parametrize("path", ["relative/path", "/with%00nul"])
def test_a_path_that_is_none_is_unknown(gone: Left, path: str) -> None:
    read = msgspec.json.decode(gone.card.read_bytes(), type=Card)
    gone.card.write_bytes(msgspec.json.encode(msgspec.structs.replace(read, path=path)))
    assert said(orphans(everything=True)) == {(False, "its card cannot be read: it names no path")}


def test_a_card_that_is_a_fifo_a_link_or_has_two_names_is_none(gone: Left) -> None:
    text = gone.card.read_bytes()
    other = gone.shm / "other"
    other.write_bytes(text)
    makers: list[Callable[[Path, Path], None]] = [os.symlink, os.link, lambda _, card: os.mkfifo(card)]
    for make in makers:
        gone.card.unlink()
        make(other, gone.card)
        assert {proved for proved, _ in said(orphans(everything=True))} == {False}
        gone.age(5)
        assert "its card cannot be opened" in kept(gone, older_ns=HOUR_NS)


def test_a_fifo_with_the_name_of_a_ring_is_nothing_of_ours(gone: Left) -> None:
    gone.board.unlink()
    os.mkfifo(gone.board)
    assert str(gone.board) not in {each.path for each in orphans(remove=True, everything=True)}
    assert gone.names() == [f"{UUID}.b"]


def test_a_parent_that_is_no_directory_proves_nothing(gone: Left) -> None:
    gone.directory.parent.rmdir()
    gone.directory.parent.write_bytes(b"")
    assert said(orphans(everything=True)) == {(False, "its directory cannot be looked at: Not a directory")}
    kept(gone)


def test_a_link_that_leads_in_circles_proves_nothing(gone: Left) -> None:
    gone.directory.symlink_to(gone.directory)
    assert {proved for proved, _ in said(orphans(everything=True))} == {False}


@pytest.mark.parametrize("place", ["missing", ""])
def test_a_file_system_that_is_not_mounted_proves_nothing(scene: Scene, tmp_path: Path, place: str) -> None:
    scene.left(device=12345, path=str(tmp_path / place))
    assert said(orphans(everything=True)) == {(False, "the file system that its directory was on is not mounted there")}


def test_of_run_user_that_is_unmounted_nothing_is_left(scene: Scene) -> None:
    scene.left(device=12345, path="/run/user/4294967290/holdfast/default")
    assert {proved for proved, _ in said(orphans(everything=True))} == {True}


def test_a_card_of_another_boot_or_container_proves_nothing(scene: Scene) -> None:
    for name, differs in (("boot", {"boot": "0" * 32}), ("container", {"namespace": "mnt:[1]"})):
        left = scene.left(name, **differs)
        left.directory.rename(scene.place / f"away-{name}")  # its inode is not to be another domain's
        ((proved, why),) = said(orphans(everything=True))
        assert (proved, name in why) == (False, True)
        assert known_domains() == [KnownDomain(str(left.directory), why)], "nobody knows that it is gone"
        left.age(2)
        orphans(remove=True, everything=True, older_ns=HOUR_NS)
        assert left.names() == []


# What is still wanted ---------------------------------------------------------------------------------------


HOLD = ["0123456789abcdef0123456789abcdef.b", "0123456789abcdef0123456789abcdef.s1", "logs.a.0123"]
"""What may hold messages: a ring, which is none that can be read, with its board; and the logs."""


def test_what_may_hold_messages_stays_without_everything_and_the_card_that_names_it(gone: Left) -> None:
    found = {each.kind: each.kept for each in orphans(remove=True)}
    assert gone.names() == sorted(["card", *HOLD])
    assert found["stream"].startswith("it cannot be read: ")
    assert found["stream"].endswith(" (removed with --all)")
    assert found["board"] == "it says who has drained the ring that stays"
    assert found["logs"] == "messages of a memory store, whose directory leads there (removed with --all)"
    assert {kind for kind, why in found.items() if why} == {"card", "logs", "stream", "board"}
    orphans(remove=True, everything=True)
    assert gone.names() == []


def test_without_a_card_none_is_left_behind_with_them(gone: Left) -> None:
    gone.card.unlink()
    gone.age(2)
    orphans(remove=True, older_ns=HOUR_NS)
    assert gone.names() == HOLD


# By age -----------------------------------------------------------------------------------------------------


def test_unknown_domains_are_removed_by_age_alone(gone: Left) -> None:
    gone.card.unlink()
    gone.age(2)
    kept(gone)
    assert kept(gone, older_ns=3 * HOUR_NS) == "its domain has something younger"
    assert {each.kept for each in orphans(remove=True, everything=True, older_ns=HOUR_NS)} == {""}
    assert gone.names() == [], "with the card that was made to be locked"


def test_one_young_thing_keeps_all_of_a_domain(gone: Left) -> None:
    gone.age(2)
    os.utime(gone.shm / f"{gone.prefix}logs.a.0123" / UUID / "head")
    assert kept(gone, older_ns=HOUR_NS) == "its domain has something younger"


# Who lives --------------------------------------------------------------------------------------------------


def test_who_holds_the_card_keeps_all(gone: Left) -> None:
    holder = HeldCard(gone.card, msgspec.json.decode(gone.card.read_bytes(), type=Card))
    holder.show()
    assert kept(gone) == "a living process holds the domain's card"
    holder.close()
    orphans(remove=True, everything=True)
    assert gone.names() == []


@pytest.mark.parametrize("card", [True, False])
def test_who_writes_to_anything_keeps_all(gone: Left, *, card: bool) -> None:
    if not card:
        gone.card.unlink()
    logs = gone.shm / f"{gone.prefix}logs.a.0123" / UUID / "head"
    for path in (gone.board, logs):
        with path.open("r+b"):
            assert kept(gone, older_ns=0) == f"a process has {path} open"
    orphans(remove=True, everything=True, older_ns=0)
    assert gone.names() == []


def test_where_nobody_can_say_who_writes_all_is_kept(gone: Left, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_leases(_: Path) -> bool:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(module, "is_written", no_leases)
    assert kept(gone).endswith("cannot be said: Invalid argument")


def test_a_process_that_only_reads_keeps_all(gone: Left) -> None:
    with gone.board.open("rb") as opened, subprocess.Popen(["sleep", "600"], pass_fds=[opened.fileno()]) as reader:
        try:
            assert kept(gone) == f"process {reader.pid} has something of its domain open"
        finally:
            reader.kill()


def test_a_process_that_has_the_directory_open_keeps_all(scene: Scene) -> None:
    left = scene.left()
    fd = os.open(left.directory, os.O_RDONLY)
    left.directory.rmdir()
    with subprocess.Popen(["sleep", "600"], pass_fds=[fd]) as process:
        try:
            os.close(fd)
            assert kept(left) == f"process {process.pid} has something of its domain open"
        finally:
            process.kill()


# Races ------------------------------------------------------------------------------------------------------


def between_the_looks(monkeypatch: pytest.MonkeyPatch, deed: Callable[[], object]) -> None:
    """It is done after the first look, and before the removal."""

    def then(_: object) -> dict[str, int]:
        deed()
        return {}

    monkeypatch.setattr(module, "users", then)


def test_a_directory_that_comes_back_between_two_looks_keeps_all(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    left = scene.left()
    (scene.place / "away").mkdir()
    left.directory.rename(scene.place / "away" / "old")
    between_the_looks(monkeypatch, lambda: (scene.place / "away" / "old").rename(left.directory))
    assert kept(left) == "its domain's directory may be there again"


def test_who_took_the_card_away_between_two_looks_keeps_all(gone: Left, monkeypatch: pytest.MonkeyPatch) -> None:
    def replaced() -> None:
        text = gone.card.read_bytes()
        gone.card.unlink()
        gone.card.write_bytes(text)

    between_the_looks(monkeypatch, replaced)
    assert kept(gone) == "another process has taken its domain's card"


def test_who_joins_waits_for_the_removal(gone: Left, monkeypatch: pytest.MonkeyPatch) -> None:
    """The inode has been used again: the prefix is that of the new domain."""
    joined = HeldCard(gone.card, Card(str(gone.directory), *whose(gone), "again"))
    order: list[str] = []

    class Clock:
        @staticmethod
        def sleep(_: float) -> None:
            order.append("waits")
            gone.card.unlink()
            os.close(remover)

    remover = os.open(gone.card, os.O_RDWR)
    assert try_lock(remover, alone=True)
    monkeypatch.setattr(card_module, "time", Clock)
    joined.show()
    assert order == ["waits"]
    assert msgspec.json.decode(gone.card.read_bytes(), type=Card).boot == "again"
    assert kept(gone, older_ns=0) == "a living process holds the domain's card"
    joined.close()


def test_who_joins_does_not_wait_for_ever(gone: Left, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(card_module, "TRIES", 3)
    monkeypatch.setattr(card_module, "NAP_S", 0.0)
    remover = os.open(gone.card, os.O_RDWR)
    assert try_lock(remover, alone=True)
    joined = HeldCard(gone.card, Card(str(gone.directory), *whose(gone), "again"))
    joined.show()
    assert not leads_to(gone.card, remover), "which the remover sees before each removal"
    os.close(remover)
    joined.close()


def whose(left: Left) -> tuple[int, int]:
    read = msgspec.json.decode(left.card.read_bytes(), type=Card)
    assert prefix_of(read.device, read.inode) == left.prefix
    return read.device, read.inode
