"""How large the files of a log are (engine/rules/log_sizes.py)."""

from __future__ import annotations

import pytest

from holdfast.engine.rules import log_sizes
from holdfast.engine.rules.log_sizes import segment_bytes

MIB = 1 << 20


def test_the_sizes_that_the_guide_says() -> None:
    assert (log_sizes.SEGMENT_MAX, log_sizes.RELEASED_MIN, log_sizes.COMMIT_BYTES) == (64 * MIB, MIB, 16 * MIB)
    assert log_sizes.SEGMENTS == 8


@pytest.mark.parametrize(
    ("kept", "largest"),
    [(0, 64 * MIB), (1, 1 << 15), (MIB, MIB // 8), (64 * MIB, 8 * MIB), (512 * MIB, 64 * MIB), (1 << 40, 64 * MIB)],
)
def test_a_segment_is_an_eighth_of_what_is_kept(kept: int, largest: int) -> None:
    assert segment_bytes(kept) == largest
