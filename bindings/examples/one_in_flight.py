"""A source with at most one unstable message: the next send waits until the stores have the last one.

UM's check_flight_size_ewouldblock does this with ume_flight_size 1, a non-blocking send, and a comparison of
the number in flight with the limit, because LBM_EWOULDBLOCK has several causes. Here the error says why, and
a send without a timeout simply waits. Every other message is sent each way.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import holdfast as hf

from .common import MESSAGES, TOPIC, program
from .options import minimal

if TYPE_CHECKING:
    from collections.abc import Sequence

OPTIONS = {"ume_flight_size": 1, "ume_flight_size_behavior": "block"}


def send_without_waiting(src: hf.Source, text: bytes) -> int:
    """As a program would that has something else to do: here it waits for stability, the only thing in the
    way."""
    while True:
        try:
            return src.send(text, timeout=0)
        except hf.WouldBlockError as error:
            print(f"not sent ({error.reason})")
            src.wait_stable()


@program
def main(argv: Sequence[str] | None = None) -> int:
    """Sends, and returns the exit code."""
    given = minimal(__doc__).parse_args(argv)
    with hf.Context() as ctx, ctx.source(TOPIC, options={"ume_store_name": given.store, **OPTIONS}) as src:
        src.wait_registered(given.timeout)
        for number in range(1, MESSAGES + 1):
            text = f"UME Message {number:02}".encode()
            sent = send_without_waiting(src, text) if number % 2 else src.send(text)
            print(f"sent {sent}, in flight {src.in_flight.messages}, stable {src.stable_sequence_number}")
        src.wait_stable()
        stats = src.stats()
        print(f"sends waited {stats.blocked_ns / 1e6:.1f} ms for {stats.messages} messages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
