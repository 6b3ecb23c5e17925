"""``holdfast store dump``: what lies in a store's directory, sources, receivers and messages."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ..engine.errors import UsageError
from ..engine.log.dump import Hole, KeptMessage, KeptSource, kept_messages, kept_sources
from .lines import say, say_json

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["dump", "item_line", "number_range"]

LAST = 2**64 - 1
SHOWN = 60
"""Bytes of a message that a line shows."""


def dump(directory: str, topic: str | None, numbers: str | None, terse: bool, json: bool) -> int:
    """Prints everything, or one topic, or a range of numbers of each source; without messages if ``terse``.

    The exit code: 1 if nothing of this topic is kept.
    """
    first, last = number_range(numbers)
    show: Callable[[KeptSource, int, int, bool], None] = _show_json if json else _show
    sources = kept_sources(directory)
    wanted = [
        source for source in sources if topic is None or (source.state is not None and source.state.topic == topic)
    ]
    for source in wanted:
        show(source, first, last, terse)
    if topic is not None and not wanted:
        say(f"{directory} keeps no source on topic {topic!r}", error=True)
        return 1
    return 0


def number_range(numbers: str | None) -> tuple[int, int]:
    """First and last of ``N``, ``N-M``, ``N-``, or of everything. Raises UsageError."""
    first, dash, last = (numbers or "0-").partition("-")
    try:
        found = int(first), int(last) if last else LAST if dash else int(first)
    except ValueError:
        found = 1, 0
    if not 0 <= found[0] <= found[1] <= LAST:
        raise UsageError(f"numbers {numbers!r}", hint="one number, or FIRST-LAST, or FIRST-")
    return found


def _show(source: KeptSource, first: int, last: int, terse: bool) -> None:
    state = source.state
    kept = f"numbers {source.oldest}..{source.next - 1}" if source.next > source.oldest else "no messages"
    say(f"{state.topic if state is not None else source.uuid}: {kept}")
    if state is not None:
        session = f", session {state.session_id:#x}" if state.session_id else ""
        say(f"  source {source.uuid}, RegID {state.registration_id}{session}, incarnation {state.incarnation}")
        for receiver in state.receivers:
            session = f", session {receiver.session_id:#x}" if receiver.session_id else ""
            say(f"  receiver RegID {receiver.registration_id}{session}, acknowledged below {receiver.ack}")
    for item in () if terse else kept_messages(source, first, last):
        say(f"  {item_line(item)}")


def item_line(item: KeptMessage | Hole) -> str:
    """One line."""
    if isinstance(item, Hole):
        return f"{item.first}..{item.next - 1}: {'marked undeliverable' if item.marked else 'not here'}"
    number = str(item.sequence_number)
    if item.first_sequence_number != item.sequence_number:
        number = f"{item.first_sequence_number}..{number}"
    sent = (
        datetime.fromtimestamp(item.timestamp_ns / 1e9, UTC).isoformat(timespec="microseconds").removesuffix("+00:00")
    )
    shown = repr(item.data[:SHOWN])[2:-1]
    return f"{number} {sent}Z {len(item.data)} bytes: {shown}{' ...' if len(item.data) > SHOWN else ''}"


def _show_json(source: KeptSource, first: int, last: int, terse: bool) -> None:
    state = source.state
    head: dict[str, object] = {"source": source.uuid, "oldest": source.oldest, "next": source.next}
    if state is not None:
        head |= {
            "topic": state.topic, "registration_id": state.registration_id, "session_id": state.session_id,
            "incarnation": state.incarnation,
            "receivers": [
                {"registration_id": each.registration_id, "session_id": each.session_id, "ack": each.ack - 1}
                for each in state.receivers
            ],
        }  # fmt: skip
    say_json(head)
    for item in () if terse else kept_messages(source, first, last):
        say_json({"source": source.uuid} | _fields(item))


def _fields(item: KeptMessage | Hole) -> dict[str, object]:
    """As ``holdfast recv --json`` where it is a message."""
    if isinstance(item, Hole):
        return {"missing": {"first": item.first, "next": item.next, "marked": item.marked}}
    fields: dict[str, object] = {
        "sequence_number": item.sequence_number,
        "first_sequence_number": item.first_sequence_number,
        "timestamp_ns": item.timestamp_ns,
    }
    try:
        return fields | {"data": item.data.decode()}
    except UnicodeDecodeError:
        return fields | {"data_base64": item.data}
