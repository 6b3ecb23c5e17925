"""A dead receiver that no store knows: its line on the board says whether it was deregistered
(HF_LINE_DEREGISTERED). Else its stores have lost it, and what it lacks is owed (docs/semantics.md F.7)."""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from support.command_line import run, stat
from support.receiving import SHORT, source, take
from support.shelved_logs import shelve_at_once
from support.workers import until

import holdfast as hf
from holdfast.cli.operate import deregister
from holdfast.engine.memory import deregistered_lines as lines_module
from holdfast.engine.memory.deregistered_lines import receiver_lines
from holdfast.engine.memory.domain import SHM_DIR
from holdfast.engine.native.core import ffi, lib
from holdfast.engine.store import expiry
from holdfast.engine.store.forgotten_lines import mark_forgotten
from holdfast.engine.store.owed import UNREAD
from holdfast.engine.tools.finished import candidates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from process.conftest import ThreadStore

    from holdfast.engine.log.state_file import ReceiverState

SESSION = 7
OVER_SOON = {"source-state-lifetime": 50, "source-activity-timeout": 20, "source-check-interval": 5}
SOON = {"receiver-state-lifetime": 50, "receiver-activity-timeout": 20, "source-check-interval": 5}


@pytest.fixture
def ctx() -> Iterator[hf.Context]:
    with hf.Context() as made:
        yield made


def reads_one(session: int = SESSION) -> None:
    assert run("recv", "quotes", "--count", "1", "--session", str(session))[0] == 0


def rows() -> list[tuple[int, int, bool]]:
    """Session, lag and whether a store knows it, of each receiver."""
    return [(row["session_id"], row["lag"], row["known"]) for row in stat()["receivers"]]


def owed(ctx: hf.Context) -> tuple[str, ...]:
    (found,) = candidates(ctx.domain, 0, None, force=False)
    return found.owed


def receiver_of(store: ThreadStore) -> ReceiverState:
    (kept,) = store.store.state.sources
    (receiver,) = kept.receivers
    return receiver


def forget_at(store: ThreadStore) -> None:
    """The operator's command."""
    (kept,) = store.store.state.sources
    name = store.store.config.name
    assert deregister(name, kept.registration_id, receiver_of(store).registration_id, False, SHORT, None) == 0


def marks(ctx: hf.Context, store: ThreadStore) -> list[bool]:
    (kept,) = store.store.state.sources
    lines = receiver_lines(ctx.domain, kept.uuid)
    assert lines is not None
    return [line.is_marked for line in lines]


class Watched:
    """A lock, and while it was held, what has become false."""

    def __init__(self, lock: Any, look: Callable[[], bool]) -> None:
        self._lock, self._look = lock, look
        self._before = False
        self.seen: list[tuple[bool, bool]] = []

    def __enter__(self) -> None:
        self._lock.__enter__()
        self._before = self._look()

    def __exit__(self, *given: Any) -> None:
        if self._before and not self._look():
            self.seen.append((True, False))
        self._lock.__exit__(*given)


class Standing:
    """The core, while somebody else has the turn of every board."""

    def __init__(self, core: Any, status: int) -> None:
        self._core, self._status = core, status
        self.stands, self.asked = True, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)

    def hf_board_mark(self, *given: Any) -> int:
        self.asked += 1
        return self._status if self.stands else int(self._core.hf_board_mark(*given))


def stays(store: ThreadStore) -> list[str]:
    """Why a source is there still after its lifetime."""
    until("its lifetime is over", lambda: store.store._expiry.needed.why or not store.store.state.sources)
    return list(store.store._expiry.needed.why.values())


def with_older_state(
    run_store: Callable[..., ThreadStore], store: ThreadStore, deed: Callable[[], object], **options: object
) -> ThreadStore:
    """``deed`` is done, and then the store's state is restored from a copy that was made before."""
    directory, name = store.store.directory.path, store.store.config.name
    store.stop()
    copies = {path: path.read_bytes() for path in directory.glob("state.*")}
    store = run_store(name, "disk")
    deed()
    store.stop()
    for path, content in copies.items():
        path.write_bytes(content)
    return run_store(name, "disk", **options)


@contextlib.contextmanager
def unreadable_board(ctx: hf.Context, store: ThreadStore) -> Iterator[None]:
    """Of another layout, as far as anybody who opens it can see."""
    (kept,) = store.store.state.sources
    at = ffi.offsetof("struct hf_preamble", "struct_hash")
    with (SHM_DIR / ctx.domain.board_name(kept.uuid)).open("r+b", buffering=0) as board:
        before = os.pread(board.fileno(), 4, at)
        os.pwrite(board.fileno(), bytes(byte ^ 0xFF for byte in before), at)
        yield
        os.pwrite(board.fileno(), before, at)


def two_messages(ctx: hf.Context, *stores: str) -> hf.Source:
    src = source(ctx, ume_store_name=[f"{name}:0:0" for name in stores])
    src.wait_registered(SHORT)
    for text in (b"1", b"2"):
        src.wait_stable(src.send(text), timeout=SHORT)
    return src


def test_what_a_receiver_is_owed_that_its_store_has_lost_is_seen_and_keeps_the_source(
    run_store: Callable[..., ThreadStore], ctx: hf.Context
) -> None:
    """The state was restored from a backup. It was taken for deregistered, and the source went."""
    store = run_store("a", "disk")
    src = two_messages(ctx, "a")
    store = with_older_state(run_store, store, reads_one)
    assert store.store.state.sources[0].receivers == []
    assert rows() == [(SESSION, 1, False)]
    assert "gone, no store knows it" in run("stat")[1]
    src.close()
    until("it is stored", lambda: [row["state"] for row in stat()["sources"]] == ["stored"])
    assert owed(ctx) == ("session 0x7 lacks 1 numbers (no store knows it)",)
    finished = "store", "deregister", "--finished", "--older-than", "0s"
    assert ": session 0x7 lacks 1 numbers (no store knows it); " in run(*finished)[1]
    assert len(stat()["sources"]) == 1
    assert run(*finished, "--force")[0] == 0
    assert stat()["sources"] == []


def test_a_lifetime_of_the_store_keeps_a_source_that_is_owed_to_a_receiver_which_it_has_lost(
    run_store: Callable[..., ThreadStore], ctx: hf.Context
) -> None:
    """It went by states alone, and one receiver that has everything was enough."""
    store = run_store("a", "disk")
    src = two_messages(ctx, "a")
    assert run("recv", "quotes", "--count", "2", "--session", "8")[0] == 0
    store = with_older_state(run_store, store, reads_one, **OVER_SOON)
    src.close()
    (lost,) = [row["registration_id"] for row in stat()["receivers"] if not row["known"]]
    assert stays(store) == [f"owed to receiver RegID {lost} (session ID 0x7), which no store knows"]
    (kept,) = store.store.state.sources
    assert deregister("a", kept.registration_id, lost, False, SHORT, None) == 0
    until("it goes", lambda: not store.store.state.sources)


def test_a_board_that_cannot_be_read_keeps_its_source(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was taken for empty. Nobody tells when it can be read."""
    monkeypatch.setattr(expiry, "LEFT_S", 0.05)
    shelve_at_once(monkeypatch)
    store = run_store("a", "disk", **OVER_SOON)
    src = two_messages(ctx, "a")
    with unreadable_board(ctx, store):
        (kept,) = store.store.state.sources
        kept.met = True  # or that would keep it
        src.close()
        assert stays(store) == [UNREAD]
        until("it is stored", lambda: [row["state"] for row in stat()["sources"]] == ["stored"])
        (found,) = candidates(ctx.domain, 0, None, force=True)
        assert found.keep.startswith("its board cannot be read: HF_LAYOUT: ")
        assert f"the board of 'quotes' ({found.uuid[:12]}) cannot be read: HF_LAYOUT: " in run("stat")[1]
        assert [row["board_error"][:11] for row in stat()["sources"]] == ["HF_LAYOUT: "]
        until("nothing looks at it", lambda: kept not in list(store.store.holdings.registry.parts.awake))
    until("it goes", lambda: not store.store.state.sources)


def test_the_board_of_a_source_that_is_over_stays_for_a_receiver_that_its_store_has_lost(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = run_store("a", "disk")
    src = two_messages(ctx, "a")
    store = with_older_state(run_store, store, reads_one)
    shelve_at_once(monkeypatch)
    src.close()
    until("it is shelved", lambda: store.store.state.sources[0].is_shelved)
    assert rows() == [(SESSION, 1, False)]


def test_a_receiver_that_its_operator_has_deregistered_is_gone_when_its_last_store_has_forgotten_it(
    run_store: Callable[..., ThreadStore], ctx: hf.Context
) -> None:
    stores = [run_store(name, "disk") for name in "ab"]
    two_messages(ctx, "a", "b")
    reads_one()
    forget_at(stores[0])
    assert (marks(ctx, stores[0]), rows()) == ([False], [(SESSION, 1, True)]), "store b knows it"
    forget_at(stores[1])
    assert (marks(ctx, stores[0]), rows()) == ([True], [])
    reads_one()
    assert (marks(ctx, stores[0]), rows()) == ([True, False], [(SESSION, 1, True)]), "its next life has another line"
    for store in stores:
        forget_at(store)
    assert (marks(ctx, stores[0]), rows()) == ([True, True], [])


def test_a_living_receiver_that_is_granted_anew_takes_the_mark_off(
    run_store: Callable[..., ThreadStore], ctx: hf.Context
) -> None:
    """Its operator has deregistered it, and the store has not kept that in mind over its restart."""
    store = run_store("a", "disk")
    two_messages(ctx, "a")
    with hf.Context(session_id=SESSION) as other, other.receiver("quotes") as rcv:
        assert take(rcv) == [0]
        source_id = store.store.state.sources[0].registration_id
        number = receiver_of(store).registration_id
        assert deregister("a", source_id, number, True, SHORT, None) == 0
        assert marks(ctx, store) == [True]
        assert [(session, known) for session, _, known in rows()] == [(SESSION, True)], "it lives"
        (controller,) = rcv._all.values()
        lock = controller.acking = Watched(controller.acking, lambda: marks(ctx, store) == [True])
        store.stop()
        store = run_store("a", "disk")
        until("it is granted anew", lambda: bool(store.store.state.sources[0].receivers))
        until("its line says so", lambda: marks(ctx, store) == [False])
        with lock:  # who has it now is done
            assert lock.seen == [(True, False)], "the flags have one writer at a time"


def test_a_store_that_cannot_be_read_may_know_a_receiver(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, tmp_path: Path
) -> None:
    """Then nothing is marked; and when it can be read, the command settles it, given again."""
    stores = [run_store(name, "disk") for name in "ab"]
    two_messages(ctx, "a", "b")
    reads_one()
    forget_at(stores[1])
    stores[1].stop()
    (tmp_path / "store-b").rename(tmp_path / "away")
    stores[0].store._expiry._unmarked_s = float("inf")  # it does not try again by itself
    shown = stat()["receivers"][0]["registration_id"]
    forget_at(stores[0])
    assert (marks(ctx, stores[0]), rows()) == ([False], [(SESSION, 1, False)])
    (kept,) = stores[0].store.state.sources
    again = "store", "deregister", "a", "--source", str(kept.registration_id), "--receiver", str(shown)
    code, _, err = run(*again)
    assert (code, f"RegID {shown} is no receiver of RegID" in err) == (2, True)
    assert "not marked yet, for a store that may know it cannot be read" in err
    (tmp_path / "away").rename(tmp_path / "store-b")
    code, out, _ = run(*again)
    assert (code, out.endswith(" deregistered; it had acknowledged up to number 0\n")) == (0, True)
    assert (marks(ctx, stores[0]), rows()) == ([True], [])
    assert run(*again)[0] == 2, "it is settled"


def test_a_receiver_that_deregisters_has_said_so_on_its_line(
    run_store: Callable[..., ThreadStore], ctx: hf.Context
) -> None:
    store = run_store("a", "disk")
    two_messages(ctx, "a")
    with hf.Context(session_id=SESSION) as other, other.receiver("quotes") as rcv:
        assert take(rcv) == [0]
        rcv.deregister()
        until("the store forgets it", lambda: not store.store.state.sources[0].receivers)
        assert marks(ctx, store) == [True]
    assert rows() == []


def test_a_receiver_whose_lifetime_is_over_is_gone_at_the_last_of_its_stores(
    run_store: Callable[..., ThreadStore], ctx: hf.Context
) -> None:
    stores = [run_store(name, "disk", **SOON) for name in "ab"]
    two_messages(ctx, "a", "b")
    reads_one()
    until("both forget it", lambda: not any(each.store.state.sources[0].receivers for each in stores))
    until("the last one says so", lambda: marks(ctx, stores[0]) == [True])
    assert rows() == []


def test_a_store_that_was_excluded_once_is_asked_when_the_source_has_started_again(
    run_store: Callable[..., ThreadStore], ctx: hf.Context
) -> None:
    """It was never asked again, and what its receiver lacked was owed to nobody."""
    stores = [run_store(name, "disk") for name in "ab"]
    stores[1].stop()
    assert run("store", "exclude", "b")[0] == 0
    stores[1] = run_store("b", "disk")
    two_messages(ctx, "a", "b")
    reads_one()
    assert stores[0].store.state.excluded
    forget_at(stores[0])
    assert (marks(ctx, stores[0]), rows()) == ([False], [(SESSION, 1, True)]), "store b knows it"
    forget_at(stores[1])
    assert (marks(ctx, stores[0]), rows()) == ([True], [])


def test_a_store_that_is_excluded_is_not_asked(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, tmp_path: Path
) -> None:
    stores = [run_store(name, "disk") for name in "ab"]
    two_messages(ctx, "a", "b")
    reads_one()
    stores[1].stop()
    (tmp_path / "store-b").rename(tmp_path / "away")
    assert run("store", "exclude", "b")[0] == 0
    forget_at(stores[0])
    assert (marks(ctx, stores[0]), rows()) == ([True], [])


def test_a_session_without_stores_is_owed_nothing(run_store: Callable[..., ThreadStore], ctx: hf.Context) -> None:
    """It registers with none. It was said to be lost by its stores, and kept its source for good."""
    run_store("a", "disk")
    src = two_messages(ctx, "a")
    options = {"ume_use_store": 0}
    with hf.Context(session_id=SESSION) as other, other.receiver("quotes", options=options) as rcv:
        until("it is on the board", lambda: [row[0] for row in rows()] == [SESSION])
        src.wait_stable(src.send(b"3"), timeout=SHORT)
        assert take(rcv) == [2]
    src.wait_stable(src.send(b"4"), timeout=SHORT)
    assert rows() == []


def test_a_store_that_is_gone_for_good_is_not_asked_when_the_source_has_started_again(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, tmp_path: Path
) -> None:
    """The exclusion is over then, and nobody can read it."""
    store, gone = (run_store(name, "disk") for name in "ab")
    gone.stop()
    (tmp_path / "store-b").rename(tmp_path / "away")
    assert run("store", "exclude", "b")[0] == 0
    two_messages(ctx, "a")
    reads_one()
    forget_at(store)
    assert (marks(ctx, store), rows()) == ([True], [])


@pytest.mark.parametrize("lifetime", [False, True])
def test_a_store_that_is_killed_before_the_mark_leaves_what_counts_as_owed(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, monkeypatch: pytest.MonkeyPatch, lifetime: bool
) -> None:
    monkeypatch.setattr(expiry, "mark_forgotten", lambda *_: 0)
    monkeypatch.setattr("holdfast.engine.store.operator.mark_forgotten", lambda *_: 0)
    store = run_store("a", "disk", **(SOON if lifetime else {}))
    two_messages(ctx, "a")
    reads_one()
    if lifetime:
        until("it forgets it", lambda: not store.store.state.sources[0].receivers)
    else:
        forget_at(store)
    assert rows() == [(SESSION, 1, False)]
    monkeypatch.setattr("holdfast.engine.store.operator.mark_forgotten", mark_forgotten)
    (kept,) = store.store.state.sources
    shown = stat()["receivers"][0]["registration_id"]
    assert deregister("a", kept.registration_id, shown, False, SHORT, None) == 0
    assert rows() == []


def test_of_two_receivers_with_one_regid_the_operator_says_which(
    run_store: Callable[..., ThreadStore], ctx: hf.Context
) -> None:
    """A store that has gone back to an older state gives the RegID of one that it has lost to another one.
    That was forgotten in its place."""
    store = run_store("a", "disk")
    two_messages(ctx, "a")
    store = with_older_state(run_store, store, reads_one)
    reads_one(8)
    shown = {row["session_id"]: row for row in stat()["receivers"]}
    (number,) = {row["registration_id"] for row in shown.values()}
    source_id = str(store.store.state.sources[0].registration_id)
    command = "store", "deregister", "a", "--source", source_id, "--receiver", str(number)
    code, _, err = run(*command)
    assert code == 2
    assert f"session ID 0x8, uuid {shown[8]['uuid']} (RegID {number} here)" in err
    assert f"session ID 0x7, uuid {shown[7]['uuid']} (not known here)" in err
    assert sorted(rows()) == [(7, 1, False), (8, 1, True)]
    assert run(*command, "--receiver-uuid", shown[7]["uuid"])[0] == 0
    assert rows() == [(8, 1, True)]
    code, _, err = run(*command, "--receiver-uuid", shown[7]["uuid"])
    assert (code, f"uuid {shown[7]['uuid']} is no receiver of" in err) == (2, True), "it is settled"
    assert run(*command)[0] == 0, "the other one has the RegID alone now"
    assert rows() == []


def test_while_the_board_cannot_be_read_a_regid_may_be_of_another_receiver_too(
    run_store: Callable[..., ThreadStore], ctx: hf.Context
) -> None:
    store = run_store("a", "disk")
    two_messages(ctx, "a")
    reads_one()
    (row,) = stat()["receivers"]
    source_id, number = store.store.state.sources[0].registration_id, row["registration_id"]
    command = "store", "deregister", "a", "--source", str(source_id), "--receiver", str(number)
    with unreadable_board(ctx, store):
        code, _, err = run(*command)
        assert (code, "cannot be read: say which one is meant by its uuid" in err) == (2, True)
        assert run(*command, "--receiver-uuid", row["uuid"])[0] == 0
    assert store.store.state.sources[0].receivers == []


@pytest.mark.parametrize("status", ["HF_AGAIN", "HF_ERRNO"])
def test_a_line_that_cannot_be_marked_now_is_marked_later(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    """Somebody else has the board's turn. Each try waits for that: there is one. Nobody is told that it is
    done."""
    monkeypatch.setattr(expiry, "LEFT_S", 0.0)
    core = Standing(lib, int(getattr(lib, status)))
    store = run_store("a", "disk", **{"source-check-interval": 5})
    two_messages(ctx, "a")
    reads_one()
    reads_one(8)
    (kept,) = store.store.state.sources
    lines = receiver_lines(ctx.domain, kept.uuid)
    assert lines is not None
    monkeypatch.setattr(lines_module, "lib", core)
    assert lines_module.mark_deregistered(ctx.domain, kept.uuid, lines) == (0, lines)
    assert core.asked == 1
    for receiver in list(kept.receivers):
        assert deregister("a", kept.registration_id, receiver.registration_id, False, SHORT, None) == 0
    assert sorted(rows()) == [(7, 1, False), (8, 1, False)]
    (shown, _) = [row["registration_id"] for row in stat()["receivers"]]
    code, _, err = run("store", "deregister", "a", "--source", str(kept.registration_id), "--receiver", str(shown))
    assert (code, "not marked yet" in err) == (2, True), "nothing was marked"
    core.stands = False
    until("the store tries again", lambda: marks(ctx, store) == [True, True])
    assert rows() == []


def test_a_lifetime_that_ends_while_a_store_cannot_be_read_marks_its_line_later(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiry, "LEFT_S", 0.0)
    stores = [run_store(name, "disk") for name in "ab"]
    two_messages(ctx, "a", "b")
    reads_one()
    forget_at(stores[1])
    for store in stores:
        store.stop()
    (tmp_path / "store-b").rename(tmp_path / "away")
    store = run_store("a", "disk", **SOON)
    until("it is forgotten, and its line is not marked", lambda: store.store.holdings.unmarked)
    assert marks(ctx, store) == [False]
    (tmp_path / "away").rename(tmp_path / "store-b")
    until("its line says so", lambda: marks(ctx, store) == [True])


def test_a_receiver_without_descriptors_is_deregistered_and_the_store_marks_its_line(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error left it half deregistered: no store was asked, then or later."""
    monkeypatch.setattr(expiry, "LEFT_S", 0.0)
    store = run_store("a", "disk", **{"source-check-interval": 5})
    two_messages(ctx, "a")
    with hf.Context(session_id=SESSION) as other, other.receiver("quotes") as rcv:
        assert take(rcv) == [0]

        def no_descriptor(*_: object, **__: object) -> NoReturn:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        with monkeypatch.context() as without:
            without.setattr(lines_module, "attach_board", no_descriptor)
            rcv.deregister()
            until("the store forgets it", lambda: not store.store.state.sources[0].receivers)
        until("the store marks it", lambda: marks(ctx, store) == [True])
    assert rows() == []
