"""Stores that a source has declared before, or that took part only later in a life: what they may have is
neither numbered again nor called lost (engine/log/register.py, docs/design.md 14, 30)."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from support.changing_stores import SESSION, SHORT, options, received, waited
from support.command_line import one_error, run
from support.leftovers import remove_objects
from support.workers import until

import holdfast as hf
from holdfast.engine.control import wire
from holdfast.engine.control.request import FIRST, ask
from holdfast.engine.log.register_file import RegisterFile
from holdfast.engine.log.sight import on_record
from holdfast.engine.memory.domain import Domain
from holdfast.engine.rules.reconcile import BEGINS_MAX, FOR_EVER

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from process.conftest import ThreadStore


def reboot() -> None:
    """What a reboot takes of the domain, once nobody uses it."""
    remove_objects(os.environ["HOLDFAST_DOMAIN"])


def life(names: str, count: int, during: Callable[[hf.Source], None] | None = None, **more: Any) -> int:
    """A life of the source on these stores; returns its first number. ``during``: what happens when these are
    stable."""
    with hf.Context(session_id=SESSION) as ctx, ctx.source("quotes", options={**options(names), **more}) as src:
        src.wait_registered(SHORT)
        first = src.next_sequence_number
        send(src, count)
        if during is not None:
            during(src)
    return first


def send(src: hf.Source, count: int) -> None:
    src.wait_registered(SHORT)
    for _ in range(count):
        src.send(b"x")
    src.wait_stable(timeout=SHORT)


def takes_part(store: ThreadStore) -> bool:
    return any(source.incarnation for source in store.store.state.sources)


def test_a_seat_that_changed_hands_is_on_record(
    run_store: Callable[..., ThreadStore], wipe: Callable[[str], None]
) -> None:
    """A backup takes the seat in mid-life; then its directory is empty for a while."""
    stores = {name: run_store(name, "disk") for name in "ab"}
    seat = {"ume_store_group": ["0:1"]}
    seats: list[str] = []
    """Who had it, in turn: whichever store answers first has it first."""

    def a_store_dies(src: hf.Source) -> None:
        seats.extend(sorted(stores, key=lambda name: not takes_part(stores[name])))
        stores[seats[0]].stop()
        until("the other one has the seat", lambda: takes_part(stores[seats[1]]))
        src.wait_registered(SHORT)
        send(src, 5)

    assert life("ab", 5, a_store_dies, **seat) == 0
    first, second = seats
    stores[second].stop()
    reboot()
    wipe(second)
    run_store(second, "disk").stop()
    run_store(first, "disk")
    with hf.Context(session_id=SESSION) as ctx, ctx.source("quotes", options={**options("ab"), **seat}) as src:
        until("it says whom it waits for", lambda: f"{second} (" in str(waited(src)))
        shutil.rmtree(stores[second].store.directory.path)
        wipe(second)
        run_store(second, "disk")
        src.wait_registered(SHORT)
        assert src.next_sequence_number == 10


def test_a_store_that_was_started_again_in_a_life_is_on_record(
    run_store: Callable[..., ThreadStore], wipe: Callable[[str], None], tmp_path: Path
) -> None:
    """b is restored from a copy that was made between, when it did not run."""
    stores = {name: run_store(name, "disk") for name in "abc"}

    def b_starts_again(src: hf.Source) -> None:
        stores["c"].stop()
        stores["b"].stop()
        until("b is missed", lambda: src.stats().stores["b"].state == "down")
        shutil.copytree(tmp_path / "store-b", tmp_path / "copy")
        stores["b"] = run_store("b", "disk")
        until("b is back", lambda: src.stats().stores["b"].state == "active")
        send(src, 5)

    assert life("abc", 5, b_starts_again) == 0
    for name in "ab":
        stores[name].stop()
    reboot()
    wipe("a")
    shutil.rmtree(tmp_path / "store-b")
    (tmp_path / "copy").rename(tmp_path / "store-b")
    for name in "bc":
        run_store(name, "disk")
    with hf.Context(session_id=SESSION) as ctx, ctx.source("quotes", options=options("abc")) as src:
        until("it says whom it waits for", lambda: "a" in str(waited(src)) and src.next_sequence_number == 0)
        wipe("a")
        run_store("a", "disk")
        src.wait_registered(SHORT)
        assert src.next_sequence_number == 10


def by_registration_id(names: str, number: int, count: int) -> int:
    """A life of the source with this RegID."""
    given = {**options(names), "ume_store_name": [f"{name}:{number}:0" for name in names]}
    with hf.Context() as ctx, ctx.source("quotes", options=given) as src:
        send(src, 0)
        first = src.next_sequence_number
        send(src, count)
    return first


def test_another_source_of_the_topic_makes_nothing_forgotten(
    run_store: Callable[..., ThreadStore], wipe: Callable[[str], None]
) -> None:
    stores = {name: run_store(name, "disk") for name in "abc"}
    assert by_registration_id("ac", 11, 5) == 0
    stores["a"].stop()
    assert by_registration_id("cb", 11, 5) == 5
    for name in "bc":
        stores[name].stop()
    reboot()
    wipe("c")
    wipe("b")
    stores |= {name: run_store(name, "disk") for name in "abc"}
    assert by_registration_id("b", 22, 1) == 0
    given = {**options("ac"), "ume_store_name": ["a:11:0", "c:11:0"]}
    with hf.Context() as ctx, ctx.source("quotes", options=given) as src:
        until("it says whom it waits for", lambda: "declare b again" in str(waited(src)))


def test_the_retired_store_of_another_source_is_not_waited_for(
    run_store: Callable[..., ThreadStore], wipe: Callable[[str], None]
) -> None:
    stores = {"x": run_store("x", "disk"), "a": run_store("a", "memory")}
    assert by_registration_id("a", 11, 5) == 0
    assert by_registration_id("x", 22, 5) == 0
    for store in stores.values():
        store.stop()
    wipe("x")
    reboot()
    run_store("a", "memory")
    by_registration_id("a", 11, 1)


def test_a_list_that_is_over_holds_no_start_up(
    run_store: Callable[..., ThreadStore], wipe: Callable[[str], None]
) -> None:
    """Life 1 on a and x, life 2 on a, which forgets with each reboot; x is retired."""
    stores = {"x": run_store("x", "disk"), "a": run_store("a", "memory")}
    assert life("ax", 5) == 0
    assert life("a", 5) == 5
    for store in stores.values():
        store.stop()
    wipe("x")
    for _ in range(2):
        reboot()
        store = run_store("a", "memory")
        assert life("a", 1) >= 5
        store.stop()


@pytest.mark.usefixtures("only_a_has_5_to_9_and_is_away")
def test_what_was_read_once_is_not_forgotten_with_a_read_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    with hf.Context(session_id=SESSION) as ctx, ctx.source("quotes", options=options("bc")) as src:
        until("it says whom it waits for", lambda: "declare a again" in str(waited(src)))
        failed: list[object] = []

        def fails(file: object) -> object:
            failed.append(file)
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(RegisterFile, "load", fails)
        until("it was asked for again", lambda: len(failed) > 8)
        assert "declare a again" in str(waited(src))


@pytest.mark.usefixtures("only_a_has_5_to_9")
def test_what_a_store_of_an_earlier_list_has_is_not_lost() -> None:
    told: list[object] = []
    assert life("bc", 3) == 10
    received(5, 12, told.append)
    assert not [each for each in told if isinstance(each, hf.events.receiver.UnrecoverableLoss)]


def test_a_store_that_is_declared_no_more_does_not_speak_for_the_later_list(
    run_store: Callable[..., ThreadStore], own_domain: str
) -> None:
    """It follows its peers, and knows the later BEGIN. A receiver that believed its list would register where
    nobody knows it."""
    stores = {name: run_store(name, "disk") for name in "abc"}
    assert life("ab", 5) == 0
    assert life("bc", 5) == 5
    until("a knows it", lambda: [each.incarnation for each in stores["a"].store.state.sources] == [2])
    domain = Domain(own_domain, join=False)
    said = {name: ask(domain, name, wire.ListSources(FIRST, "quotes"), SHORT) for name in "abc"}
    domain.close()
    found = {
        name: [(each.incarnation, each.start_sqn, each.stores) for each in answer.sources]
        for name, answer in said.items()
        if isinstance(answer, wire.Sources)
    }
    assert found == {"a": [(1, 0, ["a", "b"])], "b": [(2, 5, ["b", "c"])], "c": [(2, 5, ["b", "c"])]}


def spoken_for(domain: str, names: str) -> dict[str, tuple[int, list[str]]]:
    """By store, the incarnation that it speaks for, and the stores of that."""
    opened = Domain(domain, join=False)
    said = {name: ask(opened, name, wire.ListSources(FIRST, "quotes"), SHORT) for name in names}
    opened.close()
    return {
        name: (each.incarnation, each.stores)
        for name, answer in said.items()
        if isinstance(answer, wire.Sources)
        for each in answer.sources
    }


def test_a_list_that_is_older_than_all_begins_that_a_table_remembers_keeps_its_bound(
    run_store: Callable[..., ThreadStore], own_domain: str
) -> None:
    """a has followed its peers ever since: it knows what has begun, and neither by whom that was declared,
    nor where the second list began. Up to there it counts, or a little longer; never for ever, and never for
    a list that it has not been told."""
    stores = {name: run_store(name, "disk") for name in "abc"}
    newest = 1

    def a_knows_it() -> None:
        until("a knows it", lambda: [each.incarnation for each in stores["a"].store.state.sources] == [newest])

    assert life("ab", 5) == 0
    for newest in range(2, BEGINS_MAX + 2):
        assert life("bc", 0) == 5
        if newest == BEGINS_MAX // 2:  # at its start it looks at its peers; then no BEGIN is unknown to it
            stores["a"].stop()
            stores["a"] = run_store("a", "disk")
            a_knows_it()
    newest = BEGINS_MAX + 2
    assert life("bc", 5) == 5
    a_knows_it()
    (a,), (b,), (c,) = (stores[name].store.state.sources for name in "abc")
    assert [begin[0] for begin in a.begins] == list(range(3, newest + 1)), "the second list began with 2"
    assert spoken_for(own_domain, "abc") == {"a": (1, ["a", "b"]), "b": (newest, ["b", "c"]), "c": (newest, ["b", "c"])}
    assert (b.others, c.others) == ({"a": 5}, {"a": 5})
    assert on_record([a, b, c]) == {"a": 5, "b": FOR_EVER, "c": FOR_EVER}
    told: list[object] = []
    received(0, 9, told.append)
    assert not [each for each in told if isinstance(each, hf.events.receiver.UnrecoverableLoss)]


def test_a_store_that_never_ran_is_excluded_by_the_operators_word(run_store: Callable[..., ThreadStore]) -> None:
    """A new source with a session ID: the third store may have had it, as far as anybody knows."""
    for name in "ab":
        run_store(name, "disk")
    with hf.Context(session_id=SESSION) as ctx, ctx.source("quotes", options=options("abq")) as src:
        until("it says whom it waits for", lambda: "holdfast store exclude q" in str(waited(src)))
        one_error(run("store", "exclude", "q"), 2, "has declared a store q", "--force")
        assert run("store", "exclude", "q", "--force")[0] == 0
        src.wait_registered(SHORT)
        assert src.next_sequence_number == 0


@pytest.mark.usefixtures("only_a_has_5_to_9_and_is_away")
def test_a_store_that_only_the_register_knows_is_excluded(own_domain: str) -> None:
    domain = Domain(own_domain, join=False)
    domain.info_path("a").unlink()  # as a reboot does
    domain.close()
    with hf.Context(session_id=SESSION) as ctx, ctx.source("quotes", options=options("bc")) as src:
        until("it says whom it waits for", lambda: "holdfast store exclude a" in str(waited(src)))
        assert run("store", "exclude", "a")[0] == 0
        src.wait_registered(SHORT)
