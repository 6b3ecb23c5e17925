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


EQUAL: tuple[Equal, ...] = ()
