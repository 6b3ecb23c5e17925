"""The reference of engine/acks.py: records in order of delivery, and the number behind the prefix that is consumed."""

from __future__ import annotations


class Window:
    """The deliveries of one receiver from one source."""

    def __init__(self, start: int) -> None:
        self._ack = start
        self._slot = 0
        self._records: dict[int, tuple[int, int, bool]] = {}
        """Slot -> first, last, consumed."""

    def delivered(self, first: int, last: int) -> int:
        """A message goes to the program. Returns its slot."""
        self._slot += 1
        self._records[self._slot] = first, last, False
        return self._slot

    def consumed(self, slot: int) -> None:
        """The program is done with it."""
        if slot in self._records:
            first, last, _ = self._records[slot]
            self._records[slot] = first, last, True

    def lost(self, first: int, last: int) -> None:
        """Nobody has these: they hold nothing back."""
        self.consumed(self.delivered(first, last))

    def advance(self) -> int:
        """The acknowledgement."""
        while self._records:
            slot = next(iter(self._records))
            _, last, done = self._records[slot]
            if not done:
                break
            del self._records[slot]
            self._ack = last + 1
        return self._ack

    def rebase(self, start: int) -> None:
        """What was delivered from ``start`` on is void, and so are its acks."""
        self._records = {slot: record for slot, record in self._records.items() if record[0] < start}
        self._ack = min(self._ack, start)
