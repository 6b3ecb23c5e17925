"""What every part of the lab is given, and what it hands back."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

from support.oracle import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["LOST", "Lab", "Outcome", "Skip"]

LOST = re.compile(r"called (everything below )?(\d+ )?stable")
"""In what a judge says who misses what a store or a source has called stable."""


class Skip(Exception):  # noqa: N818  # nothing is wrong: the part needs what is not here
    """This machine cannot do it; the text says why."""


@dataclass(frozen=True)
class Lab:
    """One run of one part."""

    root: Path
    """A directory of this run alone, removed after it. HOLDFAST_DIR lies in it."""
    seed: int
    """Fixes the plan; the moments are the machine's."""
    size: int
    """0: just enough to see that the harness works; 1: the figures of every push; 2: those of a night."""

    def figure(self, tiny: int, short: int, long: int) -> int:
        """The one of this run."""
        return (tiny, short, long)[self.size]

    def skip(self, why: str) -> NoReturn:
        """Ends the run as not possible here."""
        raise Skip(why)


@dataclass
class Outcome:
    """What a part has done and found."""

    counts: dict[str, int] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    planted: int = 0
    """Bugs that were put into the product on purpose."""
    caught: int = 0
    """Of these."""

    def count(self, what: str, times: int = 1) -> None:
        """Adds to a figure of the report."""
        self.counts[what] = self.counts.get(what, 0) + times

    def found(self, what: str) -> None:
        """Something is wrong with the product."""
        print(f"FOUND {what}", flush=True)
        self.findings.append(what)

    def times_found(self, what: re.Pattern[str]) -> int:
        """Findings that say so. A planted bug is caught by what it does, not by a machine that is too slow
        (Stuck)."""
        return sum(bool(what.search(found)) for found in self.findings)

    def plant(self, *, caught: bool) -> None:
        """One planted bug was looked for."""
        self.planted += 1
        self.caught += caught

    @contextmanager
    def catches(self, what: str) -> Iterator[None]:
        """The block has a planted bug: it is caught where a Finding ends the block and says ``what``."""
        try:
            yield
        except Finding as found:
            self.plant(caught=what in str(found))
        else:
            self.plant(caught=False)
