"""A consumer in Numba: checks that the numbers of a batch follow each other and adds up the lengths."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numba
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    import holdfast as hf


@numba.njit(nogil=True)
def consume(frames: NDArray[np.void], state: NDArray[np.uint64]) -> None:
    """``frames``: (n,) records of a batch. ``state``: (3,) uint64: next number, out of order, payload bytes."""
    expected = state[0]
    for i in range(frames.shape[0]):
        number = frames[i].sequence_number
        if number != expected:
            state[1] += np.uint64(1)
        expected = number + np.uint64(1)
        state[2] += np.uint64(frames[i].length)
    state[0] = expected


class Consumer:
    """One stream's consumer. ``first``: the number that the first message must have."""

    def __init__(self, first: int = 0) -> None:
        self._state = np.array([first, 0, 0], dtype=np.uint64)

    def take(self, batch: hf.Batch) -> int:
        """Check one batch; returns its messages. The first call compiles the kernel."""
        frames: Any = batch.frames
        consume(frames, self._state)
        return math.prod(frames.shape)

    def finish(self) -> int:
        """Messages out of order since the last call."""
        bad = int(self._state[1])
        self._state[1] = 0
        return bad
