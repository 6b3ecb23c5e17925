"""What the tests of receivers share: a source, what a receiver gets from it, and what it was told."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar

import holdfast as hf

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from holdfast.engine.memory.domain import Domain

SHORT = 90.0
"""Seconds that no wait here needs; a test that gets there has failed."""
SESSION = 77
MODES: dict[str, dict[str, Any]] = {
    "in C": {},
    "immediate": {"ume_use_ack_batching": 0},
    "throttled": {"ume_application_outstanding_maximum": 5},
    "arrival": {"ordered_delivery": -1},
}
"""Options of receivers that iterate each in a way of its own."""
_Event = TypeVar("_Event")


def options(*stores: str, **more: Any) -> dict[str, Any]:
    """Of a source with these stores."""
    names = [f"{name}:0:0" for name in stores or ("a",)]
    return {"ume_store_name": names, "ume_flight_size": 100_000, "ring_size": 1 << 20, **more}


def source(ctx: hf.Context, sent: int = 0, topic: str = "quotes", **more: Any) -> hf.Source:
    """A registered source that has sent this many messages, each its number; all are stable."""
    src = ctx.source(topic, options=options(**more))
    src.wait_registered(SHORT)
    send(src, sent)
    return src


def send(src: hf.Source, count: int) -> None:
    """This many more."""
    for _ in range(count):
        src.send(b"%d" % src.next_sequence_number, timeout=SHORT)
    if count:
        src.wait_stable(timeout=SHORT)


def take(rcv: hf.Receiver, count: int = 1) -> list[int]:
    """Numbers of the next messages, all released."""
    found: list[int] = []
    for _ in range(count):
        message = rcv.receive(timeout=SHORT)
        assert message is not None, f"only {found} came"
        found.append(message.sequence_number)
        message.release()
    return found


def one(rcv: hf.Receiver) -> hf.Message:
    """The next message."""
    message = rcv.receive(timeout=SHORT)
    assert message is not None, "no message came"
    return message


def acknowledged(rcv: hf.Receiver) -> int:
    """Of its only source, as the timer would do it now."""
    rcv.acknowledge(0)
    (number,) = rcv.stats().acknowledged.values()
    return number


def received(ctx: hf.Context, topic: str, count: int, **options: Any) -> list[bytes]:
    """What a receiver of its own gets first, all acknowledged."""
    with ctx.receiver(topic, options=options) as rcv:
        found: list[bytes] = []
        for _ in range(count):
            message = rcv.receive(timeout=SHORT)
            assert message is not None, f"only {found} came"
            with message:
                found.append(bytes(message))
        return found


def until(what: str, true: Callable[[], object], ctx: hf.Context | None = None) -> None:
    """Waits for ``true()``; ``ctx``: a sequential context to poll."""
    deadline = time.monotonic() + SHORT
    while not true():
        assert time.monotonic() < deadline, f"the time is over: {what}"
        if ctx is not None:
            ctx.poll(0.005)
        else:
            time.sleep(0.002)


def until_no_ring(domain: Domain) -> None:
    """Waits until the closed sources' rings have lost their names: a receiver that comes now reads the
    logs."""
    until("the ring is gone", lambda: all(item.kind != "stream" for item in domain.objects()))


def of_readers(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What readers of logs have told. Stores that run in this process tell of themselves, when it stands
    still."""
    return [record.getMessage() for record in caplog.records if record.name == "holdfast"]


class Told(list[Any]):
    """An on_event that keeps what it is told."""

    def __call__(self, event: object) -> None:
        self.append(event)

    def of(self, kind: type[_Event]) -> list[_Event]:
        """Those of one kind."""
        return [event for event in self if isinstance(event, kind)]

    def wait(self, kind: type[_Event], count: int = 1) -> _Event:
        """The last of this many events of this kind."""
        until(f"{count} {kind.__name__} in {self}", lambda: len(self.of(kind)) >= count)
        return self.of(kind)[count - 1]

    def names(self) -> list[str]:
        """Their kinds, in order."""
        return [type(event).__name__ for event in self]


def acked(ctx_options: dict[str, Any], number: int, topic: str = "quotes") -> None:
    """A receiver with SESSION consumes everything up to ``number``, and closes."""
    with hf.Context(session_id=SESSION, options=ctx_options) as ctx:
        rcv = ctx.receiver(topic)
        assert take(rcv, number + 1)[-1] == number
