"""The names that a source needs in shared memory, its ring's and its board's: does somebody remove them while
it lives? The context's thread.

No name can be given back to a file that has none, and another object under the same name would split those
who find it from those who have this one: so the program is told what helps (engine/memory/nameless.py).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ..events.source import RegistrationError
from ..memory import nameless
from ..native.runtime import os

if TYPE_CHECKING:
    from ..memory.domain import Domain
    from ..memory.mapping import Mapping

__all__ = ["OwnNames"]

_log = logging.getLogger("holdfast")


class OwnNames:
    """Of one source. ``again_ns``: how often the same is told."""

    def __init__(self, domain: Domain, topic: str, again_ns: int) -> None:
        self._domain, self._topic, self._again_ns = domain, topic, again_ns
        self._looked_ns = self._told_ns = 0
        self.removed = ""
        """A name that this source needs, and that somebody has removed."""

    def look(self, uuid: bytes, ring: str, board: Mapping | None, now_ns: int) -> list[RegistrationError]:
        """The event that is due, if one is. Who has the ring and the board goes on."""
        if now_ns - self._looked_ns < nameless.LOOK_NS or board is None:
            return []
        self._looked_ns = now_ns
        told: list[RegistrationError] = []
        gone = ring if nameless.missing(ring) else "" if board.is_named() else board.name
        if gone and (gone != self.removed or now_ns - self._told_ns >= self._again_ns):
            self._told_ns = now_ns
            text = f"{nameless.removed(gone, 'source')}: {nameless.REMEDY}"
            told.append(RegistrationError(text, ""))
            _log.error("topic %r: %s", self._topic, text)
        self.removed = gone
        note = nameless.Nameless(gone, "source", uuid.hex(), self._topic, os.getpid()) if gone else None
        nameless.say(self._domain, f"source {uuid.hex()}", note)
        return told

    def leave(self, uuid: bytes) -> None:
        """The source closes: tools see nothing of it any more."""
        nameless.say(self._domain, f"source {uuid.hex()}", None)
