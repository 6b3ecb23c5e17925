"""Why a thread cannot be started (engine/native/threads.py): what can be looked at is said, and no more."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

import holdfast as hf
from holdfast.engine.errors import LimitReachedError
from holdfast.engine.native import limits, threads
from holdfast.engine.native.runtime import os, resource, time

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("what", [OSError(errno.EMFILE, "no"), MemoryError(), ValueError("no number")], ids=repr)
@pytest.mark.parametrize("look", ["limit_error", "_uses"])
def test_what_cannot_be_looked_at_is_not_blamed(monkeypatch: pytest.MonkeyPatch, look: str, what: Exception) -> None:
    def fail(*_: object) -> None:
        raise what

    monkeypatch.setattr(threads, "limit_error", lambda *_: None)
    monkeypatch.setattr(threads, "_uses", lambda: iter(()))
    monkeypatch.setattr(threads, look, fail)
    error = threads.no_thread("thread x")
    assert type(error) is hf.SystemCallError
    assert error.code == "EAGAIN"


def test_a_process_may_be_called_as_it_likes(tmp_path: Path) -> None:
    """Its name stands in /proc/PID/status as it is."""
    (tmp_path / "status").write_bytes(b"Name:\t\xff\xfe\nThreads:\t3\n")
    assert "Threads:\t3" in (limits.read_text(str(tmp_path / "status")) or "")


def test_the_threads_of_a_user_are_counted_last_and_not_for_each_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    now, counted = [10**12], list[int]()

    def count(user: int) -> int:
        counted.append(user)
        return 7

    monkeypatch.setattr(threads, "_counts", {})
    monkeypatch.setattr(time, "monotonic_ns", lambda: now[0])
    monkeypatch.setattr(os, "getuid", lambda: 1234)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (7, 7))
    monkeypatch.setattr(threads, "limit_error", lambda *_: None)
    monkeypatch.setattr(threads, "_groups", lambda: iter(()))
    monkeypatch.setattr(threads, "_threads_of", count)
    for _ in range(3):
        error = threads.no_thread("thread x")
        assert isinstance(error, LimitReachedError)
        assert (error.limit, error.used) == ("RLIMIT_NPROC", 7)
    assert counted == [1234]
    now[0] += threads.COUNT_NS
    threads.no_thread("thread x")
    assert counted == [1234] * 2
    monkeypatch.setattr(threads, "read_text", {"/proc/sys/kernel/threads-max": "9", "/proc/loadavg": "0 0 0 1/9 1"}.get)
    now[0] += threads.COUNT_NS
    error = threads.no_thread("thread x")
    assert isinstance(error, LimitReachedError)
    assert error.limit == "kernel.threads-max"
    assert counted == [1234] * 2, "what is read cheaply comes first"


def test_what_a_process_lacks_is_no_trouble_of_a_file() -> None:
    full = LimitReachedError("no", errno.EMFILE, "EMFILE", limit="RLIMIT_NOFILE", value=1, used=1)
    assert limits.lacking(full) is full
    none = hf.SystemCallError("no thread", errno.EAGAIN, "EAGAIN")
    assert limits.lacking(none) is none
    assert isinstance(limits.lacking(MemoryError()), MemoryError)
    assert isinstance(limits.lacking(OSError(errno.EMFILE, "no")), LimitReachedError)
    for other in (
        OSError(errno.EACCES, "no"),
        OSError(errno.EAGAIN, "busy"),
        OSError(errno.ENOSPC, "full"),
        hf.SystemCallError("no", errno.EIO, "EIO"),
        ValueError("no"),
    ):
        assert limits.lacking(other) is None, other
