"""The tables of um_semantics E.4 and E.5, one group."""

from __future__ import annotations

import pytest

from holdfast.engine.quorum import Consensus, Group, Intragroup, consensus, may_send, quorum, stable_number


@pytest.mark.parametrize(("size", "needed"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (7, 4), (25, 13)])
def test_a_quorum_is_more_than_half(size: int, needed: int) -> None:
    assert quorum(size) == needed


@pytest.mark.parametrize(
    ("size", "registered", "allowed"),
    [(1, 1, True), (1, 0, False), (3, 3, True), (3, 2, True), (3, 1, False), (5, 4, True), (5, 3, True), (5, 2, False),
     (2, 1, False), (2, 2, True)],
)  # fmt: skip
def test_a_source_sends_while_a_quorum_is_registered(size: int, registered: int, allowed: bool) -> None:
    assert may_send(registered, size) is allowed


@pytest.mark.parametrize(
    ("positions", "size", "stable"),
    [
        ([], 1, 0),
        ([7], 1, 7),
        ([7], 3, 0),
        ([7, 9], 3, 7),
        ([9, 7, 0], 3, 7),
        ([5, 5, 9], 3, 5),
        ([1, 2, 3, 4, 5], 5, 3),
        ([1, 2, 3, 4], 5, 2),
        ([2**63, 2**63 + 2, 0], 3, 2**63),
        ([4, 8], 2, 4),
    ],
)
def test_stable_is_the_qth_largest_position(positions: list[int], size: int, stable: int) -> None:
    assert stable_number(positions, size) == stable


@pytest.mark.parametrize(
    ("reports", "lowest", "majority", "highest"),
    [
        ([50, 50, 50], 50, 50, 50),
        ([40, 50, 50], 40, 50, 50),
        ([40, 45, 50], 40, 45, 50),
        ([40, 50], 40, 40, 50),
        ([0, 50, 50], 0, 50, 50),
        ([0, 0], 0, 0, 0),
    ],
)
def test_consensus_follows_its_behavior(reports: list[int], lowest: int, majority: int, highest: int) -> None:
    wanted: list[tuple[Consensus, int]] = [("lowest", lowest), ("majority", majority), ("highest", highest)]
    for behavior, number in wanted:
        assert consensus(reports, 3, behavior) == number
        assert consensus(reports[::-1], 3, behavior) == number


def test_no_consensus_without_a_quorum_of_reports() -> None:
    with pytest.raises(ValueError, match="not a quorum"):
        consensus([50], 3, "highest")


def test_a_group_of_no_stores_is_an_error() -> None:
    with pytest.raises(ValueError, match="no quorum"):
        quorum(0)


def group(behavior: Intragroup, *acks: int) -> Group:
    made = Group(len(acks), behavior)
    for spans, ack in zip(made.members, acks, strict=True):
        spans.add(0, ack)
    return made


@pytest.mark.parametrize(("behavior", "first"), [("quorum", 7), ("all-active", 3), ("all", 3)])
def test_stable_by_what_each_store_has(behavior: Intragroup, first: int) -> None:
    made = group(behavior, 9, 7, 3)
    assert made.first_unstable(0) == first
    assert made.unstable(0, 12) == [(first, 12)]
    made.active[2] = False
    assert made.first_unstable(0) == {"quorum": 7, "all-active": 7, "all": 3}[behavior]


def test_an_active_store_with_a_hole_holds_back_only_that() -> None:
    made = group("all-active", 9, 9, 2)
    made.members[2].add(5, 9)
    assert made.first_unstable(0) == 2
    assert made.unstable(0, 9) == [(2, 5)]
    made.active = [False] * 3
    assert made.first_unstable(0) == 9, "a quorum has it, and nobody is registered who might not"
