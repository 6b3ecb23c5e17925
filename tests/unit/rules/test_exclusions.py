"""Whom the operator has excluded, by what several stores remember (engine/rules/exclusions.py)."""

from __future__ import annotations

import pytest

from holdfast.engine.rules.exclusions import Said, in_force

STILL, OVER, NOTHING = Said({"c": 5}, (), True), Said({}, (5,), True), Said({}, (), True)
ANEW = Said({"c": 6}, (), True)
IDLE = Said({"c": 5}, (), False)


@pytest.mark.parametrize(
    ("said", "names"),
    [
        ([], set()),
        ([STILL], {"c"}),
        ([STILL, NOTHING], {"c"}),  # who was away at that time has nothing to say
        ([STILL, OVER], set()),  # one has begun since
        ([OVER], set()),
        ([STILL, ANEW], {"c"}),  # two words, of which the later one holds
        ([OVER, ANEW], {"c"}),
        ([STILL, OVER, ANEW, Said({}, (6,), True)], set()),
        ([Said({"b": 1, "c": 5}, (), True), OVER], {"b"}),
        ([IDLE], {"c"}),  # nobody has begun: all may speak
        ([IDLE, NOTHING], set()),  # a BEGIN that it has not heard of may have known of it
        ([IDLE, STILL], {"c"}),
    ],
)
def test_an_exclusion_is_over_for_all_where_one_has_begun_since(said: list[Said], names: set[str]) -> None:
    assert in_force(said) == names
    assert in_force(reversed(said)) == names


def test_what_the_register_has_is_over_too() -> None:
    assert in_force([STILL], [5]) == set()
    assert in_force([ANEW], [5]) == {"c"}
