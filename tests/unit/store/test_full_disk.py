"""A log without room: what is said of it, how often it is tried, and what its line on the board says."""

from __future__ import annotations

import errno
import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.engine.errors import Error, LimitReachedError, SharedMemoryFullError, SystemCallError
from holdfast.engine.log.state_file import SourceState
from holdfast.engine.native.core import lib
from holdfast.engine.rules.halts import RETRY_MAX_NS
from holdfast.engine.rules.reconcile import Lost
from holdfast.engine.store import catch_up
from holdfast.engine.store.catch_up import CatchUp
from holdfast.engine.store.drainer import TEND_NS, Drainer

if TYPE_CHECKING:
    from unit.store.conftest import Clock

UUID = b"u" * 16
QUOTES = SourceState(UUID, "quotes", 7, 0)
CALLED = "store a: RegID 7 on topic 'quotes'"
HOUR_NS = 3_600_000_000_000


class Log:
    """A repository that catches up, and that a full disk stops while ``full``."""

    def __init__(self, kind: str) -> None:
        self.source, self.called = QUOTES, CALLED
        self.item = SimpleNamespace(status=lib.HF_OK, rolls=0)
        self.catch_up: object = SimpleNamespace(waits=False)
        self.stream: object = object()
        self.losses: list[tuple[int, int]] = []
        self.next_sqn, self.sent = 5, 9
        self.pacer, self.full, self.trials, self.beats = None, True, 0, 0
        self.said: list[bool] = []
        self.line = SimpleNamespace(say_full=self.said.append)
        self._kind = kind

    def fill(self, _: int) -> None:
        self.trials += 1
        if self.full:
            raise self._error()
        self.next_sqn, self.catch_up = self.sent, None

    def _error(self) -> Error | OSError:
        if self._kind == "memory":
            return SharedMemoryFullError(-1, 4096 + self.trials)
        if self._kind == "system":
            return OSError(errno.ENOSPC, "No space left on device")
        return SystemCallError(f"/logs/u is full: no space, {self.trials} free", errno.ENOSPC, "ENOSPC")

    def drained(self) -> bool:
        return False  # a busy source: something newer is always there

    def live_sqn(self) -> int:
        self.sent += 1
        return self.sent

    def owner_gone(self) -> bool:
        return False

    def tidy(self) -> None:
        pass

    look_for_lost = tidy

    def beat(self, _: int) -> None:
        self.beats += 1


def turns(drainer: Drainer, clock: Clock, until_ns: int) -> None:
    while clock.now < until_ns:
        clock.now += TEND_NS
        drainer._tend(clock.now)
        drainer._fill(clock.now)


@pytest.mark.parametrize("kind", ["disk", "memory", "system"])
def test_a_log_that_catches_up_on_a_full_disk_says_so_once_and_is_tried_with_a_pause(
    clock: Clock, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    bells: Any = None
    drainer, log = Drainer("a", bells, 0, 0.0), Log(kind)
    drainer.repositories[UUID] = log  # type: ignore[assignment]
    with caplog.at_level(logging.WARNING, "holdfast.store"):
        turns(drainer, clock, HOUR_NS // 10)
        assert len(caplog.records) == 1
        assert "full" in caplog.text or "No space" in caplog.text
        assert log.trials <= HOUR_NS // 10 // RETRY_MAX_NS + 10
        assert log.said[0] is True
        assert False not in log.said
        assert log.beats >= HOUR_NS // 10 // TEND_NS - 1, "it lives"
        caplog.clear()
        log.full = False
        turns(drainer, clock, clock.now + RETRY_MAX_NS + 2 * TEND_NS)
        assert log.catch_up is None, "it is tried again by itself"
        log.next_sqn = log.sent
        turns(drainer, clock, clock.now + 2 * TEND_NS)
        assert log.said[-1] is False
        assert drainer.failures == {}
        assert [record.getMessage() for record in caplog.records] == [f"{CALLED}: takes messages again"]
        caplog.clear()
        log.full, log.catch_up = True, SimpleNamespace(waits=False)
        turns(drainer, clock, clock.now + 2 * TEND_NS)
        assert len(caplog.records) == 1, "the next time it is news again"


def test_another_failure_of_a_full_disk_is_said(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    bells: Any = None
    drainer = Drainer("a", bells, 0, 0.0)
    drainer.say(QUOTES, OSError(errno.ENOSPC, "full"))
    drainer.say(QUOTES, OSError(errno.EIO, "broken"))
    drainer.say(QUOTES, OSError(errno.EIO, "broken"))
    drainer.say(QUOTES, OSError(errno.ENOSPC, "full"))
    assert [record.getMessage().split("] ")[1] for record in caplog.records] == ["full", "broken", "full"]


def test_a_limit_is_said_once_however_its_use_changes(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    bells: Any = None
    drainer = Drainer("a", bells, 0, 0.0)
    for used in (250, 251):
        drainer.say(
            QUOTES, LimitReachedError(f"{used} of 256", 24, "EMFILE", limit="RLIMIT_NOFILE", value=256, used=used)
        )
    drainer.say(QUOTES, LimitReachedError("all", 12, "ENOMEM", limit="vm.max_map_count", value=9, used=9))
    assert [record.getMessage().split(": ")[-1] for record in caplog.records] == ["250 of 256", "all"]


def test_a_log_that_was_full_and_is_broken_now_is_not_called_full(clock: Clock) -> None:
    bells: Any = None
    drainer, log = Drainer("a", bells, 0, 0.0), Log("disk")
    drainer.repositories[UUID] = log  # type: ignore[assignment]
    turns(drainer, clock, 2 * TEND_NS)
    assert set(log.said) == {True}
    drainer._halted(log, OSError(errno.EIO, "broken"))  # type: ignore[arg-type]
    assert log.said[-1] is False


def test_what_is_missing_is_said_when_it_is_recorded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the disk is full the record fails, again and again."""
    recorded: list[Lost] = []
    full = True

    def lack(what: Lost) -> None:
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")
        recorded.append(what)

    monkeypatch.setattr(catch_up, "Logs", lambda *_, **__: SimpleNamespace(
        table=(), begun=(1, 0), paths=(), until={}, behind=(9,), undecided=0, awaited=(), read=lambda *_: 0, close=lambda: None
    ))  # fmt: skip
    port: Any = SimpleNamespace(
        path="/logs/c", called=CALLED, stream=object(), item=SimpleNamespace(block_bytes=4096), table=((1, 0),), lack=lack,
        info=SimpleNamespace(appended_sqn=5, empty=False), peers=list, until=dict, ring_goes_on=lambda held: max(held, 9),
    )  # fmt: skip
    filling = CatchUp(port)
    for _ in range(5):
        with pytest.raises(OSError, match="No space"):
            filling.turn(0)
    assert caplog.records == []
    full = False
    assert filling.turn(0)
    assert recorded == [Lost(5, 8)]
    assert [record.getMessage() for record in caplog.records] == [
        f"{CALLED}: 5..8 are missing: no store has them (/logs/c)"
    ]
