"""``holdfast store deregister --finished``: what is finished, old and owed to nobody goes, and the rest
stays, with the reason."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from support.command_line import Program, one_error, run, stat, until
from support.receiving import take

import holdfast as hf
from holdfast.cli import store_finished
from holdfast.cli.store_finished import age_ns, deregister_finished
from holdfast.engine.control.request import ask
from holdfast.engine.errors import Error
from holdfast.engine.tools.finished import Candidate, candidates

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from process.conftest import ThreadStore

ALL = ("--older-than", "0s")


def finished(*arguments: str) -> list[str]:
    """What the command says; it ends with 0."""
    code, out, err = run("store", "deregister", "--finished", *arguments)
    assert (code, err) == (0, ""), err
    return out.splitlines()


def sent(*texts: str, topic: str = "quotes") -> None:
    assert run("send", topic, stdin="".join(f"{text}\n" for text in texts).encode())[0] == 0
    until(lambda seen: all(row["state"] == "stored" for row in seen["sources"]))


def received(*, count: int = 1, topic: str = "quotes") -> None:
    assert run("recv", topic, "--count", str(count), "--session", "7")[0] == 0


def topics() -> list[str]:
    return sorted(row["topic"] for row in stat()["sources"])


def start_store(start: Callable[..., Program], tmp_path: Path, name: str) -> Program:
    program = start("store", "run", "--name", name, "--dir", str(tmp_path / name))
    assert program.line("stderr").startswith(f"store {name} is ready: ")
    return program


def test_what_was_acknowledged_goes_at_all_stores_and_only_that_is_said(run_store: Callable[..., ThreadStore]) -> None:
    for name in "ab":
        run_store(name, "disk")
    sent("1", "2")
    received(count=2)
    told = finished(*ALL, "--dry-run")
    (row,) = stat()["sources"]
    at = ", ".join(f"{number} at {name}" for name, number in sorted(row["registration_ids"].items()))
    assert told[0].startswith(f"would deregister topic 'quotes', RegID {at}: numbers 0..1, "), told
    assert told[1].endswith("; kept 0")
    assert " would deregister 1 sources, " in told[1]
    assert topics() == ["quotes"], "a dry run changes nothing"
    told = finished(*ALL)
    assert told[0].startswith(f"deregistered topic 'quotes', RegID {at}: numbers 0..1, "), told
    assert topics() == []
    assert finished(*ALL)[0].endswith(" deregistered 0 sources, 0 bytes; kept 0")


def test_what_ends_with_a_message_that_is_marked_at_all_stores_has_its_age(
    run_store: Callable[..., ThreadStore],
) -> None:
    """A mark takes nothing out of the log, so the time of the message is known."""
    for name in "ab":
        run_store(name, "disk")
    sent("1", "2")
    received(count=2)
    (row,) = stat()["sources"]
    for name, number in row["registration_ids"].items():
        assert run("store", "mark", name, "--source", str(number), "--numbers", "1")[0] == 0
    assert finished(*ALL)[0].startswith("deregistered topic 'quotes', RegID ")
    assert topics() == []


def test_what_a_session_still_owes_stays_unless_forced(run_store: Callable[..., ThreadStore]) -> None:
    run_store("a", "disk")
    sent("1", "2", "3")
    received()
    told = finished(*ALL)
    assert told[0].startswith("kept topic 'quotes', RegID ")
    assert ": session 0x7 lacks 2 numbers; numbers 0..2, " in told[0]
    assert topics() == ["quotes"]
    told = finished(*ALL, "--force")
    assert told[0].startswith("deregistered topic 'quotes', RegID ")
    assert told[0].endswith("; owed: session 0x7 lacks 2 numbers")
    assert topics() == []


def test_what_nobody_has_ever_registered_with_stays_unless_forced(run_store: Callable[..., ThreadStore]) -> None:
    run_store("a", "disk")
    sent("1")
    assert ": no receiver has ever come to it; " in finished(*ALL)[0]
    assert topics() == ["quotes"]
    finished(*ALL, "--force")
    assert topics() == []


def test_what_is_younger_stays_also_when_forced(run_store: Callable[..., ThreadStore]) -> None:
    run_store("a", "disk")
    sent("1")
    received()
    assert ": its last message is not that old; " in finished("--older-than", "1h", "--force")[0]
    assert topics() == ["quotes"]


def test_a_source_that_lives_stays_also_when_forced(
    run_store: Callable[..., ThreadStore], start: Callable[..., Program]
) -> None:
    run_store("a", "disk")
    sender = start("send", "quotes", stdin=subprocess.PIPE)
    assert sender.process.stdin is not None
    sender.process.stdin.write(b"1\n")
    sender.process.stdin.flush()
    until(lambda seen: [row["stable"] for row in seen["sources"]] == [0])
    assert f": process {sender.process.pid} holds it; " in finished(*ALL, "--force")[0]
    assert topics() == ["quotes"]


def test_what_a_living_receiver_has_joined_stays_unless_forced(run_store: Callable[..., ThreadStore]) -> None:
    run_store("a", "disk")
    sent("1")
    with hf.Context(session_id=7) as ctx:  # of this process: no receiver leaves for having nothing to do
        assert take(ctx.receiver("quotes")) == [0]
        until(lambda seen: [row["ack"] for row in seen["receivers"]] == [0])
        assert f": it has a receiver that lives: session 0x7 of process {os.getpid()}; " in finished(*ALL)[0]
        finished(*ALL, "--force")
        assert topics() == []


@pytest.mark.parametrize("moved", [False, True])
def test_what_a_store_that_does_not_run_may_have_stays_also_when_forced(
    start: Callable[..., Program], tmp_path: Path, moved: bool
) -> None:
    stores = [start_store(start, tmp_path, name) for name in "ab"]
    sent("1")
    received()
    stores[1].process.kill()
    stores[1].process.wait()
    if moved:
        (tmp_path / "b").rename(tmp_path / "away")
    why = (
        ": not all of its stores can be read: b (" if moved else ": store b may have it too, and takes no request now; "
    )
    assert why in finished(*ALL, "--force")[0]
    assert topics() == ["quotes"]


def test_only_the_topic_that_is_asked_for_goes(run_store: Callable[..., ThreadStore]) -> None:
    run_store("a", "disk")
    for topic in ("quotes", "trades"):
        sent("1", topic=topic)
        received(topic=topic)
    assert len(finished(*ALL, "--topic", "quotes")) == 2
    assert topics() == ["trades"]


@pytest.mark.parametrize("case", ["sends", "joins"])
def test_what_goes_on_between_the_look_and_the_request_stays(
    run_store: Callable[..., ThreadStore], start: Callable[..., Program], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], case: str,
) -> None:  # fmt: skip
    run_store("a", "disk")
    sent("1")
    received()
    looks: list[list[Candidate]] = []

    def and_then(*arguments: Any, **more: Any) -> list[Candidate]:
        looks.append(candidates(*arguments, **more))
        if len(looks) == 1 and case == "sends":
            sent("2")
        elif len(looks) == 1:
            start("recv", "quotes", "--session", "7")
            until(lambda seen: [row["alive"] for row in seen["receivers"]] == [True])
        return looks[-1]

    monkeypatch.setattr(store_finished, "candidates", and_then)
    assert deregister_finished("0s", None, 10, None, force=case == "sends", dry_run=False) == 1
    said = capsys.readouterr()
    assert ("it has sent more meanwhile" if case == "sends" else "it has a receiver that lives") in said.err
    assert said.out.endswith("deregistered 0 sources, 0 bytes; kept 0\n")
    assert topics() == ["quotes"]


@pytest.mark.parametrize("case", ["sends", "owes"])
def test_the_store_keeps_what_nobody_has_looked_at(
    run_store: Callable[..., ThreadStore],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    case: str,
) -> None:
    """Between the last look and the request."""
    run_store("a", "disk")
    sent("1", "2")
    received(count=2)

    def late(*arguments: Any) -> object:
        if case == "sends":
            sent("3")
        else:
            assert run("recv", "quotes", "--count", "1", "--session", "8")[0] == 0
        return ask(*arguments)

    monkeypatch.setattr(store_finished, "ask", late)
    assert deregister_finished("0s", None, 10, None, force=False, dry_run=False) == 1
    said = "has messages up to number 2" if case == "sends" else "is owed to receiver"
    assert said in capsys.readouterr().err
    assert topics() == ["quotes"]


def test_a_store_that_does_not_do_it_keeps_the_others_from_it(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may live again there, with what its receivers are owed."""
    for name in "abc":
        run_store(name, "disk")
    sent("1")
    received()
    asked: list[str] = []

    def refuses(_: object, store: str, *more: object) -> object:
        asked.append(store)
        raise Error("it is held")

    monkeypatch.setattr(store_finished, "ask", refuses)
    assert deregister_finished("0s", None, 10, None, force=False, dry_run=False) == 1
    assert asked == ["a"]
    assert "store a: " in capsys.readouterr().err
    assert topics() == ["quotes"]


def test_an_age_is_a_number_with_a_unit() -> None:
    assert [age_ns(text) // 10**9 for text in ("90s", "30m", "12h", "7d", "2w")] == [90, 1800, 43200, 604800, 1209600]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--finished"], "--older-than"),
        (["--finished", "--older-than", "7"], "'7' is no number with a unit"),
        (["--finished", "--older-than", "-7d"], "'-7d'"),
        (["--finished", "--older-than", "7d", "--source", "1"], "leave NAME, --source"),
        (["a", "--finished", "--older-than", "7d"], "leave NAME, --source"),
        (["a", "--source", "1", "--dry-run"], "are of --finished"),
        (["a"], "--source REGID"),
        (["--source", "1"], "NAME"),
    ],
)
def test_arguments_that_do_not_go_together_are_told(arguments: list[str], words: str) -> None:
    one_error(run("store", "deregister", *arguments), 2, words)
