"""A store as a function call, and in a process that a program starts: what each allows, and how each ends."""

from __future__ import annotations

import copy
import logging
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.example_programs import Example, wait
from support.workers import stand_still

import holdfast as hf
from holdfast.daemon.events import ENDED, ROLL, STOP, Events
from holdfast.engine.log.check import check_store
from holdfast.engine.memory.domain import Domain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SHORT = 90.0
"""Seconds that no wait here needs."""

BEGIN = """
import os, signal, sys, threading
import holdfast as hf
config = hf.StoreConfig("a", sys.argv[1])
def ready():
    import time
    from holdfast.engine.memory.domain import Domain
    domain = Domain(join=False)
    while not domain.socket_path("a").exists(): time.sleep(0.005)
def soon(what):
    threading.Thread(target=lambda: (ready(), what())).start()
def told(what, *arguments):
    try: print("returned", what(*arguments))
    except hf.Error as error: print(type(error).__name__, error)
"""


def python(code: str, *arguments: object) -> list[str]:
    """Lines that a fresh interpreter prints."""
    command = [sys.executable, "-c", BEGIN + code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SHORT)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


# store_main -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["None", "[1]", "7"])
def test_what_are_no_arguments_is_a_usage_error(given: str) -> None:
    (told,) = python(f"told(hf.store_main, {given})", "unused")
    assert told.startswith(f"UsageError LBM_EINVAL: store_main({given}); give a StoreConfig")


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
def test_a_signal_ends_it_with_zero_and_signals_are_handled_as_before(tmp_path: Path, number: str) -> None:
    code = f"""
before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGPIPE)]
soon(lambda: os.kill(os.getpid(), signal.{number}))
told(hf.store_main, config)
print([signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGPIPE)] == before)
"""
    assert python(code, tmp_path / "a") == ["returned 0", "True"]
    assert check_store(tmp_path / "a").name == "a"


def test_a_shutdown_from_another_thread_ends_it(tmp_path: Path) -> None:
    assert python("soon(hf.store_main_shutdown); told(hf.store_main, config)", tmp_path / "a") == ["returned 0"]


def test_a_shutdown_before_it_has_started_lets_it_start_and_stop(tmp_path: Path) -> None:
    assert python("hf.store_main_shutdown(); told(hf.store_main, config)", tmp_path / "a") == ["returned 0"]
    assert (tmp_path / "a" / "state.1").exists()


def test_it_takes_the_arguments_of_the_command(tmp_path: Path) -> None:
    code = 'soon(hf.store_main_shutdown); told(hf.store_main, ["--name", "a", "--directory", sys.argv[1]])'
    assert python(code, tmp_path / "a") == ["returned 0"]


def test_it_takes_the_path_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "s.xml"
    path.write_text(
        '<ume-store version="1.3"><stores><store name="x" port="0"><ume-attributes>'
        '<option type="store" name="context-name" value="a"/>'
        f'<option type="store" name="disk-state-directory" value="{tmp_path}/a"/></ume-attributes>'
        '<topics><topic pattern="." type="PCRE"/></topics></store></stores></ume-store>'
    )
    assert python("soon(hf.store_main_shutdown); told(hf.store_main, sys.argv[1])", path) == ["returned 0"]


@pytest.mark.parametrize(
    ("code", "line"),
    [
        (
            "with hf.Context(name='prices') as ctx: told(hf.store_main, config)",
            "HF_CALLABLE_STORE: store_main() in a process that has a context (prices); close it first",
        ),
        (
            "soon(lambda: (told(hf.Context), hf.store_main_shutdown())); hf.store_main(config)",
            "HF_CALLABLE_STORE: a context in the process of a callable store; use contexts in another process",
        ),
        (
            "soon(lambda: (told(hf.store_main, config), hf.store_main_shutdown())); hf.store_main(config)",
            "HF_CALLABLE_STORE: a callable store runs in this process already; a process each",
        ),
        (
            "soon(hf.store_main_shutdown); hf.store_main(config); told(hf.store_main, config)",
            "HF_CALLABLE_STORE: store_main() runs once in a process; a process for each run",
        ),
        (
            "t = threading.Thread(target=told, args=(hf.store_main, config)); t.start(); t.join()",
            "HF_CALLABLE_STORE: store_main() on a thread that is not the main one; spawn_store()",
        ),
        *(
            (
                f"signal.signal(signal.{number}, print); told(hf.store_main, config)",
                f"HF_CALLABLE_STORE: {number} has a handler in this process: <built-in function print>",
            )
            for number in ("SIGINT", "SIGTERM", "SIGUSR1", "SIGPIPE")
        ),
        (
            "told(hf.store_main, ['--name', 'a', '--directory', sys.argv[1], '--detach'])",
            "HF_CALLABLE_STORE: a callable store does not leave its process (--detach)",
        ),
    ],
)
def test_each_restriction_is_an_error_of_its_own(tmp_path: Path, code: str, line: str) -> None:
    (told,) = python(code, tmp_path / "a")
    assert told.startswith(f"CallableStoreError {line}")
    assert "spawn_store()" in told


def test_what_does_not_hinder_it(tmp_path: Path) -> None:
    code = """
hf.Context().close()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGUSR2, print)
soon(hf.store_main_shutdown)
told(hf.store_main, config)
hf.Context().close()
"""
    assert python(code, tmp_path / "a") == ["returned 0"]


def test_a_forked_child_of_a_program_with_contexts_may_be_a_store(tmp_path: Path) -> None:
    code = """
with hf.Context() as ctx:
    pid = os.fork()
    if not pid:
        soon(hf.store_main_shutdown)
        told(hf.store_main, config)
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(pid, 0)
"""
    assert python(code, tmp_path / "a") == ["returned 0"]


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("told(hf.store_main, ['--nonsense'])", "UsageError LBM_EINVAL: No such option"),
        ("told(hf.store_main, [])", "UsageError LBM_EINVAL: which store?"),
        (
            "told(hf.store_main, '/missing.xml')",
            "ConfigError LBM_EINVAL: /missing.xml: the configuration cannot be read",
        ),
        ("told(hf.StoreConfig, 'a/b', 'x')", "ConfigError LBM_EINVAL: store name 'a/b' is not a name"),
    ],
)
def test_a_store_that_cannot_start_raises_why(tmp_path: Path, code: str, line: str) -> None:
    (told,) = python(code, tmp_path / "a")
    assert told.startswith(line)


@pytest.mark.parametrize(
    "wrong",
    [
        "['--nonsense']",
        "'/missing.xml'",
        "hf.StoreConfig('b', '/proc/1/none')",
        "'{0}'",  # the first of two stores has started when the second cannot
    ],
)
def test_a_start_that_failed_is_no_run(tmp_path: Path, wrong: str) -> None:
    topics = '<topics><topic pattern="x" type="direct"/></topics>'
    stores = "".join(
        f'<store name="{name}" port="0"><ume-attributes>'
        f'<option type="store" name="disk-state-directory" value="{place}"/>'
        f'<option type="store" name="disk-cache-directory" value="{place}"/>'
        f'<option type="store" name="context-name" value="{name}"/></ume-attributes>{topics}</store>'
        for name, place in (("c", tmp_path / "c"), ("d", tmp_path / "d"))
    )
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "state.0").write_bytes(b"rubbish")
    file = tmp_path / "two.xml"
    file.write_text(f'<ume-store version="1.3"><daemon/><stores>{stores}</stores></ume-store>')
    code = f"""
told(hf.store_main, {wrong.format(file)})
told(hf.store_main, {wrong.format(file)})
soon(lambda: (print("serves"), hf.store_main_shutdown()))
told(hf.store_main, config)
told(hf.store_main, config)
"""
    first, again, *rest = python(code, tmp_path / "a")
    assert first == again
    assert first.split()[0] in {"UsageError", "ConfigError", "CorruptionError"}
    assert rest[:2] == ["serves", "returned 0"]
    assert "store_main() runs once in a process" in rest[2]


def test_what_a_daemon_did_not_take_from_its_events_is_not_the_next_ones() -> None:
    events = Events()
    events.put(ROLL)
    with events.listening():
        assert events.get() == ROLL, "what came before anybody listened is kept"
        events.put(ENDED)
    with events.listening():
        events.put(STOP)
        assert events.get() == STOP


# spawn_store ------------------------------------------------------------------------------------------------


@pytest.fixture
def spawn(tmp_path: Path) -> Iterator[Callable[..., hf.StoreProcess]]:
    """Starts stores; those that run at the end are stopped."""
    started: list[hf.StoreProcess] = []

    def begin(name: str = "a", timeout: float = SHORT, **more: object) -> hf.StoreProcess:
        config = hf.StoreConfig(name, tmp_path / name, **more)  # type: ignore[arg-type]
        started.append(hf.spawn_store(config, timeout))
        return started[-1]

    yield begin
    for store in started:
        store.stop()


def lives(pid: int) -> bool:
    """Neither gone nor waiting to be buried."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_spawned_store_is_ready_beside_a_context_and_stops_in_order(spawn: Callable[..., hf.StoreProcess]) -> None:
    with hf.Context() as ctx:
        topic = hf.TopicOptions("quotes", options={"repository-type": "memory"})
        with spawn(port=10313, options={"source-check-interval": 100}, topics=(topic,)) as store:
            source = ctx.source("quotes", options={"ume_store_name": ["a"]})
            source.wait_registered(SHORT)
            source.wait_stable(source.send(b"kept"), SHORT)
            assert lives(store.pid)
            assert store.stop(SHORT) == 0
        assert (store.stop(), store.wait(), lives(store.pid)) == (0, 0, False)


def test_what_keeps_a_store_from_starting_is_raised_as_it_is(
    spawn: Callable[..., hf.StoreProcess], tmp_path: Path
) -> None:
    first = spawn()
    with pytest.raises(hf.DirectoryInUseError, match="stop that store") as refused:
        hf.spawn_store(hf.StoreConfig("b", tmp_path / "a"))
    assert (refused.value.pid, refused.value.exit_code) == (first.pid, 3)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "state.0").write_bytes(b"rubbish")
    with pytest.raises(hf.CorruptionError, match=r"neither state\.0 nor state\.1"):
        spawn("c")
    with pytest.raises(hf.ConfigError, match="'tape'"):
        spawn("d", type="tape")


def test_a_store_that_is_not_ready_in_time_is_ended(
    spawn: Callable[..., hf.StoreProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[subprocess.Popen[bytes]] = []

    class Kept(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *args: object, **more: object) -> None:
            super().__init__(*args, **more)  # type: ignore[call-overload]
            started.append(self)

    monkeypatch.setattr(subprocess, "Popen", Kept)
    monkeypatch.setattr("holdfast.stores.spawn.readable", lambda *_: False)  # however fast it is
    with pytest.raises(hf.CallableStoreError, match="store a was not ready within 0") as late:
        spawn(timeout=0)
    assert (late.value.code, started[0].returncode) == ("LBM_ETIMEDOUT", -signal.SIGKILL)
    assert (late.value.exit_code, late.value.retriable) == (4, True)


def test_the_end_of_a_store_is_told_however_it_came_about(spawn: Callable[..., hf.StoreProcess]) -> None:
    store = spawn()
    with pytest.raises(hf.CallableStoreError, match=r"store a \(pid \d+\) runs on after 0") as late:
        store.wait(0)
    assert (late.value.code, late.value.exit_code) == ("LBM_ETIMEDOUT", 4)
    os.kill(store.pid, signal.SIGKILL)
    assert store.wait(SHORT) == -signal.SIGKILL
    assert store.stop() == -signal.SIGKILL


def test_a_thread_that_blocks_signals_starts_a_store_that_can_be_stopped(spawn: Callable[..., hf.StoreProcess]) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        assert spawn().stop(SHORT) == 0
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_a_store_that_has_ended_by_itself_leaves_no_zombie(spawn: Callable[..., hf.StoreProcess]) -> None:
    store = spawn()
    os.kill(store.pid, signal.SIGKILL)
    wait("it is buried", lambda: not Path(f"/proc/{store.pid}").exists())


def test_a_store_that_does_not_stop_in_time_is_killed(spawn: Callable[..., hf.StoreProcess]) -> None:
    store = spawn()
    stand_still(store.pid)
    assert store.stop(0.1) == -signal.SIGKILL


def test_what_it_says_is_logged_at_its_level(
    spawn: Callable[..., hf.StoreProcess], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "holdfast.store")
    spawn().stop()
    said = [(record.name, record.levelno, record.getMessage()) for record in caplog.records]
    assert ("holdfast.store", logging.INFO, 'a: holdfast.daemon: Store "a" ready to accept registrations') in said
    assert ("holdfast.store", logging.INFO, 'a: holdfast.daemon: Store "a" is closed') in said


def test_output_that_nobody_takes_never_stops_it(
    spawn: Callable[..., hf.StoreProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log has more to say than a pipe holds, and the program that should read it is stuck in its own
    logging."""
    stuck = threading.Event()
    monkeypatch.setattr(logging.getLogger("holdfast.store"), "log", lambda *_: stuck.wait(SHORT))
    store = spawn()
    domain = Domain()
    try:
        path = os.fspath(domain.socket_path("a"))
        for _ in range(20_000):  # each is a warning: it speaks no protocol at all
            knock(path)
        with hf.Context() as ctx, ctx.source("quotes", options={"ume_store_name": ["a"]}) as source:
            source.wait_registered(SHORT)
            source.wait_stable(source.send(b"works"), SHORT)
    finally:
        domain.close()
        stuck.set()
    assert store.stop(SHORT) == 0


def knock(path: str) -> None:
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        while True:
            try:
                client.connect(path)
                break
            except BlockingIOError:
                continue
        client.send(b"?" * 100)


PARENT = """
import multiprocessing, os, sys, threading, time
import holdfast as hf
def start(): print(hf.spawn_store(hf.StoreConfig("a", sys.argv[1])).pid, flush=True)
if sys.argv[2] == "thread":  # the one that forks does not live on
    t = threading.Thread(target=start); t.start(); t.join()
else:
    start()
if sys.argv[2] == "heir" and not os.fork():  # who inherits whatever the parent had open lives on
    os.closerange(0, 3)
    time.sleep(30)
    os._exit(0)
print("up", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("way", ["kill", "thread", "heir", "exit"])
def test_a_spawned_store_ends_soon_after_the_process_that_started_it(tmp_path: Path, way: str) -> None:
    command = [sys.executable, "-c", PARENT, str(tmp_path / "a"), way]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        try:
            pid = int(parent.stdout.readline())
            assert parent.stdout.readline() == b"up\n"
            assert lives(pid)  # the thread that forked is gone
            parent.stdin.close() if way == "exit" else parent.kill()
            parent.wait(SHORT)
            wait("the store has ended", lambda: not lives(pid))
        finally:
            os.killpg(parent.pid, signal.SIGKILL) if way == "heir" else parent.kill()
    assert check_store(tmp_path / "a").name == "a"


def test_a_handle_is_of_its_process_alone(spawn: Callable[..., hf.StoreProcess]) -> None:
    store = spawn()
    with pytest.raises(hf.UsageError, match="cannot be pickled"):
        copy.copy(store)
    pid = os.fork()
    if not pid:
        try:
            store.stop()
        except hf.ForkedHandleError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert lives(store.pid)
    assert repr(store) == f"<StoreProcess a pid={store.pid} running>"


# The example ------------------------------------------------------------------------------------------------


def test_the_example_sends_receives_and_takes_its_store_along(tmp_path: Path) -> None:
    example = Example("callable_store --interval 0", tmp_path / "a")
    assert example.end() == (0, "")
    assert example.found(r"received (\d+): UME Message \d\d") == [str(number) for number in range(20)]
    assert example.found(r"store a runs in process (\d+)")
    assert example.found(r'holdfast\.store: a: .*Store "a" ready to accept registrations')
    assert example.found(r"store a has ended with 0")


def test_the_store_of_the_example_dies_with_it(tmp_path: Path) -> None:
    example = Example("callable_store --interval 60", tmp_path / "a")
    (pid,) = map(int, example.until(r"store a runs in process (\d+)"))
    example.kill()
    wait("the store has ended", lambda: not lives(pid))


def test_an_interrupt_ends_the_example_and_its_store_in_order(tmp_path: Path) -> None:
    example = Example("callable_store --interval 60", tmp_path / "a")
    example.until(r'Store "a" ready')
    example.until(r"begins \(pid")  # its imports are over: CPython ends with -2 if ^C met an exec(), as of a dataclass
    example.process.send_signal(signal.SIGINT)
    assert example.end() == (130, "")
    assert example.found(r'Store "a" is closed')
    assert re.search(r"store a runs", "".join(example.out))
