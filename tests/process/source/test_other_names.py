"""A store that a source declares by another name than before, or that has another one: it is the same store,
and counts as declared. The number below which stores of the earlier list count is not its end."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from process.conftest import ThreadStore
from support.changing_stores import SESSION, SHORT, options, received
from support.receiving import until_no_ring
from support.recorded_events import Events
from support.workers import until

import holdfast as hf
from holdfast.engine.log.info_file import Own, Place, StoreInfo, earlier_logs, peer_places, write_info
from holdfast.engine.log.state_file import SourceState
from holdfast.engine.memory.domain import Domain
from holdfast.engine.receiver.registrar import Registrar
from holdfast.engine.store.repository import Repository
from holdfast.engine.store.store import StoreConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PORT = 10313
ALIAS = f"127.0.0.1:{PORT}"
NAMES = {"name, then port": ("a", "a", ALIAS), "port, then name": ("a", ALIAS, "a"), "renamed": ("z", "a", "z")}
"""What store a is called in the second life, and what the source declares it as in the first and in the
second one."""
SOURCE = b"s" * 16


@pytest.fixture
def run_a(tmp_path: Path) -> Iterator[Callable[[str], ThreadStore]]:
    """Starts the store of one directory, by this name, and by its port."""
    started: list[ThreadStore] = []

    def run(name: str) -> ThreadStore:
        started.append(ThreadStore(StoreConfig(name, tmp_path / "store-a", type="disk", port=PORT)))
        return started[-1]

    yield run
    for store in started:
        store.stop()


def sent(stores: list[str], during: Callable[[hf.Source], None] = lambda _: None) -> int:
    """A life of the source on these, in which five messages become stable, after ``during``; returns its
    first number."""
    given = {
        "ume_store_name": [f"{name}:0:0" for name in stores if name != ALIAS],
        "ume_store": [f"{ALIAS}:0:0"] * (ALIAS in stores),
    }
    more: dict[str, Any] = {**options(""), **{name: value for name, value in given.items() if value}}
    with hf.Context(session_id=SESSION) as ctx, ctx.source("quotes", options=more) as src:
        src.wait_registered(SHORT)
        first = src.next_sequence_number
        during(src)
        for _ in range(5):
            src.send(b"x")
        src.wait_stable(timeout=SHORT)
    return first


@pytest.mark.parametrize(("called", "before", "now"), NAMES.values(), ids=NAMES)
def test_what_it_has_beyond_the_earlier_list_is_neither_lost_nor_a_hole(
    run_store: Callable[..., ThreadStore], run_a: Callable[[str], ThreadStore], wipe: Callable[[str], None], called: str,
    before: str, now: str,
) -> None:  # fmt: skip
    """b has taken part, and was down while 5..9 became stable on a and c; then c is away, and b reads them
    from a."""
    stores = {name: run_store(name, "disk") for name in "bc"}
    a = run_a("a")
    assert sent([before, "b"]) == 0
    received(0, 4)
    if called != "a":
        a.stop()
        a = run_a(called)

    def b_goes_down(src: hf.Source) -> None:
        until("all three take part", lambda: {each.state for each in src.stats().stores.values()} == {"active"})
        stores["b"].stop()

    assert sent([now, "b", "c"], b_goes_down) == 5
    (source,) = stores["b"].store.state.sources
    assert source.others == {before: 5}, "it remembers that name, and this bound"
    domain = Domain()
    until_no_ring(domain)
    domain.close()
    stores["c"].stop()
    wipe("c")
    b = run_store("b", "disk")
    (repository,) = b.store.drainer.repositories.values()
    until("b has what a has", lambda: repository.next_sqn == 10)
    told: list[object] = []
    received(5, 9, told.append)
    assert not [each for each in told if isinstance(each, hf.events.receiver.UnrecoverableLoss)]
    a.stop()


# Which logs have a bound ------------------------------------------------------------------------------------


def test_only_logs_of_stores_that_are_declared_by_no_name_have_a_bound(domain: str, tmp_path: Path) -> None:
    place = Domain(domain, join=False)
    for number, (name, directory) in enumerate({"a": "/a", "old": "/a", "b": "/b", "gone": "/gone"}.items()):
        uuid = bytes([97 if directory == "/a" else number]) * 16
        write_info(place, StoreInfo(name, uuid, directory, f"{directory}/logs", "disk", 1, 1, 1))
    os.symlink(place.info_path("a"), place.info_path(ALIAS))
    source = SourceState(
        SOURCE, "t", 7, 0, stores=["a", "b"], others={"old": 5, ALIAS: 7, "gone": 9, "never": 11, "b-by-directory": 13},
        directories={"never": "/never", "b-by-directory": "/b"},
    )  # fmt: skip
    places = peer_places(
        place, [*source.stores, *source.others], SOURCE, Own(b"o" * 16, "o", Path("/o/logs")), source.directories
    )
    place.close()
    log = f"logs/{SOURCE.hex()}"
    assert earlier_logs(places, source) == {"gone": (f"/gone/{log}", 9), "never": (f"/never/{log}", 11)}


def test_a_store_whose_name_was_run_with_this_ones_directory_is_a_peer_all_the_same(domain: str) -> None:
    """a was run once where b's directory was, b is back in its place, and a has not started since: what a has
    is unknown, and not nothing."""
    place = Domain(domain, join=False)
    write_info(place, StoreInfo("a", b"b" * 16, "/a", "/a/logs", "disk", 1, 1, 1))
    write_info(place, StoreInfo("b", b"b" * 16, "/b", "/b/logs", "disk", 1, 1, 1))
    os.symlink(place.info_path("b"), place.info_path(ALIAS))
    write_info(place, StoreInfo("old", b"b" * 16, "/b", "/b/logs", "disk", 1, 1, 1))
    moved = Own(b"b" * 16, "b", Path("/b-moved/logs"))
    for own in (Own(b"b" * 16, "b", Path("/b/logs")), moved):
        places = peer_places(place, ["a", "b", ALIAS], SOURCE, own)
        assert places == [Place("a", "a", Path("/a/logs") / SOURCE.hex())]
    assert peer_places(place, ["old"], SOURCE, Own(b"b" * 16, "b", Path("/b/logs"))) == []
    place.close()


def test_of_two_names_of_a_store_of_earlier_lists_the_one_that_counts_longer_bounds_its_log() -> None:
    log = Path("/x")
    source = SourceState(SOURCE, "t", 7, 0, stores=["a"], others={"x": 9, "also-x": 5})
    found = earlier_logs([Place("x", "x", log), Place("also-x", "x", log)], source)
    assert found == {"x": ("/x", 9), "also-x": ("/x", 5)}
    repository = SimpleNamespace(earlier=lambda: found)
    assert Repository.until(cast("Repository", repository)) == {"/x": 9}


def test_a_receiver_takes_no_bound_for_a_log_of_a_store_that_is_declared_and_else_the_greatest() -> None:
    """Stores may not know the other name: an info file may be gone at one, and there at another."""
    others = [{"old": ("/a", 5), "x": ("/x", 9)}, {"also-x": ("/x", 11), "gone": ("/gone", 0)}, {"x": ("/x", 10)}]
    registrar = SimpleNamespace(
        log_paths=lambda: ["/a", "/b"], answers=lambda: [SimpleNamespace(others=each) for each in others]
    )
    assert Registrar.earlier_logs(cast("Registrar", registrar)) == {"/x": ("also-x", 11)}


@pytest.mark.parametrize("session", [9, 0])
def test_a_receiver_that_lives_across_is_not_refused_by_what_it_holds_itself(
    run_a: Callable[[str], ThreadStore], session: int
) -> None:
    """Its source names the store by its port in the second life: that is another connection."""
    run_a("a")
    told, given = Events(), {"ume_session_id": session}
    with hf.Context() as ctx, ctx.receiver("quotes", options=given, on_event=told) as rcv:
        for stores in (["a"], [ALIAS]):
            sent(stores)
            for _ in range(5):
                message = rcv.receive(timeout=SHORT)
                assert message is not None
                message.release()
        until(
            "it is registered with that name",
            lambda: any(each.store == ALIAS for each in told.of("RegistrationSuccess")),
        )
        if session:
            rcv.deregister()
            told.wait("DeregistrationComplete")
    assert len(told.of("DeregistrationSuccess")) == bool(session), "it is one store"
    assert len({each.receiver_registration_id for each in told.of("RegistrationSuccess")}) == 1
    assert not [each.text for each in told.of("RegistrationError") if "in use" in each.text]
    with hf.Context() as ctx, ctx.receiver("quotes", options=given, on_event=(again := Events())):
        again.wait("RegistrationComplete")
