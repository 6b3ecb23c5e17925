"""One finding of `doctor`."""

from __future__ import annotations

import msgspec

__all__ = ["Finding"]


class Finding(msgspec.Struct, frozen=True):
    """What one look has shown."""

    check: str
    """``shm``, ``limits``, ``removeipc``, ``membarrier``, ``version``, ``directory``, ``others``, ``store``,
    ``turn``, ``nameless``, ``receiver``, ``stale`` or ``orphans``."""
    ok: bool
    found: str
    remedy: str = ""
    """What to do about it, when it is not ok."""
