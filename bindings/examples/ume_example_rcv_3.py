"""A receiver that lets the stores choose its RegIDs, writes these into a file, and resumes after a crash.

UM's ume-example-rcv-3 keeps one line `store-srcRegID-rcvRegID`, for one source at one store; here it is a
line for each. (A session ID does the same without a file or a callback.) The file is removed after the last
message.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import holdfast as hf
from holdfast import events

from .common import TOPIC, program, say, until_the_last
from .options import Parser

if TYPE_CHECKING:
    from collections.abc import Sequence

FILE = "UME-example-rcv-RegID"


class Saved:
    """RegIDs of this receiver by store and RegID of the source, in a file of lines
    ``store-srcRegID-rcvRegID``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text().split() if path.exists() else []
        entries = (line.rsplit("-", 2) for line in lines)
        self.ids = {(store, int(source)): int(own) for store, source, own in entries}

    def choose(self, info: events.RegistrationInfo) -> int:
        """The RegID that this store gave us for this source, 0 if it never has."""
        own = self.ids.get((info.store, info.src_registration_id), 0)
        say(f"UME store {info.store_index}: {info.store} [{info.src_registration_id}] requesting RegID {own}")
        return own

    def note(self, event: events.ReceiverEvent) -> None:
        """Of the receiver's events, each store's grant."""
        if isinstance(event, events.receiver.RegistrationSuccess):
            key = event.store, event.source_registration_id
            if self.ids.get(key) != event.receiver_registration_id:
                self.ids[key] = event.receiver_registration_id
                fresh = self.path.with_suffix(".new")
                fresh.write_text("".join(f"{store}-{source}-{own}\n" for (store, source), own in self.ids.items()))
                os.replace(fresh, self.path)
                say(f"saved RegIDs {event.store}-{key[1]}-{self.ids[key]} in {self.path}")


@program
def main(argv: Sequence[str] | None = None) -> int:
    """Receives, and returns the exit code."""
    parser = Parser(__doc__)
    parser.add_argument("--file", type=Path, default=Path(FILE), help=f"where the RegIDs are kept ({FILE})")
    saved = Saved(parser.parse_args(argv).file)
    options = {"ume_registration_extended_function": saved.choose}
    with hf.Context() as ctx, ctx.receiver(TOPIC, options=options, on_event=saved.note) as rcv:
        for msg in until_the_last(rcv):
            say(f"Received {len(msg)} bytes (sequence number {msg.sequence_number}) {bytes(msg).decode()!r}")
    saved.path.unlink(missing_ok=True)
    say(f"removed {saved.path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
