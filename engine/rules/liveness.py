"""Which receiving contexts a sending context knows, and when one of them is dead: pure policy over board
lines.

A receiving context shows itself on the board of every source that it has joined: one line, with a heartbeat.
The unit is the context, over all sources and receivers: it comes once and goes once. UM infers death from
silence and from a broken connection, and warns that both lie. Here silence only says when to ask; the answer
is a proof (docs/design.md 12). So a process that is stopped, or stuck in a debugger, is never reported,
however long it is silent: there are no false alarms. A program that wants to know of who hangs asks for it
(`silence`): then silence alone is TMO, and who beats again has come again.

Source: docs/semantics.md H, L.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..events.info import ReceivingContextFlags

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["Came", "Line", "Liveness", "Went"]


class Line(NamedTuple):
    """A receiving context on the board of one source. `uuid` is the context's; a context that starts again
    has another."""

    uuid: bytes
    registration_id: int
    session_id: int
    heartbeat_ns: int
    closed: bool
    dead: Callable[[], bool]
    """Its process is proved dead. Asked only when that matters: it takes system calls."""


class Came(NamedTuple):
    """A receiving context that was not known before."""

    line: Line


class Went(NamedTuple):
    """A known receiving context that is no more. `line` is as when it came."""

    line: Line
    flag: ReceivingContextFlags


class Liveness:
    """The receiving contexts of one sending context. `timeout_ns`: ume_source_liveness_timeout; `silence`: it
    ends them."""

    def __init__(self, timeout_ns: int, *, silence: bool = False) -> None:
        self._timeout_ns = timeout_ns
        self._silence_counts = silence
        self._known: dict[bytes, Line] = {}
        self._since: dict[bytes, int] = {}
        """When each known one came: its first heartbeat may be still to come."""
        self._hung: dict[bytes, int] = {}
        """Heartbeat of those that were told to be silent, and are not known until they have a newer one."""
        self._over: set[bytes] = set()
        """Gone, but still on a board, and not to be looked into again: a line stays until somebody else needs
        it."""

    def look(self, lines: Iterable[Line], now_ns: int) -> list[Came | Went]:
        """Take in every line of every source; return what happened since the last look."""
        present: dict[bytes, list[Line]] = {}
        for line in lines:
            present.setdefault(line.uuid, []).append(line)
        self._over &= present.keys()
        self._hung = {uuid: beat for uuid, beat in self._hung.items() if uuid in present}
        found: list[Came | Went] = []
        for uuid, seen in present.items():
            if uuid in self._known:
                flag = self._end(seen, now_ns)
                if flag == ReceivingContextFlags.TMO:
                    self._hung[uuid] = _beat(seen)
                elif flag is not None:
                    self._over.add(uuid)
                if flag is not None:
                    found.append(Went(self._known.pop(uuid), flag))
            elif uuid not in self._over and self._hung.get(uuid, -1) < _beat(seen):
                if any(line.closed for line in seen) or seen[0].dead():  # left over from before this look
                    self._over.add(uuid)
                else:
                    self._hung.pop(uuid, None)
                    self._known[uuid], self._since[uuid] = seen[0], now_ns
                    found.append(Came(seen[0]))
        # Nothing connects the two contexts any more: the last common source was closed here, or the line has
        # a new owner.
        gone = [uuid for uuid in self._known if uuid not in present]
        self._since = {uuid: since for uuid, since in self._since.items() if uuid in self._known}
        return found + [Went(self._known.pop(uuid), ReceivingContextFlags.EOF) for uuid in gone]

    def _end(self, seen: list[Line], now_ns: int) -> ReceivingContextFlags | None:
        """Why a known context is gone, None while it is not."""
        if any(line.closed for line in seen):
            return ReceivingContextFlags.EOF
        if now_ns - _beat(seen) < self._timeout_ns:
            return None
        if seen[0].dead():
            return ReceivingContextFlags.TMO | ReceivingContextFlags.EOF
        hangs = self._silence_counts and now_ns - self._since[seen[0].uuid] >= self._timeout_ns
        return ReceivingContextFlags.TMO if hangs else None


def _beat(lines: list[Line]) -> int:
    """The newest heartbeat of a context."""
    return max(line.heartbeat_ns for line in lines)
