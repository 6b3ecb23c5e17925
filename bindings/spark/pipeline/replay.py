"""What was sent once, sent again into a topic: as fast as it was, faster, or as fast as it goes.

With a checkpoint a replay that was killed goes on without gap or duplicate. Everything is published by one
source, whose session ID the checkpoint decides, and in an order that is a function of the input alone
(recorded.py). So the number at which that source goes on says what is out: a message is, if its numbers lie
below (docs/design.md 14). The checkpoint says which number belongs to which message, now and then.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow.compute as pc

from ...engine.errors import ConfigError, CorruptionError
from ..options import parse
from ..publishing import Publisher, slot
from ..writing import spark_directory
from .checkpoint import CheckpointFile
from .progress import Progress, Tell, silent
from .recorded import ArchiveInput, Input, Position, merged, opened

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from .recorded import Messages, Recording

__all__ = ["ReplayCheckpoint", "Replayed", "replay"]

SAVE_SECONDS = 1.0
TELL_SECONDS = 0.1
NAP_SECONDS = 0.1
"""The longest sleep between two messages, so that progress goes on and a signal is noticed."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay has done."""

    topic: str
    messages: int
    """That this run has published."""
    before: int
    """That were out when it began."""
    first: int
    """Sequence number of the first message of the whole replay, in its new source,"""
    next: int
    """and the one behind the last."""
    seconds: float


class ReplayCheckpoint(msgspec.Struct, tag="replay"):
    """What is out, at least: ``messages`` of them, as far as ``positions``; the next one has number
    ``number``."""

    name: str
    """Decides the session ID of the source that publishes."""
    topic: str
    input: Input
    first: int
    number: int
    fragment: int
    """Bytes per fragment: how many numbers a message takes."""
    messages: int = 0
    positions: dict[str, Position] = msgspec.field(default_factory=dict)
    done: bool = False


def replay(
    source: Input,
    topic: str,
    *,
    speed: float = 1.0,
    checkpoint: Path | None = None,
    options: Mapping[str, str],
    progress: Tell = silent,
) -> Replayed:
    """Publishes all of ``source`` into ``topic``; it is stable when this returns.

    Args:
        speed: 1: with the pauses that there were; 10: with a tenth of them; 0: as fast as it goes.
        checkpoint: a file. A replay that was killed goes on where it was, with what there was of its input
            when it began; one that was finished does nothing. Without, every replay begins anew.
        options: of a write: ``stores``, ``domain``, ``commitTimeout``, ``option.*``.

    Raises:
        ConfigError: an input that is not there or not what it was, options that are none, the checkpoint of
            another replay.
        CheckpointInUseError, CorruptionError: the checkpoint is another process's, or is none, or not what
            the stores have.
        DataLossError: numbers of a topic that no store has any more.
        StoresAwayError: numbers that no store in sight has, while others are away.
        RegistrationTimeout, WouldBlockError, StabilityTimeout, MessageTooLargeError: as a source's.
    """
    if not speed >= 0:
        raise ConfigError(f"speed {speed} is none", hint="1 is as recorded, 0 as fast as it goes")
    began = time.monotonic()
    given = parse({**options, "topic": topic, "delivery": "at_least_once"}, "write")
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(CheckpointFile(checkpoint, ReplayCheckpoint)) if checkpoint is not None else None
        known = file.load() if file is not None else None
        if known is not None:
            _check_same(known, source, topic)
            if known.done:
                return Replayed(topic, 0, known.messages, known.first, known.number, time.monotonic() - began)
        recording = opened(known.input if known is not None else source)
        if known is not None:
            name = known.name
        elif file is not None:
            name = f"replay {secrets.token_hex(16)}"
        else:
            name = stack.enter_context(slot(spark_directory(given)))
        publisher = stack.enter_context(Publisher(given, name))
        publisher.open([topic])
        number, fragment = publisher.position(topic)
        at = known or ReplayCheckpoint(name, topic, recording.input, number, number, fragment)
        run = _Run(recording, publisher, at, file, speed, progress)
        before = run.go_on(number, fragment)
        run.publish()
        return Replayed(topic, at.messages - before, before, at.first, at.number, time.monotonic() - began)


def _check_same(known: ReplayCheckpoint, source: Input, topic: str) -> None:
    """Raises ConfigError where the checkpoint is of another replay."""

    def said(given: Input) -> object:
        return (given.path, given.topic) if isinstance(given, ArchiveInput) else given.options

    if (said(known.input), known.topic) != (said(source), topic):
        raise ConfigError(
            f"the checkpoint is of a replay of {said(known.input)} into {known.topic!r}, this is {said(source)} into {topic!r}",
            hint="each replay needs a checkpoint of its own",
        )


class _Run:
    """One run. ``at``: what is out, kept up to date."""

    def __init__(
        self, recording: Recording, publisher: Publisher, at: ReplayCheckpoint,
        file: CheckpointFile[ReplayCheckpoint] | None, speed: float, progress: Tell,
    ) -> None:  # fmt: skip
        self._recording, self._publisher, self._at = recording, publisher, at
        self._file, self._speed, self._progress = file, speed, progress
        self._batches: Iterator[Messages] = merged(recording, at.positions)
        self._left: Messages | None = None
        """What was read and is not out."""
        self._unsaved = False
        self._told = 0.0
        self._saved = time.monotonic()

    # Where it goes on ---------------------------------------------------------------------------------------

    def go_on(self, number: int, fragment: int) -> int:
        """Passes over what is out already, when the source goes on at ``number``. Returns how many messages
        that are."""
        ahead = number - self._at.number
        if ahead < 0:
            raise CorruptionError(
                f"number {self._at.number - 1} of this replay was stable, and its source goes on at {number}",
                hint="the stores have lost what they had; without its checkpoint the replay begins anew",
            )
        while ahead:
            batch = self._next()
            if batch is None:
                raise self._misplaced(number)
            ends = np.cumsum(_fragments(batch.values, self._at.fragment))
            out = int(np.searchsorted(ends, ahead, "right"))
            self._count(batch, out)
            ahead -= int(ends[out - 1]) if out else 0
            self._left = _from(batch, out)
            if ahead and out < len(ends):
                raise self._misplaced(number)
        self._at.number, self._at.fragment = number, fragment
        self._save()
        return self._at.messages

    def _misplaced(self, number: int) -> CorruptionError:
        return CorruptionError(
            f"the source of this replay goes on at {number}, where none of its messages ends",
            hint="another program has published with its session ID, or the input has changed",
        )

    def _next(self) -> Messages | None:
        left, self._left = self._left, None
        return left if left is not None and len(left.number) else next(self._batches, None)

    # Publishing ---------------------------------------------------------------------------------------------

    def publish(self) -> None:
        """The rest."""
        origin: tuple[float, int] | None = None
        while (batch := self._next()) is not None:
            if origin is None:
                origin = time.monotonic(), int(batch.sent_ns[0])
            while len(batch.number):
                due = self._due(batch, *origin)
                if due:
                    self._publisher.send(self._at.topic, batch.values.slice(0, due))
                    self._count(batch, due)
                    batch = _from(batch, due)
                self._tell()
                if self._unsaved and time.monotonic() - self._saved >= SAVE_SECONDS:
                    self._save()
        self._at.done = True
        self._save()
        self._tell(last=True)

    def _due(self, batch: Messages, began: float, sent_ns: int) -> int:
        """How many are due; sleeps for a while if none is."""
        if not self._speed:
            return len(batch.number)
        passed = (time.monotonic() - began) * self._speed * 1e9
        due = int(np.searchsorted(batch.sent_ns - sent_ns, passed, "right"))
        if not due:
            time.sleep(min(NAP_SECONDS, (int(batch.sent_ns[0]) - sent_ns - passed) / self._speed / 1e9))
        return due

    def _count(self, batch: Messages, count: int) -> None:
        """The first ``count`` of a batch are out."""
        self._at.messages += count
        self._unsaved = True
        for index in np.unique(batch.source[:count]):
            last = int(np.flatnonzero(batch.source[:count] == index)[-1])
            name = self._recording.sources[index]
            self._at.positions[name] = Position(int(batch.number[last]) + 1, int(batch.sent_ns[last]))

    def _save(self) -> None:
        """What is out is stable, and the checkpoint says so."""
        self._publisher.wait_stable()
        self._at.number = self._publisher.position(self._at.topic)[0]
        if self._file is not None:
            self._file.save(self._at)
        self._saved, self._unsaved = time.monotonic(), False

    def _tell(self, *, last: bool = False) -> None:
        now = time.monotonic()
        if last or now - self._told >= TELL_SECONDS:
            self._told = now
            done = self._recording.done(self._at.positions, self._at.messages)
            self._progress(Progress("replaying", done, self._recording.total, self._recording.unit))


def _from(batch: Messages, index: int) -> Messages:
    return type(batch)(batch.sent_ns[index:], batch.number[index:], batch.source[index:], batch.values.slice(index))


def _fragments(values: Any, size: int) -> Any:
    """How many numbers each payload takes."""
    return np.maximum(1, -(-pc.binary_length(values).to_numpy() // size))
