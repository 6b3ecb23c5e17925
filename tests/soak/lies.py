"""Lies that are told to the judges at the end of each soak, in the records that it made. Each must be
found."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from soak.judge import judge

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from soak.growth import Samples
    from soak.judge import Kept, Role
    from soak.records import Line

__all__ = ["LIES", "caught", "leak_is_found"]

LEAK = 10


def _dropped(lines: list[Line], place: int) -> None:
    """A receiver did not get a message."""
    del lines[place]


def _changed(lines: list[Line], place: int) -> None:
    """A byte of it is another one."""
    first, last, length, crc, again = lines[place].numbers
    lines[place] = replace(lines[place], numbers=(first, last, length, crc ^ 1, again))


def _swapped(lines: list[Line], place: int) -> None:
    """It came before the one in front of it."""
    lines[place - 1], lines[place] = lines[place], lines[place - 1]


LIES: tuple[Callable[[list[Line], int], None], ...] = (_dropped, _changed, _swapped)


def caught(
    sources: Mapping[str, Sequence[Line]], receivers: Mapping[str, tuple[Role, Sequence[Line]]], kept: Kept, whose: str
) -> int:
    """How many of LIES the judge finds, each told of the receiver ``whose``, in the middle of what it got. It
    receives one topic, in order."""
    before = set(judge(sources, receivers, kept).findings)
    role, lines = receivers[whose]
    found = 0
    for lie in LIES:
        altered = [*lines]
        gots = [k for k in range(1, len(lines)) if lines[k - 1].kind == lines[k].kind == "got"]
        times = Counter(line.numbers[0] for line in lines if line.kind == "got")
        once = [k for k in gots if times[lines[k].numbers[0]] == 1 == times[lines[k - 1].numbers[0]]]
        if not once:
            continue
        lie(altered, once[len(once) // 2])
        found += bool(set(judge(sources, {**receivers, whose: (role, altered)}, kept).findings) - before)
    return found


def leak_is_found(samples: Samples) -> bool:
    """A process that opens ten descriptors and closes none."""
    leaky = copy.deepcopy(samples)
    for k in range(40):
        leaky.add("a liar", k / 40, {"descriptors": 10.0 + LEAK * k / 40})
    return any("a liar descriptors" in found for found in leaky.findings())
