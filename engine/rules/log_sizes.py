"""How large the files of a log are, and what it takes on disk when it is full. Pure."""

from __future__ import annotations

__all__ = ["COMMIT_BYTES", "RELEASED_MIN", "SEGMENTS", "SEGMENT_MAX", "SEGMENT_MIN", "most_bytes", "segment_bytes"]

SEGMENT_MIN, SEGMENT_MAX = 1 << 15, 64 << 20
"""Bytes of a segment file."""
SEGMENTS = 8
"""What a log keeps goes by whole segments, and the one that is written counts in full: so each is an eighth
of it at most, or a log that has just begun one would keep nothing else."""
RELEASED_MIN = 1 << 20
"""Of a receiver-paced source: the largest block fits into it."""
COMMIT_BYTES = 16 << 20
"""A group commit is not delayed beyond this much appended data: no file of it goes before."""


def segment_bytes(kept: int) -> int:
    """Of the largest file of a log that keeps so much; 0: everything."""
    return max(SEGMENT_MIN, min(kept // SEGMENTS, SEGMENT_MAX)) if kept else SEGMENT_MAX


def most_bytes(limit: int, *, paced: bool) -> int:
    """Bytes of files of one log that keeps ``limit``: one file more, made ahead, an eighth of the limit; of a
    receiver-paced source also the first and the last one, which are full only in part; and what one sync
    brings."""
    one = min(limit // SEGMENTS, SEGMENT_MAX)
    return limit + COMMIT_BYTES + (3 * max(one, RELEASED_MIN) if paced else one)
