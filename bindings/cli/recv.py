"""``holdfast recv``: every message as a line, or as a JSON object."""

from __future__ import annotations

import base64
import math
import os
import time
from typing import TYPE_CHECKING, Any

import msgspec

from ..engine.errors import NotRegisteredError, RegistrationTimeout, StoresAwayError
from ..engine.memory.domain import Domain
from ..engine.printable import json_text
from ..engine.tools import snapshot
from ..reading import read
from .options import Membership, pairs

if TYPE_CHECKING:
    from ..batch import Batch
    from ..message import Message
    from ..receiver import Receiver

__all__ = ["print_kept", "receive_lines"]

STDOUT = 1
HELD_MAX = 512
"""Messages written and not released."""
BUFFER_BYTES = 1 << 16
IDLE_S = 0.1
JOIN_S = 10.0
"""With --exit-at-end: how long a source that is there may take to accept us."""
AWAY_S, BEHIND_S = 10.0, 60.0
"""With --exit-at-end: how long nothing comes, because a store is away, or one that runs is behind, before it
says so and ends."""
LAST_S = 1.0
"""With --exit-at-end: how long it goes on behind what was there when it began, where messages keep coming."""


def receive_lines(
    topic: str,
    count: int | None,
    exit_at_end: bool,
    json: bool,
    member: Membership,
    options: list[str],
) -> int:
    """Writes messages until ``count``, the end, or a signal. One is acknowledged only after it has been
    written."""
    place = Domain(member.domain, join=False, make=member.domain is None)
    try:
        _check_somebody_is_there(place, topic)
        end = _End(place, topic) if exit_at_end else None
        with member.context() as context:
            receiver = context.receiver(topic, options=pairs(options))
            output = _Output(json)
            try:
                _receive(receiver, output, count, end)
            finally:
                output.flush()
    finally:
        place.close()
    return 0


def print_kept(topic: str, count: int | None, json: bool, domain: str | None) -> int:
    """Writes what is kept of a topic, up to ``count`` messages, without being anybody: it works with all
    processes dead."""
    output, left = _Output(json), math.inf if count is None else count
    try:
        for batch in read(topic, domain=domain):
            output.write_batch(batch, int(min(left, len(batch))))
            left -= len(batch)
            if left <= 0:
                break
    finally:
        output.flush()
    return 0


def _check_somebody_is_there(place: Domain, topic: str) -> None:
    """Nobody can accept this receiver: say so, instead of waiting for ever."""
    if snapshot.running_stores(place):
        return
    picture = snapshot.take(place)
    if any(source.alive and source.topic == topic and not source.stores for source in picture.sources):
        return
    hint = "start one: holdfast store run --name a --dir DIR"
    raise NotRegisteredError(f"no store runs in domain {place.name}", hint=hint)


def _receive(receiver: Receiver, output: _Output, count: int | None, end: _End | None) -> None:
    done = 0
    while count is None or done < count:
        message = receiver.receive(timeout=0)
        if message is None:
            output.flush()
            message = receiver.receive(timeout=IDLE_S)
            if message is None:
                if end is not None and end.reached(receiver):
                    return
                continue
        done += 1
        output.write(message)
        if end is not None and end.passed(receiver):
            return


class _End:
    """Knows when everything that the domain's sources had published was delivered."""

    def __init__(self, place: Domain, topic: str) -> None:
        self._place = place
        self._topic = topic
        self._first = snapshot.ends(place, topic)
        """What was there at the beginning."""
        self._again_s = self._deadline = time.monotonic() + JOIN_S
        self._look_s = 0.0
        self._quiet_s = math.inf
        """Since when nothing has come."""
        self._last_s = math.inf
        """What was there at the beginning was delivered: until when it goes on at most."""

    def reached(self, receiver: Receiver) -> bool:
        """Asked when nothing came for a while. Raises RegistrationTimeout when a source does not let us in,
        StoresAwayError when stores that may have what comes next are away, or behind."""
        now = time.monotonic()
        if self._has(receiver, snapshot.ends(self._place, self._topic), late=now > self._deadline):
            return True
        self._quiet_s = min(self._quiet_s, now)
        waits = receiver.context.waits.texts()
        away = any(link.welcome is None for link in receiver.context.store_links())
        if waits and now >= self._quiet_s + (AWAY_S if away else BEHIND_S):
            hint = "start the stores that are away, and read again; holdfast stat shows which one is behind"
            raise StoresAwayError(f"topic {self._topic!r} is not at its end: {'; '.join(waits)}", hint=hint)
        return False

    def passed(self, receiver: Receiver) -> bool:
        """Asked while messages come: a source that sends on and on has no end."""
        now, self._quiet_s = time.monotonic(), math.inf
        if now < self._look_s:
            return False
        self._look_s = now + IDLE_S
        if now >= self._again_s and self._last_s == math.inf:  # a source may have gone, or have begun below that
            self._again_s = now + JOIN_S
            there = snapshot.ends(self._place, self._topic)
            self._first = {uuid: min(there[uuid], number) for uuid, number in self._first.items() if uuid in there}
        if self._last_s == math.inf and self._has(receiver, self._first, late=False):
            self._last_s = now + LAST_S
        return now >= self._last_s

    def _has(self, receiver: Receiver, wanted: dict[str, int], *, late: bool) -> bool:
        finished = receiver.finished
        if finished.is_reading and not late:
            return False
        at = {
            controller.uuid.hex(): controller.feed.next
            for controller in receiver.controllers
            if controller.feed is not None
        }
        at |= {
            uuid: number
            for uuid in wanted.keys() - at.keys()
            if (number := receiver.finished.reached(bytes.fromhex(uuid)))
        }
        missing = {uuid for uuid in wanted.keys() - at.keys() if wanted[uuid]}
        if finished.is_reading:
            missing = {uuid for uuid in missing if not finished.is_over(bytes.fromhex(uuid))}
        if missing and late:
            raise RegistrationTimeout(f"{len(missing)} sources of topic {self._topic!r} did not accept this receiver")
        return (
            not missing
            and not finished.is_reading
            and all(at.get(uuid, 0) >= number for uuid, number in wanted.items())
        )


class _Output:
    """Collects lines, writes them in blocks, and releases messages when theirs have been written."""

    def __init__(self, json: bool) -> None:
        self._buffer = bytearray()
        self._held: list[Message] = []
        self._json = msgspec.json.Encoder() if json else None

    def write(self, message: Message) -> None:
        """Takes one message; raises BrokenPipeError when nobody reads."""
        self._add(message, message.data, retransmit=message.is_retransmit)
        self._held.append(message)
        self._flush_if_full()

    def write_batch(self, batch: Batch, count: int) -> None:
        """Takes the first ``count`` messages of what nobody has to release; raises as :meth:`write`."""
        for index in range(count):
            self._add(_Row(batch, batch.frames[index]), batch.payload(index), retransmit=True)
            self._flush_if_full()

    def _add(self, message: Message | _Row, data: bytes | memoryview, *, retransmit: bool) -> None:
        if self._json is None:
            self._buffer += data
        else:
            self._buffer += json_text(self._json.encode(_fields(message, bytes(data), retransmit=retransmit))).encode()
        self._buffer += b"\n"

    def _flush_if_full(self) -> None:
        if len(self._held) >= HELD_MAX or len(self._buffer) >= BUFFER_BYTES:
            self.flush()

    def flush(self) -> None:
        """Writes all, then releases. After a broken pipe nothing is released: it will be delivered again."""
        buffer, self._buffer = self._buffer, bytearray()
        held, self._held = self._held, []
        view = memoryview(buffer)
        while view:
            view = view[os.write(STDOUT, view) :]
        for message in held:
            message.release()


class _Row:
    """A message of a batch, as far as its fields are shown."""

    def __init__(self, batch: Batch, frame: Any) -> None:
        self.topic, self.source = batch.topic, batch.source
        self.sequence_number, self.timestamp_ns = int(frame["sequence_number"]), int(frame["timestamp_ns"])


def _fields(message: Message | _Row, data: bytes, *, retransmit: bool) -> dict[str, object]:
    fields: dict[str, object] = {
        "topic": message.topic,
        "source": message.source,
        "sequence_number": message.sequence_number,
        "timestamp_ns": message.timestamp_ns,
        "retransmit": retransmit,
    }
    try:
        fields["data"] = data.decode()
    except UnicodeDecodeError:
        fields["data_base64"] = base64.b64encode(data).decode()
    return fields
