"""The messages that all products carry, and the check that every receiver makes.

A message is its number (8 bytes, little-endian, from 0 in each reading) and then bytes 0x5A up to its size.
"""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numba
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

NUMBER = struct.Struct("<Q")
FILL = 0x5A
WHOLE_FROM = 4096
"""From this size on, a message received one by one is read to its last byte. Below, its number and length are
read: the call that reads the rest costs 1 µs, which would hide the products. Batches are read to the last
byte at every size."""


class WrongMessageError(Exception):
    """A message came out of order, damaged or with another length: the reading is void."""


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages in the two forms that programs have them in, both made before the clock starts.

    Attributes:
        rows: (n, size) uint8. payloads: n bytes objects with the same contents.
    """

    rows: NDArray[np.uint8]
    payloads: list[bytes]

    @classmethod
    def numbered(cls, count: int, size: int) -> Messages:
        """``count`` messages of ``size`` bytes, at least 8."""
        rows = np.full((count, size), FILL, np.uint8)
        rows[:, :8] = np.arange(count, dtype="<u8")[:, np.newaxis].view(np.uint8)
        octets = rows.tobytes()
        return cls(rows, [octets[at : at + size] for at in range(0, len(octets), size)])

    def __len__(self) -> int:
        return len(self.payloads)

    def batches(self, count: int, each: int) -> list[Messages]:
        """The first ``count`` messages in pieces of ``each``."""
        return [
            Messages(self.rows[at : min(at + each, count)], self.payloads[at : min(at + each, count)])
            for at in range(0, count, each)
        ]


def take_singles(receive: Callable[[], Any], size: int, count: int) -> Taken:
    """Receive ``count`` messages one by one and check each. Raises WrongMessageError."""
    unpack, whole = NUMBER.unpack_from, size >= WHOLE_FROM
    for number in range(count):
        payload = receive()
        if len(payload) != size or unpack(payload)[0] != number:
            raise WrongMessageError(f"message {number} came as {unpack(payload)[0]} with {len(payload)} bytes")
        if whole and _bad_rows(np.frombuffer(payload, np.uint8), size, number):
            raise WrongMessageError(f"message {number} has other bytes than those that were sent")
    return Taken(time.perf_counter_ns())


@dataclass(frozen=True, slots=True)
class Taken:
    """When a receiver had the last message (CLOCK_MONOTONIC, ns), when the first batch, and how many were in
    that."""

    end_ns: int
    first_ns: int = 0
    first: int = 0


def take_batches(take: Callable[[Check], int], size: int, count: int) -> Taken:
    """Take batches until ``count`` messages were checked. Raises WrongMessageError."""
    check, first = Check(size), 0
    while not first:
        first = take(check)
    first_ns = time.perf_counter_ns()
    while check.number < count:
        take(check)
    if check.number > count:
        raise WrongMessageError(f"{check.number} messages came instead of {count}")
    return Taken(time.perf_counter_ns(), first_ns, first)


class Check:
    """Checks batches to the last byte, in whatever form they come; ``number`` is the next message's."""

    def __init__(self, size: int) -> None:
        self.size, self.number = size, 0

    def payloads(self, some: Sequence[bytes]) -> int:
        """Buffers, one per message; returns how many."""
        if set(map(len, some)) - {self.size}:
            raise WrongMessageError(f"a message from number {self.number} on has another length than {self.size}")
        return self.octets(b"".join(some))

    def octets(self, some: bytes) -> int:
        """Messages back to back; returns how many."""
        count = len(some) // self.size
        self._judge(_bad_rows(np.frombuffer(some, np.uint8), self.size, self.number), count)
        return count

    def frames(self, frames: NDArray[np.void], memory: NDArray[np.uint8], release: Callable[[], object]) -> int:
        """Messages in place: records with ``offset`` into ``memory`` and ``length``. They count when
        ``release`` has said so.

        A numpy view and its release instead of a copy: holdfast's batch. Raises what ``release`` raises; then
        nothing counts.
        """
        bad = _bad_frames(frames, memory, self.size, self.number)
        release()
        self._judge(bad, len(frames))
        return len(frames)

    def _judge(self, bad: int, count: int) -> None:
        if bad:
            raise WrongMessageError(f"{bad} of {count} messages from number {self.number} on are others")
        self.number += count


@numba.njit(nogil=True, cache=True)
def _is_bad(memory: NDArray[np.uint8], at: int, size: int, number: int) -> bool:
    """Whether the ``size`` bytes at ``at`` are another message than that one.

    Indexes are unsigned, and bytes 8 bits wide all along: only then the compiler makes one load of the number
    and vectors of the rest, and the check costs less than what is measured.
    """
    begin, eight = np.uint64(at), np.uint64(8)
    found = np.uint64(0)
    for j in range(eight):
        found |= np.uint64(memory[begin + j]) << (eight * j)
    if found != np.uint64(number):
        return True
    damage = np.uint8(0)
    for j in range(begin + eight, begin + np.uint64(size)):
        damage = np.uint8(damage | np.uint8(memory[j] ^ np.uint8(FILL)))
    return bool(damage != 0)


@numba.njit(nogil=True, cache=True)
def _bad_rows(memory: NDArray[np.uint8], size: int, number: int) -> int:
    """How many of the messages back to back are others; a rest that is no whole message counts as one."""
    count = len(memory) // size
    bad = 1 if len(memory) != count * size else 0
    for i in range(count):
        bad += _is_bad(memory, i * size, size, number + i)
    return bad


@numba.njit(nogil=True, cache=True)
def _bad_frames(frames: NDArray[np.void], memory: NDArray[np.uint8], size: int, number: int) -> int:
    """As _bad_rows, for records with offset and length."""
    bad = 0
    for i in range(len(frames)):
        bad += frames[i].length != size or _is_bad(memory, int(frames[i].offset), size, number + i)
    return bad
