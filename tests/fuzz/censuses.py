"""The census of a store: bytes that somebody else wrote, and what reads them (engine/log/census.py).

What is taken for a census must be one by another reading, and a key is in it where one begins and nowhere
else.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from holdfast.engine.errors import CorruptionError
from holdfast.engine.log.census import Census, add, carried_over, doubt, key_of, read

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

__all__ = ["WORDS", "a_key_may_begin_anywhere", "run_census", "seeds_census"]

_files = tempfile.TemporaryDirectory(prefix="hf-fuzz-")
PATH = Path(_files.name) / "a.census"
BOOT, LIFE = b"b" * 16, b"l" * 16
KEYS = [key_of("orders", session, 0) for session in range(1, 5)]
WORDS = (b"HFCENSUS", b"\1\0\0\0", b"\0\0\0\0", BOOT, LIFE, *KEYS)
HEAD, LOOKS = 48, 100
NEW = key_of("orders", 9, 0)


def run_census(data: bytes) -> None:
    """Raises nothing but CorruptionError."""
    PATH.unlink(missing_ok=True)
    PATH.touch(0o600)
    PATH.write_bytes(data)
    try:
        census = read(PATH)
    except CorruptionError:
        assert data[:12] != b"HFCENSUS\1\0\0\0" or len(data) < HEAD or data[12:16] not in {b"\0" * 4, b"\1\0\0\0"}
        return
    assert (data[:8], data[8:12]) == (b"HFCENSUS", b"\1\0\0\0")
    keys = [data[at : at + 16] for at in range(HEAD, len(data) - 15, 16)]
    assert census == (data[16:32], data[32:48], data[12] == 1, b"".join(keys))
    assert census.each() == {*keys}
    for at in range(HEAD, min(len(data) - 15, HEAD + LOOKS)):
        assert census.lists(data[at : at + 16]) == (data[at : at + 16] in keys), "a key begins where none does"
    said = doubt(census, LIFE, {NEW}, BOOT)
    assert bool(said) == ((census.boot, census.life, census.whole) != (BOOT, LIFE, True) or NEW in keys)
    carried, whole = carried_over(census, BOOT, life=LIFE, same=False)
    assert carried == ({*keys} if census.boot == BOOT else set())
    assert whole == (census.whole if census.boot == BOOT else census.life == LIFE)
    if not (len(data) - HEAD) % 16:
        add(PATH, NEW)
        assert read(PATH).lists(NEW)


def seeds_census() -> list[bytes]:
    """Whole ones, one of a later version, of another boot, one that is not whole, and one with a torn end."""
    header = b"HFCENSUS\1\0\0\0%b" + BOOT + LIFE
    whole = header % b"\1\0\0\0" + b"".join(KEYS)
    return [
        header % b"\1\0\0\0", whole, whole[:-7], header % b"\0\0\0\0" + KEYS[0],
        whole.replace(b"HFCENSUS\1", b"HFCENSUS\2"), whole.replace(BOOT, LIFE),
    ]  # fmt: skip


def a_key_may_begin_anywhere() -> AbstractContextManager[Any]:
    """As if keys did not stand one after another."""
    return mock.patch.object(Census, "lists", lambda census, key: key in census.keys)
