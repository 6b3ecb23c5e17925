"""A process that has run out of threads, descriptors or memory cannot read its register. That is not taken
for a register with nothing in it: no source is elected, or begins, by it."""

from __future__ import annotations

import errno
import logging
import os
import shutil
from typing import TYPE_CHECKING

import pytest
from support.changing_stores import SESSION, SHORT, options, sent
from support.handmade_register import UUID, source_register
from support.workers import until

import holdfast as hf
from holdfast.engine.errors import Error, LimitReachedError, SystemCallError
from holdfast.engine.events import source as events
from holdfast.engine.log import register
from holdfast.engine.log.register import SourceRegister
from holdfast.engine.log.register_file import RegisterFile, last_lives, read_file
from holdfast.engine.native.threads import start_thread

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable
    from pathlib import Path

    from process.conftest import ThreadStore


class Lacking:
    """Says of each look into a register that this process lacks something; the text is never the same."""

    def __init__(self) -> None:
        self.times = 0

    def limit(self, *_: object) -> Error:
        self.times += 1
        text = f"no thread can be started: RLIMIT_NPROC is 7, {self.times} are used"
        return LimitReachedError(text, errno.EAGAIN, "EAGAIN", limit="RLIMIT_NPROC", value=7, used=self.times)

    def start(self, *_: object) -> None:
        raise self.limit()


@pytest.fixture
def written(registers: Path) -> SourceRegister:
    """It has a line, and does not know it yet."""
    source_register().declare(UUID, 1, {"a": 3})
    return source_register()


def raising(error: Exception) -> Callable[..., object]:
    def fail(*_: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    "error",
    [
        Lacking().limit(),
        SystemCallError("no thread can be started", errno.EAGAIN, "EAGAIN"),
        OSError(errno.EMFILE, "Too many open files"),
        MemoryError(),
    ],
    ids=repr,
)
@pytest.mark.parametrize("at", ["start", "load"])
def test_what_the_process_lacks_is_not_nothing_written(
    written: SourceRegister, monkeypatch: pytest.MonkeyPatch, error: Exception, at: str
) -> None:
    with monkeypatch.context() as limited:
        if at == "start" and isinstance(error, Error):
            limited.setattr(register, "start_thread", raising(error))
        limited.setattr(RegisterFile, "load", raising(error))
        limited.setattr(RegisterFile, "append", raising(error))
        with pytest.raises((SystemCallError, OSError, MemoryError)):
            written.read()
        with pytest.raises((SystemCallError, OSError, MemoryError)):
            written.declare(UUID, 2, {"a": 3, "b": 4})
    assert written.read()[UUID].lives == {"a": 3}
    written.settle()
    assert written.read()[UUID].lives == {"a": 3, "b": 4}, "it is written later"


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOMEM])
def test_a_file_in_trouble_goes_on_as_before(
    written: SourceRegister, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """ENOMEM is what ext4 says of a device that has gone, for ever."""
    monkeypatch.setattr(RegisterFile, "load", raising(OSError(number, os.strerror(number))))
    assert written.read() == {}


def test_later_a_limit_is_told_once(
    written: SourceRegister, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(register, "start_thread", Lacking().start)
    with pytest.raises(LimitReachedError):
        written.declare(UUID, 2, {"b": 4})
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            written.settle(0)
        written.complete(0, [5])
    assert caplog.text.count("whom topic 'quotes' has declared") == 1


def test_a_source_waits_for_what_its_process_lacks(
    registers: Path, run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both before its stores are asked and before they begin; the program is told the limit, once."""
    for name in "ab":
        run_store(name, "disk")
    assert sent("ab", 3) == 0
    lacking, texts = Lacking(), list[str]()

    def heard(event: object) -> None:
        if isinstance(event, events.RegistrationError):
            texts.append(event.text)

    with hf.Context(session_id=SESSION) as ctx:
        with monkeypatch.context() as limited:
            limited.setattr(register, "start_thread", lacking.start)
            src = ctx.source("quotes", options=options("ab"), on_event=heard)
            with pytest.raises(LimitReachedError, match="RLIMIT_NPROC"):
                src.wait_registered(SHORT)
            seen = lacking.times
            until("each store was to be asked again", lambda: lacking.times >= seen + 4)
            assert not src._session.machine.is_open
        src.wait_registered(SHORT)
        assert src.next_sequence_number == 3
    assert len(texts) == 1, texts


def test_a_store_is_not_told_to_begin_before_that_is_written(
    registers: Path, run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_store("a", "disk")
    lacking, declare = Lacking(), SourceRegister.declare
    lacks: list[bool] = []

    def declared(self: SourceRegister, *given: object, **how: bool) -> None:
        lacks.append(True)
        declare(self, *given, **how)  # type: ignore[arg-type]

    def started(thread: threading.Thread) -> None:
        if lacks:
            raise lacking.limit()
        start_thread(thread)

    with hf.Context(session_id=SESSION) as ctx:
        with monkeypatch.context() as limited:
            limited.setattr(SourceRegister, "declare", declared)
            limited.setattr(register, "start_thread", started)
            src = ctx.source("quotes", options=options("a"))
            with pytest.raises(LimitReachedError, match="RLIMIT_NPROC"):
                src.wait_registered(SHORT)
            until("it was to begin again", lambda: lacking.times >= 4)
            assert src._session.machine.is_open
            assert not src._session.machine.active()
            assert not any(file.stat().st_size for file in registers.glob("*"))
        src.wait_registered(SHORT)
        src.send(b"x")
    (written,) = source_register("a").read().values()
    assert "a" in written.lives


def test_an_open_source_takes_a_restarted_store_back_also_at_a_limit(
    registers: Path, run_store: Callable[..., ThreadStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is decided any more. One that was restored meanwhile is recognised by what the source has
    declared itself, and the new life of each is written when there is room."""
    stores = {name: run_store(name, "disk") for name in "ab"}
    stores["b"].stop()
    shutil.copytree(tmp_path / "store-b", tmp_path / "copy")
    stores["b"] = run_store("b", "disk")
    with hf.Context(session_id=SESSION) as ctx, ctx.source("quotes", options=options("ab")) as src:
        src.wait_registered(SHORT)
        src.send(b"x")
        src.wait_stable(timeout=SHORT)
        (before,) = source_register().read().values()
        machine = src._session.machine
        with monkeypatch.context() as limited:
            limited.setattr(register, "start_thread", Lacking().start)
            for name in "ab":
                stores[name].stop()
                until("it is missed", lambda: len(machine.active()) == 1)
                if name == "b":
                    shutil.rmtree(tmp_path / "store-b")
                    (tmp_path / "copy").rename(tmp_path / "store-b")
                stores[name] = run_store(name, "disk")
                until("it takes part again", lambda: len(machine.active()) == 2)
            assert machine.lives()["b"] == before.lives["b"], "the life that it has missed"
            src.send(b"y")
            src.wait_stable(timeout=SHORT)
            assert not registers_lives(registers, machine.lives())
        until("the new lives are written", lambda: registers_lives(registers, machine.lives()))


def registers_lives(registers: Path, lives: dict[str, int]) -> bool:
    """The register has these lives."""
    (file,) = registers.iterdir()
    entries = read_file(file)
    return all(lives == {name: life for name, (_, life) in found.items()} for found in last_lives(entries).values())
