"""A plain file: payloads of one known size back to back, and fdatasync. No product: no lengths, no checksums,
no index."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..peer import Peer, Receiver, Sender

if TYPE_CHECKING:
    from ..data import Check, Messages
    from ..peer import Place


class PlainFile(Peer):
    """One write per commit; the reader polls for its growth."""

    name = "plain file"
    bare = True

    def start(self, place: Place) -> None:
        super().start(place)
        self.path = place.folder / "file"
        self.path.touch()

    def sender(self) -> Sender:
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        sync = self.place.level == "disk"

        def commit(octets: bytes) -> None:
            os.write(file, octets)
            if sync:
                os.fdatasync(file)

        def send_many(messages: Messages) -> None:
            commit(b"".join(messages.payloads))

        return Sender(commit, send_many, close=lambda: os.close(file))

    def receiver(self, index: int) -> Receiver:
        file = os.open(self.path, os.O_RDONLY)
        at = 0

        def take(check: Check) -> int:
            nonlocal at
            octets = os.pread(file, 1000 * check.size, at)
            whole = len(octets) // check.size * check.size
            at += whole
            return check.octets(octets[:whole])

        return Receiver(take=take, close=lambda: os.close(file))
