"""Where one message lands: a recycled buffer and the entry that describes it. A message of the public API is
a slot, and a pool keeps them."""

from __future__ import annotations

from ..native.core import Awaited, Block, CData, Flow, Gate, Pool, ffi
from ..native.core import Slot as Cells

__all__ = ["Awaited", "Flow", "Pool", "Slot"]

SMALL = 8192
"""Bytes of a new slot's buffer: messages below it are always copied (docs/design.md 26)."""


class Slot(Cells):
    """``entry`` (struct hf_entry) and ``memory`` (uint8_t[capacity]) are what the C core fills.

    ``block`` owns the memory and counts the views of it that are out. See csrc/python/slot.h for the other
    fields.
    """

    __slots__ = ("entry", "memory")

    def __init__(self, receiver: Gate) -> None:
        super().__init__()
        self.entry: CData = ffi.cast("struct hf_entry *", self.entry_address)
        self.allocate(SMALL)

    def allocate(self, capacity: int) -> None:
        """A new buffer; the old one lives as long as somebody looks at it."""
        self.block = Block(capacity)
        self.memory: CData = ffi.cast("uint8_t *", self.block.address)

    def grow(self) -> None:
        """A buffer for a message as long as ``entry`` says: the next power of two, so that a pool settles."""
        self.allocate(max(SMALL, 1 << (self.length - 1).bit_length()))
