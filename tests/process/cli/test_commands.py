"""The command line as a person uses it: every test starts the real program and looks at its output and exit
code."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.command_line import COMMAND, SHORT, Program, one_error, run, stat, until
from support.workers import stand_still

from holdfast.cli import main
from holdfast.engine.log.sight import state_of
from holdfast.engine.memory.domain import Domain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def store(start: Callable[..., Program], tmp_path: Path) -> Program:
    """A disk store named a in tmp_path/a, ready."""
    return start_store(start, tmp_path)


def start_store(start: Callable[..., Program], tmp_path: Path, kind: str = "disk") -> Program:
    program = start("store", "run", "--name", "a", "--dir", str(tmp_path / "a"), "--type", kind)
    assert program.line("stderr").startswith("store a is ready: ")
    return program


# Send and receive -------------------------------------------------------------------------------------------


def test_lines_that_are_sent_are_received_as_lines(store: Program) -> None:
    code, out, err = run("send", "quotes", stdin=b"one\n\ntwo \xff\nlast without newline")
    assert (code, out) == (0, "")
    assert err.startswith("sent 4 messages, 28 bytes to 'quotes'"), err
    received = subprocess.run(
        [*COMMAND, "recv", "quotes", "--exit-at-end"], capture_output=True, timeout=SHORT, check=False
    )
    assert (received.returncode, received.stderr) == (0, b"")
    assert received.stdout == b"one\n\ntwo \xff\nlast without newline\n"


def test_a_receiver_that_waits_prints_each_message_when_it_comes(store: Program, start: Callable[..., Program]) -> None:
    receiver = start("recv", "quotes", "--count", "2", "--json")
    sender = start("send", "quotes", stdin=subprocess.PIPE)
    assert sender.process.stdin is not None
    for number, text in enumerate(("first", "second")):
        sender.process.stdin.write(f"{text}\n".encode())
        sender.process.stdin.flush()
        message = json.loads(receiver.line())
        assert (message["topic"], message["sequence_number"], message["data"]) == ("quotes", number, text)
    assert receiver.end() == (0, "", "")
    sender.process.stdin.close()
    sender.process.stdin = None
    assert sender.end()[0] == 0


@pytest.mark.parametrize(
    "command",
    [
        ["stat"], ["events"], ["gc"], ["doctor"], ["recv", "quotes"], ["store", "adopt-empty", "a"],
        ["store", "deregister", "a", "--source", "5"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_domain_that_is_not_there_is_named_and_not_made(store: Program, command: list[str]) -> None:
    own = os.environ["HOLDFAST_DOMAIN"]
    wrong = f"{own}x"
    one_error(run(*command, "--domain", wrong), 2, f"there is no domain '{wrong}'", f"did you mean '{own}'?")
    assert not (Path(os.environ["HOLDFAST_DIR"]) / wrong).exists()


def test_json_carries_what_is_no_text_as_base64(store: Program) -> None:
    assert run("send", "quotes", stdin=b"\xff\xfe\n")[0] == 0
    code, out, _ = run("recv", "quotes", "--count", "1", "--json")
    message = json.loads(out)
    assert code == 0
    assert message["data_base64"] == "//4="
    assert "data" not in message
    assert message["retransmit"] is True


def test_a_receiver_with_a_session_prints_a_message_once(store: Program) -> None:
    assert run("send", "quotes", stdin=b"1\n2\n3\n")[0] == 0
    assert run("recv", "quotes", "-e", "--session", "7") == (0, "1\n2\n3\n", "")
    assert run("recv", "quotes", "-e", "--session", "7") == (0, "", "")
    assert run("recv", "quotes", "-e", "--session", "0x8") == (0, "1\n2\n3\n", "")


def test_a_receiver_without_a_session_leaves_nothing(
    store: Program, start: Callable[..., Program], own_domain: str
) -> None:
    """Whether it ends by itself or is killed."""
    assert run("send", "quotes", "--session", "5", stdin=b"1\n2\n")[0] == 0
    for _ in range(3):
        assert run("recv", "quotes", "-e")[0] == 0
    receiver = start("recv", "quotes")
    assert receiver.line() == "1"
    receiver.signal(signal.SIGKILL)
    receiver.process.wait()
    until(lambda seen: seen["receivers"] == [])
    with contextlib.closing(Domain(own_domain, join=False)) as place:
        deadline = time.monotonic() + SHORT
        while not ((state := state_of(place, "a")) and [each.receivers for each in state.sources] == [[]]):
            assert time.monotonic() < deadline, state
    assert not [name for name in os.listdir(place.path) if "wait" in name and os.path.getsize(place.path / name)]


def test_a_source_with_a_session_goes_on_at_its_next_number(store: Program) -> None:
    for text in (b"a\nb\n", b"c\n"):
        assert run("send", "quotes", "--session", "5", stdin=text)[0] == 0
    _, out, _ = run("recv", "quotes", "-e", "--json")
    assert [(m["sequence_number"], m["data"]) for m in map(json.loads, out.splitlines())] == [
        (0, "a"),
        (1, "b"),
        (2, "c"),
    ]


def test_a_receiver_that_slept_through_a_whole_life_of_its_source_gets_its_messages(
    store: Program, start: Callable[..., Program]
) -> None:
    receiver = start("recv", "quotes")
    for number, ends in enumerate((signal.SIGKILL, signal.SIGINT)):
        sender = start("send", "quotes", "--session", "5", stdin=subprocess.PIPE)
        assert sender.process.stdin is not None
        sender.process.stdin.write(b"seen %d\n" % number)
        sender.process.stdin.flush()
        assert receiver.line() == f"seen {number}"
        sender.signal(ends)
        sender.process.wait()
        receiver.signal(signal.SIGSTOP)
        assert run("send", "quotes", "--session", "5", stdin=b"missed %d\n" % number)[0] == 0
        until(lambda seen: [source["state"] for source in seen["sources"]] == ["stored"])
        receiver.signal(signal.SIGCONT)
        assert receiver.line() == f"missed {number}"


def test_a_file_is_sent_at_a_rate(store: Program, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("x\n" * 50)
    started = time.monotonic()
    assert run("send", "quotes", "--file", str(tmp_path / "lines"), "--rate", "100")[0] == 0
    assert time.monotonic() - started >= 49 / 100
    assert run("recv", "quotes", "--count", "50")[1] == "x\n" * 50


def test_a_store_that_returns_is_waited_for_in_the_middle_of_a_send(
    store: Program, start: Callable[..., Program], tmp_path: Path
) -> None:
    sender = start("send", "quotes", stdin=subprocess.PIPE)
    assert sender.process.stdin is not None
    sender.process.stdin.write(b"before\n")
    sender.process.stdin.flush()
    until(lambda seen: [source["stable"] for source in seen["sources"]] == [0])
    store.process.kill()
    store.process.wait()
    until(lambda seen: not seen["sources"][0]["stores"][0]["alive"])
    sender.process.stdin.write(b"after\n")
    sender.process.stdin.close()
    sender.process.stdin = None
    start_store(start, tmp_path)
    code, _, err = sender.end()
    assert code == 0, err
    assert run("recv", "quotes", "-e") == (0, "before\nafter\n", "")


def test_a_reader_that_has_enough_ends_the_receiver_quietly(store: Program, start: Callable[..., Program]) -> None:
    assert run("send", "quotes", stdin=b"0123456789abcdef\n" * 20_000)[0] == 0
    receiver = start("recv", "quotes")
    receiver.line()
    assert receiver.process.stdout is not None
    receiver.process.stdout.close()
    assert receiver.process.wait(SHORT) == 0
    assert receiver.process.stderr is not None
    assert receiver.process.stderr.read() == b""


def test_a_reader_that_has_enough_ends_a_table_quietly(start: Callable[..., Program]) -> None:
    looking = start("stat", "--json", "--watch", "0.1")
    looking.line()
    assert looking.process.stdout is not None
    looking.process.stdout.close()
    assert looking.process.wait(SHORT) == 0
    assert looking.process.stderr is not None
    assert looking.process.stderr.read() == b""


# Wrong use --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["send"], "TOPIC"),
        (["send", "quotes", "--rate", "fast"], "--rate"),
        (["send", "quotes", "--file", "/no/such/file"], "/no/such/file"),
        (["send", "quotes", "-o", "ume_flight_size"], "NAME=VALUE"),
        (["recv", "quotes", "--count", "0"], "--count"),
        (["recv", "quotes", "--no-such-option"], "--no-such-option"),
        (["recv", "quotes", "--domain", "a/b"], "a/b"),
        (["store", "run", "--name", "a"], "--dir"),
        (["store", "run", "--name", "a", "--dir", "{tmp}", "--type", "tape"], "tape"),
        (["store", "run", "--name", "a/b", "--dir", "{tmp}"], "a/b"),
        (["store", "run", "--name", "a", "--dir", "{tmp}", "-o", "repository-size=1"], "repository-size"),
        (["store", "check", "/no/such/directory"], "/no/such/directory"),
        (["store", "check", "{tmp}"], "is not a store's directory"),
        (["store", "mark", "a", "--source", "1", "--numbers", "3-1"], "3-1"),
        (["store", "mark", "a", "--numbers", "1"], "--source"),
        (["store", "deregister", "a", "--source", "0"], "--source"),
        (["stat", "--watch", "0"], "--watch"),
        (["events", "--interval", "0"], "--interval"),
        (["fly"], "fly"),
    ],
)
def test_wrong_arguments_give_one_line_and_exit_code_2(arguments: list[str], word: str, tmp_path: Path) -> None:
    one_error(run(*(part.format(tmp=tmp_path) for part in arguments)), 2, word)


def test_a_wrong_option_of_a_source_says_which_one_was_meant(store: Program) -> None:
    one_error(run("send", "quotes", "-o", "ume_flight_sise=5", stdin=b"x\n"), 2, "ume_flight_sise", "ume_flight_size?")


def test_without_a_store_the_error_says_how_to_start_one() -> None:
    for arguments in (["send", "quotes"], ["send", "quotes", "--store", "b"], ["recv", "quotes"]):
        one_error(run(*arguments, stdin=b"x\n"), 3, "hint: start one: holdfast store run --name")


def test_a_second_store_on_one_directory_is_refused_and_names_the_first(store: Program, tmp_path: Path) -> None:
    result = run("store", "run", "--name", "b", "--dir", str(tmp_path / "a"))
    one_error(result, 3, str(tmp_path / "a"), str(store.process.pid))


def test_a_second_store_of_one_name_is_refused(store: Program, tmp_path: Path) -> None:
    one_error(run("store", "run", "--name", "a", "--dir", str(tmp_path / "b")), 3, str(store.process.pid))


def test_a_domain_directory_that_others_may_enter_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    one_error(run("stat", HOLDFAST_DIR=str(tmp_path)), 1, "chmod 700")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_domain_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    os.chown(tmp_path, 65534, 65534)
    one_error(run("recv", "quotes", HOLDFAST_DIR=str(tmp_path)), 1, "65534")


def test_a_domain_directory_with_too_long_a_path_is_refused(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 60) / ("y" * 60)
    long.mkdir(parents=True, mode=0o700)
    result = run("store", "run", "--name", "a", "--dir", str(tmp_path / "a"), HOLDFAST_DIR=str(long))
    one_error(result, 2, "Unix socket", "HOLDFAST_DIR")


def test_the_version_is_told() -> None:
    assert run("--version") == (0, "holdfast 0.1.0\n", "")


# Looking from outside ---------------------------------------------------------------------------------------


def test_stat_of_an_empty_domain_is_empty() -> None:
    assert {key: stat()[key] for key in ("sources", "receivers", "stores")} == {
        "sources": [],
        "receivers": [],
        "stores": [],
    }


def test_stat_shows_where_everybody_stood_when_all_are_dead(store: Program, start: Callable[..., Program]) -> None:
    sender = start("send", "quotes", "--session", "9", stdin=subprocess.PIPE)
    receiver = start("recv", "quotes", "--session", "10")
    assert sender.process.stdin is not None
    sender.process.stdin.write(b"1\n2\n3\n")
    sender.process.stdin.flush()
    until(lambda seen: [row["ack"] for row in seen["receivers"]] == [2] and seen["sources"][0]["stable"] == 2)
    for program in (store, sender, receiver):  # the store first: it would take a dead source's ring away
        program.process.kill()
        program.process.wait()
    seen = stat()
    source, dead_store, dead_receiver = seen["sources"][0], seen["stores"][0], seen["receivers"][0]
    assert (source["topic"], source["state"], source["alive"]) == ("quotes", "dead", False)
    assert (source["next"], source["stable"], source["unstable"], source["session_id"]) == (3, 2, 0, 9)
    assert (dead_store["name"], dead_store["state"]) == ("a", "dead")
    assert list(source["registration_ids"]) == ["a"]
    assert dead_receiver["source_registration_id"] == source["registration_ids"]["a"]
    assert (dead_receiver["ack"], dead_receiver["lag"], dead_receiver["alive"]) == (2, 0, False)
    assert dead_receiver["pid"] == receiver.process.pid
    code, table, _ = run("stat")
    assert code == 0
    assert "quotes" in table
    assert "dead" in table


def test_gc_keeps_what_a_store_still_needs_and_says_so(
    store: Program, start: Callable[..., Program], tmp_path: Path
) -> None:
    sender = start("send", "quotes", stdin=subprocess.PIPE)
    assert sender.process.stdin is not None
    sender.process.stdin.write(b"1\n")
    sender.process.stdin.flush()
    until(lambda seen: [source["stable"] for source in seen["sources"]] == [0])
    stand_still(store.process.pid)  # alive, and drains nothing
    sender.process.stdin.write(b"2\n")
    sender.process.stdin.flush()
    until(lambda seen: [source["next"] for source in seen["sources"]] == [2])
    for program in (store, sender):
        program.process.kill()
        program.process.wait()
    _, dry, _ = run("gc", "--dry-run", "--all")
    assert "would remove stream" in dry
    _, kept, _ = run("gc")
    assert "kept stream" in kept
    assert "store a has not drained it up to number 1" in kept
    start_store(start, tmp_path)
    assert run("recv", "quotes", "-e") == (0, "1\n2\n", "")


def test_gc_removes_everything_when_all_are_dead_and_all_is_asked_for(
    start: Callable[..., Program], tmp_path: Path, domain: str
) -> None:
    store = start_store(start, tmp_path, kind="memory")
    assert run("send", "quotes", stdin=b"1\n")[0] == 0
    assert "kept" not in run("gc", "--all")[1].replace("kept lock", ""), "the living are not mentioned"
    assert run("recv", "quotes", "-e")[1] == "1\n"
    store.process.kill()
    store.process.wait()
    _, some, _ = run("gc")
    assert "kept logs" in some
    _, rest, _ = run("gc", "--all")
    assert "removed logs" in rest
    place = Path(os.environ["HOLDFAST_DIR"]) / domain
    assert list((place / "processes").iterdir()) == []
    assert {path.suffix for path in (place / "stores").iterdir()} == {".info", ".census"}


# Checking logs ----------------------------------------------------------------------------------------------


def test_check_passes_a_good_log_and_finds_a_flipped_byte(store: Program, tmp_path: Path) -> None:
    assert run("send", "quotes", stdin=b"".join(b"message %d\n" % i for i in range(1000)))[0] == 0
    code, out, _ = run("store", "check", str(tmp_path / "a"))
    assert code == 0, "beside the running store"
    assert "quotes: 1,000 messages, numbers 0..999" in out
    store.signal(signal.SIGTERM)
    assert store.process.wait(SHORT) == 0
    (segment,) = (tmp_path / "a" / "logs").glob("*/seg-*")
    data = bytearray(segment.read_bytes())
    data[data.index(b"message 500")] ^= 1
    segment.write_bytes(data)
    code, out, err = run("store", "check", str(tmp_path / "a"))
    assert (code, err) == (5, "")
    assert "numbers 500..500" in out
    code, out, _ = run("store", "check", "--json", str(tmp_path / "a"))
    (found,) = json.loads(out)[0]["logs"][0]["findings"]
    assert (code, found["kind"], found["first"], found["next"]) == (5, "damage", 500, 501)


# Signals ----------------------------------------------------------------------------------------------------


def test_interrupting_a_receiver_leaves_no_trace(store: Program, start: Callable[..., Program]) -> None:
    assert run("send", "quotes", stdin=b"1\n")[0] == 0
    receiver = start("recv", "quotes", "--session", "3")
    assert receiver.line() == "1"
    receiver.signal(signal.SIGINT)
    assert receiver.end() == (130, "", "")
    assert [row["alive"] for row in stat()["receivers"]] == [False]


def test_interrupting_a_sender_leaves_no_stream_behind(store: Program, start: Callable[..., Program]) -> None:
    sender = start("send", "quotes", stdin=subprocess.PIPE)
    assert sender.process.stdin is not None
    sender.process.stdin.write(b"1\n")
    sender.process.stdin.flush()
    until(lambda seen: [source["stable"] for source in seen["sources"]] == [0])
    sender.signal(signal.SIGINT)
    assert sender.process.wait(SHORT) == 130
    assert sender.process.stderr is not None
    assert sender.process.stderr.read() == b""
    until(lambda seen: [source["state"] for source in seen["sources"]] == ["stored"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_store_ends_with_0_after_a_signal(store: Program, number: signal.Signals) -> None:
    assert run("send", "quotes", stdin=b"1\n")[0] == 0
    store.signal(number)
    assert store.end() == (0, "", "")
    assert [row["state"] for row in stat()["stores"]] == ["stopped"]


def test_a_program_that_calls_the_command_keeps_its_own_signals(capsys: pytest.CaptureFixture[str]) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert main(["--version"]) == 0
    assert main(["--nonsense"]) == 2
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


# The demo ---------------------------------------------------------------------------------------------------


@pytest.fixture(params=[2000])
def demo(request: pytest.FixtureRequest, start: Callable[..., Program], tmp_path: Path) -> Iterator[Program]:
    """A demo that has begun to send, at this rate. When it is over nothing of it may be left, in files or in
    shared memory."""
    rate = str(request.param)
    program = start("demo", "--records", "12000", "--rate", rate, "--no-pipeline", TMPDIR=str(tmp_path))
    while not re.search("receiver 2 [1-9]", program.line()):
        pass
    (folder,) = tmp_path.iterdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOLDFAST_DIR", str(folder / "run"))
        domain = Domain("demo", join=False)
    prefix = domain.prefix
    domain.close()
    assert any(name.startswith(prefix) for name in os.listdir("/dev/shm"))
    yield program
    assert program.process.returncode is not None
    assert list(tmp_path.iterdir()) == []
    assert [name for name in os.listdir("/dev/shm") if name.startswith(prefix)] == []


@pytest.mark.parametrize("demo", [0], indirect=True)
def test_the_demo_kills_everybody_loses_nothing_and_cleans_up(demo: Program) -> None:
    code, out, err = demo.end()
    assert code == 0, out + err
    out = demo.seen + out
    for name in ("receiver 1", "store b", "source"):
        assert f"kill -9 {name} (pid " in out
        assert f"{name} started again" in out
    assert "store b has caught up with the others, and counts again" in out
    assert re.search(r"kill -9 store c \(pid \d+\) at record [\d,]+: for good", out)
    assert "the logs of the stores that live: identical over records 0 to 11,999" in out
    assert "and what the dead one had: identical over records 0 to " in out
    assert "receiver 1: all 12,000 records, in order" in out
    assert "receiver 2: all 12,000 records, in order" in out
    assert out.endswith("nothing was lost\n")


def test_interrupting_the_demo_leaves_nothing_behind(demo: Program) -> None:
    while "receiver 1 started again" not in demo.line():
        pass
    demo.signal(signal.SIGINT)
    code, _, err = demo.end()
    assert (code, err) == (130, "")
