"""The judges of the soak find what is wrong, and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from soak.growth import Samples
from soak.judge import Kept, Role, judge
from soak.lies import LIES, caught, leak_is_found
from soak.plan import GIVEN_UP_S, STORES, troubles
from soak.programs import FRAGMENT, content
from soak.records import Line, Log, read
from soak.words import Facts, Said, Who, check_doctor, check_failure, check_killed, check_stat, is_wiped, lags_behind

if TYPE_CHECKING:
    from pathlib import Path

TOPIC = "soak.s0"
KEPT = Kept(10_000)
LENGTH = 436
"""With 64 bytes of a log beside it: 500."""


def sends(number: int, crc: int = 7) -> Line:
    return Line(float(number), "sends", TOPIC, (number, number, LENGTH, crc))


def got(number: int, at: float = 1000.0, *, again: bool = False, crc: int = 7) -> Line:
    return Line(at, "got", TOPIC, (number, number, LENGTH, crc, int(again)))


def stable(first: int, last: int) -> Line:
    return Line(float(last) + 0.5, "stable", TOPIC, (first, last))


def life(number: int) -> Line:
    return Line(0.0, "life", "", (number,))


def found(source: list[Line], receiver: list[Line], kind: str = "one", *, session: bool = True) -> list[str]:
    return judge({TOPIC: source}, {"r": (Role(kind, [TOPIC], session=session), receiver)}, KEPT).findings


SOURCE = [life(1), *(sends(n) for n in range(10)), stable(0, 9)]
RECEIVER = [life(1), *(got(n) for n in range(10))]


def test_all_that_was_sent_and_got_is_good() -> None:
    assert found(SOURCE, RECEIVER) == []


def test_each_lie_of_the_soak_is_found() -> None:
    assert caught({TOPIC: SOURCE}, {"r": (Role("one", [TOPIC]), RECEIVER)}, KEPT, "r") == len(LIES)


def test_a_stable_message_that_did_not_come_is_found_and_one_that_was_not_stable_is_not() -> None:
    (finding,) = found(SOURCE, [*RECEIVER[:5], *RECEIVER[6:]])
    assert "1 stable messages did not come and nobody told of it: [4]" in finding
    assert found([*SOURCE[:-1], stable(0, 8)], RECEIVER[:-1]) == []


def test_a_message_that_nobody_has_sent_or_not_yet_is_found() -> None:
    assert "came as nobody has sent it" in found(SOURCE, [*RECEIVER[:-1], got(9, crc=8)])[0]
    assert "came as nobody has sent it" in found(SOURCE, [*RECEIVER[:-1], got(9, at=1.0)])[0]


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ([got(9)], "came twice in one life"),
        ([life(2), got(9, again=False)], "without the flag of a retransmission"),
        ([Line(0, "closed"), life(2), got(9, again=True)], "9 was acknowledged before"),
        ([Line(0, "acked", TOPIC, (9,)), life(2), got(9, again=True)], "9 was acknowledged before"),
    ],
)
def test_what_comes_again_and_may_not_is_found(more: list[Line], text: str) -> None:
    assert any(text in finding for finding in found(SOURCE, [*RECEIVER, *more]))


def test_what_was_not_acknowledged_may_come_again() -> None:
    assert found(SOURCE, [*RECEIVER, life(2), got(9, again=True)]) == []
    closed = [*RECEIVER, Line(0, "closed"), life(2), got(9, again=True)]
    assert found(SOURCE, closed, "throttled") == []  # it closes with messages in hand


def test_a_life_that_begins_at_what_was_stable_is_found() -> None:
    assert "begins at 9, and 9 was stable" in found([*SOURCE, life(2), Line(20, "start", TOPIC, (9,))], RECEIVER)[0]
    assert found([*SOURCE, life(2), Line(20, "start", TOPIC, (10,))], RECEIVER) == []


LONG = [life(1), *(sends(n) for n in range(40)), stable(0, 39)]


def test_a_loss_is_excused_where_it_was_told_and_stores_may_have_let_the_message_go() -> None:
    """15 messages are three quarters of what stores keep."""
    late = [life(1), *(got(n) for n in range(20, 40))]
    lost = [Line(100.0, "lost", TOPIC, (n,)) for n in range(20)]
    verdict = judge({TOPIC: LONG}, {"r": (Role("one", [TOPIC]), [life(1), *lost, *late[1:]])}, KEPT)
    assert (verdict.findings, verdict.excused) == ([], 20)
    burst = Line(100.0, "burst", TOPIC, (19,))
    verdict = judge({TOPIC: LONG}, {"r": (Role("one", [TOPIC]), [life(1), burst, *late[1:]])}, KEPT)
    assert (verdict.findings, verdict.excused) == ([], 20)
    assert "20 stable messages did not come and nobody told of it" in found(LONG, late)[0]


def test_a_loss_that_was_told_too_early_is_found() -> None:
    late = [life(1), Line(30.0, "burst", TOPIC, (19,)), *(got(n) for n in range(20, 40))]
    told = found(LONG, late)
    assert told
    assert all("told lost with" in finding for finding in told)


def test_a_receiver_without_a_session_lacks_nothing_between_its_first_and_its_last() -> None:
    middle = [life(1), *(got(n) for n in range(3, 7))]
    assert found(SOURCE, middle, session=False) == []
    assert "did not come" in found(SOURCE, [*middle[:2], *middle[3:]], session=False)[0]


def test_a_batch_that_was_evicted_does_not_count_and_one_that_a_kill_left_open_does() -> None:
    rows = [replace(got(n), kind="row") for n in range(10)]
    whole, evicted = Line(0, "whole"), Line(0, "evicted")
    assert found(SOURCE, [life(1), *rows, whole], "batch") == []
    assert found(SOURCE, [life(1), *rows, evicted, *rows, whole], "batch") == []
    assert found(SOURCE, [life(1), *rows, life(2)], "batch") == []
    assert "did not come" in found(SOURCE, [life(1), *rows, evicted], "batch")[0]


def test_records_are_read_as_they_were_written(tmp_path: Path) -> None:
    log = Log(tmp_path / "r")
    log.say("got", TOPIC, 1, 1, 5, 99, 0)
    log.say("trouble", "a", "two\nlines")
    one, two = read(tmp_path / "r")
    assert (one.kind, one.topic, one.numbers) == ("got", TOPIC, (1, 1, 5, 99, 0))
    assert two.text == "a two | lines"
    assert read(tmp_path / "nobody") == []


# Growth -----------------------------------------------------------------------------------------------------


def test_a_leak_is_found_and_what_stays_as_it_is_is_not() -> None:
    samples = Samples()
    for k in range(40):
        samples.add("store a", k / 40, {"descriptors": 20.0 + k % 3, "rss": 5e7 + k, "threads": 7.0})
    assert samples.findings() == []
    assert leak_is_found(samples)


def test_what_is_full_before_the_second_quarter_has_not_grown() -> None:
    samples = Samples()
    for k in range(40):
        samples.add("logs", k / 40, {"bytes": min(k, 9) * 1e7})
    assert samples.findings() == []


# Words ------------------------------------------------------------------------------------------------------


def facts(**given: Any) -> Facts:
    store = Who(calm=True, absent=False, pid=1)
    source = Who(calm=True, absent=False, pid=2, stable=5, sent=8)
    receiver = Who(calm=True, absent=False, pid=3, got={TOPIC: 6})
    return Facts(
        {"a": given.get("store", store)}, {TOPIC: given.get("source", source)}, {"one": given.get("receiver", receiver)}
    )


def said(value: object, status: int = 0) -> Said:
    return Said(["stat"], status, json.dumps(value), "", 1.0, 2.0)


def stat(**changed: Any) -> Said:
    rows: dict[str, list[dict[str, Any]]] = {
        "stores": [{"name": "a", "state": "running", "pid": 1}],
        "sources": [{"topic": TOPIC, "state": "live", "alive": True, "pid": 2, "next": 7, "stable": 6}],
        "receivers": [{"topic": TOPIC, "name": "one", "alive": True, "pid": 3, "ack": 6}],
    }
    for name, change in changed.items():
        rows[name][0] |= change
    return said(rows)


def test_stat_that_says_what_is_so_is_good() -> None:
    assert check_stat(stat(), facts()) == []


@pytest.mark.parametrize(
    "changed",
    [
        {"stores": {"state": "dead"}}, {"stores": {"pid": 9}}, {"sources": {"state": "dead"}}, {"sources": {"next": 9}},
        {"sources": {"stable": 4}}, {"receivers": {"ack": 7}}, {"receivers": {"alive": False}},
    ],
)  # fmt: skip
def test_stat_that_says_what_is_not_so_is_found(changed: dict[str, Any]) -> None:
    assert len(check_stat(stat(**changed), facts())) == 1


def test_a_process_that_does_not_run_is_not_to_be_called_alive() -> None:
    away = Who(calm=False, absent=True, pid=0)
    assert "does not run" in check_stat(stat(), facts(store=away))[0]
    assert check_stat(stat(stores={"state": "dead"}), facts(store=away)) == []


def test_doctor_finds_nothing_where_all_is_calm_and_does_not_say_one_thing_and_exit_with_another() -> None:
    bad = {"check": "store", "ok": False, "found": "store a was killed (pid 1)"}
    machine = {"check": "shm", "ok": False, "found": "little room"}
    assert check_doctor(said([machine], 1), facts()) == []
    assert check_doctor(said([bad], 1), facts())
    assert check_doctor(said([machine], 0), facts())
    absent = Who(calm=False, absent=True, pid=0)
    assert check_doctor(said([bad], 1), facts(store=absent)) == []


KILLED = {
    "check": "store", "ok": False, "found": "store a was killed (pid 71)",
    "remedy": "start it as it was started: holdfast store run --name a --dir /x/a",
}  # fmt: skip


def test_doctor_names_a_store_that_was_killed_and_how_to_start_it() -> None:
    other = KILLED | {"check": "stale", "found": "2 sockets of the dead"}
    assert check_killed(said([KILLED, other], 1), "a", 71) == []


@pytest.mark.parametrize(
    ("findings", "status"),
    [
        ([], 0), ([KILLED], 0), ([KILLED | {"ok": True}], 1), ([KILLED | {"found": "store a was killed (pid 1)"}], 1),
        ([KILLED | {"found": "store b was killed (pid 71)"}], 1), ([KILLED | {"remedy": "call somebody"}], 1), ([KILLED] * 2, 1),
    ],
)  # fmt: skip
def test_doctor_that_does_not_name_it_or_says_another_thing_is_found(findings: list[object], status: int) -> None:
    (found,) = check_killed(said(findings, status), "a", 71)
    assert found.startswith("doctor: store a was killed as 71, ")


def test_a_traceback_or_a_status_that_is_not_allowed_is_found() -> None:
    assert check_failure(Said(["gc"], 0, "", "Traceback (most recent call last):", 0, 1), [0])
    assert check_failure(Said(["gc"], 3, "", "", 0, 1), [0])
    assert check_failure(Said(["gc"], 0, "", "", 0, 1), [0]) == []


NO_LOG = "  /w/c: it has no log of this source"
BEHIND = "  /w/c: its log ends before number 0, and the one in /w/a begins with 0: they share no number"
OTHER = "  /w/c: number 3 differs from /w/a"


@pytest.mark.parametrize(
    ("lines", "wiped", "lags"),
    [
        (["soak.s0: equal, numbers 0..9"], False, False),
        (["soak.shell: DIFFERENT from number 0 on", NO_LOG, "soak.s0: equal, numbers 0..9"], True, False),
        (["soak.shell: DIFFERENT from number 0 on", BEHIND, "soak.s0: equal, numbers 0..9"], False, True),
        (["soak.shell: DIFFERENT from number 0 on", BEHIND, "soak.spoiled: DIFFERENT from number 0 on", NO_LOG], False, True),
        (["soak.shell: DIFFERENT from number 3 on", OTHER], False, False),
        (["soak.s0: DIFFERENT from number 0 on", BEHIND], False, False),
    ],
)  # fmt: skip
def test_a_comparison_is_asked_again_only_while_a_wiped_store_is_behind(
    lines: list[str], wiped: bool, lags: bool
) -> None:
    differs = any("DIFFERENT" in line for line in lines)
    said = Said(["store", "check", "--compare"], int(differs), "\n".join(lines), "", 0, 1)
    assert is_wiped(said, ["soak.shell", "soak.spoiled"]) is wiped
    assert lags_behind(said, ["soak.shell", "soak.spoiled"]) is lags


# Plan -------------------------------------------------------------------------------------------------------


def test_a_seed_fixes_what_happens_and_only_stores_are_wiped() -> None:
    plan = [*troubles(3, 7200, 20)]
    assert plan == [*troubles(3, 7200, 20)]
    assert plan != [*troubles(4, 7200, 20)]
    assert {trouble.what for trouble in plan} == {
        "kill", "stop", "close", "wipe", "leave", "silence", "adopt", "exclude",
    }  # fmt: skip
    for what in ("wipe", "silence", "adopt", "exclude"):
        assert {trouble.whom for trouble in plan if trouble.what == what} == {*STORES}
    assert all(trouble.for_s > GIVEN_UP_S for trouble in plan if trouble.what == "silence")


def test_a_message_names_its_place_and_one_in_fifty_has_several_fragments() -> None:
    lengths = [len(content(1, 2, number)) for number in range(1000)]
    assert content(1, 2, 3) != content(1, 3, 3) != content(1, 3, 4)
    assert 5 < sum(length > FRAGMENT for length in lengths) < 50
