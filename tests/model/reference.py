"""What stream and log must do, said with lists: messages in order, and which numbers a log still has."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

GRANULE = 32


@dataclass(frozen=True)
class Message:
    """A message at its place in the ring. ``lost``: a record that nobody has numbers first..next - 1."""

    first: int
    parts: tuple[bytes, ...]
    position: int = 0
    lost: bool = False

    @property
    def next(self) -> int:
        return self.first + len(self.parts)

    def before(self, start: int) -> Message:
        """What a BEGIN at ``start`` leaves of it: a record of loss may reach beyond, and the new numbers are
        not lost."""
        return replace(self, parts=self.parts[: start - self.first])

    @property
    def payload(self) -> bytes:
        return b"".join(self.parts)

    @property
    def span(self) -> int:
        return sum(room(part) for part in self.parts)


@dataclass
class Model:
    """One incarnation's ring, and the log behind it. Numbers and positions count from where the test says."""

    start: int = 0
    position: int = 0
    released: int = 0
    ring: list[Message] = field(default_factory=list)
    log: list[Message] = field(default_factory=list)
    flight: tuple[int, int, int] = (0, 0, 0)
    """Fragments, payload bytes and ring bytes that are sent and not released."""

    @property
    def next(self) -> int:
        return self.ring[-1].next if self.ring else self.start

    @property
    def tail(self) -> int:
        return self.ring[-1].position + self.ring[-1].span if self.ring else self.position

    def message(self, payload: bytes, fragment: int) -> Message:
        parts = tuple(payload[at : at + fragment] for at in range(0, max(1, len(payload)), fragment))
        return Message(self.next, parts, self.tail)

    def send(self, message: Message) -> None:
        self.ring.append(message)
        self.count(1, message.parts)

    def release(self, number: int) -> None:
        self.count(-1, [part for at, _, part in fragments(self.ring, self.released) if at < number])
        self.released = number

    def count(self, sign: int, parts: Sequence[bytes]) -> None:
        messages, payload, span = self.flight
        payload += sign * sum(len(part) for part in parts)
        self.flight = messages + sign * len(parts), payload, span + sign * sum(room(part) for part in parts)


def room(part: bytes) -> int:
    """Ring bytes of a fragment."""
    return -(-(GRANULE + len(part)) // GRANULE) * GRANULE


def at(where: list[Message], number: int) -> Message | None:
    """The record that carries ``number``."""
    index = bisect_right(where, number, key=lambda message: message.first) - 1
    return where[index] if index >= 0 and number < where[index].next else None


def behind(where: list[Message], number: int) -> Message | None:
    """The first record behind ``number``."""
    index = bisect_right(where, number, key=lambda message: message.first)
    return where[index] if index < len(where) else None


def fragments(where: list[Message], number: int) -> Iterator[tuple[int, int, bytes]]:
    """(number, index, payload) of each fragment from ``number`` on."""
    for message in where[max(0, bisect_right(where, number, key=lambda message: message.first) - 1) :]:
        for index, part in enumerate(message.parts):
            if message.first + index >= number:
                yield message.first + index, index, part
