"""When a limit is near, and when that is told."""

from __future__ import annotations

import pytest

from holdfast.engine.rules.nearness import STEP, Nearness, is_near


@pytest.mark.parametrize(
    ("used", "most", "near"), [(79, 100, False), (80, 100, True), (100, 100, True), (0, 0, False), (5, -1, False)]
)
def test_near_is_from_80_percent_on(used: int, most: int, near: bool) -> None:
    assert is_near(used, most) is near


def test_it_is_told_once_and_again_only_after_it_fell_below_70_percent() -> None:
    nearness = Nearness()
    told = [nearness.look(used, 100) for used in (79, 80, 99, 75, 85, 70, 80, 69, 79, 80, 81)]
    assert told == [False, True, False, False, False, False, False, False, False, True, False]


@pytest.mark.parametrize("most", [64, 256, 1024, 65530])
@pytest.mark.parametrize("cost", [1, 5, STEP])
def test_no_bound_is_passed_unseen(most: int, cost: int) -> None:
    """However much a client or a log costs, up to STEP, it is told before one more of them has come."""
    nearness, used = Nearness(), 0
    looks = 0
    while True:
        used += cost
        if nearness.due():
            looks += 1
            if nearness.look(used, most):
                break
        assert used < most * 0.8 + 2 * STEP
    assert most < 1000 or looks < used // cost, "not each time"


def test_the_first_look_is_due_at_once() -> None:
    nearness = Nearness()
    assert nearness.due()
    nearness.look(0, 20 * STEP)
    assert [nearness.due() for _ in range(18)].index(True) == 16
