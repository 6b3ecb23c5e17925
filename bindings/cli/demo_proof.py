"""The demo's verdict: what each receiver wrote down, compared with the input record by record."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .demo_worker import RECORD

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Any

__all__ = ["Proof", "digests_of", "prove"]

ROW = np.dtype([("number", "<u8"), ("published", "<i8"), ("processed", "<i8"), ("flags", "<u8"), ("digest", "u1", 32)])
assert ROW.itemsize == RECORD.size


@dataclass(frozen=True, slots=True)
class Proof:
    """What one receiver processed."""

    delivered: int
    """Distinct records."""
    redelivered: int
    """Processed again after a kill."""
    lost: int
    wrong: int
    """Records whose SHA-256 is not the input's, first time or again."""
    in_order: bool
    """New ones came in the order of the input."""
    recovered: int
    """Delivered with the retransmit flag: published while it was away."""
    rate: float
    """Records per second from the first to the last."""
    p50_us: float
    """Published to processed, of those that came live."""
    p99_us: float

    @property
    def good(self) -> bool:
        """Nothing lost, nothing changed, nothing out of order."""
        return not self.lost and not self.wrong and self.in_order


def digests_of(records: Sequence[bytes]) -> Any:
    """SHA-256 of every record: (n, 32) uint8."""
    joined = b"".join(hashlib.sha256(record).digest() for record in records)
    return np.frombuffer(joined, np.uint8).reshape(-1, 32)


def prove(path: Path, digests: Any) -> Proof:
    """Reads a receiver's file. ``digests``: of the input, (n, 32) uint8."""
    rows = np.fromfile(path, ROW)
    numbers = rows["number"].astype(np.int64)
    known = (numbers >= 0) & (numbers < len(digests))
    highest = np.concatenate([[-1], np.maximum.accumulate(numbers)[:-1]]) if len(numbers) else numbers
    fresh = numbers > highest
    distinct = np.unique(numbers[known])
    equal = (rows["digest"][known] == digests[numbers[known]]).all(axis=1)
    live = rows[fresh & (rows["flags"] == 0)]
    latency = (live["processed"] - live["published"]) / 1e3 if len(live) else np.array([np.nan])
    seconds = (int(rows["processed"].max()) - int(rows["processed"].min())) / 1e9 if len(rows) > 1 else 0.0
    return Proof(
        delivered=len(distinct),
        redelivered=int((~fresh).sum()),
        lost=len(digests) - len(distinct),
        wrong=int((~equal).sum() + (~known).sum()),
        in_order=bool(np.array_equal(numbers[fresh], np.arange(len(digests)))),
        recovered=int((rows["flags"][fresh] != 0).sum()),
        rate=len(rows) / seconds if seconds else 0.0,
        p50_us=float(np.percentile(latency, 50)),
        p99_us=float(np.percentile(latency, 99)),
    )
