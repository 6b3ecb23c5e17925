"""The store daemon as an operator uses it: ``holdfast store run``, its XML file, its signals, its place in
the system."""

from __future__ import annotations

import os
import pwd
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from lxml import etree
from support.command_line import Program, one_error, run
from support.leftovers import remove_objects

import holdfast as hf
from holdfast.daemon.config import DaemonConfig
from holdfast.daemon.events import Events
from holdfast.daemon.run import run_daemon
from holdfast.engine.log.check import check_store
from holdfast.engine.memory.domain import Domain
from holdfast.engine.store.drainer import Drainer

if TYPE_CHECKING:
    from collections.abc import Callable

    from process.conftest import ThreadStore

SHORT = 90.0
"""Seconds that no wait here needs."""
NOBODY = 65534
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture(autouse=True)
def in_a_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def wait(what: str, true: Callable[[], object]) -> None:
    deadline = time.monotonic() + SHORT
    while not true():
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.005)


def option(name: str, value: object) -> str:
    return f'<option type="store" name="{name}" value="{value}"/>'


def write(path: Path, names: str = "a", daemon: str = "", topic: str = "", port: int = 10313) -> Path:
    """A file with a store for each letter, at ports from 10313 on, which logs to s.log."""
    stores = "".join(
        f'<store name="The {name}" port="{port + index}"><ume-attributes>{option("context-name", name)}'
        f"{option('disk-state-directory', path.parent / name)}</ume-attributes>"
        f'<topics><topic pattern="." type="PCRE"><ume-attributes>{topic}</ume-attributes></topic></topics></store>'
        for index, name in enumerate(names)
    )
    log = '<log type="file" size="10">s.log</log>'
    path.write_text(f'<ume-store version="1.3"><daemon>{log}{daemon}</daemon><stores>{stores}</stores></ume-store>')
    return path


def log_has(pattern: str, count: int = 1) -> Callable[[], bool]:
    def look() -> bool:
        path = Path("s.log")
        return path.exists() and len(re.findall(pattern, path.read_text())) >= count

    return look


READY = r"\[INFO\]: holdfast\.daemon: Store \"\w\" ready to accept registrations"


# A file with several stores ---------------------------------------------------------------------------------


def test_the_stores_of_a_file_run_in_one_process_and_end_in_order(
    start: Callable[..., Program], tmp_path: Path
) -> None:
    daemon = start("store", "run", str(write(tmp_path / "s.xml", "abc", "<pidfile>s.pid</pidfile>")))
    wait("three stores are ready", log_has(READY, 3))
    assert Path("s.pid").read_text() == f"{daemon.process.pid}\n"
    domain = Domain()
    assert domain.store_names() == ["a", "b", "c"]
    domain.close()
    daemon.signal(signal.SIGTERM)
    assert daemon.end() == (0, "", "")
    assert not Path("s.pid").exists()
    assert log_has(r'Store "\w" is closed', 3)()
    assert all(check_store(tmp_path / name).name == name for name in "abc")


def test_one_store_that_cannot_start_keeps_the_others_from_running(
    start: Callable[..., Program], tmp_path: Path
) -> None:
    first = start("store", "run", "--name", "x", "--directory", str(tmp_path / "c"))
    first.line("stderr")
    one_error(
        run("store", "run", str(write(tmp_path / "s.xml", "abc"))), 3, str(tmp_path / "c"), str(first.process.pid)
    )
    domain = Domain()
    assert {path.name for path in domain.stores.glob("*.sock")} == {"x.sock"}
    domain.close()


def test_a_store_is_met_at_its_port(start: Callable[..., Program], tmp_path: Path) -> None:
    daemon = start("store", "run", str(write(tmp_path / "s.xml")))
    wait("the store is ready", log_has(READY))
    with hf.Context() as ctx, ctx.source("quotes", options={"ume_store": ["127.0.0.1:10313"]}) as source:
        source.wait_registered(SHORT)
        source.wait_stable(source.send(b"by port"), SHORT)
    daemon.signal(signal.SIGINT)
    assert daemon.end()[0] == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--name", "b", "--directory", "d", "--port", "10313"], ["port 10313", "choose another port"]),
        (["--name", "a", "--directory", "d"], ["store name a", "choose another name"]),
        (["--name", "b", "--directory", "a"], ["directory", "stop that store"]),
        (["t.xml"], ["pidfile", "stop that daemon"]),
    ],
)
def test_what_a_living_store_has_is_refused_with_its_pid(
    start: Callable[..., Program], tmp_path: Path, arguments: list[str], words: list[str]
) -> None:
    daemon = start("store", "run", str(write(tmp_path / "s.xml", "a", "<pidfile>s.pid</pidfile>")))
    wait("the store is ready", log_has(READY))
    write(tmp_path / "t.xml", "t", "<pidfile>s.pid</pidfile>", port=1)
    one_error(run("store", "run", *arguments), 3, str(daemon.process.pid), *words)


def test_a_pidfile_of_a_dead_daemon_is_taken(start: Callable[..., Program], tmp_path: Path) -> None:
    Path("s.pid").write_text("1\n")  # whoever has this pid now: it does not hold the file
    path = str(write(tmp_path / "s.xml", "a", "<pidfile>s.pid</pidfile>"))
    first = start("store", "run", path)
    wait("the store is ready", log_has(READY))
    first.process.kill()
    first.process.wait()
    second = start("store", "run", path)
    wait("the next one is ready", log_has(READY, 2))
    assert Path("s.pid").read_text() == f"{second.process.pid}\n"


# Signals ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_store_drains_what_is_published_before_it_ends(
    start: Callable[..., Program], tmp_path: Path, number: signal.Signals
) -> None:
    topic = option("repository-type", "disk")
    daemon = start("store", "run", str(write(tmp_path / "s.xml", topic=topic)))
    wait("the store is ready", log_has(READY))
    options = {"ume_store_name": ["a"], "ume_flight_size": 100_000, "ume_flight_size_bytes": 0}
    with hf.Context() as ctx, ctx.source("quotes", options=options) as source:
        source.wait_registered(SHORT)
        daemon.signal(signal.SIGSTOP)
        for _ in range(12):  # less than a store appends without waiting for its disk
            last = source.send(bytes(1 << 20))
        daemon.signal(number)
        daemon.signal(signal.SIGCONT)
        assert daemon.end()[0] == 0
        assert [log.next for log in check_store(tmp_path / "a").logs] == [last + 1]


def test_a_stop_drains_what_nobody_has_looked_at_yet(
    run_store: Callable[..., ThreadStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = Drainer._round

    def only_at_the_end(self: Drainer) -> None:
        if self._stopping:
            usual(self)
        time.sleep(0.001)

    store = run_store("a", "disk")
    with hf.Context() as ctx, ctx.source("quotes", options={"ume_store_name": ["a"]}) as source:
        source.wait_registered(SHORT)
        monkeypatch.setattr(Drainer, "_round", only_at_the_end)
        last = [source.send(b"late") for _ in range(100)][-1]
        store.stop()
    assert [log.next for log in check_store(tmp_path / "store-a").logs] == [last + 1]


SLOW = """
import sys, time
from holdfast.engine.store.store import Store
def close(self):
    print("closing", flush=True)
    time.sleep(60)
Store.close = close
from holdfast.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SLOW, "store", "run", str(write(tmp_path / "s.xml"))]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as daemon:
        try:
            wait("the store is ready", log_has(READY))
            daemon.send_signal(signal.SIGINT)
            assert daemon.stdout is not None
            assert daemon.stdout.readline() == b"closing\n"
            daemon.send_signal(signal.SIGINT)
            assert daemon.wait(SHORT) == -signal.SIGINT
        finally:
            daemon.kill()


def test_sigusr1_rolls_the_log_and_sigpipe_does_nothing(start: Callable[..., Program], tmp_path: Path) -> None:
    daemon = start("store", "run", "-u", str(write(tmp_path / "s.xml")))
    wait("the store is ready", log_has(READY))
    before = Path("s.log").read_text()
    daemon.signal(signal.SIGPIPE)
    daemon.signal(signal.SIGUSR1)
    pid = daemon.process.pid
    wait("the log is rolled", lambda: list(tmp_path.glob(f"s.log_{pid}.*.1")) and log_has("SIGUSR1")())
    (rolled,) = tmp_path.glob("s.log_*")
    assert re.fullmatch(rf"s\.log_{pid}\.\d{{4}}-\d\d-\d\d\.1", rolled.name)
    assert rolled.read_text() == before
    daemon.signal(signal.SIGTERM)
    assert daemon.end() == (0, "", "")


def test_times_in_the_log_are_local_or_utc(start: Callable[..., Program], tmp_path: Path) -> None:
    hours = {}
    for zone in ("-u", "--type=disk"):
        Path("s.log").unlink(missing_ok=True)
        daemon = start("store", "run", zone, str(write(tmp_path / "s.xml")), TZ="XYZ-5")
        wait("the store is ready", log_has(READY))
        daemon.process.kill()
        daemon.process.wait()  # the next one takes its directory
        hours[zone] = int(Path("s.log").read_text()[11:13])
    assert (hours["--type=disk"] - hours["-u"]) % 24 in {4, 5, 6}  # a test at the turn of an hour may see another one


def test_a_store_that_fails_at_work_ends_the_daemon_with_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(Drainer, "_tend", fail)
    configs = tuple(hf.StoreConfig(name, tmp_path / name) for name in "ab")
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)]
    assert run_daemon(DaemonConfig(configs), Events()) == 1
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)] == before


# Whom it runs as, and where ---------------------------------------------------------------------------------


def status(pid: int, what: str) -> str:
    text = Path(f"/proc/{pid}/status").read_text()
    return next(line.partition(":")[2].strip() for line in text.splitlines() if line.startswith(f"{what}:"))


@only_root
def test_root_becomes_the_user_that_the_file_names(start: Callable[..., Program], tmp_path: Path) -> None:
    path = write(tmp_path / "s.xml", daemon=f"<uid>{NOBODY}</uid><pidfile>s.pid</pidfile>")
    place = tmp_path / "run"
    for directory in (tmp_path, place):
        directory.mkdir(exist_ok=True)
        os.chown(directory, NOBODY, -1)
        directory.chmod(0o700)
    with world_may_enter(tmp_path):
        daemon = start("store", "run", str(path), HOLDFAST_DIR=str(place))
        wait("the store is ready", log_has(READY))
        group = pwd.getpwuid(NOBODY).pw_gid
        assert status(daemon.process.pid, "Uid").split() == [str(NOBODY)] * 4
        assert status(daemon.process.pid, "Gid").split() == [str(group)] * 4
        assert status(daemon.process.pid, "Groups") == ""
        assert (tmp_path / "a" / "state.1").stat().st_uid == NOBODY
        daemon.signal(signal.SIGTERM)
        assert daemon.end()[0] == 0
    for found in (place, *place.rglob("*")):
        os.chown(found, os.geteuid(), os.getegid())
    for directory in place.glob("[!.]*"):
        remove_objects(directory)


class world_may_enter:  # noqa: N801  (a context manager)
    """Every directory above may be entered meanwhile: pytest's belong to root alone."""

    def __init__(self, path: Path) -> None:
        self._modes = {above: above.stat().st_mode for above in path.parents if above.stat().st_mode & 0o5 != 0o5}

    def __enter__(self) -> None:
        for above in self._modes:
            above.chmod(0o755)

    def __exit__(self, *_: object) -> None:
        for above, mode in self._modes.items():
            above.chmod(mode)


@only_root
def test_nothing_of_root_stays_when_it_is_given_up() -> None:
    code = (
        f"import os\nfrom holdfast.daemon.process import become\nbecome({NOBODY}, 7)\n"
        "print(os.getresuid(), os.getresgid(), os.getgroups())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, extra_groups=[0, 8])
    assert done.stdout == f"{(NOBODY,) * 3} {(7,) * 3} []\n"


@only_root
def test_who_is_not_root_cannot_become_another_user() -> None:
    code = (
        "import os, sys\nfrom holdfast.daemon.process import become\nfrom holdfast import ConfigError\n"
        f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
        "try: become(0, None)\nexcept ConfigError as error: print(error, error.exit_code)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "only root can become another user, this is uid 65534; start it as root 2" in done.stdout


@only_root
def test_a_user_without_a_known_group_needs_one_to_be_named(tmp_path: Path) -> None:
    result = run("store", "run", str(write(tmp_path / "s.xml", daemon="<uid>4000000</uid>")))
    one_error(result, 2, "uid 4000000 is no user of this host", "<gid>")


def threads(pid: int) -> dict[str, str]:
    """Processors of each thread, by the name of the thread where it has one."""
    found = {}
    for path in Path(f"/proc/{pid}/task").iterdir():
        text = (path / "status").read_text()
        found[path.name] = next(line.split()[1] for line in text.splitlines() if line.startswith("Cpus_allowed_list:"))
    return found


@pytest.mark.parametrize("way", ["-a", "environment"])
def test_threads_run_on_the_processors_that_are_given(start: Callable[..., Program], tmp_path: Path, way: str) -> None:
    allowed = sorted(os.sched_getaffinity(0))
    rest, other = allowed[0], allowed[-1]
    given = f"{rest},{other},{other},{rest},{rest}"
    arguments, environment = (["-a", given], {}) if way == "-a" else ([], {"UME_CPU_AFFINITY": given})
    daemon = start("store", "run", *arguments, str(write(tmp_path / "s.xml")), **environment)
    wait("the store is ready", log_has(READY))
    seen = threads(daemon.process.pid)
    assert seen.pop(str(daemon.process.pid)) == str(rest)
    assert set(seen.values()) == {str(rest), str(other)}
    assert list(seen.values()).count(str(other)) >= 2  # the drain and the control thread
    assert len({rest, other}) == 1 or str(rest) in seen.values()


@pytest.mark.parametrize("given", ["x", "", "0,", "100000", "-1"])
def test_a_processor_that_is_not_there_is_refused(given: str, tmp_path: Path) -> None:
    result = run("store", "run", f"--affinity={given},", str(write(tmp_path / "s.xml")))
    one_error(result, 2, "is no processor of this process")


def test_a_detached_daemon_is_ready_when_its_starter_returns(tmp_path: Path) -> None:
    path = str(write(tmp_path / "s.xml", daemon="<pidfile>s.pid</pidfile>"))
    assert run("store", "run", "--detach", path) == (0, "", "")
    pid = int(Path("s.pid").read_text())
    try:
        assert log_has(READY)()
        assert (os.getsid(pid), os.path.realpath(f"/proc/{pid}/fd/1")) == (pid, "/dev/null")
        one_error(run("store", "run", "-f", path), 3, "pidfile", str(pid))
        os.kill(pid, signal.SIGTERM)
        wait("it has ended", lambda: not Path("s.pid").exists())
    finally:
        if Path("s.pid").exists():
            os.kill(pid, signal.SIGKILL)


# Looking at a file ------------------------------------------------------------------------------------------


def test_validate_lists_everything_and_says_two(tmp_path: Path) -> None:
    path = write(tmp_path / "s.xml", "ab", "<web-monitor>*:1</web-monitor>")
    assert run("store", "run", "--validate", str(path))[:2] == (0, f"{path}: valid, 2 stores\n")
    text = (
        path.read_text()
        .replace("<pattern", "")
        .replace('port="10314"', 'port="10313"')
        .replace('size="10"', 'size="ten"')
    )
    path.write_text(text)
    code, out, err = run("store", "run", "-v", str(path))
    assert (code, out) == (2, "")
    assert [line.split(": ")[0] for line in err.splitlines() if line.startswith(("error", "warning"))] == [
        "warning",
        "error",
        "error",
    ]
    assert "size of <log> = 'ten'" in err
    assert "port '10313' belongs to the store of line 1 as well" in err


def test_the_schema_that_is_printed_accepts_the_file(tmp_path: Path) -> None:
    code, out, err = run("store", "run", "--dump-schema")
    assert (code, err) == (0, "")
    assert etree.RelaxNG(etree.fromstring(out.encode())).validate(etree.parse(write(tmp_path / "s.xml")))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "which store?"),
        (["--name", "a"], "which store?"),
        (["s.xml", "--name", "a"], "give one of them"),
        (["--validate"], "which file?"),
        (["missing.xml"], "the configuration cannot be read: No such file or directory"),
    ],
)
def test_arguments_that_say_nothing_useful_are_refused(arguments: list[str], words: str) -> None:
    one_error(run("store", "run", *arguments), 2, words)
