"""Mutants that no input can tell from the rule, each with the reason. A run fails when one of them dies, or
is no mutant of the text any more."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["EQUAL", "Equal"]


class Equal(NamedTuple):
    """By what a mutant is known (mutate.Mutant), and why nobody can notice it."""

    path: str
    function: str
    line: str
    mutation: str
    why: str
    nth: int = 1


EQUAL: tuple[Equal, ...] = (
    Equal(
        "engine/rules/election.py",
        "_missed",
        "return max((life for life in remembered if life > lives[0] and life not in lives), default=None)",
        "life > lives[0] → life >= lives[0]",
        "A life that is lives[0] is in lives, so the second condition leaves it out.",
    ),
    Equal(
        "engine/rules/quorum.py",
        "_Group.end_of",
        "if len(self._rules) == 1:  # what nearly every source has, for each acknowledgement",
        "1 → 0",
        "There is always a rule, and the least number of one rule is its number: the branch only saves time.",
    ),
    Equal(
        "engine/rules/retention.py",
        "Retention._may_have_left",
        "if spans.last_begin > floor:",
        "spans.last_begin > floor → spans.last_begin >= floor",
        "True only makes _leave look. A store with an interval that begins at the floor has the floor, too.",
    ),
)
