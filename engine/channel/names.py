"""The names of a channel in shared memory, and what one end of it does when somebody has removed them
(``rm``, RemoveIPC).

Both ends go on through what they have mapped. Nobody new finds them: a new end makes another board, and
waits. So each says so: to its program by a warning, to tools by a note (nameless.py), and to a new end by
that note. A channel has no thread of its own: an end looks when it is used, and each second while it waits.
"""

from __future__ import annotations

import hashlib
import logging
from typing import TYPE_CHECKING

from ..errors import ConfigError, RemovedError
from ..memory.nameless import LOOK_NS, Nameless, missing, nameless, removed, say
from ..native.runtime import os

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..memory.domain import Domain
    from ..memory.mapping import Mapping

__all__ = ["ChannelNames", "channel_uuid"]

_log = logging.getLogger("holdfast")

NAME_MAX = 200


def channel_uuid(name: str) -> bytes:
    """Identity of a channel in its domain, 16 bytes."""
    if not name or len(name.encode()) > NAME_MAX:
        raise ConfigError(f"a channel's name has 1 to {NAME_MAX} bytes, not {len(name.encode())}")
    return hashlib.blake2b(b"channel " + name.encode(), digest_size=16).digest()


class ChannelNames:
    """Of one end, a ``what``: its board, and the ring that it writes or reads, once it has them. One
    thread."""

    def __init__(self, domain: Domain, name: str, uuid: bytes, what: str) -> None:
        self._domain, self._name, self._uuid, self._what = domain, name, uuid.hex(), what
        self.board: Mapping | None = None
        self.ring = ""
        self.gone = ""
        """What was removed, at the last look."""
        self._due_ns = self._others_ns = 0
        self._told: set[Nameless] = set()

    def look(self, now_ns: int) -> None:
        """Looks every LOOK_NS at most."""
        if now_ns < self._due_ns or self.board is None:
            return
        self._due_ns = now_ns + LOOK_NS
        gone = "" if self.board.is_named() else self.board.name
        gone = gone or (self.ring if self.ring and missing(self.ring) else "")
        if gone and not self.gone:
            _log.warning("channel %s: %s; %s", self._name, removed(gone, self._what), RemovedError.hint)
        self.gone = gone
        kind = f"channel {self._what}"
        say(self._domain, self._key, Nameless(gone, kind, self._uuid, self._name, os.getpid()) if gone else None)

    @property
    def _key(self) -> str:
        return f"channel {self._uuid} {id(self):x}"

    def require(self, now_ns: int, peer: Callable[[], int | None]) -> None:
        """``peer`` is needed. Raises RemovedError where nobody can come: the names are gone, and so is the
        other end."""
        self.look(now_ns)
        if self.gone and peer() is None:
            raise RemovedError(self._name, self.gone)
        if now_ns >= self._others_ns:
            self._others_ns = now_ns + LOOK_NS
            if peer() is None:
                self._find_others()

    def _find_others(self) -> None:
        """This end waits for another one. One that lives may be where nobody finds it."""
        notes = {note for note in nameless(self._domain) if note.uuid == self._uuid}
        for note in notes - self._told:
            text = (
                "channel %s: process %d is its %s, in shared memory that was removed: close that end and make it again"
            )
            _log.warning(text, self._name, note.pid, note.kind.removeprefix("channel "))
        self._told |= notes

    def close(self) -> None:
        """This end is closed."""
        if self.gone:
            say(self._domain, self._key, None)
            self.gone = ""
        self.board = None
