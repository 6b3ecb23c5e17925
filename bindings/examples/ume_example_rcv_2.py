"""A receiver with a RegID of its own choice, 1100: started again, it goes on behind what it has acknowledged.

UM's ume-example-rcv-2 sets the same callback through a structure of function and client data; here it is a
function of one argument. It belongs to ume_example_src_2, whose RegID is 1000: sources and receivers draw
from one space of numbers.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import holdfast as hf

from .common import TOPIC, program, say, until_the_last
from .options import Parser

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast import events

REGISTRATION_ID = 1100


def choose(info: events.RegistrationInfo) -> int:
    """The RegID to ask this store for."""
    say(f"UME store {info.store_index}: {info.store} [{info.src_registration_id}] requesting RegID {REGISTRATION_ID}")
    return REGISTRATION_ID


@program
def main(argv: Sequence[str] | None = None) -> int:
    """Receives, and returns the exit code."""
    Parser(__doc__).parse_args(argv)
    with hf.Context() as ctx, ctx.receiver(TOPIC, options={"ume_registration_extended_function": choose}) as rcv:
        for msg in until_the_last(rcv):
            say(f"Received {len(msg)} bytes (sequence number {msg.sequence_number}) {bytes(msg).decode()!r}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
