"""The smallest persistent receiver: prints 20 messages.

UM's ume-example-rcv looks a topic up, and counts in a callback while its main function sleeps. Here messages
are iterated over. It has neither RegID nor session ID, so each run is a new receiver, and gets everything
that the stores keep of the topic.
"""

from __future__ import annotations

import sys
from itertools import islice
from typing import TYPE_CHECKING

import holdfast as hf

from .common import MESSAGES, TOPIC, program
from .options import Parser

if TYPE_CHECKING:
    from collections.abc import Sequence


@program
def main(argv: Sequence[str] | None = None) -> int:
    """Receives, and returns the exit code."""
    Parser(__doc__).parse_args(argv)
    with hf.Context() as ctx, ctx.receiver(TOPIC) as rcv:
        for msg in islice(rcv, MESSAGES):
            with msg:  # consumed when the block ends
                print(f"Received {len(msg)} bytes (sequence number {msg.sequence_number}) {bytes(msg).decode()!r}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
