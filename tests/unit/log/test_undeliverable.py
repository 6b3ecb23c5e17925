"""Which numbers are marked under which BEGINs: a number is never an identity (docs/design.md 13)."""

from __future__ import annotations

import pytest

from holdfast.engine.log.undeliverable import marked_numbers


@pytest.mark.parametrize(
    ("ranges", "begins", "marked"),
    [
        ([], [(1, 0)], []),
        ([(1, 2, 3), (1, 5, 9)], [(1, 0)], [(2, 3), (5, 9)]),
        ([(1, 2, 3), (2, 2, 6)], [(1, 0), (2, 2)], [(2, 6)]),
        ([(1, 2, 9)], [(1, 0), (2, 5)], [(2, 5)]),
        ([(1, 2, 9)], [(2, 8), (3, 4)], [(2, 4)]),
        ([(1, 2, 9)], [(2, 4), (3, 8)], [(2, 4)]),
        ([(1, 6, 9)], [(2, 5)], []),
        ([(2, 6, 9)], [(1, 5), (2, 5)], [(6, 9)]),
    ],
)
def test_a_mark_is_void_from_the_start_of_every_later_incarnation(
    ranges: list[tuple[int, int, int]], begins: list[tuple[int, int]], marked: list[tuple[int, int]]
) -> None:
    assert list(marked_numbers(ranges, begins)) == marked
