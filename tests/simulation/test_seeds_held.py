"""Schedules that broke something once, and what it was: without features, as they were then.

What seeds with features have found is kept as planted bugs: planted_features.py.
"""

from __future__ import annotations

import pytest
from simulation.machine import Machine
from simulation.run import play

BROKE = {
    102734: "two claimants opened on grants of different times, and both could send",
    100598: "a store took its peers' BEGIN over while the owner of the ring that it drained lived",
    110101: "a source that closed before it could send left its ring, and receivers waited for its stores",
    103707: "a source closed while a store that had lost its seat had still to answer: it held the source for nobody",
    106097: "a source asked a store twice, and was refused what it held itself",
    111819: "a store that had renamed what it granted and refused BEGIN held it for nobody",
    112996: "a store that had lost some counted for none of the numbers that were sent again",
    206497: "an identity that had begun at other stores since was never given up",
    104690: "a stable message was renumbered",
}


@pytest.mark.parametrize("seed", BROKE)
def test_it_holds_now(seed: int) -> None:
    play(seed, machine=Machine(seed, plain=True))
