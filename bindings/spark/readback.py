"""What a commit that died has published is read back before it counts.

The number at which its source goes on says how many rows are out (ledger.py). It does not say

* that a quorum of stores has them: whoever sent them is dead, and the source that goes on waits for the
  stability of what it sends itself (docs/semantics.md C). Where one store alone has them they may go with it,
  and the record would say that they are there;
* that they are these rows: who publishes with the writer's session ID, as a copy of its checkpoint does,
  moves the number, too.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from ..engine.errors import CorruptionError, StabilityTimeout
from ..engine.log.column_reader import Gap, Records
from .decode import payloads_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..engine.log.catalog import TopicSource

__all__ = ["read_back"]

LOOK_SECONDS = 0.02


def read_back(
    kept: Callable[[], TopicSource | None], first: int, stop: int, rows: Iterator[Any], timeout: float
) -> None:
    """Returns when a quorum of stores has the numbers ``first`` .. ``stop - 1`` of a source, and they are
    ``rows``.

    What retention has taken meanwhile was there, and nothing behind it is compared.

    Args:
        kept: what the stores keep of the source, as of now; None if they keep numbers and no messages:
            nothing is compared then.
        rows: pyarrow binary arrays: the payloads from ``first`` on, and maybe more.
        timeout: seconds that the stores are waited for, while they read from each other what they lack.

    Raises:
        StabilityTimeout: no quorum has them in time.
        CorruptionError: other messages, or numbers that no store has.
    """
    source = _stable(kept, stop, timeout)
    if source is None:
        return
    records = Records(source.logs, first, stop)
    try:
        row = next(rows)
        while (found := records.read()) is not None:
            if isinstance(found, Gap):
                if found.why == "expired":
                    return
                raise _other(source, f"numbers {found.first}..{found.next - 1} are {found.why}")
            values, done = payloads_of(found), 0
            while done < len(values):
                if not len(row):
                    row = next(rows)
                count = min(len(row), len(values) - done)
                if (same := pc.equal(values.slice(done, count), row.slice(0, count))).true_count < count:
                    number = int(found.first_sequence_number[done + pc.index(same, False).as_py()])
                    raise _other(
                        source, f"from number {number} on there are other messages than the rows that were staged"
                    )
                done, row = done + count, row.slice(count)
    finally:
        records.close()


def _stable(kept: Callable[[], TopicSource | None], stop: int, timeout: float) -> TopicSource | None:
    deadline = time.monotonic() + timeout
    while (source := kept()) is not None and source.quorum_next < stop:
        if time.monotonic() >= deadline:
            raise StabilityTimeout(stop - 1, source.quorum_next - 1)
        time.sleep(LOOK_SECONDS)
    return source


def _other(source: TopicSource, what: str) -> CorruptionError:
    return CorruptionError(
        f"topic {source.topic!r}, source {source.key}, which a commit published from before it died: {what}",
        hint="another program has published with its session ID, as a copy of the checkpoint would, or the stores are damaged",
    )
