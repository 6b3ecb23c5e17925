"""What the processes of a system have said, and what follows for those that come later. The judge of the
power cuts.

It knows the lines of the actors and the bytes of their messages, and nothing of the product. Numbers are the
source's sequence numbers. A number that was called stable keeps its message for ever:

* no later life of the source begins at it or below;
* whoever receives it receives these bytes, whatever happened in between, and is never told that it is lost;
* in the end it was processed by the receiver that was there all the time, and by one that comes then.

No two lives are the same incarnation of one uuid. With that, and since a message's bytes say the life and the
number that they were sent with, nobody ever receives two messages as one (uuid, incarnation, number).
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field

from cuts.content import digest, fragments, message
from support.oracle import Finding

__all__ = ["Journal", "Receiver"]


@dataclass
class Receiver:
    """What one session has received, over all lives of its process."""

    name: str
    got: dict[int, tuple[int, int]] = field(default_factory=dict)
    """First number of a message -> (life of the source, last number); the newest that came."""
    following: int = 0
    """Number behind the last message."""
    messages: int = 0


class Journal:
    """See the module."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._starts: list[int] = []
        self._lives: list[int] = []
        self._sent: dict[int, dict[int, int]] = {}
        """By life: first number -> last number, of what it sent or was about to send."""
        self.stable: dict[int, tuple[int, int]] = {}
        """Every number that was called stable -> (life that sent it, first number of the message)."""
        self.sent = 0
        """Number behind the last one that any life has sent."""
        self.highest = -1
        """The highest of them."""
        self.end = -1
        """What the last life of the source has called the end."""
        self._incarnations: dict[tuple[str, str], int] = {}
        """uuid and incarnation -> the life that is it."""
        self.took_part: set[str] = set()
        """Stores that have ever been active: the source has begun there, so that they have a say in where it
        goes on."""

    # The source ---------------------------------------------------------------------------------------------

    def source_said(self, life: int, line: str) -> None:
        """One line of the life ``life`` of the source. Raises Finding."""
        word, *rest = line.split()
        if word == "start":
            self._begin(life, int(rest[0]))
        elif word == "sends":
            self._send(life, int(rest[0]), int(rest[1]))
        elif word == "stable":
            self._settle(range(int(rest[0]), int(rest[1]) + 1))
        elif word == "all":
            self._settle(range(int(rest[0]) + 1))
        elif word == "incarnation":
            before = self._incarnations.setdefault((rest[0], rest[1]), life)
            if before != life:
                raise Finding(f"lives {before} and {life} of the source are both incarnation {rest[1]} of {rest[0]}")
        elif word == "active":
            self.took_part.update(rest)
        elif word == "end":
            self.end = int(rest[0])

    def _begin(self, life: int, start: int) -> None:
        if start <= self.highest:
            raise Finding(f"the source called {self.highest} stable, its life {life} begins at {start}")
        if start > self.sent:
            raise Finding(f"life {life} of the source begins at {start}: nothing behind {self.sent - 1} was ever sent")
        while self._starts and self._starts[-1] >= start:  # nothing of that life is left
            self._starts.pop()
            self._lives.pop()
        self._starts.append(start)
        self._lives.append(life)

    def _send(self, life: int, first: int, last: int) -> None:
        if first <= self.highest:
            raise Finding(f"the source called {self.highest} stable, its life {life} sends {first}")
        self._sent.setdefault(life, {})[first] = last
        self.sent = max(self.sent, last + 1)

    def _settle(self, numbers: range) -> None:
        for number in numbers:
            if number in self.stable:
                continue
            place = bisect.bisect_right(self._starts, number) - 1
            life = self._lives[place] if place >= 0 else -1
            sent = self._sent.get(life, {})
            first = next((at for at in range(number, number - 4, -1) if at in sent), -1)
            if first < 0 or sent[first] < number:
                raise Finding(f"{number} is called stable, and life {life}, which owns it, never sent it")
            self.stable[number] = life, first
            self.highest = max(self.highest, number)

    # Receivers ----------------------------------------------------------------------------------------------

    def receiver_said(self, receiver: Receiver, line: str) -> None:
        """One line of a receiver. Raises Finding."""
        word, *rest = line.split()
        if word == "got":
            self._got(receiver, int(rest[0]), int(rest[1]), int(rest[2]), rest[3])
        elif word == "lost":
            first, last = int(rest[0]), int(rest[1])
            self._lost(receiver, receiver.following if first < 0 else first, last)

    def _got(self, receiver: Receiver, first: int, last: int, life: int, told: str) -> None:
        data = message(self._seed, life, first)
        if last != first + fragments(data) - 1 or told != digest(data):
            raise Finding(f"{receiver.name} got bytes that nobody sent, as {first}..{last} of life {life}")
        for number in range(first, last + 1):
            if number in self.stable and self.stable[number] != (life, first):
                owner, begins = self.stable[number]
                raise Finding(
                    f"{receiver.name} got {number} as it was sent by life {life}; the source called {number} stable with"
                    f" the bytes of life {owner}, message {begins}"
                )
        receiver.got[first] = life, last
        receiver.following = last + 1
        receiver.messages += 1

    def _lost(self, receiver: Receiver, first: int, last: int) -> None:
        for number in range(first, last + 1):
            if number in self.stable:
                raise Finding(
                    f"{receiver.name} was told that {number} is lost, which the source called {number} stable"
                )

    # The end ------------------------------------------------------------------------------------------------

    def missing(self, receiver: Receiver) -> list[int]:
        """Stable numbers that it has not processed, or with the bytes of a life that is no more."""
        lack = []
        for number, (life, first) in self.stable.items():
            if receiver.got.get(first, (-1, -1))[0] != life:
                lack.append(number)
        return lack

    def whole(self) -> bool:
        """The last life has ended, and all up to there is stable."""
        return self.end >= 0 and self.highest == self.end - 1
