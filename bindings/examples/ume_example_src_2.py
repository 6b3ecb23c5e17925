"""A source with a RegID of its own choice, 1000: started again, it goes on where it ended.

UM's ume-example-src-2 writes the RegID into ume_store in the same way. A crashed one has to wait for the
store's activity timeout (30 s) before it is let in again; here the store sees at once that the holder is
dead. A second one beside a living first is refused with an error that names the holder's process.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import holdfast as hf

from .common import MESSAGES, TOPIC, program
from .options import minimal

if TYPE_CHECKING:
    from collections.abc import Sequence

REGISTRATION_ID = 1000


@program
def main(argv: Sequence[str] | None = None) -> int:
    """Sends, and returns the exit code."""
    given = minimal(__doc__).parse_args(argv)
    stores = [f"{name}:{REGISTRATION_ID}" for name in given.store]
    with hf.Context() as ctx, ctx.source(TOPIC, options={"ume_store_name": stores}) as src:
        src.wait_registered(given.timeout)
        print(f"registered as {src.registration_ids}, the next number is {src.next_sequence_number}")
        for number in range(1, MESSAGES + 1):
            src.send(f"UME Message {number:02}".encode())
            time.sleep(given.interval)
        src.wait_stable()
    return 0


if __name__ == "__main__":
    sys.exit(main())
