"""A consumer in Numba: every message's number, and the number in its first eight bytes, must follow the one
before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numba
import numpy as np

import holdfast as hf

if TYPE_CHECKING:
    from numpy.typing import NDArray


@numba.njit(nogil=True)
def consume(frames: NDArray[np.void], words: NDArray[np.uint64], state: NDArray[np.uint64]) -> None:
    """Check one batch in place.

    ``frames``: (n,) records of a batch. ``words``: (m,) its memory as uint64; offsets are multiples of 8
    bytes. ``state``: (3,) next sequence number, next number in a payload, and how many were another one.
    """
    number, carried, bad = state[0], state[1], state[2]
    for i in range(frames.shape[0]):
        if frames[i].sequence_number != number or words[frames[i].offset >> np.uint64(3)] != carried:
            bad += np.uint64(1)
        number += np.uint64(1)
        carried += np.uint64(1)
    state[0], state[1], state[2] = number, carried, bad


class Consumer:
    """One stream's consumer; the stream's numbers and those in the payloads start at 0."""

    def __init__(self) -> None:
        self._state = np.zeros(3, dtype=np.uint64)

    def take(self, batch: hf.Batch) -> int:
        """Check one batch and release it; returns how many messages that consumed. The first call compiles
        the kernel.

        What was seen counts only when release() has said that nobody wrote there meanwhile; else the range
        comes again.
        """
        memory, state, count = batch.memory, self._state.copy(), len(batch)
        consume(batch.frames, memory[: len(memory) // 8 * 8].view(np.uint64), state)
        try:
            batch.release()
        except hf.EvictedError:
            return 0
        self._state = state
        return count

    def finish(self) -> int:
        """Messages out of order since the last call."""
        bad = int(self._state[2])
        self._state[2] = 0
        return bad


def numbered_rows(count: int, width: int) -> NDArray[np.uint64]:
    """(count, width / 8) uint64 whose first column will carry the numbers; ``.view(np.uint8)`` is what is
    sent."""
    return np.zeros((count, width // 8), dtype=np.uint64)
