"""Who may send, and where to start: the tables of docs/semantics.md E.2, E.4, E.5, and every pattern of
failures."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from holdfast.engine.rules.quorum import (
    INTERGROUP,
    INTRAGROUP,
    NO_GROUPS,
    Consensus,
    Groups,
    Intergroup,
    Intragroup,
    quorum,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


def groups(*sizes: int, intragroup: Intragroup = "quorum", intergroup: Intergroup = "any") -> Groups:
    """Groups of these sizes, without backups; stores in the order of the groups."""
    of = [number for number, size in enumerate(sizes) for _ in range(size)]
    return Groups(tuple(sizes), tuple(of), intragroup, intergroup)


def subsets(count: int) -> Iterator[set[int]]:
    for bits in range(2**count):
        yield {i for i in range(count) if bits >> i & 1}


@pytest.mark.parametrize(("size", "needed"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (7, 4), (25, 13)])
def test_a_quorum_is_more_than_half(size: int, needed: int) -> None:
    assert quorum(size) == needed


def test_a_group_of_no_stores_is_an_error() -> None:
    with pytest.raises(ValueError, match="no quorum"):
        quorum(0)


E4 = """
    n r | quorum all-active all
    1 1 |   y       y        y
    3 3 |   y       y        y
    3 2 |   y       y        n
    3 1 |   n       n        n
    5 4 |   y       y        n
    5 3 |   y       y        n
    5 2 |   n       n        n
    2 1 |   n       n        n
    2 2 |   y       y        y
"""


def table(text: str) -> list[list[str]]:
    """Rows of a picture, without its heading and rules."""
    return [line.replace("|", " ").split() for line in text.strip().splitlines()[1:]]


@pytest.mark.parametrize("row", table(E4), ids="-".join)
def test_e4_one_group_sends_while_enough_are_registered(row: list[str]) -> None:
    size, registered = int(row[0]), int(row[1])
    for behavior, allowed in zip(INTRAGROUP, row[2:], strict=True):
        for up in itertools.combinations(range(size), registered):
            assert groups(size, intragroup=behavior).complete(up) is (allowed == "y"), behavior


def reference(sizes: Sequence[int], up: Iterable[int], intragroup: str, intergroup: str) -> bool:
    """docs/semantics.md E.2, said another way: counts per group, and no more."""
    at, counts = 0, []
    for size in sizes:
        counts.append((len(set(up) & set(range(at, at + size))), size))
        at += size
    active = [2 * count > size for count, size in counts]
    whole = [count == size if intragroup == "all" else 2 * count > size for count, size in counts]
    if intergroup == "all-active":
        return any(active) and all(ok for ok, on in zip(whole, active, strict=True) if on)
    return {"any": sum(whole) > 0, "majority": 2 * sum(whole) > len(sizes), "all": all(whole)}[intergroup]


@pytest.mark.parametrize("intergroup", INTERGROUP)
@pytest.mark.parametrize("intragroup", INTRAGROUP)
@pytest.mark.parametrize("sizes", [(1,), (2,), (3,), (4,), (5,), (3, 3), (2, 4), (1, 1, 1, 1, 1), (5, 3, 5)], ids=str)
def test_every_pattern_of_failures_allows_or_refuses_to_send_as_e2_says(
    sizes: tuple[int, ...], intragroup: Intragroup, intergroup: Intergroup
) -> None:
    made = groups(*sizes, intragroup=intragroup, intergroup=intergroup)
    wrong = [up for up in subsets(sum(sizes)) if made.complete(up) is not reference(sizes, up, intragroup, intergroup)]
    assert wrong == []


def test_a_group_number_that_nobody_uses_is_no_group() -> None:
    made = Groups((0, 3, 0, 1), (1, 3, 1, 1), "quorum", "all")
    assert made.numbers == [1, 3]
    assert made.complete({0, 1, 2})
    assert not made.complete({0, 2, 3})
    assert not made.complete({1, 2})


@pytest.mark.parametrize(
    ("sizes", "of", "intragroup", "intergroup"),
    [
        ((2, 1), (0, 0, 1), 0, 0),
        ((2, 1), (0, 0, 1), 2, 3),
        ((2, 1), (0, 0, 0, 1, 1), 1, 2),  # with backups
        ((0, 3), (1, 1, 1), 0, 1),  # a number that nobody uses
    ],
)
def test_groups_that_another_process_tells_are_taken_over(
    sizes: tuple[int, ...], of: tuple[int, ...], intragroup: int, intergroup: int
) -> None:
    assert Groups.told(sizes, of, intragroup, intergroup) == Groups(
        sizes, of, INTRAGROUP[intragroup], INTERGROUP[intergroup]
    )


@pytest.mark.parametrize(
    ("sizes", "of", "intragroup", "intergroup"),
    [
        ((3, 1), (0, 0, 1), 0, 0),  # a group that has fewer stores than its size
        ((2,), (0, 0, 1), 0, 0),  # a store of a group that there is not
        ((2, 0), (0, 0, 1), 0, 0),
        ((2, 1), (0, 0, 1), 3, 0),  # a behaviour of a later version
        ((2, 1), (0, 0, 1), 0, 4),
    ],
)
def test_groups_that_contradict_themselves_are_one_group_of_all_stores(
    sizes: tuple[int, ...], of: tuple[int, ...], intragroup: int, intergroup: int
) -> None:
    assert Groups.told(sizes, of, intragroup, intergroup) == Groups.single(3)


def test_stores_beyond_the_declared_size_are_backups_in_the_order_of_the_list() -> None:
    made = Groups((2, 1), (0, 1, 0, 0, 1))
    assert made.first_seats() == {0, 2, 1}
    assert made.members(0) == [0, 2, 3]


E5 = """
    reports    lowest majority highest
    50,50,50     50      50      50
    40,50,50     40      50      50
    40,45,50     40      45      50
    40,50        40      40      50
    0,50,50       0      50      50
    0,0           0       0       0
"""


@pytest.mark.parametrize("row", table(E5), ids="-".join)
def test_e5_the_first_number_follows_the_behavior(row: list[str]) -> None:
    reports = [int(number) for number in row[0].split(",")]
    wanted: list[tuple[Consensus, str]] = list(zip(("lowest", "majority", "highest"), row[1:], strict=True))
    for behavior, number in wanted:
        for order in itertools.permutations(reports):
            for where in itertools.combinations(range(3), len(order)):
                assert groups(3).consensus(dict(zip(where, order, strict=True)), behavior) == int(number)


@pytest.mark.parametrize(
    ("reports", "lowest", "majority", "highest"),
    [
        ([40, 45, 50, 47, 47, 90], 40, 47, 90),  # majorities 45 and 47
        ([40, 45, 50, 90], 40, 45, 90),  # the second group has no quorum of reports: it has no majority
        ([40, None, None, 90], 40, 90, 90),  # no group has: those that there are
    ],
)
def test_e5_across_groups_the_latest_of_the_majorities(
    reports: list[int | None], lowest: int, majority: int, highest: int
) -> None:
    told = {store: number for store, number in enumerate(reports) if number is not None}
    made = groups(3, 3)
    assert [made.consensus(told, behavior) for behavior in ("lowest", "majority", "highest")] == [
        lowest, majority, highest,
    ]  # fmt: skip


def test_no_number_without_a_report() -> None:
    with pytest.raises(ValueError, match="no store"):
        groups(3).consensus({}, "highest")


@pytest.mark.parametrize(
    ("positions", "size", "stable"),
    [
        ([7], 1, 7),
        ([7], 3, 0),
        ([7, 9], 3, 7),
        ([9, 7, 0], 3, 7),
        ([1, 2, 3, 4, 5], 5, 3),
        ([1, 2, 3, 4], 5, 2),
        ([2**63, 2**63 + 2, 0], 3, 2**63),
        ([4, 8], 2, 4),
    ],
)
def test_stable_by_positions_is_the_qth_largest(positions: list[int], size: int, stable: int) -> None:
    assert groups(size).stable_number(dict(enumerate(positions))) == stable


def test_what_more_stores_must_have_than_there_are_is_never_stable() -> None:
    assert Groups((3,), (0,)).stable_number({0: 7}) == 0, "one of a group of three is listed"
    assert NO_GROUPS.stable_number({}) == 0


@pytest.mark.parametrize(
    ("intragroup", "intergroup", "stable"),
    [
        ("quorum", "any", 9),
        ("quorum", "majority", 7),
        ("quorum", "all", 4),
        ("quorum", "all-active", 9),
        ("all", "any", 6),
        ("all", "all", 3),
    ],
)
def test_stable_by_positions_over_groups(intragroup: Intragroup, intergroup: Intergroup, stable: int) -> None:
    positions = dict(enumerate([9, 5, 9, 7, 6, 8, 3, 4, 4]))
    assert groups(3, 3, 3, intragroup=intragroup, intergroup=intergroup).stable_number(positions) == stable
