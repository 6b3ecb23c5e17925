"""By what the register of sources and the censuses know a source: its topic with its session ID, or with each
of its RegIDs. What stands on disk by that is a digest, which no other version may make otherwise."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Given", "digest_of", "given", "given_by"]

Given = tuple[int, int]
"""A session ID and 0, or 0 and a RegID."""


def given(session: int, registration_id: int) -> Given:
    """What a source is known by at a store."""
    return (session, 0) if session else (0, registration_id)


def given_by(session: int, registration_ids: Iterable[int]) -> list[Given]:
    """All that a source gives that comes with these; nothing: nobody can come back as it."""
    if session:
        return [given(session, 0)]
    return [given(0, number) for number in dict.fromkeys(registration_ids) if number]


def digest_of(*parts: str | int) -> str:
    """32 characters, the same ones in every version."""
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()
