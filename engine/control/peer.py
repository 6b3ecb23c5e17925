"""Who is at the other end of a control socket."""

from __future__ import annotations

import struct

from ..errors import ForeignOwnerError
from ..native.runtime import os, socket

__all__ = ["check_peer"]


def check_peer(sock: socket.socket) -> int:
    """The pid of the process at the other end. Raises ForeignOwnerError unless it runs as us or as root."""
    size = struct.calcsize("3i")
    pid, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    if uid not in {os.geteuid(), 0}:
        raise ForeignOwnerError(f"a process of uid {uid} (pid {pid}) is at the other end of a control socket")
    return int(pid)
