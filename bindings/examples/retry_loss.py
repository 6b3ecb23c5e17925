"""A receiver that does not accept a loss: it deletes and re-creates itself, and the stores are asked again.

The UM guide names this way out and ships no program for it: what is lost for one receiver may be had by the
next, for instance when a store has come back in the meantime. It takes a session ID, by which the new
receiver is the old one, and explicit acknowledgements, because a batched one passes a loss. Nothing behind
the gap is processed before it is closed, so nothing comes twice. After --retries the loss is accepted.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import holdfast as hf

from .common import program, say
from .options import Parser, natural, seconds
from .printing import receiver_line

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from holdfast import events


class Progress:
    """The next number of each source, which is all that a loss can be seen by."""

    def __init__(self) -> None:
        self.next: dict[str, int] = {}

    def start(self, info: events.RecoverySequenceNumberInfo) -> None:
        """ume_recovery_sequence_number_info_function: where the stores let this receiver begin."""
        self.next[info.source] = info.low_sequence_number

    def missing_before(self, msg: hf.Message) -> int:
        """Numbers between the last message of its source and ``msg``."""
        return msg.first_sequence_number - self.next[msg.source]

    def done(self, msg: hf.Message) -> None:
        """It was processed."""
        self.next[msg.source] = msg.sequence_number + 1
        msg.send_explicit_ack()


def receive(ctx: hf.Context, given: Namespace, left: int, patience: int) -> int:
    """One life of the receiver: up to ``left`` messages. Returns how many; less means that something is
    missing."""
    progress = Progress()
    options = {
        "ume_session_id": given.session_id,
        "ume_explicit_ack_only": 1,
        "ume_recovery_sequence_number_info_function": progress.start,
        **dict(given.option),
    }

    def tell(event: events.ReceiverEvent) -> None:
        say(receiver_line(event))

    count = 0
    with ctx.receiver(given.topic, options=options, on_event=tell) as rcv:
        for msg in rcv:
            missing = progress.missing_before(msg)
            if missing and patience:
                say(f"{missing} missing before {msg.sequence_number}: again, with a new receiver")
                return count
            say(f"{msg.sequence_number}: {bytes(msg).decode(errors='replace')}")
            progress.done(msg)
            count += 1
            if count == left:
                break
    return count


@program
def main(argv: Sequence[str] | None = None) -> int:
    """Receives, and returns the exit code."""
    parser = Parser(__doc__)
    add = parser.add_argument
    add("topic")
    add("--session-id", type=natural, default=1, metavar="N", help="who this receiver is (1)")
    add("--messages", type=natural, default=20, metavar="N", help="how many to receive (20)")
    add("--retries", type=natural, default=5, metavar="N", help="before a loss is accepted (5)")
    add("--interval", type=seconds, default=1.0, metavar="S", help="before each retry (1)")
    parser.add_options()
    given = parser.parse_args(argv)
    left, patience = given.messages, given.retries
    with hf.Context() as ctx:
        while left:
            left -= receive(ctx, given, left, patience)
            if left:
                patience -= 1
                time.sleep(given.interval)
    return 0


if __name__ == "__main__":
    sys.exit(main())
