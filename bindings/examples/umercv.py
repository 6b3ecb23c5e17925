"""A persistent receiver that shows its registration, its messages and what is lost.

In UM's umercv in C, callback, timer and main function talk through global variables. Here messages are pulled
in a loop, and events, on the context's thread, only print. What differs: -x waits until a refusal is over (as
soon as the holder of the RegID is dead) and receives then; --max-sources bounds what -s prints, not an array.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import holdfast as hf
from holdfast import events

from . import options
from .common import Meter, every, is_intact, program, say
from .printing import message_line, receiver_line

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

WAIT_S = 0.1
RETRY_S = 1.0


class Subscriber:
    """What one run does with events and messages."""

    def __init__(self, given: Namespace) -> None:
        self.given = given
        self.ended = False
        self.meter = Meter()
        self.again = self.lost = self.broken = 0

    def chosen(self) -> dict[str, object]:
        """Options of the receiver."""
        given = self.given
        chosen: dict[str, object] = dict(given.option)
        if given.session_id:
            chosen["ume_session_id"] = given.session_id
        else:
            chosen["ume_registration_extended_function"] = self._registration_id
        if given.seqnum is not None:
            chosen["ume_recovery_sequence_number_info_function"] = self._start
        if given.explicit_ack:
            chosen["ume_explicit_ack_only"] = 1
        return chosen

    def _registration_id(self, info: events.RegistrationInfo) -> int:
        offset = self.given.regid_offset
        wanted = info.src_registration_id + offset if offset else 0
        if self.given.verbose:
            say(f"Store {info.store_index}: {info.store} [{info.src_registration_id}] Requesting RegID {wanted}")
        return wanted

    def _start(self, info: events.RecoverySequenceNumberInfo) -> None:
        low = info.low_sequence_number + self.given.seqnum
        known = f"Low rxreq max SQN {info.low_rxreq_max_sequence_number}, High SQN {info.high_sequence_number}"
        say(f"[{info.source}] Low SQN {info.low_sequence_number} (will set to {low}), {known}")
        info.low_sequence_number = low

    def event(self, event: events.ReceiverEvent) -> None:
        """on_event."""
        say(receiver_line(event))
        self.lost += isinstance(event, events.UnrecoverableLoss | events.UnrecoverableLossBurst)
        self.ended |= isinstance(event, events.EndOfStream)

    def message(self, receiver: hf.Receiver, msg: hf.Message) -> None:
        """Takes one message; it is consumed afterwards."""
        given, meter = self.given, self.meter
        meter.count(len(msg))
        self.again += msg.is_retransmit
        if given.ascii:
            sys.stdout.write(bytes(msg).decode(errors="replace") + "\n" * (given.ascii > 1))
        if given.verbose:
            say(message_line(msg))
        if given.verbose > 1:
            say(bytes(msg).hex(" "))
        if given.verify and not is_intact(msg.data):
            self.broken += 1
            say(f"{message_line(msg)}: the checksum is wrong")
        if given.explicit_ack and meter.messages % given.explicit_ack == 0:
            msg.send_explicit_ack()
            say(f"sent an explicit ACK of {msg.sequence_number}")
        if meter.messages == given.deregister:
            receiver.deregister()

    def statistics(self, receiver: hf.Receiver) -> None:
        """What -s shows."""
        say(f"{self.meter} [RX: {self.again}] [lost: {self.lost}]")
        for source, number in list(receiver.stats().acknowledged.items())[: self.given.max_sources]:
            say(f"  [{source}] acknowledged {number}")


@program
def main(argv: Sequence[str] | None = None) -> int:
    """Receives, and returns the exit code."""
    given = options.subscriber(__doc__, argv)
    subscriber = Subscriber(given)
    own = {"ume_user_receiver_registration_id": given.uregid} if given.uregid else {}
    with (
        hf.Context(config=given.config, options=own) as ctx,
        ctx.receiver(given.topic, options=subscriber.chosen(), on_event=subscriber.event) as rcv,
        every(given.statistics, lambda: subscriber.statistics(rcv)),
    ):
        while given.msgs is None or subscriber.meter.messages < given.msgs:
            ended = subscriber.ended and (given.exit or given.stop)
            try:
                msg = rcv.receive(timeout=WAIT_S)
            except hf.RegistrationError:
                if not given.no_exit_on_reg_error:
                    raise
                time.sleep(RETRY_S)
                continue
            if msg is not None:
                with msg:
                    subscriber.message(rcv, msg)
            elif ended:
                break
        if given.stop:
            subscriber.statistics(rcv)
    return 1 if subscriber.broken else 0


if __name__ == "__main__":
    sys.exit(main())
