"""A receiver-paced repository: the real rules (engine/options/receiver_paced.py), carried out as by
engine/store/pacer.py and csrc/store/drain.c.

A fragment is a byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.memory import LOST

from holdfast.engine.options.receiver_paced import BLOCKING, Pacing

if TYPE_CHECKING:
    from simulation.memory import Message
    from simulation.repository import Repository

    from holdfast.engine.options.receiver_paced import Terms


def size(message: Message) -> int:
    """Of a log's record."""
    return 0 if message.content == LOST else message.last - message.first + 1


class Pacer:
    """See the module."""

    def __init__(self, repository: Repository, terms: Terms) -> None:
        self._repository = repository
        log = repository.log
        self._payload = sum(size(record) for record in log.records)
        self._pacing = Pacing(terms, log.oldest, log.next, self._payload)
        self._samples: list[tuple[int, int]] = []
        self._ack_payload, self._ack = 0, log.oldest
        self.turn()

    def allowed(self, number: int) -> int:
        """How far the store may acknowledge what it holds below ``number``."""
        return min(number, self._ack)

    def drained(self, message: Message) -> None:
        """A message was appended from the ring."""
        self._payload += size(message)
        if self._payload <= self._ack_payload:
            self._ack = message.last + 1
        self._samples.append((message.last + 1, self._payload))

    def filled(self, message: Message) -> None:
        """A message was appended from a peer."""
        self._payload += size(message)

    def begun(self) -> None:
        """A BEGIN may have made numbers void."""
        self._count()
        start = self._repository.log.appended
        self._payload = self._pacing.begun(start, self._payload)
        self._ack_payload, self._ack = 0, min(self._ack, start)

    def _count(self) -> None:
        for number, payload in self._samples:
            self._pacing.stored(number, payload)
        self._samples.clear()

    def turn(self) -> None:
        """Looks at the acknowledgements once."""
        repository, log = self._repository, self._repository.log
        self._count()
        self._pacing.stored(log.appended, self._payload)
        receivers = self.receivers()
        turn = self._pacing.turn(receivers)
        blocked = min((ack for ack, mode in receivers if mode == BLOCKING), default=log.appended)
        kept = sum(size(record) for record in log.records if record.last >= blocked)
        repository.store.machine.truth.fills(repository.store.index, kept, len(log.begins))
        self._ack_payload, self._ack = turn.ack_payload, max(self._ack, turn.ack)
        if repository.line is not None:
            repository.line.acknowledge(self.allowed(log.next))
        below = min(turn.release, log.next)
        count = sum(record.last < below for record in log.records[: log.published])
        if count:
            repository.release(count)

    def receivers(self) -> list[tuple[int, int]]:
        """Acknowledgement and mode of everybody who is registered: on the board, or in the state once it has
        left that."""
        source, lines = self._repository.source, self._repository.board().receivers()
        found = []
        for receiver in source.receivers:
            line = lines.get(receiver.uuid)
            on_board = source.clamp(line.ack, line.ack_stream) if line is not None else 0
            if receiver.paced:
                found.append((max(receiver.ack, on_board), receiver.paced))
        return found
