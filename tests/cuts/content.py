"""The messages of a seed: their bytes follow from the life of the source that sends them and from their
number, and say both."""

from __future__ import annotations

import hashlib
import struct

__all__ = ["FRAGMENT", "digest", "fragments", "life_of", "message"]

FRAGMENT = 4096
"""Payload bytes of a full fragment."""
_HEAD = struct.Struct("<QQ")


def message(seed: int, life: int, number: int) -> bytes:
    """The message that life ``life`` of the source sends from sequence number ``number`` on. One of 16 has
    fragments."""
    key = b"%d:%d:%d" % (seed, life, number)
    drawn = int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little")
    size = drawn // 16 % (3 * FRAGMENT if drawn % 16 == 0 else 900)
    return _HEAD.pack(life, number) + hashlib.shake_128(key).digest(size)


def fragments(data: bytes) -> int:
    """Numbers that it takes."""
    return -(-len(data) // FRAGMENT)


def digest(data: bytes | memoryview) -> str:
    """What a receiver says of what it got."""
    return hashlib.blake2b(data, digest_size=12).hexdigest()


def life_of(data: bytes | memoryview) -> int:
    """Which life of the source says to have sent it; -1 where it is too short to say."""
    return int(_HEAD.unpack_from(data)[0]) if len(data) >= _HEAD.size else -1
