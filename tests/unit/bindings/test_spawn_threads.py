"""A store in a process of its own whose output nobody can read (bindings/stores/spawn.py)."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

import holdfast as hf
from holdfast.engine.errors import LimitReachedError
from holdfast.stores import spawn

if TYPE_CHECKING:
    import subprocess
    import threading
    from pathlib import Path


@pytest.mark.parametrize("error", [
    LimitReachedError("no thread", errno.EAGAIN, "EAGAIN", limit="RLIMIT_NPROC", value=1, used=1), KeyboardInterrupt(),
], ids=["limit", "interrupt"])  # fmt: skip
def test_without_a_thread_that_reads_its_output_a_store_ends_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    begun: list[subprocess.Popen[bytes]] = []

    def refuse(_: threading.Thread) -> None:
        begun.extend(each._process for each in spawn.StoreProcess._alive - before)
        raise error

    before = set(spawn.StoreProcess._alive)
    open_before = sorted(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(spawn, "start_thread", refuse)
    with pytest.raises(type(error)) as told:
        hf.spawn_store(hf.StoreConfig("a", tmp_path / "a"))
    assert told.value is error
    (process,) = begun
    assert process.returncode == -9, "it is waited for"
    assert spawn.StoreProcess._alive == before
    assert sorted(os.listdir("/proc/self/fd")) == open_before
