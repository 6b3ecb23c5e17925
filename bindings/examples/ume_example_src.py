"""The smallest persistent source: 20 messages, one a second.

UM's ume-example-src fills an attribute structure, allocates a topic, and sleeps three seconds in the hope
that the source is registered by then; a send that comes too early fails. Here the store is an option,
wait_registered() says when, and the end of the `with` closes everything. Each run is a new source, because
RegID 0 and no session ID ask for one: the next programs keep theirs.
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


@program
def main(argv: Sequence[str] | None = None) -> int:
    """Sends, and returns the exit code."""
    given = minimal(__doc__).parse_args(argv)
    with hf.Context() as ctx, ctx.source(TOPIC, options={"ume_store_name": given.store}) as src:
        src.wait_registered(given.timeout)
        for number in range(1, MESSAGES + 1):
            src.send(f"UME Message {number:02}".encode())
            time.sleep(given.interval)
        src.wait_stable()
    return 0


if __name__ == "__main__":
    sys.exit(main())
