"""Which receiver of a source an operator means. A RegID is of one store, and a line on the board has that of
one of its receiver's stores: ``holdfast stat`` shows it. A store that has gone back to an older state gives a
RegID anew. So a RegID may be of several receivers. Then the uuid says which one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..memory.deregistered_lines import receiver_lines
from .registry import called

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..log.receiver_state import ReceiverState
    from ..log.state_file import SourceState
    from ..memory.deregistered_lines import ReceiverLine
    from ..memory.domain import Domain

__all__ = ["Meant", "meant_receiver"]


class Meant(NamedTuple):
    """Only one of these is there."""

    receiver: ReceiverState | None = None
    """This store knows it."""
    line: ReceiverLine | None = None
    """Of a dead receiver that this store does not know, and that nobody has deregistered."""
    why_not: str = ""
    """Nobody can say which one."""


def meant_receiver(domain: Domain, source: SourceState, registration_id: int, uuid: bytes) -> Meant:
    """``uuid``: empty, or the receiver's: then the RegID does not count."""
    lines = receiver_lines(domain, source.uuid)
    if uuid:
        return _by_uuid(source, uuid, lines or ())
    known = next((each for each in source.receivers if each.registration_id == registration_id), None)
    if lines is None:
        unread = "the board of the source, which may name another one with that RegID, cannot be read"
        return Meant(why_not=f"{unread}: say which one is meant by its uuid (--receiver-uuid)")
    called_so = [line for line in lines if line.registration_id == registration_id and _is_shown(source, line)]
    owners = [(line, _owner(source, line)) for line in called_so]
    lost = {(line.session_id or line.uuid): line for line, owner in owners if owner is None}
    others = {id(owner): owner for _, owner in owners if owner is not None and owner is not known}
    if len(lost) + len(others) + (known is not None) > 1:
        names = [_of(known.uuid, known.session_id, known)] if known is not None else []
        names += [_of(owner.uuid, owner.session_id, owner) for owner in others.values()]
        names += [_of(line.uuid, line.session_id) for line in lost.values()]
        text = f"{len(names)} receivers have that RegID at a store of theirs: {'; '.join(names)}"
        return Meant(why_not=f"{text}; say which one is meant by its uuid (--receiver-uuid)")
    if others:
        (owner,) = others.values()
        text = f"it is another store's RegID of {_of(owner.uuid, owner.session_id, owner)}"
        return Meant(why_not=f"{text}; say that this one is meant by its uuid (--receiver-uuid)")
    return Meant(known, next((line for line in lost.values() if line.is_dead), None))


def _by_uuid(source: SourceState, uuid: bytes, lines: Iterable[ReceiverLine]) -> Meant:
    known = next((each for each in source.receivers if each.uuid == uuid), None)
    line = next((each for each in lines if each.uuid == uuid and _is_shown(source, each)), None)
    if known is None and line is not None:
        known = _owner(source, line)
    return Meant(known, line if known is None and line is not None and line.is_dead else None)


def _is_shown(source: SourceState, line: ReceiverLine) -> bool:
    """By ``holdfast stat``: not what an earlier life of a session has left, nor what is over."""
    owner = _owner(source, line)
    lives = not line.is_dead and not line.is_marked
    return lives or (line.is_kept and (owner is None or owner.uuid == line.uuid))


def _owner(source: SourceState, line: ReceiverLine) -> ReceiverState | None:
    same = (each for each in source.receivers if each.uuid == line.uuid or 0 < each.session_id == line.session_id)
    return next(same, None)


def _of(uuid: bytes, session_id: int, known: ReceiverState | None = None) -> str:
    who = f"session ID {session_id:#x}" if session_id else "one without a session"
    where = f"{called(known.registration_id, 0)} here" if known is not None else "not known here"
    return f"{who}, uuid {uuid.hex()} ({where})"
