"""Where one message lands: a recycled buffer and the entry that describes it. A message of the public API is a slot."""

from __future__ import annotations

import sys

from .core import CData, ffi

__all__ = ["FIRST", "LAST", "LENGTH", "LENGTH_MASK", "Slot"]

LAST = ffi.offsetof("struct hf_entry", "sequence_number") // 8
FIRST = ffi.offsetof("struct hf_entry", "first_sequence_number") // 8
LENGTH = ffi.offsetof("struct hf_entry", "length") // 8
"""Indexes into a slot's ``words``; the length is what LENGTH_MASK leaves of its word."""
LENGTH_MASK = 2 ** (8 * ffi.sizeof("uint32_t")) - 1
SMALL = 8192
"""Bytes of a new slot's buffer: messages below it are always copied (DESIGN 26)."""


class Slot:
    """``entry`` (struct hf_entry) and ``memory`` (uint8_t[capacity]) are what the C core fills.

    ``base`` exposes the memory to Python. Every view of it, and every view of a view, holds a reference to it: a reference
    count above ``resting`` means that the program still looks at the memory.
    """

    __slots__ = ("base", "capacity", "entry", "memory", "resting", "words")

    def __init__(self, capacity: int = SMALL) -> None:
        self.entry: CData = ffi.new("struct hf_entry *")
        self.words = memoryview(ffi.buffer(self.entry)).cast("Q")
        """The entry again, as 64-bit words: reading one costs half of a field's price."""
        self.allocate(capacity)

    def allocate(self, capacity: int) -> None:
        """A new buffer; the old one lives as long as somebody looks at it."""
        self.capacity = capacity
        self.memory: CData = ffi.new("uint8_t[]", capacity)
        self.base = ffi.buffer(self.memory, capacity)
        self.resting = sys.getrefcount(self.base)
