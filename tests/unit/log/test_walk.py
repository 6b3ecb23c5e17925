"""Walks to the ends of logs (engine/log/end.py): a thread that cannot be started is no disk that hangs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import holdfast as hf
from holdfast.engine.log import end
from holdfast.engine.native.runtime import threading

if TYPE_CHECKING:
    from pathlib import Path


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
