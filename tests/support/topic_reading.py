"""What hf.read gives, as the tests of it look at it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import holdfast as hf

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["numbers", "payloads", "until_error"]


def payloads(batches: Iterator[hf.Batch]) -> list[bytes]:
    return [bytes(batch.payload(i)) for batch in batches for i in range(len(batch))]


def numbers(batches: Iterator[hf.Batch]) -> list[int]:
    return [int(number) for batch in batches for number in batch.frames["sequence_number"]]


def until_error(batches: Iterator[hf.Batch]) -> tuple[list[int], hf.Error]:
    """What comes before it, and the error."""
    found: list[int] = []
    with pytest.raises(hf.Error) as raised:
        found.extend(int(number) for batch in batches for number in batch.frames["sequence_number"])
    return found, raised.value
