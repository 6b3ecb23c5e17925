"""Sources that are over are read in the order of all that stores tell of, however many pages that takes
(engine/receiver/finished.py)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.engine.receiver.finished import PATIENCE_NS, Finished

PAGES = 20


def told(finished: Finished, number: int) -> None:
    """The store tells of one more; the later it tells, the sooner that one has sent its first message."""
    uuid = number.to_bytes(16, "big")
    over = SimpleNamespace(first_ns=1000 - number, low=0, following=1, acked=0, receiver=b"", registration_id=0)
    found: Any = SimpleNamespace(uuid=uuid, incarnation=1, start_sqn=0, late_join=True)
    info: Any = SimpleNamespace(over=over, log="/logs", registration_id=1)
    assert finished.takes("a", found, info, None)


@pytest.fixture
def finished(monkeypatch: pytest.MonkeyPatch) -> Finished:
    options = SimpleNamespace(
        ume_registration_extended_function=None, ume_recovery_sequence_number_info_function=None, use_late_join=1,
        ume_consensus_sequence_number_behavior="lowest",
    )  # fmt: skip
    receiver: Any = SimpleNamespace(options=options, chosen=None, has_session=lambda **_: True)
    made = Finished(receiver, 0)
    monkeypatch.setattr(made, "_begin_next", lambda _: True)
    return made


def test_pages_that_come_one_after_another_are_waited_for(finished: Finished) -> None:
    now = 1
    for number in range(PAGES):
        told(finished, number)
        finished.turn(now, lambda: False)
        now += PATIENCE_NS - 1
        assert len(finished._queue) == number + 1, "none has begun"
    assert finished._queue[0][1] == (PAGES - 1).to_bytes(16, "big")
    finished.turn(now, lambda: True)
    assert not finished.is_reading


def test_a_store_that_says_nothing_more_is_not_waited_for(finished: Finished) -> None:
    told(finished, 1)
    finished.turn(1, lambda: False)
    finished.turn(PATIENCE_NS, lambda: False)
    assert finished.is_reading
    finished.turn(1 + PATIENCE_NS, lambda: False)
    assert not finished.is_reading
