"""A pipe: lengths and payloads through the kernel."""

from __future__ import annotations

import fcntl
import os
import struct
from typing import TYPE_CHECKING

from ..peer import Peer, Receiver, Sender

if TYPE_CHECKING:
    from ..peer import Place

ROOMY = 1 << 20
"""Bytes under way, the most that the system allows a user; the default is 64 KiB."""
LENGTH = struct.Struct("<I")


class Pipe(Peer):
    """One named pipe per receiver, as any two processes may have it."""

    name = "pipe"

    def start(self, place: Place) -> None:
        super().start(place)
        self.paths = [str(place.folder / f"pipe-{index}") for index in range(place.receivers)]
        for path in self.paths:
            os.mkfifo(path)

    def sender(self) -> Sender:
        files = [open(path, "wb", buffering=0) for path in self.paths]  # noqa: SIM115

        def send(payload: bytes) -> None:
            for file in files:
                rest = memoryview(LENGTH.pack(len(payload)) + payload)
                while rest:
                    rest = rest[file.write(rest) :]

        def close() -> None:
            for file in files:
                file.close()

        return Sender(send, close=close)

    def receiver(self, index: int) -> Receiver:
        file = os.fdopen(os.open(self.paths[index], os.O_RDWR), "rb")  # read and write: opening does not wait
        if self.place.roomy:
            fcntl.fcntl(file, fcntl.F_SETPIPE_SZ, ROOMY)
        read = file.read

        def receive() -> bytes:
            return read(LENGTH.unpack(read(4))[0])

        return Receiver(receive, close=file.close)
