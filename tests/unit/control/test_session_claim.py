"""The claim of a session, without stores (engine/control/session_claim.py)."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gc
import os
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.engine.control import session_claim
from holdfast.engine.control.session_claim import NAME, NO_FILE_NS, TRIES, SessionClaim
from holdfast.engine.memory import turn
from holdfast.engine.memory.domain import Domain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.engine.control.waits import Wait

    Make = Callable[..., SessionClaim]

SESSION = 7
LATER = 1 << 60
OTHER = """
import sys
from types import SimpleNamespace
from holdfast.engine.control.session_claim import SessionClaim
from holdfast.engine.memory.domain import Domain
claim = SessionClaim(Domain(sys.argv[1]), SimpleNamespace(show=lambda *_: None), 7, "quotes", print)
assert claim.hold()
print("ready", flush=True)
sys.stdin.read()
"""


class Waits:
    """What is shown."""

    def __init__(self) -> None:
        self.now: dict[object, Wait] = {}

    def show(self, who: object, wait: Wait | None) -> None:
        self.now.pop(who, None)
        if wait is not None:
            self.now[who] = wait


@pytest.fixture
def joined(domain: str) -> Iterator[Domain]:
    found = Domain(domain)
    yield found
    found.close()


@pytest.fixture
def claim(joined: Domain) -> Make:
    """Makes the claim of one more receiver."""

    def make(name: str = "quotes", session: int = SESSION, waits: Any = None, tell: Any = None) -> SessionClaim:
        return SessionClaim(joined, waits or Waits(), session, name, tell or (lambda _: None))  # type: ignore[arg-type]

    return make


def in_a_child(look: Callable[[], bool]) -> bool:
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            os._exit(not look())
        os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def refused_by(claim: SessionClaim) -> int:
    found = claim.refusal()
    return found.pid if found is not None else 0


def test_one_has_it_until_it_is_closed(claim: Make) -> None:
    waits, told = Waits(), list[Any]()
    first, second = claim(), claim(waits=waits, tell=told.append)
    assert (first.hold(), second.hold(), second.denied) == (True, False, True)
    assert refused_by(second) == os.getpid()
    assert second.refusal(LATER) is None, "what was found out before is not believed"
    assert not second.turn(0), "not so soon"
    assert not second.turn(LATER)
    (event,), (wait,) = told, waits.now.values()
    assert (event.topic, event.text, event.pid) == ("quotes", wait.why, os.getpid())
    assert wait.why.startswith(f"session ID 0x7 is in use by a different receiver of 'quotes' (pid {os.getpid()})")
    first.close()
    assert second.turn(LATER)
    assert (second.hold(), second.denied, second.refusal(), waits.now) == (True, False, None, {})
    assert not second.turn(LATER)
    second.close()


def test_names_and_sessions_are_apart(claim: Make) -> None:
    every = [claim(), claim("/quotes/"), claim("ticks"), claim(session=SESSION + 1)]
    assert all(each.hold() for each in every)
    for each in every:
        each.close()


def test_the_dead_have_nothing(claim: Make, joined: Domain) -> None:
    before, command = time.time(), [sys.executable, "-c", OTHER, str(joined.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == "ready\n"
            late = claim()
            assert not late.hold()
            found = late.refusal()
            assert found is not None
            assert found.pid == other.pid
            assert before <= found.since <= time.time()
        finally:
            other.kill()
    assert late.turn(LATER)
    late.close()


def test_a_forked_child_has_none_of_its_parents(claim: Make) -> None:
    first = claim()
    assert first.hold()

    def is_refused() -> bool:
        first.close()  # says nothing to the kernel
        second = claim()
        return not second.hold() and refused_by(second) == os.getppid()

    assert in_a_child(is_refused)
    first.close()
    assert in_a_child(lambda: claim().hold())


def test_what_is_not_closed_goes_with_its_object(claim: Make) -> None:
    first, second = claim(), claim()
    assert (first.hold(), second.hold()) == (True, False)
    del first
    gc.collect()
    assert second.turn(LATER)
    second.close()


def test_what_goes_while_another_one_asks_has_nothing(claim: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the same thread: a signal's handler, or a collection of garbage."""
    kept, first, second = claim("ticks"), claim(), claim("orders")
    assert kept.hold()
    assert first.hold()
    lock = session_claim._lock

    def closes(fd: int, byte: int) -> int | None:
        first.close()
        second.close()
        return lock(fd, byte)

    monkeypatch.setattr(session_claim, "_lock", closes)
    second.hold()
    monkeypatch.undo()
    assert in_a_child(lambda: claim().hold() and claim("orders").hold() and not claim("ticks").hold())
    kept.close()


def test_no_descriptor_stays(claim: Make) -> None:
    def opened() -> list[str]:
        places = (f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd"))
        return [place for place in places if os.path.lexists(place) and os.readlink(place).endswith(NAME)]

    for _ in range(3):
        first, second = claim(), claim()
        assert (first.hold(), second.hold(), len(opened())) == (True, False, 1)
        first.close()
        second.close()
        assert opened() == []


def test_standard_streams_are_not_in_its_place(joined: Domain) -> None:
    """Who opens them anew would let its locks go."""
    script = OTHER.replace("assert claim", "import os; os.close(0); assert claim").replace("sys.stdin.read()", "")
    script += (
        "files = [os.readlink(f'/proc/self/fd/{fd}') for fd in range(3, 64) if os.path.exists(f'/proc/self/fd/{fd}')]\n"
    )
    script += "assert any(file.endswith('sessions.lock') for file in files), files\n"
    subprocess.run([sys.executable, "-c", script, str(joined.path)], check=True)


@pytest.mark.parametrize("denied", [False, True])
def test_where_nothing_can_be_locked_everybody_is_let_in_who_was_not_refused(
    claim: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, denied: bool
) -> None:
    holder, late = claim(), claim()
    if denied:
        assert (holder.hold(), late.hold()) == (True, False)
    calls = 0

    def refuses(_: int, command: int, wanted: bytes) -> bytes:
        nonlocal calls
        calls += 1
        if command == fcntl.F_SETLK and wanted[:2] == turn.flock_of(fcntl.F_WRLCK)[:2]:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return turn.flock_of(fcntl.F_UNLCK)

    names = {name: getattr(fcntl, name) for name in ("F_SETLK", "F_GETLK", "F_WRLCK", "F_UNLCK")}
    if denied:
        holder.close()
    with monkeypatch.context() as patch:
        for module in (session_claim, turn):
            patch.setattr(module, "fcntl", SimpleNamespace(fcntl=refuses, **names))
        late.turn(LATER)
        assert late.hold() is not denied
        assert late.hold() is not denied
        assert calls == 2 * TRIES + 1, "and not again at once"
    assert caplog.text.count("a second receiver may be let in") == (not denied)
    assert late.turn(LATER + NO_FILE_NS) is denied
    assert not claim().hold(), "it has it now"
    late.close()
    holder.close()


def test_nothing_is_claimed_without_a_session(joined: Domain, claim: Make) -> None:
    assert [claim(session=0).hold() for _ in range(2)] == [True, True]
    assert not (joined.path / NAME).exists()
