"""A source of three stores that lets them choose its RegIDs, writes these into a file, and resumes after a
crash.

UM's ume-example-src-3 does this with one store. It learns the next number from an event, and what was in
flight when it died it would have to send again. Here next_sequence_number counts everything that the dead one
had published: nothing is sent twice and nothing is left out. (A session ID does the same without a file.) The
file is removed when all 20 messages are stable.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import holdfast as hf

from .common import MESSAGES, TOPIC, program
from .options import minimal

if TYPE_CHECKING:
    from collections.abc import Sequence

FILE = "UME-example-src-RegID"


class Saved:
    """RegIDs by store, in a file of lines ``store:regid``, the form of ume_store_name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text().split() if path.exists() else []
        self.ids = {store: int(number) for store, number in (entry.split(":") for entry in lines)}

    def keep(self, ids: dict[str, int]) -> None:
        """Replaces the file if one of ``ids`` is news: a store may also come late."""
        if not ids.items() <= self.ids.items():
            self.ids |= ids
            fresh = self.path.with_suffix(".new")
            fresh.write_text("".join(f"{store}:{number}\n" for store, number in self.ids.items()))
            os.replace(fresh, self.path)
            print(f"saved RegIDs {self.ids} in {self.path}")


@program
def main(argv: Sequence[str] | None = None) -> int:
    """Sends, and returns the exit code."""
    parser = minimal(__doc__, ("a", "b", "c"))
    parser.add_argument("--file", type=Path, default=Path(FILE), help=f"where the RegIDs are kept ({FILE})")
    given = parser.parse_args(argv)
    saved = Saved(given.file)
    stores = [f"{name}:{saved.ids.get(name, 0)}" for name in given.store]
    with hf.Context() as ctx, ctx.source(TOPIC, options={"ume_store_name": stores}) as src:
        src.wait_registered(given.timeout)
        first = src.next_sequence_number + 1
        print(f"will start with message number {first}")
        for number in range(first, MESSAGES + 1):
            saved.keep(src.registration_ids)
            src.send(f"UME Message {number:02}".encode())
            time.sleep(given.interval)
        src.wait_stable()
    given.file.unlink(missing_ok=True)
    print(f"removed {given.file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
