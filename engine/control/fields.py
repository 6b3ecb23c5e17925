"""What fields of messages may hold: a number or a text beyond that is refused where it is decoded."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

__all__ = ["U32", "BeginOf", "Number", "Small", "Topic", "Uuid"]

Uuid = Annotated[bytes, Meta(min_length=16, max_length=16)]
U32 = Annotated[int, Meta(ge=0, le=2**32 - 1)]
Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]
"""A sequence number or an incarnation."""
BeginOf = tuple[Number, Number]
"""(incarnation, its first number)."""
Small = Annotated[int, Meta(ge=0, le=25)]
"""A group's number or size."""
Topic = Annotated[str, Meta(max_length=255)]
