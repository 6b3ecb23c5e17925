"""A real process of the kill tests, started by exec: ``python worker.py source|receiver|store SETTINGS``
(Settings as JSON).

It uses the public names only, and says what it does in a file of words that outlives it (workers.py reads
it). A receiver appends what it has processed to a file of rows before it releases a message.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import random
import signal
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from support.oracle import ROW, Content

import holdfast as hf

if TYPE_CHECKING:
    from numpy.typing import NDArray

WORDS = 8
LIFE, SENT, STABLE, START, LOST_QUORUM = range(5)
"""Written by the worker. LIFE: its life, once it is registered (open); SENT: number behind the last send that
returned; STABLE: number behind the last one that it was told is stable; START: number that its life began
with; LOST_QUORUM: how often."""
CHILD = 7
"""Written by a source that forks: pid of the child."""
LIMIT, STOP = 5, 6
"""Written by the parent: number that a source must not reach; 1: come to a clean end."""
_FIELDS = [*(ROW.names or ()), "life", "retransmit", "sent_ns"]
RECORD = np.dtype({"names": _FIELDS, "formats": ["<u8"] * len(_FIELDS), "itemsize": 64})
"""One processed message, by which life of the receiver, whether it was flagged, and when the source says it
sent it. 64 bytes: a page holds whole ones, so that a kill in the middle of a write leaves no part of one."""

FRAME_FIELDS = ["first_sequence_number", "sequence_number", "flags", "timestamp_ns"]


@dataclass
class Settings:
    """What a worker is told. Paths are absolute."""

    words: str
    life: int
    domain: str = ""
    seed: int = 0
    session: int = 0
    topic: str = "kills"
    options: dict[str, Any] = field(default_factory=dict)
    """Of the source or receiver, or of the store."""
    rows: str = ""
    name: str = "a"
    """Of a store."""
    stores: list[str] = field(default_factory=lambda: ["a"])
    """Of a source."""
    directory: str = ""
    kind: str = "disk"
    form: str = "mixed"
    """How a source sends (send, batch, claim, mixed) or a receiver receives (receive; batch, if no view can
    be evicted; late, if it is not killed: it reports only when a batch was not evicted)."""
    hold: str = ""
    """A receiver that finds this file stays between processing and release."""
    fork: bool = False
    """A source that is registered forks a child that does nothing."""
    segment_bytes: int = 0
    """Size of the store's log segments; 0 = the store's own."""

    def encode(self) -> str:
        """As the command line takes it."""
        return json.dumps(asdict(self))


def open_words(path: str) -> NDArray[np.uint64]:
    """The shared words of a file that exists."""
    with open(path, "r+b") as file:
        return np.frombuffer(mmap.mmap(file.fileno(), WORDS * 8), np.uint64)


class _Source:
    def __init__(self, settings: Settings, words: NDArray[np.uint64]) -> None:
        self.settings, self.words = settings, words
        self.content = Content(settings.seed)
        self.random = random.Random(settings.life)
        self.told_stable = 0
        self.context = hf.Context(session_id=settings.session)
        options = {"ume_store_name": settings.stores, "fragment_size": self.content.fragment, **settings.options}
        self.source = self.context.source(settings.topic, options=options, on_event=self._event)

    def _event(self, event: object) -> None:
        if isinstance(event, hf.events.MessageStable):
            self.told_stable = max(self.told_stable, event.sequence_number + 1)

    def run(self) -> None:
        self._register()
        if self.settings.fork and not (pid := os.fork()):
            signal.pause()  # keeps every socket of its parent open, for as long as it is let
        if self.settings.fork:
            self.words[CHILD] = pid
        self.words[START] = self.words[SENT] = self.source.next_sequence_number
        self.words[LIFE] = self.settings.life
        while not self.words[STOP]:
            try:
                self._step()
            except hf.NotRegisteredError:
                self.words[LOST_QUORUM] += 1
                self._register()
        self.source.wait_stable(timeout=90)
        self.words[SENT] = self.source.next_sequence_number  # with what a send that failed had published
        self.words[STABLE] = self.source.stable_sequence_number + 1
        self.context.close()

    def _register(self) -> None:
        while not self.words[STOP]:
            try:
                self.source.wait_registered(1.0)
                break
            except (hf.RegIdInUseError, hf.RegistrationTimeout):
                time.sleep(0.01)  # its predecessor is being taken care of, or there is no store

    def _step(self) -> None:
        number = self.source.next_sequence_number
        if number < self.words[LIMIT]:
            self._send(number)
            self.words[SENT] = self.source.next_sequence_number
        else:
            time.sleep(0.001)
        self.words[STABLE] = max(self.source.stable_sequence_number + 1, self.told_stable)

    def _send(self, number: int) -> None:
        form = self.settings.form
        if form == "mixed":
            form = self.random.choice(("send", "batch", "claim"))
        count = self.content.uniform(number) if form == "batch" else 1
        rows = self.content.payloads(number, self.settings.life, count)
        if form == "batch" and count > 1:
            self.source.send_batch(rows)
        elif form == "claim" and rows.shape[1] <= self.content.fragment:
            with self.source.claim(rows.shape[1]) as view:
                view[:] = rows.tobytes()
        else:
            self.source.send(rows.tobytes())


class _Receiver:
    def __init__(self, settings: Settings, words: NDArray[np.uint64]) -> None:
        self.settings, self.words = settings, words
        self.content = Content(settings.seed)
        self.fd = os.open(settings.rows, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.context = hf.Context(session_id=settings.session, options={"ume_ack_batching_interval": 5})
        self.receiver = self.context.receiver(settings.topic, options=settings.options, on_event=self._event)

    def _event(self, event: object) -> None:
        if isinstance(event, (hf.events.UnrecoverableLoss, hf.events.UnrecoverableLossBurst)):
            self._fail(f"was told of a loss: {event}")

    @staticmethod
    def _fail(text: str) -> None:
        sys.stderr.write(f"receiver {text}\n")
        sys.stderr.flush()
        os._exit(70)

    def run(self) -> None:
        self.words[LIFE] = self.settings.life
        while not self.words[STOP]:
            try:
                if self.settings.form != "receive":
                    self._batch()
                else:
                    self._message()
            except hf.RegistrationError:
                time.sleep(0.01)  # its predecessor's death is not proved yet
        self.context.close()

    def _report(self, rows: NDArray[Any]) -> None:
        os.write(self.fd, rows.tobytes())
        self._stay(int(rows["last"][-1]))

    def _stay(self, last: int) -> None:
        while self.settings.hold and os.path.exists(self.settings.hold):
            self.words[SENT] = last + 1
            time.sleep(0.001)

    def _message(self) -> None:
        message = self.receiver.receive(timeout=0.05)
        if message is None:
            return
        row = self._row(
            message.data, message.first_sequence_number, message.sequence_number, message.is_retransmit, message.timestamp_ns
        )  # fmt: skip
        self._report(np.array([row], RECORD))
        message.release()

    def _batch(self) -> None:
        batch = self.receiver.receive_batch(64, timeout=0.05)
        if batch is None:
            return
        frames = batch.frames
        rows = [
            self._row(batch.payload(i), first, last, flags & 8 > 0, sent_ns)
            for i, (first, last, flags, sent_ns) in enumerate(frames[FRAME_FIELDS].tolist())
        ]
        if self.settings.form == "batch":  # what is reported is not evicted: the parent holds the source back for it
            self._report(np.array(rows, RECORD))
            batch.release()
            return
        self._stay(int(frames["sequence_number"][-1]))
        with contextlib.suppress(hf.EvictedError):  # nothing was consumed, it comes again
            batch.release()
            self._report(np.array(rows, RECORD))

    def _row(self, data: Any, first: int, last: int, retransmit: bool, sent_ns: int) -> tuple[int, ...]:
        words = np.frombuffer(data, np.uint64)
        size, life = len(words) * 8, self.settings.life
        digest = int(self.content.digests(words, [0], [size])[0])
        return first, last, int(words[0]), size, digest, life, int(retransmit), sent_ns


def _store(settings: Settings, words: NDArray[np.uint64]) -> None:
    from holdfast.engine.store.store import Store, StoreConfig

    store = Store(StoreConfig(settings.name, settings.directory, type=settings.kind, options=settings.options))
    if settings.segment_bytes:  # no option: a test that filled the usual ones would take minutes
        holdings, usual = store.holdings, store.holdings._log_config

        def small(source: Any) -> Any:
            config = usual(source)
            config.first_segment_bytes = config.max_segment_bytes = settings.segment_bytes
            return config

        holdings._log_config = small  # type: ignore[method-assign]
    store.open()
    signal.signal(signal.SIGTERM, lambda *_: store.stop())
    words[LIFE] = settings.life
    store.run()
    store.close()


def run(role: str, settings: Settings) -> None:
    """One role until it is told to stop, or killed."""
    words = open_words(settings.words)
    if role == "store":
        _store(settings, words)
    elif role == "source":
        _Source(settings, words).run()
    else:
        _Receiver(settings, words).run()


if __name__ == "__main__":
    run(sys.argv[1], Settings(**json.loads(sys.argv[2])))
