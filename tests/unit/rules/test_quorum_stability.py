"""What is stable over groups of stores: the pictures of docs/semantics.md E.3, and every pattern against a
reference."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from holdfast.engine.rules.quorum import INTERGROUP, INTRAGROUP, Groups, Intergroup, Intragroup, StoreSpans

if TYPE_CHECKING:
    from collections.abc import Sequence

STORES = "ABCDEXYZPQRST"
"""G0 = {A B C D E}, G1 = {X Y Z}, G2 = {P Q R S T}."""
OF = (0,) * 5 + (1,) * 3 + (2,) * 5
ACKS = "AXBYPCQRDZ"
NEVER = "-"


def stable_at(intragroup: Intragroup, intergroup: Intergroup, registered: str = STORES, acks: str = ACKS) -> str:
    """The store whose acknowledgement of one message makes it stable."""
    holdings = StoreSpans(Groups((5, 3, 5), OF, intragroup, intergroup))
    holdings.seat(range(13), [STORES.index(store) for store in registered])
    for store in acks:
        if store in registered:
            holdings.stores[STORES.index(store)].add(0, 1)
            if holdings.first_unstable(0) == 1:
                assert holdings.unstable(0, 1) == []
                return store
            assert holdings.unstable(0, 1) == [(0, 1)]
    return NEVER


E3 = """
    registered      intragroup   any  majority  all-active  all
    ABCDEXYZPQRST   quorum        Y      C          R        R
    ABCDEXYZPQ      quorum        Y      C          C        -
    ABCDEXYZPQRST   all           Z      -          -        -
    ABCXYZPQR       all-active    C      R          Z        Z
"""
ROWS = [line.split() for line in E3.strip().splitlines()[1:]]


@pytest.mark.parametrize("row", ROWS, ids="-".join)
def test_e3_the_acknowledgement_that_makes_it_stable(row: list[str]) -> None:
    registered, behavior, any_, majority, all_active, all_ = row
    intragroup = next(word for word in INTRAGROUP if word == behavior)
    wanted = {"any": any_, "majority": majority, "all-active": all_active, "all": all_}
    assert {each: stable_at(intragroup, each, registered) for each in INTERGROUP} == wanted


def test_e3_with_all_the_first_group_waits_for_e() -> None:
    assert stable_at("all", "any", acks="AXBYPCQRDE") == "E"


def reference(sizes: Sequence[int], had: set[int], active: set[int], intragroup: str, intergroup: str) -> bool:
    """docs/semantics.md E.2, said another way: counts per group, and no more."""
    at, whole, on = 0, [], []
    for size in sizes:
        members = set(range(at, at + size))
        at += size
        enough = len(had & members) == size if intragroup == "all" else 2 * len(had & members) > size
        whole.append(enough and (intragroup != "all-active" or active & members <= had))
        on.append(2 * len(active & members) > size)
    if intergroup == "all-active":
        return any(on) and all(ok for ok, is_on in zip(whole, on, strict=True) if is_on)
    return {"any": sum(whole) > 0, "majority": 2 * sum(whole) > len(sizes), "all": all(whole)}[intergroup]


@pytest.mark.parametrize("intragroup", INTRAGROUP)
@pytest.mark.parametrize("sizes", [(1,), (2,), (3,), (4,), (5,), (3, 2), (2, 1, 2), (1, 1, 1)], ids=str)
def test_every_pattern_of_stores_that_have_it_and_are_registered(
    sizes: tuple[int, ...], intragroup: Intragroup
) -> None:
    count = sum(sizes)
    of = tuple(number for number, size in enumerate(sizes) for _ in range(size))
    for intergroup in INTERGROUP:
        for had_it, registered in itertools.product(itertools.product((0, 1), repeat=count), repeat=2):
            had = {store for store in range(count) if had_it[store]}
            active = {store for store in range(count) if registered[store]}
            holdings = StoreSpans(Groups(sizes, of, intragroup, intergroup))
            holdings.seat(range(count), active)
            for store in had:
                holdings.stores[store].add(0, 1)
            wanted = reference(sizes, had, active, intragroup, intergroup)
            assert (holdings.first_unstable(0) == 1) is wanted, (intergroup, had, active)


def one_group(behavior: Intragroup, *acks: int) -> StoreSpans:
    made = StoreSpans(Groups.single(len(acks), behavior))
    for spans, ack in zip(made.stores, acks, strict=True):
        spans.add(0, ack)
    return made


@pytest.mark.parametrize(("behavior", "first"), [("quorum", 7), ("all-active", 3), ("all", 3)])
def test_stable_by_what_each_store_has(behavior: Intragroup, first: int) -> None:
    made = one_group(behavior, 9, 7, 3)
    assert made.first_unstable(0) == first
    assert made.unstable(0, 12) == [(first, 12)]
    made.seat(range(3), {0, 1})
    assert made.first_unstable(0) == {"quorum": 7, "all-active": 7, "all": 3}[behavior]


def test_an_active_store_with_a_hole_holds_back_only_that() -> None:
    made = one_group("all-active", 9, 9, 2)
    made.stores[2].add(5, 9)
    assert made.first_unstable(0) == 2
    assert made.unstable(0, 9) == [(2, 5)]
    made.seat(range(3), ())
    assert made.first_unstable(0) == 9, "a quorum has it, and nobody is registered who might not"


def test_holes_of_different_groups_do_not_add_up() -> None:
    made = StoreSpans(Groups((1, 1, 1), (0, 1, 2), "quorum", "majority"))
    for store, (low, high) in enumerate([(0, 6), (4, 9), (8, 12)]):
        made.stores[store].add(low, high)
    assert made.first_unstable(0) == 0
    assert made.unstable(0, 12) == [(0, 4), (6, 8), (9, 12)]
    assert made.first_unstable(4) == 6
    assert list(made.in_group(1, 0, 12, floor=5)) == [(4, 9)]
    assert list(made.in_group(1, 0, 12, floor=0)) == [], "0 holds them back"


def test_only_stores_with_a_seat_count() -> None:
    made = StoreSpans(Groups((3,), (0, 0, 0, 0)))
    for store in (1, 2, 3):
        made.stores[store].add(0, [0, 9, 4, 9][store])
    assert made.first_unstable(0) == 4, "the backup has it, and no seat"
    made.seat({0, 1, 3}, {1, 3})
    assert made.first_unstable(0) == 9


def test_without_an_active_group_nothing_becomes_stable() -> None:
    made = StoreSpans(Groups((3, 3), (0,) * 3 + (1,) * 3, "quorum", "all-active"))
    for spans in made.stores:
        spans.add(0, 9)
    made.seat(range(6), {0, 3})
    assert made.first_unstable(2) == 2
    assert made.unstable(2, 5) == [(2, 5)]
    made.seat(range(6), {0, 1})
    assert made.first_unstable(2) == 9
