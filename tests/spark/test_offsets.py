"""Positions as canonical JSON: the same positions are the same text."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.spark.offsets import NUMBER_MAX, as_offset, positions_of

POSITIONS = st.dictionaries(st.tuples(st.text(max_size=5), st.text(max_size=5)), st.integers(0, NUMBER_MAX), max_size=8)


@given(POSITIONS)
def test_an_offset_and_back(positions: dict[tuple[str, str], int]) -> None:
    offset = as_offset(positions)
    assert positions_of(offset) == positions
    assert positions_of(json.dumps(offset)) == positions


@given(POSITIONS, st.randoms())
def test_the_same_positions_are_the_same_text(positions: dict[tuple[str, str], int], random: object) -> None:
    items = list(positions.items())
    random.shuffle(items)  # type: ignore[attr-defined]
    assert json.dumps(as_offset(dict(items))) == json.dumps(as_offset(positions))


def test_the_form_is_what_checkpoints_hold() -> None:
    text = json.dumps(as_offset({("orders", "7/0a1b2c3d"): 5, ("a", "9/0"): 0, ("orders", "10/ff"): 1}))
    assert text == '{"topics": {"a": {"9/0": 0}, "orders": {"10/ff": 1, "7/0a1b2c3d": 5}}, "v": 1}'


@pytest.mark.parametrize(
    "offset",
    [
        "",
        "[]",
        "{}",
        '{"v": 2, "topics": {}}',
        '{"v": 1}',
        '{"v": 1, "topics": {"a": {"7": -1}}}',
        '{"v": 1, "topics": {"a": {"7": "1"}}}',
    ],
)
def test_what_is_no_offset_is_refused(offset: str) -> None:
    with pytest.raises(ValueError, match=r"offset|JSON|number"):
        positions_of(offset)
