"""A store in a process of its own whose output nobody can read (bindings/stores/spawn.py)."""

from __future__ import annotations

import contextlib
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
    pipes: set[str] = set()
    make = os.pipe

    def pipe() -> tuple[int, int]:
        made = make()
        pipes.update(map(leads_to, made))
        return made

    def refuse(_: threading.Thread) -> None:
        begun.extend(each._process for each in spawn.StoreProcess._alive - before)
        raise error

    before = set(spawn.StoreProcess._alive)
    monkeypatch.setattr(spawn, "start_thread", refuse)
    monkeypatch.setattr(os, "pipe", pipe)
    with pytest.raises(type(error)) as told:
        hf.spawn_store(hf.StoreConfig("a", tmp_path / "a"))
    assert told.value is error
    (process,) = begun
    assert process.returncode == -9, "it is waited for"
    assert spawn.StoreProcess._alive == before
    assert len(pipes) >= 3, "two that it says things by, and its input"
    assert not pipes & {leads_to(int(fd)) for fd in os.listdir("/proc/self/fd")}


def leads_to(fd: int) -> str:
    """What is open there: a pipe has a number of its own. Of the listing itself nothing is left."""
    with contextlib.suppress(FileNotFoundError):
        return os.readlink(f"/proc/self/fd/{fd}")
    return ""
