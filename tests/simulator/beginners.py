"""Beginners: programs with a source of their own, which lives more than once, with other stores than before.
What was stable in one life is not numbered again in the next one (docs/design.md 15)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import holdfast
from holdfast import events
from simulator import system
from simulator.shape import FRAGMENT
from simulator.world import world

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simulator.machine import Machine
    from simulator.world import Process

__all__ = ["Beginner"]

TOPIC = "news"
FIRST = 2000
"""Where their session IDs begin, and their RegIDs."""
PAUSE_S = 0.005


class Beginner:
    """What is known of one source, over all of its lives. Each has another ``number``. ``by_ids``: it comes
    with RegIDs, and without a session."""

    def __init__(self, machine: Machine, number: int, *, by_ids: bool) -> None:
        self._machine = machine
        self._number, self._by_ids = FIRST + number, by_ids
        self.stable = -1
        """The greatest number that was called stable."""
        self.granted: set[str] = set()
        """Stores that have registered it, in any life."""
        self.begun = False
        """This life has."""
        self.said = 0
        """Numbers that this life has called stable."""
        self.why = ""
        """What it was told last of why it does not begin."""

    def start(self, stores: Sequence[str]) -> Process:
        """A life with these stores."""
        self.begun, self.said = False, 0
        return self._machine.start_beginner(lambda process: self._run(process, stores))

    def _run(self, process: Process, stores: Sequence[str]) -> None:
        given = self._number if self._by_ids else 0
        options: dict[str, Any] = {
            "ume_store_name": [f"{store}:{given}:0" for store in stores],
            "ume_store_group": [f"0:{len(stores)}"],
            "ume_retention_intragroup_stability_behavior": "quorum",
            "ume_registration_interval": 60,
            "ume_store_activity_timeout": 1000,
            "ume_store_check_interval": 50,
            "ring_size": 65536,
            "fragment_size": FRAGMENT,
        }
        with holdfast.Context("d", session_id=None if self._by_ids else self._number) as context:
            source = context.source(TOPIC, options=options, on_event=lambda event: self._heard(process, event))
            while process not in self._machine.closing:
                system.time.sleep(PAUSE_S)
                if self.begun and self.said < 100:
                    self._send(source)
        world.note("ends", process.name)
        self._machine.ended(process)

    @staticmethod
    def _send(source: Any) -> None:
        try:
            source.send(b"of a beginner", timeout=0)
        except (holdfast.NotRegisteredError, holdfast.WouldBlockError):
            return

    def _heard(self, process: Process, event: object) -> None:
        judge, told = self._machine.judge, events.source
        match event:
            case told.RegistrationError():
                world.note("refused", process.name, event.store, event.text)
                self.why = event.text
            case told.RegistrationSuccess():
                judge.told.registers(event.store[0], event.registration_id, f"beginner {self._number}")
                self.granted.add(event.store[0])
            case told.RegistrationComplete():
                world.note("registered", process.name, event.sequence_number)
                if not self.begun and event.sequence_number <= self.stable:
                    judge.fail(f"{process.name} begins at {event.sequence_number}, and {self.stable} was stable")
                self.begun = True
            case told.MessageStable(flags=flags) if flags & told.StableFlags.STABLE:
                world.note("stable", process.name, event.first_sequence_number, event.sequence_number)
                self.said += event.sequence_number - event.first_sequence_number + 1
                self.stable = max(self.stable, event.sequence_number)
