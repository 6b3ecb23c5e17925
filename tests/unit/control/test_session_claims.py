"""The claims of one session, without stores (engine/control/session_claims.py)."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gc
import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.engine.control import session_claims
from holdfast.engine.control.session_claims import NAME, RETRY_NS, TRIES, SessionClaims
from holdfast.engine.memory.domain import Domain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.engine.control.waits import Wait

SESSION = 7


class Waits:
    """What is shown, and how often something was."""

    def __init__(self) -> None:
        self.now: dict[object, Wait] = {}
        self.count = 0

    def show(self, who: object, wait: Wait | None) -> None:
        self.count += 1
        self.now.pop(who, None)
        if wait is not None:
            self.now[who] = wait


@pytest.fixture
def joined(domain: str) -> Iterator[Domain]:
    found = Domain(domain)
    yield found
    found.close()


@pytest.fixture
def claims(joined: Domain) -> Callable[..., SessionClaims]:
    """Makes the claims of one more receiver."""

    def make(waits: Any = None, tell: Callable[[object], object] = lambda _: None) -> SessionClaims:
        return SessionClaims(joined, waits or Waits(), SESSION, tell)  # type: ignore[arg-type]

    return make


def in_a_child(look: Callable[[], bool]) -> bool:
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            os._exit(not look())
        os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_forked_child_has_none_of_its_parents_claims(claims: Callable[..., SessionClaims]) -> None:
    first = claims()
    assert first.hold("quotes")

    def is_refused() -> bool:
        first.close()  # says nothing to the kernel
        second = claims()
        return not second.hold("quotes") and getattr(second.refused("quotes"), "pid", 0) == os.getppid()

    assert in_a_child(is_refused)
    first.close()
    assert in_a_child(lambda: claims().hold("quotes"))


def test_each_of_two_holders_is_asked_again(claims: Callable[..., SessionClaims]) -> None:
    one, other, late = claims(), claims(), claims()
    assert one.hold("a")
    assert other.hold("b")
    assert [late.hold(topic) for topic in "abc"] == [False, False, True]
    other.close()
    assert late.turn(1 << 60)
    assert [late.hold(topic) for topic in "ab"] == [False, True]
    assert not late.turn(1 << 60)
    one.close()
    assert not late.turn(0), "not so soon"
    assert late.turn(1 << 61)
    assert not late.denied


def test_one_topic_of_a_process_is_asked_for_at_a_time_and_all_in_turn(
    claims: Callable[..., SessionClaims], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    free: set[int] = set()

    def take(_: Domain, byte: int, __: object) -> int | None:
        asked.append(byte)
        return None if byte in free else 1

    monkeypatch.setattr(session_claims, "_take", take)
    waits, told = Waits(), list[object]()
    late = claims(waits, told.append)
    assert not any(late.hold(topic) for topic in "abc")
    every = list(asked)
    for turn in range(1, 7):
        assert not late.turn((1 << 60) * turn)
    assert asked[3:] == every * 2
    assert (len(told), waits.count) == (3, 1), "told of each topic once, and shown once for their process"
    free.update(every)
    assert late.turn(1 << 63)
    assert (late.denied, waits.now, late.refusal()) == (False, {}, None)


def test_what_was_found_out_before_is_not_believed(claims: Callable[..., SessionClaims]) -> None:
    first, second = claims(), claims()
    assert (first.hold("a"), second.hold("a")) == (True, False)
    found = second.refusal()
    assert found is not None
    assert (found.pid, found.session_id, second.refusal(1 << 62)) == (os.getpid(), SESSION, None)
    assert second.refused("a") is second.refused("a"), "the same words, so that they are told once"
    first.close()
    assert second.turn(1 << 60)
    assert second.refusal() is None


def test_what_is_not_closed_goes_with_its_object(claims: Callable[..., SessionClaims]) -> None:
    first, second = claims(), claims()
    assert (first.hold("a"), second.hold("a")) == (True, False)
    del first
    gc.collect()
    assert second.turn(1 << 60)


def test_a_file_that_was_removed_is_made_again(joined: Domain, claims: Callable[..., SessionClaims]) -> None:
    first, second = claims(), claims()
    assert first.hold("a")
    (joined.path / NAME).unlink()
    assert second.hold("b")
    assert in_a_child(lambda: not claims().hold("a"))
    first.close()
    assert in_a_child(lambda: claims().hold("a"))


def test_no_descriptor_stays(joined: Domain, claims: Callable[..., SessionClaims]) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        first, second = claims(), claims()
        assert (first.hold("a"), second.hold("a")) == (True, False)
        first.close()
        second.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_who_closes_while_it_asks_has_nothing(
    claims: Callable[..., SessionClaims], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal's handler does so."""
    first, lock = claims(), session_claims._lock

    def closes(fd: int, byte: int) -> int | None:
        first.close()
        return lock(fd, byte)

    with monkeypatch.context() as patch:
        patch.setattr(session_claims, "_lock", closes)
        kept = claims()
        patch.setattr(session_claims, "_lock", lock)
        assert kept.hold("other"), "the file stays open"
        patch.setattr(session_claims, "_lock", closes)
        first.hold("a")
    assert in_a_child(lambda: claims().hold("a"))
    kept.close()


def test_a_kernel_that_refuses_locks_lets_everybody_in(
    claims: Callable[..., SessionClaims], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls = 0

    def refuses(_: int, command: int, wanted: bytes) -> bytes:
        nonlocal calls
        calls += 1
        if command == fcntl.F_SETLK:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return session_claims._FLOCK.pack(fcntl.F_UNLCK, 0, 0, 0, 0)

    names = {name: getattr(fcntl, name) for name in ("F_SETLK", "F_GETLK", "F_WRLCK", "F_UNLCK")}
    monkeypatch.setattr(session_claims, "fcntl", SimpleNamespace(fcntl=refuses, **names))
    first = claims()
    assert first.hold("a")
    assert first.hold("b")
    assert calls == 2 * (2 * TRIES + 1)
    assert caplog.text.count("a second receiver may be let in") == 1


def test_nothing_is_claimed_without_a_session(joined: Domain) -> None:
    without = [SessionClaims(joined, Waits(), 0, lambda _: None) for _ in range(2)]  # type: ignore[arg-type]
    assert [each.hold("a") for each in without] == [True, True]
    assert not (joined.path / NAME).exists()
    assert not without[0].turn(RETRY_NS)
