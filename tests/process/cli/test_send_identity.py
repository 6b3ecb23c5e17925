"""As whom ``holdfast send`` sends: repeated runs go on with one source per topic, which has one holder at a
time."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.command_line import Program, one_error, run, stat, until

from holdfast.cli.send_identity import PREFIX, session_of
from holdfast.engine.options.values import SESSION_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

QUOTES = session_of(os.getuid(), "quotes")


def start_store(start: Callable[..., Program], tmp_path: Path, name: str = "a") -> Program:
    program = start("store", "run", "--name", name, "--dir", str(tmp_path / name))
    assert program.line("stderr").startswith(f"store {name} is ready: ")
    return program


@pytest.fixture
def store(start: Callable[..., Program], tmp_path: Path) -> Program:
    """A disk store named a in tmp_path/a, ready."""
    return start_store(start, tmp_path)


def sent(text: str, *arguments: str, topic: str = "quotes") -> str:
    """What a run that sends ``text`` says on stderr."""
    code, out, err = run("send", topic, *arguments, stdin=text.encode())
    assert (code, out) == (0, ""), err
    return err


def holding(start: Callable[..., Program], *arguments: str) -> Program:
    """A sender that has sent the line "held" and waits for the next one."""
    sender = start("send", "quotes", *arguments, stdin=subprocess.PIPE)
    write(sender, "held")
    until(lambda seen: any(row["pid"] == sender.process.pid and row["stable"] >= 0 for row in seen["sources"]))
    return sender


def write(sender: Program, line: str) -> None:
    assert sender.process.stdin is not None
    sender.process.stdin.write(f"{line}\n".encode())
    sender.process.stdin.flush()


def finish(sender: Program) -> tuple[int, str, str]:
    assert sender.process.stdin is not None
    sender.process.stdin.close()
    sender.process.stdin = None
    return sender.end()


def received(topic: str = "quotes") -> list[tuple[int, str]]:
    code, out, err = run("recv", topic, "--exit-at-end", "--json")
    assert (code, err) == (0, "")
    return [(message["sequence_number"], message["data"]) for message in map(json.loads, out.splitlines())]


def sessions() -> list[int]:
    found: list[dict[str, Any]] = stat()["sources"]
    return sorted(row["session_id"] for row in found)


# The number -------------------------------------------------------------------------------------------------


def test_a_session_is_one_users_and_one_topics_and_far_from_what_users_choose() -> None:
    assert session_of(1000, "quotes") == session_of(1000, "quotes") == 0x5E4D_C87B_867C_C570, "as other runs have it"
    others = {
        session_of(1000, "quote"),
        session_of(1001, "quotes"),
        session_of(1, "000quotes"),
        session_of(0, "\udcff"),
    }
    assert len(others | {session_of(1000, "quotes")}) == 5
    assert all(session >> 48 == PREFIX >> 48 for session in others)
    assert 2**62 < PREFIX < PREFIX + 2**48 <= SESSION_MAX


# One source -------------------------------------------------------------------------------------------------


def test_repeated_sends_keep_their_order_and_leave_one_source(store: Program) -> None:
    for text in ("one\n", "two\nthree\n", "four\n"):
        sent(text)
    assert received() == [(0, "one"), (1, "two"), (2, "three"), (3, "four")]
    assert sessions() == [QUOTES]


def test_each_topic_has_a_source_of_its_own(store: Program) -> None:
    sent("one\n")
    sent("two\n", topic="trades")
    assert sessions() == sorted([QUOTES, session_of(os.getuid(), "trades")])
    assert received("trades") == [(0, "two")]


def test_who_was_killed_holds_the_identity_no_more(store: Program, start: Callable[..., Program]) -> None:
    killed = holding(start)
    killed.process.kill()
    killed.process.wait()
    assert sent("next\n").startswith("sent 1 messages")
    assert received() == [(0, "held"), (1, "next")]


def test_a_session_that_is_named_goes_before_the_identity(store: Program) -> None:
    for arguments in (("--session", "5"), ("-o", "ume_session_id=5"), ("--session", "0"), ("--session", "0")):
        sent("x\n", *arguments)
    sent("x\n", "-o", "ume_store_name=a:77:0")
    assert sessions() == [0, 0, 0, 5], "0 is none: a source of its own each time, and so has who names a RegID"


# Held -------------------------------------------------------------------------------------------------------


def test_beside_a_living_holder_a_fresh_identity_sends_and_says_so(
    store: Program, start: Callable[..., Program]
) -> None:
    holder = holding(start)
    beside = holding(start)
    told = beside.line("stderr")
    assert told.startswith(f"process {holder.process.pid} holds the identity of 'quotes' since 2"), told
    assert told.endswith(": sending under a fresh one, in no order with its messages")
    assert sessions() == [0, QUOTES]
    write(holder, "still")
    assert finish(holder)[0] == 0
    assert sent("last\n").startswith("sent 1 messages"), "it is free again, also while the other one goes on"
    code, _, err = finish(beside)
    assert (code, err.startswith("sent 1 messages")) == (0, True), err
    assert sorted(received()) == [(0, "held"), (0, "held"), (1, "still"), (2, "last")]


def test_exclusive_is_refused_beside_a_living_holder(store: Program, start: Callable[..., Program]) -> None:
    holder = holding(start)
    result = run("send", "quotes", "--exclusive", stdin=b"beside\n")
    one_error(
        result, 1, f"(session id {QUOTES:#x}) is held by process {holder.process.pid} since", "without --exclusive"
    )
    assert sessions() == [QUOTES]
    assert finish(holder)[0] == 0
    assert sent("next\n", "--exclusive").startswith("sent 1 messages")
    assert received() == [(0, "held"), (1, "next")]


def test_a_named_session_that_is_held_is_refused(store: Program, start: Callable[..., Program]) -> None:
    holder = holding(start, "--session", "9")
    result = run("send", "quotes", "--session", "9", stdin=b"beside\n")
    one_error(result, 1, f"(session id 0x9) is held by process {holder.process.pid} since", "use another")
    assert sessions() == [9]


# The first line ---------------------------------------------------------------------------------------------


def test_without_any_input_nothing_is_sent_and_nothing_left(domain: str) -> None:
    assert run("send", "quotes", stdin=b"") == (0, "", "sent 0 messages, 0 bytes to 'quotes'\n")
    assert not (Path(os.environ["HOLDFAST_DIR"]) / domain).exists(), "nor was the domain joined"


def test_without_any_input_what_is_wrong_is_told_all_the_same() -> None:
    one_error(run("send", "quotes", "-o", "ume_flight_sise=5", stdin=b""), 2, "ume_flight_sise", "ume_flight_size?")
    one_error(run("send", "quotes", "--session", "x", stdin=b""), 2, "ume_session_id", "a whole number")


def test_who_waits_at_an_empty_pipe_holds_nothing(start: Callable[..., Program], tmp_path: Path) -> None:
    waiting = start("send", "quotes", stdin=subprocess.PIPE)  # before any store: it would have to end with an error
    start_store(start, tmp_path)
    assert sent("first\n").startswith("sent 1 messages")
    write(waiting, "second")
    code, _, err = finish(waiting)
    assert (code, err.startswith("sent 1 messages")) == (0, True), err
    assert received() == [(0, "first"), (1, "second")]


# Other stores -----------------------------------------------------------------------------------------------


def listed(*names: str) -> list[str]:
    return [part for name in names for part in ("--store", name)]


def test_the_identity_goes_on_with_another_list_of_stores(start: Callable[..., Program], tmp_path: Path) -> None:
    for name in "ab":
        start_store(start, tmp_path, name)
    for number, stores in enumerate(("a", "ab", "b", "a", "")):
        err = sent(f"{number}\n", *listed(*stores))
        assert err.rstrip().endswith(f"stable, and registered at {', '.join(stores or 'ab')}"), err
    assert received() == [(number, str(number)) for number in range(5)]
    assert sessions() == [QUOTES]


def test_a_store_that_is_needed_and_away_is_named_with_what_to_do(
    start: Callable[..., Program], tmp_path: Path
) -> None:
    running = [start_store(start, tmp_path, name) for name in "abc"]
    sent("0\n")
    for name, program in zip("ab", running, strict=False):
        program.process.kill()
        program.process.wait()
        (tmp_path / name).rename(tmp_path / f"{name}-away")
    result = run("send", "quotes", "--timeout", "3", stdin=b"1\n")
    one_error(result, 4, "quotes", "holdfast store exclude NAME", "--session N, 0 for")
    assert "a" in result[2]
    (tmp_path / "a-away").rename(tmp_path / "a")
    start_store(start, tmp_path, "a")
    sent("1\n")
    assert received() == [(0, "0"), (1, "1")]


def test_lists_that_share_no_store_do_not_go_together_and_the_error_says_what_does(
    start: Callable[..., Program], tmp_path: Path
) -> None:
    for name in "ab":
        start_store(start, tmp_path, name)
    sent("at a\n", *listed("a"))
    sent("at b\n", *listed("b"))  # which has never heard of the other one
    result = run("send", "quotes", stdin=b"at both\n")
    one_error(
        result, 1, "another source than at the other stores", "holdfast store deregister NAME", "--session N, 0 for"
    )
    registered = {name: number for row in stat()["sources"] for name, number in row["registration_ids"].items()}
    sent("next at a\n", *listed("a"))
    assert run("store", "deregister", "b", "--source", str(registered["b"]))[0] == 0
    sent("at both\n")
    assert received() == [(0, "at a"), (1, "next at a"), (2, "at both")]
