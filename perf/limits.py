"""What can this machine do at best, without holdfast?

core 0 <--line--> core 1      core 0 -> slots -> core 1      process -> disk      Python -> empty C function
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .cli import Script, run_one
from .empty_call import empty_call

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .harness import Bench, Series

CASES = {
    "line": "bare cache-line round trip",
    "clock": "one clock_gettime",
    "memcpy:16384": "memcpy, 16 KiB",
    "memcpy:524288": "memcpy, 512 KiB",
    "memcpy:268435456": "memcpy, 256 MiB",
    "ring:16": "bare ring, 16 B",
    "ring:128": "bare ring, 128 B",
    "ring:1024": "bare ring, 1 KiB",
    "ring:65536": "bare ring, 64 KiB",
    "mapped:128": "mapped copy + CRC-32C, 128 B",
    "checksum:128": "CRC-32C in place, 128 B",
    "fdatasync": "4 KiB written over + fdatasync",
    "overwrite": "sequential overwrite + fdatasync per 8 MiB",
}


def measure(bench: Bench) -> Iterator[Series]:
    """C cases, then the bare calls out of Python."""
    yield from bench.cases(CASES)
    yield from bench.interleave(
        {
            "py-empty-call": ("empty cffi call, API mode, no argument", empty_call("nothing")),
            "py-empty-bytes": ("empty cffi call, API mode, bytes and length", empty_call("nothing_with_bytes")),
        }
    )


SCRIPT = Script("limits", "What can this machine do at best, without holdfast?", measure)

if __name__ == "__main__":
    run_one(SCRIPT)
