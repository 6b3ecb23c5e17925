"""What a look at thousands of sources that are over may cost: what is imported, opened and listed, counted on
a few."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from support.leftovers import objects_of
from support.receiving import received
from support.shelved_logs import over, shelve_at_once, shelved
from support.three_stores import SOURCE, everywhere, send
from support.workers import until

import holdfast as hf
from holdfast.engine.log.state_file import StateFile
from holdfast.engine.memory.domain import SHM_DIR
from holdfast.engine.tools import snapshot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from process.conftest import ThreadStore

TAKES_PART = {"channel", "client", "events", "receiver", "source", "store"}
"""Rooms of the engine that a look needs nothing of."""
LOOK = """
import json, sys
seen = []
def look(event, args):
    if event in {"open", "os.listdir", "os.scandir"}:
        seen.append((event, str(args[0])))
sys.addaudithook(look)
from holdfast.cli import main
code = main(sys.argv[1:])
print(json.dumps([code, seen, [name for name in sys.modules if name.startswith("holdfast.")]]), file=sys.stderr)
"""


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    shelve_at_once(monkeypatch)


def looked(*words: str) -> tuple[int, Counter[tuple[str, str]], set[str], str]:
    """Exit code; how often each file was opened, and each directory listed; the modules; what was printed."""
    done = subprocess.run([sys.executable, "-c", LOOK, *words], capture_output=True, text=True, check=True)
    code, seen, modules = json.loads(done.stderr.splitlines()[-1])
    return code, Counter((event, path) for event, path in seen), set(modules), done.stdout


def below(seen: Counter[tuple[str, str]], folder: Path) -> dict[str, list[int]]:
    """How often each file below a folder was opened, and each directory listed."""
    found: dict[str, list[int]] = {}
    for (event, path), count in seen.items():
        if path.startswith(f"{folder}/"):
            found.setdefault(event, []).append(count)
    return found


def all_over(ctx: hf.Context, count: int, *stores: ThreadStore) -> None:
    """``count`` sources are over, nothing of them is in shared memory, and the stores' states say so."""
    names = "".join(store.store.config.name for store in stores)
    uuids = [over(ctx, session, stores=names) for session in range(1, count + 1)]
    for store in stores:
        shelved(store, *uuids)
    until("their boards have gone", lambda: no_board(ctx))


def no_board(ctx: hf.Context) -> bool:
    return not [name for name in objects_of(ctx.domain.path) if name.endswith(".b")]


@pytest.mark.parametrize("verb", [("stat",), ("stat", "--json"), ("doctor",), ("events",)])
def test_who_looks_imports_nothing_of_those_who_take_part(run_store: Callable[..., ThreadStore], verb: Any) -> None:
    run_store("a", "disk")
    _, _, modules, _ = looked(*verb)
    rooms = {name.split(".")[2] for name in modules if name.startswith("holdfast.engine.") and name.count(".") > 2}
    assert "tools" in rooms
    assert rooms & TAKES_PART == set()
    assert not {"holdfast.context", "holdfast.receiver", "holdfast.engine.rules.registration"} & modules
    assert not {"holdfast.engine.options.resolve", "holdfast.engine.options.table"} & modules


def test_stat_opens_no_log_of_theirs_and_a_state_once(run_store: Callable[..., ThreadStore]) -> None:
    store = run_store("a", "disk")
    with hf.Context() as ctx:
        all_over(ctx, 12, store)
        code, seen, _, shown = looked("stat")
    assert code == 0
    assert "and 2 more of 'quotes' that are over, and whole" in shown
    assert below(seen, store.store.logs) == {}
    assert below(seen, store.store.directory.path) == {"open": [1, 1]}


def test_the_doctor_opens_a_head_and_lists_a_log_once(run_store: Callable[..., ThreadStore]) -> None:
    store = run_store("a", "disk")
    with hf.Context() as ctx:
        all_over(ctx, 5, store)
        _, seen, _, shown = looked("doctor")
    assert "5 are of sources that are over" in shown
    assert below(seen, store.store.logs) == {"open": [1] * 5, "os.scandir": [1] * 5}
    assert [count for (_, path), count in seen.items() if path.endswith(("state.0", "state.1"))] == [1, 1]


def whole(ctx: hf.Context, patch: pytest.MonkeyPatch) -> tuple[snapshot.Snapshot, int]:
    """A look at each source by itself; and how many of them need that."""
    needed = 0
    as_it_is = snapshot._Look.shelved

    def counted(self: Any, uuid: bytes) -> None:
        nonlocal needed
        needed += as_it_is(self, uuid) is None

    with patch.context() as each:
        each.setattr(snapshot._Look, "shelved", counted)
        return snapshot.take(ctx.domain), needed


@pytest.mark.parametrize("running", [True, False])
def test_a_look_by_the_states_alone_says_what_a_look_at_each_source_does(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch, *, running: bool
) -> None:
    stores = [run_store(name, "disk") for name in "ab"]
    with hf.Context() as ctx:
        all_over(ctx, 3, *stores)
        if not running:
            stores[1].stop()
        seen, needed = whole(ctx, monkeypatch)
        assert needed == 0
        assert snapshot.take(ctx.domain) == seen
    assert [row.next for row in seen.sources] == [3, 3, 3]
    assert {at.state for row in seen.sources for at in row.stores} == {"active", "active" if running else "down"}


def changed(store: ThreadStore, **fields: object) -> None:
    """What the state of a store that does not run says of its sources."""
    file = StateFile(store.store.directory.path)
    state = file.load()
    assert state is not None
    for source in state.sources:
        for name, value in fields.items():
            setattr(source, name, value)
    file.save(state)


@pytest.mark.parametrize(
    "fields", [{"shelved": -1}, {"shelved_next": 2}, {"incarnation": 0, "shelved": 0}, {"start_sqn": 9}], ids=str
)
def test_where_the_states_do_not_say_everything_each_source_is_looked_at(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch, fields: dict[str, int]
) -> None:
    stores = [run_store(name, "disk") for name in "ab"]
    with hf.Context() as ctx:
        all_over(ctx, 2, *stores)
        for store in stores:
            store.stop()
        changed(stores[1], **fields)
        if "start_sqn" in fields:
            changed(stores[0], **fields)
        seen, needed = whole(ctx, monkeypatch)
        assert needed == 2
        assert snapshot.take(ctx.domain) == seen


def test_who_has_a_receiver_is_looked_at(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = run_store("a", "disk")
    with hf.Context() as ctx:
        with ctx.source("quotes", options={**SOURCE, "ume_session_id": 7, "ume_store_name": "a"}) as src:
            everywhere(src)
            send(src, 1)
            assert received(ctx, "quotes", 1, ume_session_id=9) == [b"0"]
        shelved(store, src.uuid)
        until("its board has gone", lambda: no_board(ctx))
        seen, needed = whole(ctx, monkeypatch)
        assert (needed, len(seen.receivers)) == (1, 1)
        assert snapshot.take(ctx.domain) == seen


def test_who_has_something_in_shared_memory_is_looked_at(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = run_store("a", "disk")
    with hf.Context() as ctx:
        all_over(ctx, 2, store)
        store.stop()
        board = SHM_DIR / ctx.domain.board_name(bytes.fromhex(snapshot.take(ctx.domain).sources[0].uuid))
        board.touch()  # of one that is made just now
        try:
            assert whole(ctx, monkeypatch)[1] == 1
        finally:
            board.unlink()
