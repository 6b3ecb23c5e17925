"""Guests: programs without a session that come to a topic, look at some of it, and go. No store is to keep
anything for them, so they are judged by what they got, and by where they began (docs/semantics.md F.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import holdfast
from holdfast import events
from simulator import system
from simulator.lives import ReceiverLife
from simulator.native import lib
from simulator.programs import TOPIC
from simulator.world import world

if TYPE_CHECKING:
    from simulator.judge import Judge
    from simulator.lives import Message
    from simulator.machine import Machine
    from simulator.world import Process

__all__ = ["Guest", "guest", "start_guest"]

FIRST = 1000
"""Where the judge's sessions of guests begin: no receiver of a shape has such a one."""
STAYS_S = 0.3
"""At most."""


class Guest:
    """What the judge knows of one. ``start``: as the program has asked."""

    def __init__(self, judge: Judge, process: Process, number: int, start: str | int | None) -> None:
        self.judge, self.start, self.number = judge, start, number
        self.life = ReceiverLife(process, FIRST + number, ordered=True)
        self._begun: set[str] = set()
        """Sources of which it knows where it begins."""
        self.made_ns = 0
        """When its receiver was made."""

    def heard(self, event: object) -> None:
        """An event of its receiver."""
        told = self.judge.told
        match event:
            case events.receiver.RegistrationSuccess():
                told.registers(event.store[0], event.receiver_registration_id, f"guest {self.number}")
            case events.receiver.RegistrationComplete():
                world.note("starts at", self.life.process.name, event.source, event.sequence_number)
                self._begins(event.source, event.sequence_number)
            case events.receiver.UnrecoverableLoss():
                told.lost(self.life, event.source, event.sequence_number, event.sequence_number)
            case events.receiver.UnrecoverableLossBurst():
                told.lost(self.life, event.source, None, event.sequence_number)

    def takes(self, source: str, first: int, last: int, data: bytes) -> None:
        """A message has come."""
        self._begins(source, first)
        self.judge.delivered(self.life, source, first, last, data)

    def _begins(self, source: str, first: int) -> None:
        """With this number, or one that it was told before: what it has asked for below is kept no more."""
        if source in self._begun:
            return
        self._begun.add(source)
        lost = self.life.losses
        missed = [
            each.mark
            for each in self.judge.messages.values()
            if each.life.named
            and source.endswith(each.life.named)
            and 0 <= each.last < first
            and self._asks_for(each)
            and self.judge.keeps(each)
            and not any(loss.has(each) for loss in lost)
        ]
        if missed:
            self.judge.fail(f"{self.life.process.name} asks for {self.start!r}, begins at {first}, and skips {missed}")

    def _asks_for(self, message: Message) -> bool:
        """Whatever it asks for: all that is published after it was made."""
        if message.begun_ns > self.made_ns or self.start in {None, "earliest"}:
            return True
        return isinstance(self.start, int) and message.first >= self.start


def start_guest(machine: Machine, start: str | int | None) -> Process:
    """One comes."""
    return machine.start_guest(lambda process, number: guest(machine, process, number, start))


def guest(machine: Machine, process: Process, number: int, start: Any) -> None:
    """Takes what comes for a while, and goes."""
    rng, options = world.rng, {"ume_registration_interval": 60, "retransmit_request_message_timeout": 300}
    judged = Guest(machine.judge, process, number, start)
    with holdfast.Context("d") as context:
        receiver = context.receiver(TOPIC, options=options, on_event=judged.heard, start=start)
        judged.made_ns = int(lib.sim_now_ns)
        until = system.time.monotonic() + rng.random() * STAYS_S
        while system.time.monotonic() < until and process not in machine.closing:
            message = receiver.receive(timeout=0.02)
            if message is None:
                continue
            judged.takes(message.source, message.first_sequence_number, message.sequence_number, bytes(message.data))
            if rng.random() < 0.1:
                system.time.sleep(rng.random() * 0.05)
            message.release()
    world.note("ends", process.name)
    machine.ended(process)
