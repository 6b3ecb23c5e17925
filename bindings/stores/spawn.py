"""A store in a process of its own, started by a program: a fresh interpreter, so also beside contexts and
threads.

    parent                                        child (python -m holdfast.stores.spawn)
    spawn_store ── stdin: the StoreConfig ──────►  its watcher holds a pidfd of the parent, and ends with it
                ◄─ one line: ready, or the error
    logging     ◄─ stdout, stderr: a pipe that does not block; what nobody reads in time is lost

The child asks for the death of the *process*: the signal that the kernel sends for it goes by the thread that
forked.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Self, cast

import msgspec

from ..daemon.events import EVENTS, SIGNALS, STOP
from ..daemon.ready import decode, encode
from ..engine.client import process_role
from ..engine.errors import CallableStoreError, Error, ForkedHandleError, UsageError
from ..engine.native.threads import start_thread
from ..engine.native.waiting import check_timeout, readable
from ..engine.options.store_config import StoreConfig, check_config
from ..engine.options.topic_rules import TopicOptions
from .callable_store import Given, run_given, words_of

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["StoreProcess", "spawn_store"]

_log = logging.getLogger("holdfast.store")

_LINE = re.compile(r"\S+ \S+ \[([A-Z]+)\]: (.*)")
"""Of the daemon's log."""
PIPE_BYTES = 1 << 20
LINE_MAX = 1 << 16
GRACE_S = 1.0
"""So long may the child take to drain and sync when its parent has died; then it ends as it is: nothing
stable is lost."""
READERS_S = 5.0
"""How long the end of the output is waited for, when the child has ended."""


def spawn_store(config: Given, timeout: float | None = 30) -> StoreProcess:
    """Starts a store in a new process and returns when it is ready. Any thread, any number of times.

    ``config``: what `store_main` takes. A StoreConfig; the path of UM's XML file, whose stores all run in
    that process; or the arguments of ``holdfast store run``.

    The child ends within 2 s of the end of this process; it has a session of its own, so that Ctrl-C is this
    program's. What it writes goes to ``logging`` (logger ``holdfast.store``), and can never stop it.

    Raises:
        Error: what kept the store from starting, as its own type, such as ConfigError or DirectoryInUseError.
        CallableStoreError: it was not ready in time; it is ended then.
    """
    check_timeout(timeout)
    if isinstance(config, StoreConfig):
        check_config(config)
    elif not isinstance(config, str | os.PathLike):
        config = words_of("spawn_store", config)
    return StoreProcess(config, timeout)


class StoreProcess:
    """A running store; made by `spawn_store`. ``with`` stops it at the end. Without a reference to it, it
    runs on."""

    _alive: set[StoreProcess] = set()  # noqa: RUF012  (of the class: so that nobody has to keep a reference)

    def __init__(self, config: Given, timeout: float | None) -> None:
        self.name = _name_of(config)
        """Of the store; of several, the path or the arguments that they were given with."""
        self._owner = os.getpid()
        output, child_output = os.pipe()
        said, child_said = os.pipe()
        os.set_blocking(child_output, False)
        with contextlib.suppress(OSError):  # the kernel's limit for a user's pipes
            fcntl.fcntl(child_output, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "holdfast.stores.spawn", str(self._owner), str(child_said)],
                stdin=subprocess.PIPE, stdout=child_output, stderr=child_output, pass_fds=(child_said,),
                start_new_session=True,
            )  # fmt: skip
        except BaseException:
            for fd in (output, said):
                os.close(fd)
            raise
        finally:
            os.close(child_output)
            os.close(child_said)
        self._alive.add(self)
        # Who takes it closes it: the reader, or this thread where that does not start. A start that was
        # interrupted may have started it.
        unread = [output]
        self._reader = threading.Thread(
            target=self._read, args=(unread,), name=f"holdfast-output-{self.name}", daemon=True
        )
        try:
            start_thread(self._reader)
        except BaseException:
            for fd in _taken(unread):
                os.close(fd)
            os.close(said)
            self._end_unread()
            raise
        self._start(config, said, timeout)

    def _start(self, config: Given, said: int, timeout: float | None) -> None:
        assert self._process.stdin is not None
        with open(said, "rb") as answer:
            with contextlib.suppress(BrokenPipeError), self._process.stdin as pipe:
                pipe.write(_encode(config))
            ready = readable(answer.fileno(), timeout)
            line = answer.readline(LINE_MAX) if ready else b""
        if not ready:
            self._kill()
            raise _late(f"store {self.name} was not ready within {timeout} s", "allow more time")
        error = decode(line)
        if error is not None:
            self.wait()
            raise error

    @property
    def pid(self) -> int:
        """Of the process; stays what it was when it is dead."""
        return self._process.pid

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, -n when signal n ended it. Any number of times.

        Raises:
            CallableStoreError: it still runs (code LBM_ETIMEDOUT).
        """
        self._check_owner()
        check_timeout(timeout)
        try:
            code = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise _late(f"store {self.name} (pid {self.pid}) runs on after {timeout} s", "stop() it") from None
        self._reader.join(READERS_S)
        return code

    def stop(self, timeout: float | None = 10) -> int:
        """Lets it drain, sync and end; kills it when the time is over. Returns as `wait`; also when it is
        dead."""
        self._check_owner()
        check_timeout(timeout)
        if self._process.poll() is None:
            self._process.terminate()
        try:
            return self.wait(timeout)
        except CallableStoreError:
            return self._kill()

    def _kill(self) -> int:
        self._process.kill()
        return self.wait()

    def _end_unread(self) -> None:
        """Nobody reads what it writes, so there is no reader to wait for."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._alive.discard(self)

    def _check_owner(self) -> None:
        if os.getpid() != self._owner:
            raise ForkedHandleError("store process")

    def _read(self, unread: list[int]) -> None:
        """The child's lines, each at the level that it begins with."""
        levels = logging.getLevelNamesMapping()
        for output in _taken(unread):
            with open(output, errors="replace") as lines:
                for line in lines:
                    found = _LINE.fullmatch(line.rstrip("\n"))
                    level, text = (levels.get(found[1]), found[2]) if found else (None, line.rstrip("\n"))
                    _log.log(level or logging.WARNING, "%s: %s", self.name, text)
        self._process.wait()  # also where nobody else does
        self._alive.discard(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if os.getpid() == self._owner:
            self.stop()

    def __reduce__(self) -> tuple[object, ...]:
        raise UsageError(
            "a store process cannot be pickled", hint="hand on its name: other processes find the store by it"
        )

    def __repr__(self) -> str:
        code = self._process.returncode
        return f"<StoreProcess {self.name} pid={self.pid} {'running' if code is None else f'ended with {code}'}>"


def _taken(unread: list[int]) -> list[int]:
    """The descriptor; nothing, where another thread has taken it."""
    try:
        return [unread.pop()]
    except IndexError:
        return []


def _late(text: str, hint: str) -> CallableStoreError:
    error = CallableStoreError(text, hint=hint, code="LBM_ETIMEDOUT")
    error.retriable, error.exit_code = True, 4
    return error


def _name_of(config: Given) -> str:
    if isinstance(config, StoreConfig):
        return config.name
    return os.fsdecode(config) if isinstance(config, str | os.PathLike) else " ".join(config)


def _encode(config: Given) -> bytes:
    """A StoreConfig becomes an object, a path a string, arguments a list."""
    plain = os.fsdecode(config) if isinstance(config, str | os.PathLike) else config
    return msgspec.json.encode(plain, enc_hook=os.fspath)


def _decode(said: bytes) -> Given:
    values: Any = msgspec.json.decode(said)
    if not isinstance(values, dict):
        return cast("str | list[str]", values)
    topics = tuple(TopicOptions(**topic) for topic in values.pop("topics"))
    return StoreConfig(**values, topics=topics)


# The child --------------------------------------------------------------------------------------------------


class _Lossy(io.RawIOBase):
    """A pipe that is written to without ever waiting."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        return self._fd

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        with contextlib.suppress(OSError):
            os.write(self._fd, data)
        return len(data)


def _watch(parent: int) -> None:
    """Ends this process when the parent has ended: in order if that is quick, else as it is."""
    readable(parent)
    EVENTS.put(STOP)
    time.sleep(GRACE_S)
    os._exit(1)


def main() -> int:
    """What the child does."""
    parent, said = int(sys.argv[1]), int(sys.argv[2])
    sys.stdout = sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(_Lossy(2)), errors="backslashreplace", line_buffering=True
    )
    config = _decode(sys.stdin.buffer.read())
    try:
        pidfd = os.pidfd_open(parent)
        if os.getppid() != parent:  # it died before, and its pid is another's
            return 1
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # what the starting thread had blocked
        threading.Thread(target=_watch, args=(pidfd,), daemon=True).start()
        process_role.become_store()
        EVENTS.ready = lambda: _tell(said, None)
        return run_given(config)
    except (Error, OSError) as error:
        _tell(said, error)
        return error.exit_code if isinstance(error, Error) else 1


def _tell(said: int, error: BaseException | None) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(said, encode(error))


if __name__ == "__main__":
    sys.exit(main())
