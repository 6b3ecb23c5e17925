"""How fast does a store append, and what do stores cost the source?

append:  [256 KiB block of frames] -> CRC-32C, append, publish | group commit per 8 MiB -> segments
         beside it: bare copy + CRC-32C into a mapping | bare overwrite + fdatasync per 8 MiB of the same disk
paced:   source, 500 k msg/s -> [stream] -> 1 | 3 store processes
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .cli import Script, run_one

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .harness import Bench, Series

SIZES = {128: "128 B", 700: "700 B", 4096: "4 KiB"}
MEMORY = {
    case: title
    for size, name in SIZES.items()
    for case, title in (
        (f"mapped:{size}", f"bare mapped copy + CRC-32C, {name}"),
        (f"append:memory:{size}:recycled", f"append, memory, recycled segments, {name}"),
        (f"append:memory:{size}:fresh", f"append, memory, fresh segments, {name}"),
    )
}
DISK = {
    "overwrite": "bare overwrite + fdatasync per 8 MiB",
    **{
        f"append:disk:{size}:{kind}": f"append, disk, {kind} segments, {name} (log bytes)"
        for size, name in SIZES.items()
        for kind in ("recycled", "fresh")
    },
}
PACED = {"paced:1": "source's CPU per message, 1 store", "paced:3": "source's CPU per message, 3 stores"}


def measure(bench: Bench) -> Iterator[Series]:
    """Three groups, each interleaved within itself."""
    for group in (MEMORY, DISK, PACED):
        yield from bench.cases(group)


SCRIPT = Script("store", "How fast does a store append, and what do stores cost the source?", measure)

if __name__ == "__main__":
    run_one(SCRIPT)
