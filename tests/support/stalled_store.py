"""A source of this process and a store that can stand still, so that messages stay unstable as long as a test
likes."""

from __future__ import annotations

import signal
import threading
import time
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from support.workers import Worker, stand_still

import holdfast as hf

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

E = TypeVar("E")
SHORT = 90.0
RING = 1 << 16
OPTIONS: dict[str, Any] = {"ume_store_name": ["a:0:0"], "ring_size": RING, "fragment_size": 1024}


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + SHORT
    while not true():
        assert time.monotonic() < deadline, "the time is over"
        time.sleep(0.002)


class Events:
    """What a source told, in order, and on which thread."""

    def __init__(self) -> None:
        self.all: list[tuple[int, Any]] = []

    def __call__(self, event: object) -> None:
        self.all.append((threading.get_ident(), event))

    def of(self, kind: type[E]) -> list[E]:
        return [event for _, event in self.all if isinstance(event, kind)]

    def wait(self, kind: type[E], count: int = 1) -> list[E]:
        until(lambda: len(self.of(kind)) >= count)
        return self.of(kind)

    def threads(self, kind: type) -> set[int]:
        return {thread for thread, event in self.all if isinstance(event, kind)}


class Scene:
    """A store process that can stand still, and a context."""

    def __init__(self, where: Path, domain: str, context: hf.Context) -> None:
        self.context = context
        self.events = Events()
        self.store = Worker("store", where, directory=str(where / "store"), kind="memory", domain=domain)
        self.store.start().wait_ready()

    def source(self, **options: Any) -> hf.Source:
        source = self.context.source("quotes", options={**OPTIONS, **options}, on_event=self.events)
        source.wait_registered(SHORT)
        return source

    def stand_still(self) -> None:
        """No thread of it runs any more."""
        assert self.store.process is not None
        stand_still(self.store.process.pid)

    def go_on(self) -> None:
        self.store.send(signal.SIGCONT)


def refused(source: hf.Source, size: int = 10, timeout: float = 0) -> str:
    before = source.next_sequence_number
    with pytest.raises(hf.WouldBlockError) as error:
        source.send(bytes(size), timeout=timeout)
    assert source.next_sequence_number == before, "a send that fails consumes no number"
    return error.value.reason


def take(receiver: hf.Receiver) -> hf.Message:
    message = receiver.receive(timeout=SHORT)
    assert message is not None
    return message
