"""Is one measurement slower than another? Compares distributions of ratios, never single figures. Pure.

The test is the one of Mann and Whitney, exact: of all orders that the runs of both sides could have come in,
how many are as bad for the new ones as the order that was seen? It needs no shape of the noise, and a single
disturbed run moves it by one rank. A bootstrap would need more than the five runs that results have: of five
values it draws the same few medians again and again.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

LOSS = 0.10
"""A loss of speed up to this is not held against anybody."""
ALPHA = 0.01
"""How improbable the order must be, if the loss were just LOSS, to count as a loss."""


class Outcome(Enum):
    """What a comparison says."""

    SAME = "no loss"
    LOSS = "LOSS"
    FEW = "too few runs"


@dataclass(frozen=True, slots=True)
class Comparison:
    """``change``: of the speed, -0.2 = a fifth is lost, the median of all pairs of runs. ``p``: see ALPHA."""

    outcome: Outcome
    change: float
    p: float
    old_runs: int
    new_runs: int


@cache
def _orders(old: int, new: int) -> Counter[int]:
    """U -> how many of the orders of this many old and new runs have it."""
    row = [Counter({0: 1}) for _ in range(new + 1)]  # row[j][u]: of i old and j new runs; here i = 0
    for i in range(1, old + 1):
        for j in range(1, new + 1):  # the greatest is an old run, or it is a new one, which beats all i
            row[j] = row[j] + Counter({u + i: count for u, count in row[j - 1].items()})
    return row[new]


def tail(old: int, new: int, wins: float) -> float:
    """P(U >= wins): of all C(old + new, new) orders, those where new runs beat old ones at least so often.

    U counts the pairs (old run, new run) with the greater value on the new side; half a win, of a tie, counts
    as none.
    """
    least = math.floor(wins)
    return sum(count for u, count in _orders(old, new).items() if u >= least) / math.comb(old + new, new)


def compare(old: Sequence[float], new: Sequence[float]) -> Comparison:
    """Costs of runs, committed and new, greater is worse. LOSS: the new ones lie above the old ones by more
    than LOSS.

    FEW: not even all new runs above all old ones would be improbable enough. Raises ValueError for an empty
    side or a cost that is not above 0.
    """
    if not old or not new or min(*old, *new) <= 0:
        raise ValueError(f"{len(old)} and {len(new)} runs: each side needs one, and costs above 0")
    change = math.exp(statistics.median(math.log(a / b) for a in old for b in new)) - 1
    allowed = [value / (1 - LOSS) for value in old]
    wins = sum((b > a) + (b == a) / 2 for a in allowed for b in new)
    p = tail(len(old), len(new), wins)
    if 1 / math.comb(len(old) + len(new), len(new)) > ALPHA:
        outcome = Outcome.FEW
    else:
        outcome = Outcome.LOSS if p <= ALPHA else Outcome.SAME
    return Comparison(outcome, change, p, len(old), len(new))
