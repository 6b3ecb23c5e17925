"""Which store stands in for a dead source: docs/semantics.md J.2."""

from __future__ import annotations

import pytest

from holdfast.engine.rules.proxy_source import Change, Proxies, elected, proxy_refusal

SOURCE = b"s" * 16
A, B, C = b"a" * 16, b"b" * 16, b"c" * 16
AFTER = 1000


@pytest.mark.parametrize("stores", [[A], [A, B], [A, B, C], [B, C], [C]])
def test_j2_of_the_stores_that_could_exactly_one_is_elected(stores: list[bytes]) -> None:
    chosen = [own for own in stores if elected(own, [other for other in stores if other != own])]
    assert chosen == [min(stores)]
    assert [own for own in stores if elected(own, stores)] == chosen, "whether it counts itself or not"


def test_j2_it_begins_at_the_activity_timeout_and_ends_when_the_source_is_back() -> None:
    it = Proxies()
    assert not it.due(SOURCE, True, AFTER, 0)
    assert not it.due(SOURCE, False, AFTER, 10)
    assert not it.due(SOURCE, False, AFTER, 1009)
    assert it.due(SOURCE, False, AFTER, 1010)
    assert it.look(SOURCE, due=True, chosen=True) == [Change(SOURCE, True, "the source is dead")]
    assert it.look(SOURCE, due=True, chosen=True) == [], "told once"
    assert it.standing == {SOURCE}
    assert not it.due(SOURCE, True, AFTER, 2000)
    assert it.look(SOURCE, due=False, chosen=False) == [Change(SOURCE, False, "the source is back")]
    assert it.standing == set()
    assert not it.due(SOURCE, False, AFTER, 3000), "counted anew"


def test_j2_a_store_that_is_not_elected_does_not_stand_in_and_gives_way() -> None:
    it = Proxies()
    assert it.look(SOURCE, due=True, chosen=False) == []
    assert it.look(SOURCE, due=True, chosen=True) != []
    assert it.look(SOURCE, due=True, chosen=False) == [Change(SOURCE, False, "another store stands in")]


def test_j2_a_store_that_starts_beside_a_dead_source_is_elected_when_its_time_is_over() -> None:
    """Until then the one that stands in goes on."""
    it, other = Proxies(), Proxies()
    other.due(SOURCE, True, AFTER, 0)
    other.able(SOURCE, True)
    assert other.ready == {SOURCE}, "it has seen it alive"
    for now, due in ((0, False), (AFTER - 1, False), (AFTER, True)):
        assert it.due(SOURCE, False, AFTER, now) is due
        it.able(SOURCE, True)
        assert it.ready == ({SOURCE} if due else set())
    it.able(SOURCE, False)
    assert it.ready == set()


def test_j2_a_source_that_is_forgotten_has_no_proxy() -> None:
    it = Proxies()
    it.due(SOURCE, False, AFTER, 0)
    it.look(SOURCE, due=True, chosen=True)
    assert it.keep({SOURCE}) == []
    assert it.due(SOURCE, False, AFTER, AFTER), "as long as it is kept its time goes on"
    assert it.keep(set()) == [Change(SOURCE, False, "the source is forgotten")]
    assert it.keep(set()) == []
    assert not it.due(SOURCE, False, AFTER, 5000), "counted anew"


@pytest.mark.parametrize(("kept", "asked"), [(False, False), (True, True), (True, False), (False, True)])
def test_j2_a_source_does_not_change_its_mind(kept: bool, asked: bool) -> None:
    refused = proxy_refusal(kept, asked)
    assert (refused is None) is (kept == asked)
    assert refused is None or f"ume_proxy_source = {asked:d}" in refused.text
