"""The demo's verdict must be able to be a bad one."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

from holdfast.cli.demo_proof import digests_of, prove
from holdfast.cli.demo_worker import RECORD

if TYPE_CHECKING:
    from pathlib import Path

RECORDS = [b"record %d" % i for i in range(6)]
MS = 1_000_000


def written(path: Path, numbers: list[int], changed: int = -1, flags: bytes = b"") -> Path:
    """A receiver's file: one row per number, a millisecond apart, each processed 2 ms after it was
    published."""
    rows = []
    for row, number in enumerate(numbers):
        digest = hashlib.sha256(RECORDS[number] if number < 6 and row != changed else b"else").digest()
        rows.append(RECORD.pack(number, row * MS, (row + 2) * MS, flags, digest))
    path.write_bytes(b"".join(rows))
    return path


@pytest.mark.parametrize(
    ("numbers", "changed", "good", "delivered", "redelivered", "lost", "wrong", "in_order"),
    [
        ([0, 1, 2, 3, 4, 5], -1, True, 6, 0, 0, 0, True),
        ([0, 1, 2, 1, 2, 3, 4, 5], -1, True, 6, 2, 0, 0, True),
        ([0, 1, 2, 4, 5], -1, False, 5, 0, 1, 0, False),
        ([0, 1, 2, 3, 4], -1, False, 5, 0, 1, 0, False),
        ([0, 1, 3, 2, 4, 5], -1, False, 6, 1, 0, 0, False),
        ([0, 1, 2, 3, 4, 5], 3, False, 6, 0, 0, 1, True),
        ([0, 1, 2, 1, 2, 3, 4, 5], 3, False, 6, 2, 0, 1, True),
        ([0, 1, 2, 3, 4, 5, 6], -1, False, 6, 0, 0, 1, False),
        ([], -1, False, 0, 0, 6, 0, False),
    ],
)
def test_a_receivers_file_is_judged_record_by_record(
    tmp_path: Path, numbers: list[int], changed: int, good: bool, delivered: int, redelivered: int, lost: int,
    wrong: int, in_order: bool,
) -> None:  # fmt: skip
    proof = prove(written(tmp_path / "seen", numbers, changed), digests_of(RECORDS))
    assert (proof.delivered, proof.redelivered, proof.lost, proof.wrong) == (delivered, redelivered, lost, wrong)
    assert (proof.in_order, proof.good) == (in_order, good)


def test_rate_and_latency_are_measured_on_what_came_live(tmp_path: Path) -> None:
    proof = prove(written(tmp_path / "live", list(range(6))), digests_of(RECORDS))
    assert (proof.p50_us, proof.p99_us, proof.recovered) == (2000.0, 2000.0, 0)
    assert proof.rate == pytest.approx(6 / 0.005)
    assert prove(written(tmp_path / "old", list(range(6)), flags=b"R"), digests_of(RECORDS)).recovered == 6
