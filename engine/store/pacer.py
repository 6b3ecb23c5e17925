"""Carries out what receiver_paced.py decides for one repository: reads the receivers' acknowledgements, holds
the store's own back, lets messages go. The drain thread, between two rounds (csrc/store/drain.c holds back
within one).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ..native.core import CData, ffi
from ..options.receiver_paced import Pacing

if TYPE_CHECKING:
    from ..log.board_line import StoreLine
    from ..log.state_file import SourceState
    from ..options.receiver_paced import Terms

__all__ = ["Pacer"]


SAMPLES = 1024
"""Taken from the drain at a time; beyond, sizes are known less finely."""


class LogPort(Protocol):
    """The log that is paced, and its line; what its methods do is said at Repository."""

    item: CData
    """``struct hf_drain_item *``."""
    source: SourceState
    line: StoreLine

    @property
    def info(self) -> CData:
        """``struct hf_log_info *``."""

    @property
    def next_sqn(self) -> int:
        """Number behind the last one that the log holds."""

    def acknowledge(self) -> None:
        """Moves the store's line as far as it may."""

    def release(self, below: int) -> bool:
        """Lets go what is below. False: not now."""


class Pacer:
    """See the module. What the log holds already counts in full, headers too, until receivers have
    acknowledged it."""

    def __init__(self, repository: LogPort, terms: Terms) -> None:
        self._repository = repository
        info, item = repository.info, repository.item
        low = int(info.oldest_sqn)
        self._pacing = Pacing(terms, low, repository.next_sqn, int(info.used_bytes))
        self._released = low
        self.busy = False
        """Receivers have something to acknowledge: look again soon."""
        self._samples = ffi.new("struct hf_drain_sample[]", SAMPLES)
        item.samples, item.samples_max, item.sample_bytes = self._samples, SAMPLES, self._pacing.grain
        item.paced, item.payload, item.ack_sqn = 1, self._pacing.payload, low
        item.sampled = item.payload
        self.turn()

    def allowed(self, next_sqn: int) -> int:
        """How far the store may acknowledge what it holds below ``next_sqn``."""
        return min(next_sqn, int(self._repository.item.ack_sqn))

    def begun(self) -> None:
        """A BEGIN may have made numbers void: they come again, and nothing of them is allowed before the next
        :meth:`turn`."""
        item, start = self._repository.item, int(self._repository.info.appended_sqn)
        self._count()
        item.payload = item.sampled = self._pacing.begun(start, int(item.payload))
        item.ack_payload, item.ack_sqn = 0, min(int(item.ack_sqn), start)
        self._released = min(self._released, start)
        self.busy = True

    def turn(self) -> None:
        """Looks at the acknowledgements once. Raises Error: the log cannot let go."""
        repository, item = self._repository, self._repository.item
        next_sqn = repository.next_sqn
        self._count()
        self._pacing.stored(int(repository.info.appended_sqn), int(item.payload))
        turn = self._pacing.turn(self._receivers())
        item.ack_payload, item.ack_sqn = turn.ack_payload, max(int(item.ack_sqn), turn.ack)
        repository.acknowledge()
        release = min(turn.release, next_sqn)
        if release != self._released and repository.release(release):
            self._released = release
        self.busy = self._pacing.withheld or release < next_sqn

    def _count(self) -> None:
        """Takes in what the drain has noted since the last time."""
        for sample in self._samples[0 : self._repository.item.sample_count]:
            self._pacing.stored(int(sample.sqn), int(sample.payload))
        self._repository.item.sample_count = 0

    def _receivers(self) -> list[tuple[int, int]]:
        """Acknowledgement and mode of everybody who is registered: on the board, or in the state once it has
        left that. Who has no mode yet is about to be."""
        acks = self._repository.line.acks()
        return [
            (max(receiver.ack, acks[receiver.uuid].number if receiver.uuid in acks else 0), receiver.paced)
            for receiver in list(self._repository.source.receivers)  # the control thread adds and removes
            if receiver.paced
        ]
