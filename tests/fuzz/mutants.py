"""Mutants of inputs for the targets that are Python. Deterministic: the same seed and corpus give the same mutants.

Besides bits and slices they know words (a target's dictionary), numbers at which limits lie, and depth: a piece that is there a
thousand times.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

__all__ = ["INPUT_MAX", "mutant"]

INPUT_MAX = 1 << 16
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

_DIGITS = re.compile(rb"-?\d+")


def mutant(rng: random.Random, corpus: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    """One input, changed in one to four ways."""
    data = bytearray(rng.choice(corpus))
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data) + 1)
        _change(rng, data, at, corpus, words)
    return bytes(data[:INPUT_MAX])


def _change(rng: random.Random, data: bytearray, at: int, corpus: Sequence[bytes], words: Sequence[bytes]) -> None:
    end = min(len(data), at + rng.choice((1, 2, 4, 8, 32, 256)))
    match rng.randrange(8):
        case 0 if at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        case 1 if at < len(data):
            data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xC1, 0xFF, rng.randrange(256)))
        case 2:
            del data[at:end]
        case 3 if end > at:
            times = rng.choice(REPEATS)
            data[at:at] = bytes(data[at:end]) * min(times, (INPUT_MAX - len(data)) // (end - at) + 1)
        case 4:
            other = rng.choice(corpus)
            cut = rng.randrange(len(other) + 1)
            data[at:] = other[cut:]
        case 5:
            _number(rng, data)
        case _:
            data[at : rng.choice((at, end))] = rng.choice(words)


def _number(rng: random.Random, data: bytearray) -> None:
    """Another number where one is written."""
    found = list(_DIGITS.finditer(bytes(data)))
    if found:
        match = rng.choice(found)
        data[match.start() : match.end()] = str(rng.choice(NUMBERS) + rng.randint(-1, 1)).encode()
