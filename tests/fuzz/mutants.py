"""Mutants of inputs for the targets that are Python. Deterministic: the same seed and corpus give the same
mutants.

Besides bits and slices they know words (a target's dictionary), numbers at which limits lie, and depth: a
piece that is there a thousand times.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["INPUT_MAX", "mutants"]

INPUT_MAX = 1 << 16
NEAR = 128
WIDTHS = (1, 2, 4, 8, 32, 256)
BYTES = (0, 1, 0x7F, 0x80, 0xC1, 0xFF)
REPEATS = (2, 3, 10, 100, 1000, 20000)
NUMBERS = (
    0,
    -1,
    1,
    25,
    26,
    127,
    128,
    255,
    256,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**32,
    2**53,
    2**63 - 1,
    2**63,
    2**64 - 1,
    2**64,
)

_DIGITS = re.compile(rb"[0-9]+")


def mutants(rng: random.Random, corpus: Sequence[bytes], words: Sequence[bytes]) -> Iterator[bytes]:
    """One input, changed in one way, in two, in three and in four."""
    some = rng.random  # times a length: a tenth of what randrange and choice cost, which is more than most readers do
    data = bytearray(corpus[int(some() * len(corpus))])
    for _ in range(4):
        _change(some, data, int(some() * (len(data) + 1)), corpus, words)
        yield bytes(data if len(data) <= INPUT_MAX else data[:INPUT_MAX])


def _change(
    some: Callable[[], float], data: bytearray, at: int, corpus: Sequence[bytes], words: Sequence[bytes]
) -> None:
    end = min(len(data), at + WIDTHS[int(some() * len(WIDTHS))])
    match int(some() * 8):
        case 0 if at < len(data):
            data[at] ^= 1 << int(some() * 8)
        case 1 if at < len(data):
            which = int(some() * (len(BYTES) + 1))
            data[at] = BYTES[which] if which < len(BYTES) else int(some() * 256)
        case 2 if at < len(data):
            del data[at:end]
        case 3 if end > at:
            times = REPEATS[int(some() * len(REPEATS))]
            data[at:at] = data[at:end] * min(times, (INPUT_MAX - len(data)) // (end - at) + 1)
        case 4:
            other = corpus[int(some() * len(corpus))]
            data[at:] = other[int(some() * (len(other) + 1)) :]
        case 5 if _number(some, data, at):
            pass
        case _:
            data[at : at if some() < 0.5 else end] = words[int(some() * len(words))]


def _number(some: Callable[[], float], data: bytearray, at: int) -> bool:
    """Another number where one is written, behind ``at`` or at the beginning; False: there is none near."""
    found = _DIGITS.search(data, at, at + NEAR) or _DIGITS.search(data, 0, NEAR)
    if found is None:
        return False
    begin, end = found.span()
    begin -= begin > 0 and data[begin - 1] == ord("-")
    data[begin:end] = b"%d" % (NUMBERS[int(some() * len(NUMBERS))] + int(some() * 3) - 1)
    return True
