"""HDR-style histograms of nanoseconds: exact to 1/128, mergeable, small in JSON; perf/c has the same
buckets."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

SUB_BITS = 7
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "max": 1.0}


def histogram(nanoseconds: NDArray[np.int64]) -> Counter[int]:
    """Counts of an int64 array of any shape, in ns; negative values count as 0."""
    values = np.maximum(nanoseconds.ravel(), 0).astype(np.uint64)
    exponent = np.frexp(np.maximum(values, 1).astype(np.float64))[1] - 1
    shift = np.maximum(exponent - SUB_BITS, 0).astype(np.uint64)
    low, count = np.unique(values >> shift << shift, return_counts=True)
    return Counter(dict(zip(low.tolist(), count.tolist(), strict=True)))


def merged(histograms: Iterable[Counter[int]]) -> Counter[int]:
    """The sum of several."""
    total: Counter[int] = Counter()
    for counts in histograms:
        total.update(counts)
    return total


def quantiles(counts: Counter[int]) -> dict[str, int]:
    """p50, p90, p99, p99.9 and max in ns (lower bucket edges); empty for no values."""
    edges = sorted(counts)
    if not edges:
        return {}
    return {name: at_quantile(counts, q) for name, q in QUANTILES.items()}


def at_quantile(counts: Counter[int], q: float) -> int:
    """The value below which the share ``q`` lies, ns (lower bucket edge); 0 for no values."""
    edges = sorted(counts)
    if not edges:
        return 0
    below = np.cumsum([counts[edge] for edge in edges])
    return edges[min(int(np.searchsorted(below, q * int(below[-1]), side="right")), len(edges) - 1)]
