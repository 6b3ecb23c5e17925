"""The programs of the soak: ``python -m soak.programs KIND SETTINGS``, with SETTINGS as JSON.

They use the public interface alone. Each writes down what it does and sees (records.py), works until SIGTERM,
closes its context and ends with 0.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

import holdfast as hf
from soak.records import Log

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["RECEIVERS", "Settings", "content"]

PATIENCE_S = 0.2
EXPLICIT_EVERY = 7
FRAGMENT = 4096
RETRANSMIT = 8


class Settings(msgspec.Struct):
    """What a program is told."""

    name: str
    log: str
    """The file of its records."""
    domain: str
    topic: str
    """A source's; of a receiver a topic, or a pattern that begins with ^."""
    session: int
    life: int
    seed: int = 0
    rate: float = 50.0
    """A source's messages per second."""
    stores: list[str] = []
    count: int = 0
    """A receiver leaves after this many messages; 0: never."""


def content(seed: int, life: int, number: int) -> bytes:
    """A message: text that names where it belongs, and as long as the seed has it. One in fifty takes several
    fragments."""
    mixed = zlib.crc32(f"{seed} {number}".encode())
    length = mixed % 900 if mixed % 50 else 2 * FRAGMENT + mixed % FRAGMENT
    head = f"soak {seed} {life} {number} "
    return (head + f"{zlib.crc32(head.encode()):08x}." * (length // 9)).encode()


@dataclass
class Program:
    """What all have. ``over``: SIGTERM has come; ``last``: SIGUSR1, nothing more is to be sent."""

    settings: Settings
    log: Log = field(init=False)
    over: bool = False
    last: bool = False
    taken: int = 0

    def __post_init__(self) -> None:
        self.log = Log(self.settings.log)
        self.log.say("life", self.settings.life)
        signal.signal(signal.SIGTERM, self._end)
        signal.signal(signal.SIGUSR1, self._last)

    def _end(self, *_: object) -> None:
        self.over = True

    def _last(self, *_: object) -> None:
        self.last = True

    def close(self, context: hf.Context) -> None:
        """The clean end."""
        context.close()
        self.log.say("closed")

    # Receivers ----------------------------------------------------------------------------------------------

    def event(self, event: object) -> None:
        """Of a receiver."""
        told = hf.events.receiver
        match event:
            case hf.events.UnrecoverableLoss():
                self.log.say("lost", event.topic, event.sequence_number)
            case hf.events.UnrecoverableLossBurst():
                self.log.say("burst", event.topic, event.sequence_number)
            case told.RegistrationComplete():
                self.log.say("at", event.topic, event.sequence_number)
            case told.RegistrationError():
                self.log.say("trouble", event.store, event.text)

    def receiver(self, context: hf.Context, options: dict[str, Any], **more: Any) -> hf.Receiver:
        """Of the topic, or the pattern."""
        where = self.settings.topic
        more |= {"options": {"ume_registration_interval": 500, **options}, "on_event": self.event}
        return context.receiver(pattern=where, **more) if where.startswith("^") else context.receiver(where, **more)

    def got(self, message: hf.Message) -> None:
        """Written before it is consumed: what is consumed and not written would look lost."""
        self.log.say("got", *_row(message.topic, message.first_sequence_number, message.sequence_number, message.data),
                     int(message.is_retransmit))  # fmt: skip
        self._count(1)

    def _count(self, more: int) -> None:
        self.taken += more
        if self.settings.count and self.taken >= self.settings.count:
            self.over = True

    def one(self, context: hf.Context) -> None:
        """Messages one by one, each consumed at once."""
        receiver = self.receiver(context, {})
        while not self.over:
            message = receiver.receive(timeout=PATIENCE_S)
            if message is not None:
                with message:
                    self.got(message)

    def batch(self, context: hf.Context) -> None:
        """Batches: what was read counts when release() says that it was whole."""
        receiver = self.receiver(context, {})
        while not self.over:
            batch = receiver.receive_batch(256, timeout=PATIENCE_S)
            if batch is None:
                continue
            try:
                rows = [self._batch_row(batch, i) for i in range(len(batch))]
                self.log.say_all(rows)
                batch.release()
            except hf.EvictedError:
                self.log.say("evicted")
            else:
                self.log.say("whole")
                self._count(len(batch))

    def _batch_row(self, batch: hf.Batch, i: int) -> tuple[object, ...]:
        frame = batch.frames[i]
        numbers = int(frame["first_sequence_number"]), int(frame["sequence_number"])
        return "row", *_row(batch.topic, *numbers, batch.payload(i)), int(bool(frame["flags"] & RETRANSMIT))

    def callback(self, context: hf.Context) -> None:
        """Consumed when the callback returns."""
        self.receiver(context, {}, on_message=self.got)
        while not self.over:
            time.sleep(PATIENCE_S)

    def arrival(self, context: hf.Context) -> None:
        """Order of arrival: live messages beside recovery."""
        receiver = self.receiver(context, {"ordered_delivery": -1})
        while not self.over:
            message = receiver.receive(timeout=PATIENCE_S)
            if message is not None:
                with message:
                    self.got(message)

    def explicit(self, context: hf.Context) -> None:
        """The program acknowledges, every few messages."""
        receiver = self.receiver(context, {"ume_explicit_ack_only": 1})
        seen = 0
        while not self.over:
            message = receiver.receive(timeout=PATIENCE_S)
            if message is None:
                continue
            with message:
                self.got(message)
                seen += 1
                if seen % EXPLICIT_EVERY == 0:
                    message.send_explicit_ack()
                    self.log.say("acked", message.topic, message.sequence_number)

    def awaiting(self, context: hf.Context) -> None:
        """``async for``."""
        receiver = self.receiver(context, {})

        async def work() -> None:
            task = asyncio.current_task()
            assert task is not None
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
            with contextlib.suppress(asyncio.CancelledError):
                async for message in receiver:
                    self.got(message)

        asyncio.run(work())

    def throttled(self, context: hf.Context) -> None:
        """Holds a few messages, and releases them late: the session that leaves and returns."""
        receiver = self.receiver(context, {"ume_application_outstanding_maximum": 20})
        held: list[hf.Message] = []
        while not self.over:
            message = receiver.receive(timeout=PATIENCE_S / 4)
            if message is not None:
                self.got(message)
                held.append(message)
            if message is None or len(held) >= 5:
                for each in held:
                    each.release()
                held.clear()

    def reading(self, _: hf.Context) -> None:
        """All that is kept of a topic, by ``hf.read``. Exits with 1 where that refuses, and says why."""
        try:
            for batch in hf.read(self.settings.topic, domain=self.settings.domain):
                self.log.say_all([("got", *row[1:]) for row in (self._batch_row(batch, i) for i in range(len(batch)))])
        except hf.StoresAwayError as away:  # one that was wiped, and is not back yet
            sys.exit(str(away))

    # Sources ------------------------------------------------------------------------------------------------

    def source(self, context: hf.Context) -> None:
        """Sends, as fast as it is told, until SIGUSR1; then waits until all is stable, and for SIGTERM."""
        told = self.settings

        def event(event: object) -> None:
            match event:
                case hf.events.MessageStable():
                    self.log.say("stable", told.topic, event.first_sequence_number, event.sequence_number)
                case hf.events.StoreUnresponsive(reason="silent"):
                    self.log.say("silent", told.topic, event.store_index)
                case hf.events.source.RegistrationError() | hf.events.StoreUnresponsive():
                    self.log.say("trouble", event.store, event.text)
                case hf.events.MessageNotStable() | hf.events.MessageReclaimed():
                    if event.flags:
                        self.log.say(
                            "trouble", type(event).__name__, event.first_sequence_number, event.sequence_number
                        )

        options = {
            "ume_store_name": told.stores,
            "ume_store_group": f"0:{len(told.stores)}",
            "ring_size": 1 << 18,
            "fragment_size": FRAGMENT,
            "ume_registration_interval": 500,
        }
        source = context.source(told.topic, options=options, on_event=event)
        started = False
        while not self.over:
            try:
                source.wait_registered(PATIENCE_S)
                if not started:
                    self.log.say("start", told.topic, source.next_sequence_number)
                    started = True
                if self.last:
                    source.wait_stable(timeout=PATIENCE_S)
                    self.log.say("done", told.topic, source.next_sequence_number)
                    signal.pause()
                    continue
                self._send(source)
                time.sleep(1 / told.rate)
            except (hf.RegistrationTimeout, hf.WouldBlockError, hf.StabilityTimeout):
                continue
            except (hf.NotRegisteredError, hf.RegIdInUseError) as why:
                self.log.say("trouble", type(why).__name__, why)
                time.sleep(PATIENCE_S)

    def _send(self, source: hf.Source) -> None:
        number = source.next_sequence_number
        data = content(self.settings.seed, self.settings.life, number)
        last = number + max(0, len(data) - 1) // FRAGMENT
        self.log.say("sends", *_row(self.settings.topic, number, last, data))
        sent = source.send(data, timeout=PATIENCE_S)
        if sent != last:
            self.log.say("trouble", "send returned", sent, "for", last)


def _row(topic: str, first: int, last: int, data: bytes | memoryview) -> tuple[object, ...]:
    return topic, first, last, len(data), zlib.crc32(data)


RECEIVERS = ("one", "batch", "callback", "arrival", "explicit", "awaiting", "throttled")
"""Seven kinds."""


def main(kind: str, settings: str) -> int:
    """See the module."""
    program = Program(msgspec.json.decode(settings.encode(), type=Settings))
    told = program.settings
    work: Callable[[hf.Context], None] = getattr(program, kind)
    context = hf.Context(domain=told.domain, session_id=told.session or None, name=f"{told.name}")
    work(context)
    program.close(context)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
