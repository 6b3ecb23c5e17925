"""Where a receiver starts: the cases of um_semantics F.1."""

from __future__ import annotations

import pytest

from holdfast.engine.recovery import Start, limited_low, start_number


@pytest.mark.parametrize(
    ("low", "high", "maximum", "chosen", "expected"),
    [
        (1, 6, 2, 1, Start(4, True, False)),  # seven messages, ack 0, N = 2: five or possibly six
        (1, 6, 2, 2, Start(2, False, False)),  # the callback chose: N is ignored
        (1, 6, 0, 1, Start(1, False, False)),
        (5, 6, 10, 5, Start(5, False, False)),  # N is larger than the backlog
        (1, 6, 0, 7, Start(7, False, False)),  # skip all
        (1, 6, 0, 20, Start(7, False, True)),  # beyond: clamped to high + 1
        (5, 6, 0, 2, Start(2, False, False)),  # older than stored, on purpose
        (100, 9, 0, 100, Start(10, False, True)),  # the store's files were wiped
        (0, -1, 0, 0, Start(0, False, False)),  # a source that has never sent
        (0, -1, 3, 0, Start(0, False, False)),
    ],
)
def test_start_number(low: int, high: int, maximum: int, chosen: int, expected: Start) -> None:
    assert start_number(low, high, maximum, chosen) == expected


def test_limited_low_is_high_minus_n_and_never_negative() -> None:
    assert limited_low(1, 6, 2) == 4
    assert limited_low(1, 6, 10) == 0
    assert limited_low(1, 6, 0) == 1
