"""A persistent publisher at a rate, which tells what becomes of its messages.

UM's umesrc in C is mostly attribute structures, a switch over events, and timers. What differs: instead of
failing sends every second until the source is registered, a wait that ends when it is (and a refusal ends the
program, naming who holds the RegID); -L waits while something is in flight and no longer; -o sets any option;
stability comes in ranges of messages, unless -o ume_message_stability_notification=1 asks for UM's event per
message and store.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from typing import TYPE_CHECKING

import holdfast as hf
from holdfast import events

from . import options
from .common import Meter, every, program, say, verifiable
from .printing import context_line, source_line

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

RETRY_S = 1.0
QUIET = (
    events.MessageStable
    | events.MessageNotStable
    | events.MessageReclaimed
    | events.DeliveryConfirmation
    | events.Wakeup
)
"""Printed with -v only."""


class Publisher:
    """One source, and how it sends."""

    def __init__(self, ctx: hf.Context, given: Namespace) -> None:
        chosen = dict(given.option) | {"ume_force_reclaim_function": self._reclaimed}
        chosen |= {"ume_store_name": given.store} if given.store else {}
        chosen |= {"ume_flight_size": given.flight_size} if given.flight_size is not None else {}
        chosen |= {"late_join": 1} if given.late_join else {}
        self.given = given
        self.meter = Meter()
        self.reclaims = 0
        self.forgotten = threading.Event()
        self._room = threading.Event()
        self.source = ctx.source(given.topic, options=chosen, on_event=self._event)
        if not self.source.stats().stores:
            raise hf.ConfigError("umesrc is persistent and no store is configured", hint="-t NAME, or a file with -c")

    def _event(self, event: events.SourceEvent) -> None:
        if isinstance(event, events.Wakeup):
            self._room.set()
        elif isinstance(event, events.source.DeregistrationComplete):
            self.forgotten.set()
        if self.given.verbose or not isinstance(event, QUIET):
            say(source_line(event))

    def _reclaimed(self, _info: object) -> None:
        self.reclaims += 1

    def send(self, number: int) -> None:
        """One message, as often as it takes."""
        given = self.given
        text = b"message %d" % number
        data = verifiable(text, given.length) if given.verifiable else text[: given.length].ljust(given.length, b"\0")
        info = "always" if given.seqnum_info else None
        data_of = number if given.verbose or given.seqnum_info else None  # it costs something: only if it is shown
        timeout = 0.0 if given.non_block else None
        while True:
            self._room.clear()
            try:
                self.source.send(data, client_data=data_of, sequence_info=info, timeout=timeout)
            except hf.NotRegisteredError:
                say("Send unsuccessful. Waiting...")
                with contextlib.suppress(hf.RegistrationTimeout):
                    self.source.wait_registered(RETRY_S)
            except hf.WouldBlockError:
                self._room.wait(0.1)
            else:
                self.meter.count(len(data))
                return

    def linger(self, deadline: float) -> None:
        """Until nothing is in flight: all is stable, and confirmed where ume_retention_unique_confirmations
        asks for it."""
        while self.source.in_flight.messages and time.monotonic() < deadline:
            time.sleep(0.01)
        self.source.wait_stable(timeout=0)

    def statistics(self) -> None:
        """One line of what -s shows."""
        stats = self.source.stats()
        flight = f"stable {stats.stable_sequence_number} inflight {stats.in_flight.messages}"
        say(f"app sent {self.meter.messages} {flight}, blocked {stats.blocked_ns / 1e9:.3f} s")


@program
def main(argv: Sequence[str] | None = None) -> int:
    """Sends, and returns the exit code."""
    given = options.publisher(__doc__, argv)
    liveness = {"ume_receiving_context_notification_function": [lambda info: say(context_line(info))] * 2}
    with hf.Context(config=given.config, options=liveness) as ctx:
        publisher = Publisher(ctx, given)
        time.sleep(given.delay)
        say(f"Sending {given.messages} messages of size {given.length} bytes to topic [{given.topic}]")
        started = time.monotonic()
        with every(given.statistics, publisher.statistics):
            for number in range(given.messages):
                if given.message_rate:
                    time.sleep(max(0.0, started + number / given.message_rate - time.monotonic()))
                publisher.send(number)
                if given.pause:
                    time.sleep(given.pause / 1000)
        say(f"Sent {given.messages} messages in {publisher.meter}")
        if given.linger:
            publisher.linger(time.monotonic() + given.linger)
        publisher.statistics()
        if publisher.reclaims:
            say(f"{publisher.reclaims} force reclamations")
        if given.deregister:
            publisher.source.deregister()
            publisher.forgotten.wait(given.linger)
    return 0


if __name__ == "__main__":
    sys.exit(main())
