"""Walks to the ends of logs (engine/log/end.py): a thread that cannot be started is no disk that hangs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import holdfast as hf
from holdfast.engine.log import end
from holdfast.engine.native.background import in_background
from holdfast.engine.native.runtime import threading, time

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from holdfast.engine.native.runtime import futures


def test_a_walk_that_cannot_be_started_leaves_no_disk_stuck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = str(tmp_path / "log")

    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as limited:
        limited.setattr(threading.Thread, "start", refuse)
        with pytest.raises(hf.Error, match="thread holdfast-walk: no thread can be started"):
            end.Walk([log])
    monkeypatch.setattr(end, "STUCK_NS", 0)
    assert not end.is_stuck(log)
    assert end.Walk([log]).over(timeout=60)


@pytest.mark.parametrize("what", [KeyboardInterrupt, MemoryError])
def test_nor_does_a_start_that_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: type[BaseException]
) -> None:
    log = str(tmp_path / "log")

    def interrupted(*_: object) -> None:
        raise what

    with monkeypatch.context() as limited:
        limited.setattr(end, "in_background", interrupted)
        with pytest.raises(what):
            end.Walk([log])
    monkeypatch.setattr(end, "STUCK_NS", 0)
    assert not end.is_stuck(log)


def test_a_walk_whose_start_was_interrupted_late_ends_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread runs by then: another walk of that directory, begun at the same time, goes on."""
    log = str(tmp_path / "log")
    monkeypatch.setattr(time, "monotonic_ns", lambda: 1)
    running = end._walks.value.running
    running[str(tmp_path)] = [1]
    walks: list[futures.Future[None]] = []

    def interrupted(name: str, work: Callable[[], None]) -> None:
        walks.append(in_background(name, work))
        raise KeyboardInterrupt

    monkeypatch.setattr(end, "in_background", interrupted)
    try:
        with pytest.raises(KeyboardInterrupt):
            end.Walk([log])
        assert walks[0].result(60) is None
        assert running[str(tmp_path)] == [1]
    finally:
        del running[str(tmp_path)]
