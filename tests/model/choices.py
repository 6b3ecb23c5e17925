"""A history is a row of choices: :func:`every` goes through all of them, :func:`some` draws at random."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

T = TypeVar("T")


class Choices:
    """Answers of a history's questions: those given, then the first of each."""

    def __init__(self, given: Sequence[int] = (), dice: random.Random | None = None) -> None:
        self.given = given
        self.dice = dice
        self.made: list[tuple[int, int]] = []
        """(answer, out of how many)."""

    def pick(self, options: Sequence[T]) -> T:
        """One of these."""
        place = len(self.made)
        if self.dice is not None:
            answer = self.dice.randrange(len(options))
        else:
            answer = self.given[place] if place < len(self.given) else 0
        self.made.append((answer, len(options)))
        return options[answer]


def every(run: Callable[[Choices], object]) -> int:
    """All histories. Returns how many; who raises says by which choices."""
    given: list[int] = []
    for count in itertools.count(1):
        choices = Choices(given)
        _tell(run, choices)
        made = choices.made
        while made and made[-1][0] + 1 == made[-1][1]:
            made.pop()
        if not made:
            return count
        given = [answer for answer, _ in made]
        given[-1] += 1
    raise AssertionError("never")


def some(run: Callable[[Choices], object], seeds: Iterable[int]) -> None:
    """One history for each seed."""
    for seed in seeds:
        _tell(run, Choices(dice=random.Random(seed)))


def _tell(run: Callable[[Choices], object], choices: Choices) -> None:
    try:
        run(choices)
    except AssertionError as error:
        error.add_note(f"choices: {[answer for answer, _ in choices.made]}")
        raise


def subsets(names: str) -> Iterator[str]:
    """But the empty one, large ones first."""
    for size in range(len(names), 0, -1):
        yield from map("".join, itertools.combinations(names, size))
