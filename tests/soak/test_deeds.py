"""The judges of what an operator changes beside the soak, of `events -f`, and of silent stores find what is
wrong, and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from soak.actors import Actor, Window
from soak.deeds import (
    check_adopted,
    check_all_domains,
    check_excluded,
    check_forgotten,
    check_marked,
    check_refused,
    check_spoiled,
    check_swept,
)
from soak.following import LOOK_S, Change, check_followed, read_changes
from soak.lies import WORDS, false_changes, false_words, silence_is_found
from soak.records import Line
from soak.silence import Silence, check_silences
from soak.words import Facts, Said, Who, check_killed

if TYPE_CHECKING:
    from collections.abc import Callable

TOPIC = "soak.s0"
RUNS = Who(calm=True, absent=False, pid=1)
FACTS = Facts(
    dict.fromkeys("abc", RUNS), {TOPIC: Who(calm=True, absent=False, pid=2, stable=5, sent=8)}, {}
)  # fmt: skip
DOMAIN = "/tmp/soak/run/soak"


def said(out: str = "", err: str = "", status: int = 0, words: tuple[str, ...] = ("store",)) -> Said:
    return Said(words, status, out, err, 1.0, 2.0)


EXCLUDED = "".join(
    f"store {name}: recorded\n  topic '{TOPIC}', RegID 7: store {name} has {has}; what only store a has is given up\n"
    for name, has in (("b", "messages up to number 5"), ("c", "no message"))
)
STAT: dict[str, Any] = {
    "stores": [{"name": name, "state": "running", "pid": 1} for name in "abc"],
    "sources": [{"topic": TOPIC, "state": "live", "alive": True, "pid": 2, "next": 7, "stable": 6}],
    "receivers": [],
}


def domains(verb: str, row: dict[str, Any], status: int = 0) -> Said:
    rows = [{"domain": DOMAIN, **row}, {"domain": "/tmp/other", **row}]
    return said(json.dumps(rows), status=status, words=(verb, "--json"))


def excluded(said: Said) -> list[str]:
    return check_excluded(said, "a", "bc", FACTS)


def refused(said: Said) -> list[str]:
    return check_refused(said, 2, "process 2 ")


def swept(said: Said) -> list[str]:
    return check_swept(said, FACTS, {TOPIC: "ab12"}, ["/tmp/soak", "/dev/shm/hf.1."])


def one_of_all(said: Said) -> list[str]:
    return check_all_domains(said, DOMAIN, FACTS)


def forgotten(said: Said) -> list[str]:
    return check_forgotten(said, f"topic '{TOPIC}'", "up to number 4")


GONE = f"deregistered topic '{TOPIC}'; up to number 4\n"
MARKED = "store a: numbers 3..4 of source 7 marked undeliverable\n"
JUDGED: dict[str, tuple[Callable[[Said], list[str]], Said]] = {
    "exclude": (excluded, said(EXCLUDED)),
    "adopt": (
        partial(check_adopted, name="a"),
        said("store a (/tmp/a) votes as one that never had a message, from its\n"),
    ),
    "gc": (swept, said("removed lock /tmp/soak/run/soak/processes/1 (4 bytes): its process is dead\n")),
    "stat --all-domains": (one_of_all, domains("stat", {"stat": STAT})),
    "doctor --all-domains": (
        one_of_all,
        domains("doctor", {"findings": [{"check": "shm", "ok": False, "found": ""}]}, 1),
    ),
    "doctor, a store is killed": (
        partial(check_killed, store="a", pid=71),
        said(
            json.dumps(
                [
                    {
                        "ok": False,
                        "found": "store a was killed (pid 71)",
                        "remedy": "holdfast store run --name a --dir /x",
                    }
                ]
            ),
            status=1,
        ),
    ),
    "gc --all-domains": (one_of_all, said(f"== {DOMAIN}\nwould remove lock /x\n", words=("gc", "--dry-run"))),
    "mark": (partial(check_marked, store="a", source=7, first=3, last=4), said(MARKED)),
    "recv": (partial(check_spoiled, lines=["spoiled 1 0", "spoiled 1 1"], marked="spoiled 1 1"), said("spoiled 1 0\n")),
    "deregister": (forgotten, said(GONE)),
    "deregister a receiver": (forgotten, said(GONE)),
    "deregister --finished": (forgotten, said(GONE)),
    "exclude, refused": (refused, said(err="error: process 2 has it\n", status=2)),
    "adopt-empty, refused": (refused, said(err="error: process 2 has it\n", status=2)),
    "deregister, refused": (refused, said(err="error: process 2 has it\n", status=2)),
}


@pytest.mark.parametrize("kind", WORDS)
def test_what_a_command_says_truly_is_good_and_the_lie_of_the_soak_is_found(kind: str) -> None:
    check, told = JUDGED[kind]
    assert check(told) == []
    assert [*false_words({kind: JUDGED[kind]})] == [True]


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("exclude", {"out": EXCLUDED.replace("store c: recorded", "")}),
        ("exclude", {"out": EXCLUDED.replace("number 5", "number 4")}),
        ("exclude", {"out": EXCLUDED.replace(TOPIC, "soak.s1")}),
        ("gc", {"out": "removed stream /dev/shm/hf.1.ab12.s1 (4 bytes): its source is dead\n"}),
        ("gc", {"out": "removed board /dev/shm/hf.2.cd34.b (4 bytes): nobody on it lives\n"}),
        ("gc", {"out": "removed info /tmp/soak/run/soak/stores/b.info: store b is dead\n"}),
        ("stat --all-domains", {"out": json.dumps([{"domain": DOMAIN, "error": "gone"}]), "status": 1}),
        ("stat --all-domains", {"status": 1}),
        ("doctor --all-domains", {"status": 0}),
        ("gc --all-domains", {"out": f"== {DOMAIN}\nremoved lock /x\n"}),
        ("mark", {"out": MARKED * 2}),
        ("recv", {"out": "spoiled 1 0\nspoiled 1 1\n"}),
        ("deregister, refused", {"status": 0}),
    ],
)
def test_what_a_command_may_not_say_or_do_is_found(kind: str, change: dict[str, Any]) -> None:
    check, told = JUDGED[kind]
    assert check(replace(told, **change))


# events -f --------------------------------------------------------------------------------------------------


def actor(name: str, role: str, *windows: Window) -> Actor:
    return Actor(name, role, lambda _: [], Path("/dev/null"), lambda _: True, windows=[*windows])


def change(at: float, event: str, state: str, pid: int, number: int = -1) -> Change:
    name, topic = ("a", "") if event == "store" else ("", TOPIC)
    return Change(at, event, state, name, topic, (event, name, topic), pid, number)


START = Window(0.0, "start", 1.0, 1.0, 10)
KILL = Window(50.0, "kill", 80.0, 81.0, 11)
ACTORS = {
    ("store", "a"): actor("a", "store", START, KILL),
    ("source", TOPIC): actor("s0", "source", replace(START, pid=20)),
}
CHANGES = [
    change(2.0, "store", "running", 10), change(2.0, "source", "live", 20), change(40.0, "stability", "", 20, 3),
    change(51.0, "store", "dead", 10), change(81.0, "store", "running", 11), change(90.0, "stability", "", 20, 7),
]  # fmt: skip


LAGS = [change(float(at), "lag", "", 0, 0) for at in range(2, 121)]


def followed(changes: list[Change]) -> list[str]:
    return check_followed([*changes, *LAGS], ACTORS, {TOPIC: 8}, 1.0, 120.0)


def test_events_that_say_what_happened_are_good_and_each_lie_of_the_soak_is_found() -> None:
    assert followed(CHANGES) == []
    assert [*false_changes(CHANGES, lambda changes: followed([*changes]))] == [True, True, True]


@pytest.mark.parametrize(
    "changes",
    [
        [*CHANGES[:3], *CHANGES[4:]],  # away for half a minute, and nobody said so
        [*CHANGES[:4], *CHANGES[5:]],
        [*CHANGES, change(100.0, "store", "running", 11)],
        [*CHANGES[:3], change(30.0, "source", "dead", 20), change(31.0, "source", "live", 20), *CHANGES[3:]],
        [*CHANGES, change(100.0, "stability", "", 20, 6)],
        [*CHANGES, change(100.0, "stability", "", 20, 8)],
    ],
)
def test_events_that_do_not_say_what_happened_are_found(changes: list[Change]) -> None:
    assert len(followed(changes)) == 1


def test_a_slow_look_is_excused_and_silence_is_not() -> None:
    slow = [replace(each, at=each.at + 22.0) for each in CHANGES[:2]]
    assert check_followed([*slow, *CHANGES[2:], *LAGS[25:]], ACTORS, {TOPIC: 8}, 1.0, 120.0) == []
    assert "nothing for 119 s" in check_followed([], ACTORS, {TOPIC: 8}, 1.0, 120.0)[0]


def test_who_was_there_for_less_than_a_look_may_stay_unsaid() -> None:
    brief = [
        START,
        Window(50.0, "kill", 50.0 + LOOK_S / 2, 50.0 + LOOK_S / 2, 11),
        Window(60.0, "kill", 61.0, 61.0, 12),
    ]
    actors = {**ACTORS, ("store", "a"): actor("a", "store", *brief)}
    changes = [*CHANGES[:4], change(62.0, "store", "running", 12), CHANGES[5]]
    assert check_followed([*changes, *LAGS], actors, {TOPIC: 8}, 1.0, 120.0) == []


def test_lines_are_read_with_the_clock_of_the_soak(tmp_path: Path) -> None:
    row = {"time_ns": 105 * 10**9, "event": "store", "state": "running", "name": "a", "topic": "", "source": "",
           "registration_id": 0, "session_id": 0, "pid": 10, "number": -1, "behind": 0}  # fmt: skip
    (tmp_path / "out").write_text(json.dumps(row) + "\n")
    (read,) = read_changes(tmp_path / "out", 100.0)
    assert (read.at, read.event, read.state, read.name, read.pid) == (5.0, "store", "running", "a", 10)


# Silent stores ----------------------------------------------------------------------------------------------

SILENCE = Silence(1, 10.0, 30.0, [TOPIC])
TOLD = {TOPIC: [Line(21.0, "silent", TOPIC, (1,)), Line(22.0, "stable", TOPIC, (5, 6))]}


def test_a_silent_store_that_sources_were_told_of_and_went_on_without_is_good() -> None:
    assert check_silences([SILENCE], TOLD) == []
    assert [*silence_is_found([SILENCE], TOLD)] == [True, True]
    assert [*silence_is_found([replace(SILENCE, topics=[])], TOLD)] == []


def test_a_silence_of_another_store_or_another_time_is_none() -> None:
    assert "was not told" in check_silences([replace(SILENCE, store=2)], TOLD)[0]
    assert len(check_silences([replace(SILENCE, begin=40.0, end=60.0)], TOLD)) == 2


def test_only_silences_that_were_long_and_sources_that_were_at_work_are_judged() -> None:
    store = actor("b", "store", START, Window(20.0, "silence", 36.0, 37.0), Window(90.0, "silence", 92.0, 93.0))
    sources = {"s0": actor("s0", "source", START), "s1": actor("s1", "source", START, Window(25.0, "kill", 26.0, 27.0))}
    assert Silence.of(1, store, sources) == [Silence(1, 20.0, 36.0, [TOPIC])]
