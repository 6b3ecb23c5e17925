"""What a store cannot read of its peers may hold anything: a source never starts below what may be stable
there (docs/design.md 14)."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING

import pytest
from support.command_line import one_error, run
from support.kept_messages import kept
from support.leftovers import remove_objects
from support.other_user import STRANGER
from support.restarted_source import SHORT, SOURCE, has_begun, incarnation, read
from support.three_stores import everywhere, waits
from support.workers import until

import holdfast as hf
from holdfast.engine.errors import SystemCallError
from holdfast.engine.log import info_file
from holdfast.engine.native import private_directory
from holdfast.engine.native.core import ffi
from holdfast.engine.store.repository import Repository
from holdfast.engine.store.sources import SourceDesk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from process.conftest import ThreadStore

    from holdfast.engine.control import wire
    from holdfast.engine.rules.reconcile import Table
    from holdfast.engine.store.clients import Client

SEAT_AND_BACKUP = {
    **SOURCE,
    "ume_store_name": ["a:0:0", "b:0:0"],
    "ume_store_group": ["0:1"],
    "ume_store_check_interval": 50,
}

PATIENT = {"ume_registration_interval": 60_000}
"""A store that answers late on a busy machine would lose its seat to the backup for good."""


def of_another_layout(log: Path) -> Callable[[], None]:
    """Its head is one that this version cannot read. Returns what puts it right again."""
    head, at = log / "head", ffi.offsetof("struct hf_preamble", "layout_version")
    before = head.read_bytes()
    head.write_bytes(before[:at] + b"\x63" + before[at + 1 :])
    return lambda: void(head.write_bytes(before))


def without_begins(log: Path) -> Callable[[], None]:
    """No table of BEGINs in its head is whole."""
    head, at = log / "head", ffi.offsetof("struct hf_begin_table", "crc")
    before = head.read_bytes()
    spoiled = bytearray(before)
    for page in (4096, 8192):
        spoiled[page + at] ^= 1
    head.write_bytes(spoiled)
    return lambda: void(head.write_bytes(before))


def of_another_user(log: Path) -> Callable[[], None]:
    """Nobody else may enter it."""
    os.chown(log, STRANGER, STRANGER)
    return lambda: os.chown(log, os.geteuid(), os.getegid())


AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")


def void(_: object) -> None:
    pass


def stable_on_the_backup(run_store: Callable[..., ThreadStore], tmp_path: Path) -> Path:
    """0..4 are stable at a, which has the seat; then a is stopped, and 5..9 are at b. Both are stopped.
    Returns b's log."""
    stores = {name: run_store(name, "disk") for name in "ab"}
    with hf.Context(session_id=7) as ctx, ctx.source("quotes", options={**SEAT_AND_BACKUP, **PATIENT}) as src:
        src.wait_registered(SHORT)
        for number in range(5):
            src.send(b"%d" % number)
        src.wait_stable(timeout=SHORT)
        stores["a"].stop()
        until("b has the seat", lambda: src.stats().stores["b"].state == "active")
        for number in range(5, 10):
            src.send(b"%d" % number)
        src.wait_stable(timeout=SHORT)
    stores["b"].stop()
    (log,) = (tmp_path / "store-b" / "logs").iterdir()
    return log


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (of_another_layout, "layout"),
        (without_begins, "table of BEGINs"),
        pytest.param(of_another_user, "not permitted", marks=AS_ROOT),
    ],
)
def test_where_a_backup_that_cannot_be_read_may_have_more_the_source_waits_for_it(
    run_store: Callable[..., ThreadStore],
    tmp_path: Path,
    own_domain: str,
    spoil: Callable[[Path], Callable[[], None]],
    why: str,
) -> None:
    mend = spoil(stable_on_the_backup(run_store, tmp_path))
    remove_objects(own_domain)
    run_store("a", "disk")
    with hf.Context(session_id=7) as ctx, ctx.source("quotes", options=SEAT_AND_BACKUP) as src:
        waits(src, rf"b \(.*{why}.*\) may hold stable messages that no other store has: .*holdfast store exclude b")
        mend()
        run_store("b", "disk")
        src.wait_registered(SHORT)
        assert src.next_sequence_number == 10
    with hf.Context() as ctx:
        assert read(ctx, 10) == [(number, b"%d" % number) for number in range(10)]


def test_who_is_excluded_is_not_waited_for_and_learns_when_it_returns(
    run_store: Callable[..., ThreadStore], tmp_path: Path, own_domain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mend = of_another_layout(stable_on_the_backup(run_store, tmp_path))
    remove_objects(own_domain)
    a = run_store("a", "disk")
    with hf.Context(session_id=7) as ctx, ctx.source("quotes", options=SEAT_AND_BACKUP) as src:
        waits(src, "exclude b")
        one_error(run("store", "exclude", "a"), 2, "store a runs")
        code, out, err = run("store", "exclude", "b")
        assert (code, err) == (0, "")
        assert "store a: recorded\n  topic 'quotes'" in out
        assert "store a has messages up to number 4; what only store b has is given up" in out
        assert "messages that were stable only with what it has are given up" in out
        src.wait_registered(SHORT)
        assert src.next_sequence_number == 5
        for number in range(5, 8):
            src.send(b"new %d" % number)
        src.wait_stable(timeout=SHORT)
        mend()
        b = run_store("b", "disk")
        (repository,) = b.store.drainer.repositories.values()
        until("b has what a has", lambda: repository.caught_up)
        found: list[tuple[bool, bool]] = []
        begin = Repository.begin

        def look(self: Repository, table: Table, stream: str) -> tuple[int, bool]:
            found.append((self.source.learner, self.caught_up))
            return begin(self, table, stream)

        monkeypatch.setattr(Repository, "begin", look)
        a.stop()
        until("b has the seat", lambda: src.stats().stores["b"].state == "active")
        assert found[0] == (True, False), "what it had caught up with before does not give it its say back"
        (source,) = b.store.state.sources
        assert len(source.served) == 1
        src.send(b"new 8")
        src.wait_stable(timeout=SHORT)
        until("it has a say again", lambda: not source.learner)
    new = [(number, b"new %d" % number) for number in range(5, 9)]
    assert kept(b)[-4:] == new
    assert kept(b)[:5] == [(number, b"%d" % number) for number in range(5)]


def test_an_exclusion_is_recorded_by_stores_that_do_not_run_and_ends_when_the_store_takes_part(
    run_store: Callable[..., ThreadStore],
) -> None:
    stores = {name: run_store(name, "disk") for name in "abc"}
    with hf.Context(session_id=7) as ctx:
        incarnation(ctx, "abc", range(5))
    for name in "bc":
        stores[name].stop()
    code, out, _ = run("store", "exclude", "c")
    assert code == 0
    assert "store b: recorded in " in out
    for name in "bc":
        stores[name] = run_store(name, "disk")
        assert ("c" in stores[name].store.state.excluded) == (name == "b")
    with (
        hf.Context(session_id=7) as ctx,
        ctx.source("quotes", options={**SOURCE, "ume_store_name": list("abc")}) as src,
    ):
        everywhere(src)
        assert src.next_sequence_number == 5
        (source,) = stores["b"].store.state.sources
        assert source.excluded(stores["b"].store.state.excluded) == {}, "from the next start on c is waited for again"
        (learned,) = stores["c"].store.state.sources
        assert len(learned.served) == 1
    one_error(run("store", "exclude", "d", "--domain", "nobody"), 2, "there is no domain")


def test_an_exclusion_is_not_recorded_where_a_store_has_no_state(
    run_store: Callable[..., ThreadStore], tmp_path: Path
) -> None:
    stores = {name: run_store(name, "disk") for name in "abc"}
    with hf.Context(session_id=7) as ctx:
        incarnation(ctx, "abc", range(5))
    for name in "bc":
        stores[name].stop()
    for slot in (tmp_path / "store-b").glob("state*"):
        slot.unlink()
    code, out, err = run("store", "exclude", "c")
    assert code == 1
    assert "store a: recorded" in out
    assert "store b: not recorded: " in err
    assert "has no state" in err
    assert "store b: recorded" not in out


@pytest.mark.skipif(
    os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode != 0,
    reason="a store in a mount namespace of its own wants root, and a kernel that allows it",
)
def test_a_store_in_a_container_does_not_take_its_peers_for_empty(
    run_store: Callable[..., ThreadStore], tmp_path: Path
) -> None:
    """c was dead while 5..9 became stable at a and b; then a dies, and c returns where it sees neither
    directory."""
    stores = {name: run_store(name, "disk") for name in "abc"}
    with hf.Context(session_id=7) as ctx:
        incarnation(ctx, "abc", range(5), ume_registration_interval=60_000)
        until("c has it", lambda: len(kept(stores["c"])) == 5)
        stores["c"].stop()
        incarnation(ctx, "abc", range(5, 10))
        stores["a"].stop()
        hidden = [tmp_path / f"store-{name}" for name in "ab"]
        (tmp_path / "empty").mkdir()
        mounts = "; ".join(f"mount --bind {tmp_path / 'empty'} {path}" for path in hidden)
        program = f"exec {sys.executable} -m holdfast store run --name c --dir {tmp_path / 'store-c'} --type disk"
        contained = subprocess.Popen(["unshare", "-m", "sh", "-ec", f"{mounts}; {program}"])
        try:
            incarnation(ctx, "abc", range(10, 12))
        finally:
            contained.kill()
            contained.wait()
    for name in "ac":
        run_store(name, "disk")
    with hf.Context() as ctx:
        assert read(ctx, 12) == [(number, b"%d" % number) for number in range(12)]


def test_begins_that_reached_one_store_void_nothing_that_became_stable_since(
    run_store: Callable[..., ThreadStore], tmp_path: Path, own_domain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two claimants died when BEGIN was at a only; a is away, with the board; b and c go on; a returns with
    both BEGINs."""
    stores = {name: run_store(name, "disk") for name in "abc"}
    begin, deaf = SourceDesk.begin, set("bc")

    def only_at_a(self: SourceDesk, client: Client, request: wire.Begin) -> wire.Answer | None:
        return None if self._holdings.name in deaf else begin(self, client, request)

    with hf.Context(session_id=7) as ctx:
        with ctx.source("quotes", options={**SOURCE, "ume_store_name": list("abc")}) as src:
            everywhere(src)
            for number in range(5):
                src.send(b"%d" % number)
            src.wait_stable(timeout=SHORT)
        until("all have it", lambda: all(len(kept(store)) == 5 for store in stores.values()))
        with monkeypatch.context() as patched:
            patched.setattr(SourceDesk, "begin", only_at_a)
            for orphan in (2, 3):
                with ctx.source("quotes", options={**SOURCE, "ume_store_name": list("abc")}):
                    until("a has its BEGIN", partial(has_begun, stores["a"], orphan))
    stores["a"].stop()
    (tmp_path / "store-a").rename(tmp_path / "away")
    for name in "bc":
        stores[name].stop()
    remove_objects(own_domain)
    for name in "bc":
        stores[name] = run_store(name, "disk")
    with hf.Context(session_id=7) as ctx:
        incarnation(ctx, "abc", range(5, 10))
        shutil.move(tmp_path / "away", tmp_path / "store-a")
        stores["a"] = run_store("a", "disk")
        incarnation(ctx, "abc", range(10, 12))
    with hf.Context() as ctx:
        assert read(ctx, 12) == [(number, b"%d" % number) for number in range(12)]


def test_an_exclusion_holds_for_one_start_and_not_for_what_became_stable_since(
    run_store: Callable[..., ThreadStore], tmp_path: Path, own_domain: str
) -> None:
    """b was excluded, returned, and had the seat while a was down: then a alone must not go by the old
    word."""
    mend = of_another_layout(stable_on_the_backup(run_store, tmp_path))
    remove_objects(own_domain)
    a = run_store("a", "disk")
    with hf.Context(session_id=7) as ctx, ctx.source("quotes", options=SEAT_AND_BACKUP) as src:
        waits(src, "exclude b")
        assert run("store", "exclude", "b")[0] == 0
        src.wait_registered(SHORT)
        mend()
        b = run_store("b", "disk")
        a.stop()
        until("b has the seat", lambda: src.stats().stores["b"].state == "active")
        for number in range(5, 10):
            src.send(b"new %d" % number)
        src.wait_stable(timeout=SHORT)
    b.stop()
    (log,) = (tmp_path / "store-b" / "logs").iterdir()
    of_another_layout(log)
    remove_objects(own_domain)
    run_store("a", "disk")
    with hf.Context(session_id=7) as ctx, ctx.source("quotes", options=SEAT_AND_BACKUP) as src:
        waits(src, r"b \(.*layout.*\) may hold stable messages that no other store has")


def test_a_store_that_was_wiped_does_not_count_as_empty_because_it_has_run_since(
    run_store: Callable[..., ThreadStore], tmp_path: Path, own_domain: str
) -> None:
    """5..9 were stable at c and at the backup d, which cannot be read; c's disk was replaced."""
    names = {"ume_store_name": [f"{name}:0:0" for name in "abcd"], "ume_store_group": ["0:3"]}
    options = {**SOURCE, **names, "ume_registration_interval": 60_000, "ume_store_check_interval": 50}
    stores = {name: run_store(name, "disk") for name in "abcd"}
    with hf.Context(session_id=7) as ctx, ctx.source("quotes", options=options) as src:
        src.wait_registered(SHORT)
        until("three have their seats", lambda: all(src.stats().stores[name].state == "active" for name in "abc"))
        for number in range(5):
            src.send(b"%d" % number)
        src.wait_stable(timeout=SHORT)
        until("all have it", lambda: all(len(kept(stores[name])) == 5 for name in "abc"))
        stores["a"].stop()
        until("d has the seat of a", lambda: src.stats().stores["d"].state == "active")
        stores["b"].stop()
        for number in range(5, 10):
            src.send(b"%d" % number)
        src.wait_stable(timeout=SHORT)
    for name in "cd":
        stores[name].stop()
    (log,) = (tmp_path / "store-d" / "logs").iterdir()
    mend = of_another_layout(log)
    shutil.rmtree(tmp_path / "store-c")
    remove_objects(own_domain)
    run_store("c", "disk").stop()
    for name in "ab":
        run_store(name, "disk")
    options["ume_registration_interval"] = 100
    with hf.Context(session_id=7) as ctx, ctx.source("quotes", options=options) as src:
        waits(src, r"c \(.*has not had the life.*\) may hold stable messages")
        mend()
        run_store("d", "disk")
        src.wait_registered(SHORT)
        assert src.next_sequence_number == 10


def test_who_is_no_store_of_any_source_is_not_excluded(run_store: Callable[..., ThreadStore]) -> None:
    run_store("a", "disk")
    with hf.Context(session_id=7) as ctx:
        incarnation(ctx, "a", range(2))
    one_error(run("store", "exclude", "nosuch"), 2, "no source in domain", "has declared a store nosuch")


def test_a_store_whose_table_of_begins_is_lost_says_so_and_takes_it_from_its_state(
    run_store: Callable[..., ThreadStore], tmp_path: Path, own_domain: str
) -> None:
    log = stable_on_the_backup(run_store, tmp_path)
    without_begins(log)
    remove_objects(own_domain)
    status, out, _ = run("store", "check", str(tmp_path / "store-b"))
    assert (status, "table of BEGINs" in out) == (5, True)
    run_store("a", "disk")
    run_store("b", "disk")
    with hf.Context(session_id=7) as ctx, ctx.source("quotes", options=SEAT_AND_BACKUP) as src:
        src.wait_registered(SHORT)
        assert src.next_sequence_number == 10


def test_a_log_on_a_device_that_has_gone_cannot_be_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """ext4 says ENOMEM of it, each time. That was taken for this process's own want, and asked again."""

    def refuse(number: int) -> Callable[[object], int]:
        def open_log(path: object) -> int:
            raise OSError(number, os.strerror(number), str(path))

        return open_log

    monkeypatch.setattr(private_directory, "open_log", refuse(errno.ENOMEM))
    with info_file.log_reader(tmp_path) as log:
        assert log is None
    assert "Cannot allocate memory" in str(info_file.peer_view(tmp_path))
    monkeypatch.setattr(private_directory, "open_log", refuse(errno.EMFILE))
    with pytest.raises(SystemCallError, match="Too many open files"):
        info_file.peer_view(tmp_path)
