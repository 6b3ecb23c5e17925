"""Whom the operator has excluded, by what several stores remember (engine/rules/exclusions.py)."""

from __future__ import annotations

import pytest

from holdfast.engine.rules.exclusions import Said, in_force

STILL, OVER, NOTHING = Said({"c": 5}, {"c": 5}), Said({}, {"c": 5}), Said({}, {})
ANEW = Said({"c": 6}, {"c": 6})


@pytest.mark.parametrize(
    ("said", "names"),
    [
        ([], set()),
        ([STILL], {"c"}),
        ([STILL, NOTHING], {"c"}),  # who was away at that time has nothing to say
        ([STILL, OVER], set()),  # one has begun since: also for a store that never has this source
        ([OVER], set()),
        ([STILL, ANEW], {"c"}),  # two words, of which the later one holds
        ([OVER, ANEW], {"c"}),
        ([STILL, OVER, ANEW, Said({}, {"c": 6})], set()),
        ([Said({"b": 1, "c": 5}, {"b": 1, "c": 5}), OVER], {"b"}),
    ],
)
def test_an_exclusion_is_over_for_all_where_one_has_begun_since(said: list[Said], names: set[str]) -> None:
    assert in_force(said) == names
    assert in_force(reversed(said)) == names
