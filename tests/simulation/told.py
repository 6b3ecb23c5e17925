"""What a source tells its program (engine/rules/notification.py), held against what is true
(docs/semantics.md D.3, D.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.engine.events.source import (
    ConfirmationFlags,
    DeliveryConfirmation,
    MessageNotStable,
    MessageReclaimed,
    MessageStable,
    NotStableFlags,
    StableFlags,
)

if TYPE_CHECKING:
    from simulation.settlement import Settlement


class Told:
    """The events of one ring. ``stable``: numbers that an event has called so."""

    def __init__(self, settlement: Settlement) -> None:
        self._settlement, self._truth = settlement, settlement.truth
        self._reclaimed = settlement.ring.start
        self.stable: set[int] = set()
        self._stored: set[tuple[int, int]] = set()
        """(store, number)."""

    def hear(self) -> None:
        """All that is queued, after a look at the board."""
        queue = self._settlement.notices.queue
        for event in queue:
            match event:
                case MessageStable():
                    self._is_stable(event)
                case MessageNotStable():
                    self._is_not(event)
                case DeliveryConfirmation():
                    self._confirmed(event)
                case MessageReclaimed():
                    if event.first_sequence_number != self._reclaimed:
                        self._truth.fail(f"{event}, and {self._reclaimed} was next")
                    self._reclaimed = event.sequence_number + 1
                case _:
                    self._truth.fail(f"nobody asked for {event}")
        queue.clear()
        if self._settlement.config.mode:
            self._nothing_is_missing()

    def _nothing_is_missing(self) -> None:
        """What is stable was called so."""
        retention = self._settlement.retention
        open_ = set(range(retention.start, retention.stable)) - self.stable
        missing = sorted(number for number in open_ if number not in retention.unproven)
        if missing:
            self._truth.fail(f"{missing} are stable, and nobody was told")

    def _is_stable(self, event: MessageStable) -> None:
        """Once for each number, or once for each number and store; STABLE only when it is, and then it stays
        so."""
        numbers = range(event.first_sequence_number, event.sequence_number + 1)
        if event.flags & StableFlags.STORE:
            twice = [number for number in numbers if (event.store_index, number) in self._stored]
            self._stored.update((event.store_index, number) for number in numbers)
        else:
            twice = [number for number in numbers if number in self.stable]
        if twice:
            self._truth.fail(f"{event} says again of {twice} what was said")
        if event.flags & StableFlags.STABLE:
            self.stable.update(numbers)
            for message in self._settlement.between(numbers.start, numbers.stop):
                self._truth.held(message)

    def _is_not(self, event: MessageNotStable) -> None:
        """Never of what was called stable."""
        taken = self.stable.intersection(range(event.first_sequence_number, event.sequence_number + 1))
        if taken or (event.flags & NotStableFlags.TIMEOUT and not self._settlement.config.lifetime_ns):
            self._truth.fail(f"{event}, and {sorted(taken)} were called stable")

    def _confirmed(self, event: DeliveryConfirmation) -> None:
        """That receiver has consumed them; UNIQUEACKS: as many as are required have."""
        config, ring = self._settlement.config, self._settlement.ring
        for message in self._settlement.between(event.first_sequence_number, event.sequence_number + 1):
            had = self._truth.consumers(ring.uuid, message)
            if event.receiver_registration_id not in had:
                self._truth.fail(f"{event}, and only {sorted(had)} have had {message}")
            if event.flags & ConfirmationFlags.UNIQUEACKS and len(had) < config.unique:
                self._truth.fail(f"{event}: {config.unique} are required, and only {sorted(had)} have had it")
