"""What an earlier release has left on disk: the head of a log in layout version 1. It shares no code with the
product; csrc/README.md describes both versions."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import google_crc32c

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["HEAD_BYTES", "head_v1"]

PAGE = 4096
HEAD_BYTES = 3 * PAGE
HASH = 0x897F273F
"""Of the structs of version 1."""
WORDS = 280
"""Bytes at the front that mean the same in both versions."""
BEGINS_MAX = 64


def _tables(head: bytes) -> Iterator[tuple[int, bytes]]:
    """The tables of BEGINs that are whole: (generation, BEGINs)."""
    for at in (PAGE, 2 * PAGE):
        generation, count, _, crc = struct.unpack_from("<QQII", head, at)
        begins = head[at + 24 : at + 24 + 16 * min(count, BEGINS_MAX)]
        if google_crc32c.value(head[at : at + 16] + begins) == crc:
            yield generation, begins


def head_v1(head: bytes) -> bytes | None:
    """The same in version 1; None: it is in that version already, or not whole."""
    (version,) = struct.unpack_from("<I", head, 8)
    if version == 1 or len(head) < HEAD_BYTES:
        return None
    (told,) = struct.unpack_from("<Q", head, 272)
    generation, begins = max(_tables(head), default=(0, b""))
    if generation < max(told, 1):
        return None
    file = bytearray(PAGE)
    file[:WORDS] = head[:WORDS]
    file[8:16] = struct.pack("<II", 1, HASH)
    file[24:32] = struct.pack("<Q", PAGE)
    file[168:256] = struct.pack("<I", google_crc32c.value(begins)).ljust(88, b"\0")
    file[272:288] = struct.pack("<QQ", 2 * generation, len(begins) // 16)
    file[288 : 288 + len(begins)] = begins
    return bytes(file)
