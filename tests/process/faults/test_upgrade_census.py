"""0.1.0 in one domain with stores that keep censuses (docs/design.md 15): a source waits as before, and says
why, until the store is upgraded that it waits for."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from support.either_version import Role, version_0_1_0
from support.three_stores import SHORT, SOURCE, everywhere, send, waits
from support.workers import until

import holdfast as hf
from holdfast.engine.log.census import key_of, read
from holdfast.engine.memory.domain import Domain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from process.conftest import ThreadStore

OLDER = "a may have had it: it is of an earlier version, which keeps no census"


@pytest.fixture(scope="session")
def old() -> Path:
    """What PYTHONPATH must be for 0.1.0."""
    return version_0_1_0()


@pytest.fixture
def run_store(run_store: Callable[..., ThreadStore]) -> Callable[[str], ThreadStore]:
    """Of this version; it keeps a census."""
    return lambda name: run_store(name, "disk")


@pytest.fixture
def role(tmp_path: Path, old: Path) -> Iterator[Callable[[str, str], Role]]:
    """A role of 0.1.0."""
    started: list[Role] = []

    def start(kind: str, name: str) -> Role:
        started.append(Role(kind, name, tmp_path))
        started[-1].start(old)
        return started[-1]

    yield start
    for each in started:
        if each.process is not None:
            each.process.kill()
            each.process.wait()


def source_of(ctx: hf.Context) -> hf.Source:
    return ctx.source("quotes", options=SOURCE)


def begins(session: int, where: Callable[[hf.Source], object]) -> None:
    """A life of a new source, which waits for ``where`` before it sends."""
    with hf.Context(session_id=session) as ctx, source_of(ctx) as src:
        where(src)
        assert src.next_sequence_number == 0
        send(src, 3)


def begun_at(store: ThreadStore) -> bool:
    return any(source.incarnation for source in store.store.state.sources)


def keys(name: str, own_domain: str) -> Any:
    domain = Domain(own_domain)
    try:
        return read(domain.census_path(name)).each()
    finally:
        domain.close()


def test_a_store_of_0_1_0_that_is_away_is_waited_for_and_has_a_census_when_it_is_upgraded(
    role: Callable[[str, str], Role], run_store: Callable[[str], ThreadStore], tmp_path: Path, own_domain: str
) -> None:
    older, place, away = role("store", "a"), tmp_path / "store-a", tmp_path / "away"
    domain = Domain(own_domain)
    try:
        until("it says who it is", lambda: domain.info_path("a").exists(), older.alive)
    finally:
        domain.close()
    for name in "bc":
        run_store(name)
    begins(1, everywhere)
    older.stop()
    place.rename(away)  # else its state, which can be read, answers for it
    with hf.Context(session_id=2) as ctx, source_of(ctx) as src:
        waits(src, OLDER)
        away.rename(place)
        upgraded = run_store("a")
        everywhere(src)
        assert src.next_sequence_number == 0
        send(src, 3)
    assert keys("a", own_domain) >= {key_of("quotes", session, 0) for session in (1, 2)}
    upgraded.stop()
    place.rename(away)
    begins(4, lambda src: src.wait_registered(SHORT))


def test_what_a_source_of_0_1_0_is_granted_is_in_the_censuses(
    role: Callable[[str, str], Role], run_store: Callable[[str], ThreadStore], tmp_path: Path, own_domain: str
) -> None:
    stores = {name: run_store(name) for name in "abc"}
    source = role("source", "source")
    until("more is stable", lambda: len(source.said("stable")) > 2, source.alive)
    begun = [partial(begun_at, store) for store in stores.values()]
    until("all stores have it", lambda: all(has() for has in begun), source.alive)
    source.stop()
    (end,) = source.said("stable")[-1]
    for name in stores:
        assert keys(name, own_domain) >= {key_of("upgraded", 7, 0)}
    stores["c"].stop()
    (tmp_path / "store-c").rename(tmp_path / "away")
    begins(8, lambda src: src.wait_registered(SHORT))
    source.start(version_0_1_0())
    until("it goes on without c", lambda: len(source.said("from")) == 2, source.alive)
    assert source.said("from")[1] == [end]
    source.stop()
