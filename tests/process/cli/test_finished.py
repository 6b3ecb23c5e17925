"""``holdfast store deregister --finished``: what is finished, old and owed to nobody goes, and the rest
stays, with the reason."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from support.changing_stores import sent as life
from support.command_line import Program, one_error, run, stat, until
from support.receiving import SHORT, source, take

import holdfast as hf
from holdfast.cli import store_finished
from holdfast.cli.store_finished import age_ns, deregister_finished
from holdfast.engine.control.forgetting import FINISHED_MAX, Finished, ForgetFinished, ForgotFinished
from holdfast.engine.control.request import ask
from holdfast.engine.control.wire import Refused
from holdfast.engine.errors import Error
from holdfast.engine.log.reader import Block, Logs
from holdfast.engine.memory.domain import SHM_DIR
from holdfast.engine.tools import snapshot
from holdfast.engine.tools.finished import Candidate, candidates
from holdfast.engine.tools.snapshot import take as take_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from process.conftest import ThreadStore

    from holdfast.engine.memory.domain import Domain

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


def test_a_receiver_that_was_deregistered_at_all_stores_has_not_registered(
    run_store: Callable[..., ThreadStore],
) -> None:
    """Also while its line is on the board: neither does it owe anything, nor was the source ever read for
    good."""
    store = run_store("a", "disk")
    with hf.Context(session_id=5) as ctx:
        src = ctx.source("quotes", options={"ume_store_name": ["a"]})
        src.wait_registered(SHORT)
        src.wait_stable(src.send(b"1"), SHORT)
        received()
        (row,) = stat()["receivers"]
        (kept,) = store.store.state.sources[0].receivers
        words = "--source", str(src.registration_ids["a"]), "--receiver", str(kept.registration_id)
        assert run("store", "deregister", "a", *words)[0] == 0
        assert (row["session_id"], row["ack"], stat()["receivers"]) == (7, 0, [])


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


def test_an_exclusion_that_is_over_gives_no_store_up(
    run_store: Callable[..., ThreadStore], wipe: Callable[[str], None]
) -> None:
    """The source has begun again since, so that store counts: nobody knows what it has."""
    stores = {name: run_store(name, "disk") for name in "abc"}
    life("abc", 2)
    stores["c"].stop()
    wipe("c")
    assert run("store", "exclude", "c")[0] == 0
    assert "quotes" in finished(*ALL, "--force", "--dry-run")[0]
    assert ": store c may" not in finished(*ALL, "--force", "--dry-run")[0], "it is given up"
    life("abc", 1)
    run_store("c", "disk").stop()
    until(lambda _: "its ring is there still" not in finished(*ALL, "--force", "--dry-run")[0])
    assert ": store c may have it too, and takes no request now; " in finished(*ALL, "--force")[0]
    assert topics() == ["quotes"]


def test_only_the_topic_that_is_asked_for_goes(run_store: Callable[..., ThreadStore]) -> None:
    run_store("a", "disk")
    for topic in ("quotes", "trades"):
        sent("1", topic=topic)
        received(topic=topic)
    assert len(finished(*ALL, "--topic", "quotes")) == 2
    assert topics() == ["trades"]


def after_the_look(monkeypatch: pytest.MonkeyPatch, deed: Callable[[], object]) -> list[int]:
    """``deed`` is done behind the look at the domain. Returns how many sources each look found."""
    looks: list[int] = []

    def and_then(*arguments: Any, **more: Any) -> list[Candidate]:
        found = candidates(*arguments, **more)
        looks.append(len(found))
        deed()
        return found

    monkeypatch.setattr(store_finished, "candidates", and_then)
    return looks


def not_forgotten(said: pytest.CaptureFixture[str], why: str) -> None:
    """Nothing went, and the command said why."""
    text = said.readouterr()
    assert why in text.err
    assert text.out.endswith("deregistered 0 sources, 0 bytes; kept 0\n")
    assert topics() == ["quotes"]


def kept_alive(said: pytest.CaptureFixture[str], why: str) -> None:
    """Nothing went, because the source came to life again: that is no failure."""
    text = said.readouterr()
    assert text.err == ""
    assert text.out.startswith("kept topic 'quotes', RegID ")
    assert ": it came to life again: " in text.out
    assert why in text.out
    assert text.out.endswith("deregistered 0 sources, 0 bytes; kept 1\n")
    assert topics() == ["quotes"]


def test_the_domain_is_looked_at_once_however_many_sources_go(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """10,000 finished sources would have taken hours."""
    stores = [run_store(name, "disk") for name in "ab"]
    with hf.Context() as ctx:
        for _ in range(5):
            with source(ctx, ume_store_name=["a:0:0", "b:0:0"]) as src:
                src.wait_stable(src.send(b"1"), timeout=SHORT)
    until(lambda seen: [row["state"] for row in seen["sources"]] == ["stored"] * 5)
    looks, asked = after_the_look(monkeypatch, lambda: None), list[tuple[str, int, bool]]()
    saves = [0, 0]

    def counted(domain: Domain, store: str, request: ForgetFinished, timeout: float) -> object:
        asked.append((store, len(request.sources), request.only_look))
        return ask(domain, store, request, timeout)

    for place, store in enumerate(stores):
        save = store.store.holdings.save

        def count(place: int = place, save: Callable[..., None] = save, **how: bool) -> None:
            saves[place] += how.get("sync", True)
            save(**how)

        monkeypatch.setattr(store.store.holdings, "save", count)
    taken: list[object] = []

    def take_once(domain: Domain) -> snapshot.Snapshot:
        taken.append(domain)
        return take_snapshot(domain)

    monkeypatch.setattr(snapshot, "take", take_once)
    monkeypatch.setattr(store_finished, "ask", counted)
    monkeypatch.setattr(store_finished, "FINISHED_MAX", 3)
    assert deregister_finished("0s", None, SHORT, None, force=True, dry_run=False) == 0
    assert looks == [5]
    assert len(taken) == 1
    assert asked == [(store, count, only) for count in (3, 2) for only in (True, False) for store in "ab"]
    assert saves == [2, 2], "each store saves its state once for each batch"
    assert topics() == []


@pytest.mark.parametrize("force", [False, True])
def test_a_source_that_sends_between_the_look_and_the_request_stays(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], force: bool
) -> None:  # fmt: skip
    run_store("a", "disk")
    sent("1")
    received()
    after_the_look(monkeypatch, lambda: sent("2"))
    assert deregister_finished("0s", None, SHORT, None, force=force, dry_run=False) == 0
    kept_alive(capsys, "has begun anew, which nobody has looked at, at store a")


@pytest.mark.parametrize("force", [False, True])
def test_a_source_that_is_held_again_since_the_look_stays_also_when_forced(
    run_store: Callable[..., ThreadStore], start: Callable[..., Program], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], force: bool,
) -> None:  # fmt: skip
    run_store("a", "disk")
    sent("1")
    received()

    def again() -> None:
        sender = start("send", "quotes", stdin=subprocess.PIPE)
        assert sender.process.stdin is not None
        sender.process.stdin.write(b"2\n")
        sender.process.stdin.flush()
        until(lambda seen: [(row["alive"], row["stable"]) for row in seen["sources"]] == [(True, 1)])

    after_the_look(monkeypatch, again)
    assert deregister_finished("0s", None, SHORT, None, force=force, dry_run=False) == 0
    kept_alive(capsys, " is held by process ")


@pytest.mark.parametrize("lives", [False, True])
def test_a_source_that_comes_when_a_store_has_forgotten_it_loses_nothing_and_the_store_is_named(
    run_store: Callable[..., ThreadStore], start: Callable[..., Program], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], lives: bool,
) -> None:  # fmt: skip
    """It registers with store a as with one that has lost its log: store b still has everything."""
    stores = {name: run_store(name, "disk") for name in "ab"}
    sent("1", "2")
    received(count=2)

    def comes(domain: Domain, store: str, request: ForgetFinished, timeout: float) -> object:
        if store == "b" and not request.only_look:
            assert stores["a"].store.state.sources == []
            if lives:
                sender = start("send", "quotes", stdin=subprocess.PIPE)
                assert sender.process.stdin is not None
                sender.process.stdin.write(b"3\n")
                sender.process.stdin.flush()
                until(lambda seen: [(row["alive"], row["stable"]) for row in seen["sources"]] == [(True, 2)])
            else:
                sent("3")
        return ask(domain, store, request, timeout)

    monkeypatch.setattr(store_finished, "ask", comes)
    assert deregister_finished("0s", None, SHORT, None, force=False, dry_run=False) == 1
    not_forgotten(capsys, "; store a had forgotten it by then, and gets it again from the others, ")
    until(lambda seen: [[at["stable"] for at in row["stores"]] for row in seen["sources"]] == [[2, 2]])
    for store in stores.values():
        (kept,) = store.store.state.sources
        logs, block = Logs([str(store.store.logs / kept.uuid.hex())]), Block()
        assert [number for number in range(4) if logs.read(number, block)] == [0, 1, 2], "each store has all of it"
        logs.close()
    with hf.Context(session_id=9) as ctx:
        assert take(ctx.receiver("quotes"), 3) == [0, 1, 2]


def test_a_source_that_has_a_receiver_since_the_look_stays(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_store("a", "disk")
    sent("1")
    received()
    with hf.Context(session_id=8) as ctx:  # of this process: no receiver leaves for having nothing to do

        def joins() -> None:
            assert take(ctx.receiver("quotes")) == [0]
            until(lambda seen: [row["ack"] for row in seen["receivers"]] == [0, 0])

        after_the_look(monkeypatch, joins)
        assert deregister_finished("0s", None, SHORT, None, force=False, dry_run=False) == 1
    not_forgotten(capsys, " has a receiver that lives, RegID ")


def test_a_store_that_stops_after_the_look_keeps_the_others_from_it(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = [run_store(name, "disk") for name in "ab"][1]
    sent("1")
    received()
    after_the_look(monkeypatch, other.stop)
    assert deregister_finished("0s", None, SHORT, None, force=True, dry_run=False) == 1
    not_forgotten(capsys, "store b may have it too, and takes no request now")


def test_a_store_that_has_a_log_of_it_since_the_look_keeps_the_others_from_it(
    run_store: Callable[..., ThreadStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    kept, other = (run_store(name, "disk") for name in "ab")
    with hf.Context() as ctx, source(ctx) as src:
        src.wait_stable(src.send(b"1"), timeout=SHORT)
    until(lambda seen: [row["state"] for row in seen["sources"]] == ["stored"])
    log = other.store.logs / kept.store.state.sources[0].uuid.hex()
    after_the_look(monkeypatch, log.mkdir)
    assert deregister_finished("0s", None, SHORT, None, force=True, dry_run=False) == 1
    not_forgotten(capsys, "store b has it by now, too")


def test_the_store_keeps_what_a_receiver_has_come_for_between_the_looks_and_the_deed(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_store("a", "disk")
    sent("1", "2")
    received(count=2)

    def late(domain: Domain, store: str, request: ForgetFinished, timeout: float) -> object:
        if not request.only_look:
            assert run("recv", "quotes", "--count", "1", "--session", "8")[0] == 0
        return ask(domain, store, request, timeout)

    monkeypatch.setattr(store_finished, "ask", late)
    assert deregister_finished("0s", None, SHORT, None, force=False, dry_run=False) == 1
    not_forgotten(capsys, "is owed to receiver")


@pytest.mark.parametrize("only_look", [True, False])
def test_a_store_that_does_not_do_it_keeps_the_others_from_it(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    only_look: bool,
) -> None:  # fmt: skip
    """It may live again there, with what its receivers are owed. All say first whether they would."""
    for name in "abc":
        run_store(name, "disk")
    sent("1")
    received()
    asked: list[str] = []

    def refuses(domain: Domain, store: str, request: ForgetFinished, timeout: float) -> object:
        asked.append(f"{store}{'?' * request.only_look}")
        if request.only_look != only_look or (only_look and store != "b"):
            return ask(domain, store, request, timeout)
        raise Error("it is held")

    monkeypatch.setattr(store_finished, "ask", refuses)
    assert deregister_finished("0s", None, SHORT, None, force=False, dry_run=False) == 1
    assert asked == (["a?", "b?"] if only_look else ["a?", "b?", "c?", "a"])
    not_forgotten(capsys, f"store {'b' if only_look else 'a'}: ")


def test_a_store_forgets_a_source_only_as_it_was_seen(run_store: Callable[..., ThreadStore]) -> None:
    store = run_store("a", "disk").store
    sent("1", "2")
    (kept,) = store.state.sources

    def why(**seen: Any) -> str:
        request = ForgetFinished(1, [msgspec.structs.replace(Finished(kept.uuid, 1, 2), **seen)], owed=True)
        answer = store.operator.forget_finished(request)
        assert isinstance(answer, ForgotFinished)
        assert topics() == ["quotes"]
        return answer.kept[0][1]

    assert "has begun anew" in why(incarnation=0)
    assert "has messages up to number 1, which nobody has looked at," in why(next=1)
    assert "was held since it was looked at" in why(gone_ns=1)
    assert why(uuid=b"u" * 16) == "store a does not keep it any more"
    ring = SHM_DIR / store.domain.stream_name(kept.uuid, 9)
    ring.touch(mode=0o600)
    assert "has a ring again" in why()
    ring.unlink()
    many = [Finished(bytes([number]) * 16, 1, 2) for number in range(FINISHED_MAX + 1)]
    refused = store.operator.forget_finished(ForgetFinished(1, many))
    assert isinstance(refused, Refused)
    assert refused.text == f"{FINISHED_MAX + 1} sources: one request takes {FINISHED_MAX}"


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
