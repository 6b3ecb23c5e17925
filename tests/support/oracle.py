"""What every message must contain, and what a log or a receiver may show of it: the independent judge of the
kill tests.

A fragment's payload is a function of (seed, its sequence number, its key): word 0 is the key in plain, the
others are mixed from all three and the word's index. A message's length is a function of (seed, its first
number) alone, so that a source that is restarted at number n sends the message that belongs there. The key
tells lives apart: it is the incarnation of the source, or the number of its process.

What was seen is handed over as rows, one per message: numbers, key, length, and a digest that depends on
every word and on its place. Nothing here imports holdfast.
"""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words = NDArray[np.uint64]

ROW = np.dtype([(name, "<u8") for name in ("first", "last", "key", "length", "digest")])
"""One message as it was seen; ``last``: number of its last fragment."""
BLOCK = 64
"""Numbers share a kind of message in blocks of this many, so that batches of equal rows occur."""
WIDTH_MAX = 200
"""Bytes of a message of a uniform block."""


class Finding(AssertionError):  # noqa: N818  # it is what a torture finds, not an error of its own
    """Something was lost, reordered, duplicated or changed."""


class Stuck(Finding):
    """Something has not come in time. No judge has seen anything wrong, so it does not catch a planted bug: a
    machine that is too slow looks the same."""


def mix(x: Words) -> Words:
    """Finaliser of splitmix64: each bit of the result depends on each of the argument."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _words(values: Any) -> Words:
    return np.asarray(values, np.uint64)


class Content:
    """The messages of one seed. ``fragment``: payload bytes of a full fragment, a multiple of 8."""

    def __init__(self, seed: int, fragment: int = 1024, largest: int = 4000) -> None:
        self.seed = np.uint64(seed)
        self.fragment = fragment
        self.largest = largest
        self._scale = (mix(np.arange(1 + largest // 8, dtype=np.uint64)) | np.uint64(1)).astype(np.uint64)

    def lengths(self, first: Any) -> Words:
        """Payload bytes of the messages with these first numbers; multiples of 8, at least 8."""
        first = _words(first)
        kind = mix(self.seed ^ (first // np.uint64(BLOCK)) * np.uint64(0x9E3779B97F4A7C15))
        own = mix(first + self.seed * np.uint64(31))
        uniform = kind % np.uint64(WIDTH_MAX // 8) + np.uint64(1)
        small = own % np.uint64(64) + np.uint64(1)
        large = own % np.uint64(self.largest // 8) + np.uint64(1)
        mixed = np.where(own >> np.uint64(60) < 13, small, large)
        return np.where(kind >> np.uint64(62) != 0, uniform, mixed) * np.uint64(8)

    def uniform(self, first: int) -> int:
        """How many messages from this one on have its length for sure: to the end of a uniform block, or
        1."""
        kind = mix(self.seed ^ _words([first // BLOCK]) * np.uint64(0x9E3779B97F4A7C15))
        return BLOCK - first % BLOCK if kind[0] >> np.uint64(62) else 1

    def words(self, numbers: Words, keys: Any, index: Any) -> Words:
        """Word ``index`` of the fragments ``numbers`` of lives ``keys``; shapes broadcast."""
        keys = _words(keys)
        index = _words(index)
        mixed = mix(
            self.seed ^ mix(numbers * np.uint64(0xD1342543DE82EF95) + keys) + index * np.uint64(0xA0761D6478BD642F)
        )
        return np.where(index == 0, keys, mixed)

    def payloads(self, first: int, key: int, count: int = 1) -> NDArray[np.uint8]:
        """(count, length) bytes of messages of equal length, unfragmented if more than one."""
        size = int(self.lengths([first])[0])
        at = np.arange(size // 8, dtype=np.uint64)
        per = np.uint64(self.fragment // 8)
        numbers = _words(np.arange(first, first + count))[:, None] + at[None, :] // per
        return self.words(numbers, key, np.broadcast_to(at % per, numbers.shape)).view(np.uint8)

    def digests(self, words: Words, starts: Any, lengths: Any) -> Words:
        """Digests of the messages whose words lie at ``words[start : start + length / 8]``."""
        counts = _words(lengths) // np.uint64(8)
        ends = np.cumsum(counts, dtype=np.uint64)
        within = np.arange(int(ends[-1]), dtype=np.uint64) - np.repeat(ends - counts, counts.astype(np.int64))
        taken = words[(np.repeat(_words(starts), counts.astype(np.int64)) + within).astype(np.int64)]
        return np.add.reduceat(taken * self._scale[within.astype(np.int64)], (ends - counts).astype(np.int64))

    def expected(self, first: Words, keys: Words) -> Words:
        """Digests that the messages with these first numbers and keys must have."""
        counts = self.lengths(first) // np.uint64(8)
        times = counts.astype(np.int64)
        ends = np.cumsum(counts, dtype=np.uint64)
        within = np.arange(int(ends[-1]), dtype=np.uint64) - np.repeat(ends - counts, times)
        per = np.uint64(self.fragment // 8)
        words = self.words(np.repeat(first, times) + within // per, np.repeat(keys, times), within % per)
        return np.add.reduceat(words * self._scale[within.astype(np.int64)], (ends - counts).astype(np.int64))

    def fragments(self, lengths: Words) -> Words:
        """Numbers that messages of these lengths take."""
        return (lengths + np.uint64(self.fragment - 1)) // np.uint64(self.fragment)

    def check(self, rows: NDArray[Any], next_number: int, what: str) -> int:
        """Rows must continue at ``next_number`` without gap, repetition or change. Returns the number behind
        them."""
        if not len(rows):
            return next_number
        first, last = rows["first"], rows["last"]
        expected_first = np.concatenate((_words([next_number]), last[:-1] + np.uint64(1)))
        self._same(first, expected_first, rows, f"{what}: not consecutive")
        lengths = self.lengths(first)
        self._same(rows["length"], lengths, rows, f"{what}: wrong length")
        self._same(last - first + np.uint64(1), self.fragments(lengths), rows, f"{what}: wrong number of fragments")
        self._same(rows["digest"], self.expected(first, rows["key"]), rows, f"{what}: wrong content")
        return int(last[-1]) + 1

    @staticmethod
    def _same(found: Words, wanted: Words, rows: NDArray[Any], what: str) -> None:
        wrong = np.flatnonzero(found != wanted)
        if len(wrong):
            at = int(wrong[0])
            raise Finding(f"{what}: {found[at]}, not {wanted[at]}, in {rows[at]} (row {at} of {len(rows)})")


class Lives:
    """Where each life of the source began: keys by number."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._keys: list[int] = []

    def begin(self, key: int, start: int) -> None:
        """Life ``key`` sends from ``start`` on; an earlier one that sent nothing gives way."""
        while self._starts and self._starts[-1] >= start:
            self._starts.pop()
            self._keys.pop()
        self._starts.append(start)
        self._keys.append(key)

    def check(self, rows: NDArray[Any], what: str) -> None:
        """Every row must be of the life that owns its number."""
        if not len(rows):
            return
        place = np.searchsorted(np.asarray(self._starts, np.uint64), rows["first"], side="right") - 1
        if place.min() < 0:
            raise Finding(f"{what}: {rows[int(place.argmin())]} is of a time before any life began")
        wrong = np.flatnonzero(np.asarray(self._keys, np.uint64)[place] != rows["key"])
        if len(wrong):
            raise Finding(f"{what}: {rows[int(wrong[0])]} is not of life {self.key(int(rows['first'][wrong[0]]))}")

    def key(self, number: int) -> int:
        """The life that owns a number."""
        return self._keys[bisect.bisect_right(self._starts, number) - 1]
