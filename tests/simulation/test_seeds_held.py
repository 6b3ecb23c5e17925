"""Schedules that broke something once, and what it was: without features, as they were then, and with
them."""

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


WITH_FEATURES = {
    4487: "receivers waited for ever for a store that had lost its seat before the incarnation of what they waited for",
    5860: "receiver-paced: a store waited for a receiver by a name that it had never taken",
    24615: "a store that had lost its log stood in for a source",
    25482: "what a store had granted to a life that never joined decided where the next one began",
    28252: "who had deregistered held the RegID at a store that refused to forget",
    28415: "two new sources could send, each by a group of its own",
    30381: "what a receiver had acknowledged was beyond the newest number of the one log that could be asked",
    31499: "a claimant took a store in step with the one that had the RegID",
    42867: "a store where the loser of two first claims had begun never took part for the winner",
}


@pytest.mark.parametrize("seed", WITH_FEATURES)
def test_it_holds_with_features(seed: int) -> None:
    play(seed)


@pytest.mark.parametrize("seed", BROKE)
def test_it_holds_now(seed: int) -> None:
    play(seed, machine=Machine(seed, plain=True))
