"""A store, a source and a receiver, each a process of its own, reach limits of memory, mappings and
descriptors for real, at whatever call comes first. Each is told by name, who is there goes on, and with room
again everything works.

ENFILE is not among them: fs.file-max is the machine's, and whoever lowers it hurts all of it. It is forged
(tests/unit/native/test_limits.py).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from support.limited_role import LimitedRole
from support.reached_limits import LIMITS
from support.workers import until

import holdfast as hf
from holdfast.engine.native.limits import named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from process.conftest import ThreadStore

RING = 1 << 16
LARGE = 64 << 20
"""A ring that does not fit where MARGIN is left."""
MARGIN = 8 << 20
REMEDIES = {"mappings": "sysctl vm.max_map_count=N", "addresses": "ulimit -v", "descriptors": "ulimit -n"}
TIGHT = [
    ("mappings", 0),
    ("mappings", 1),
    ("mappings", 2),
    ("addresses", 0),
    ("addresses", 100_000),
    *(("descriptors", spare) for spare in range(3)),
]
"""What is left: the first calls that meet it differ."""
AT_RECEIVER = [
    ("mappings", 1),
    ("mappings", 3),
    ("addresses", 0),
    ("addresses", 200_000),
    ("addresses", MARGIN // 4),
    ("descriptors", 0),
    ("descriptors", 1),
    ("descriptors", 2),
]


@pytest.fixture
def store(tmp_path: Path, own_domain: str) -> Iterator[LimitedRole]:
    role = LimitedRole(tmp_path / "store.log", "store", str(tmp_path / "a"))
    try:
        until("it is ready", lambda: "store a is ready" in role.log.read_text())
        yield role
    finally:
        role.discard()


@pytest.fixture
def program(tmp_path: Path, store: LimitedRole) -> Iterator[LimitedRole]:
    """It has a source that is registered, and has sent."""
    role = LimitedRole(tmp_path / "program.log", "program")
    try:
        assert role("context") == ""
        assert role("source", "there", RING) == role("registered", "there") == role("send", "there", "before") == ""
        yield role
    finally:
        role.discard()


def is_named(said: str, kind: str, role: LimitedRole) -> None:
    """It says which limit of whom, its value, its use, and what helps."""
    use = re.search(rf"{LIMITS[kind]} of process {role.pid} is ([\d,]+), ([\d,]+) are used", said)
    assert use, said
    assert REMEDIES[kind] in said
    assert "\n" not in said


def registers(program: LimitedRole, topic: str) -> None:
    """By itself, when there is room."""
    until("it registers", lambda: program("registered", topic) == "")
    assert program("send", topic, "after") == ""


@pytest.mark.parametrize(("kind", "spare"), TIGHT)
def test_a_source_without_room_names_the_limit_and_registers_when_there_is_some(
    program: LimitedRole, kind: str, spare: int
) -> None:
    program("leave", kind, spare)
    assert program("source", "late", RING) == ""
    said = program("registered", "late")
    assert said.startswith("LimitReachedError: E")
    is_named(said, kind, program)
    assert program("send", "there", "goes on") == ""
    program("room")
    registers(program, "late")
    (told,) = program("texts")
    is_named(told, kind, program)


def test_a_ring_that_is_larger_than_the_addresses_that_are_left(program: LimitedRole) -> None:
    program("leave", "addresses", MARGIN)
    assert program("source", "late", LARGE) == ""
    is_named(program("registered", "late"), "addresses", program)
    program("room")
    registers(program, "late")


def without_room(store: LimitedRole, program: LimitedRole, kind: str, spare: int) -> tuple[str, str]:
    """A topic of a source that the store refuses, and with which words. What the store gives back at that
    moment (of a log that it has just closed) is room for one more."""
    for number in range(10):
        store("leave", kind, spare)
        topic = f"late {number}"
        assert program("source", topic, RING) == ""
        if said := program("registered", topic):
            return topic, said
    raise AssertionError("there is always room")


@pytest.mark.parametrize(("kind", "spare"), [each for each in TIGHT if each != ("mappings", 2)])
def test_a_store_without_room_names_the_limit_and_serves_who_is_there(
    store: LimitedRole, program: LimitedRole, kind: str, spare: int
) -> None:
    topic, said = without_room(store, program, kind, spare)
    assert said.startswith("RegistrationError: HF_REGISTRATION: store a failed to do this: E")
    is_named(said, kind, store)
    assert program("send", "there", "goes on") == ""
    store("room")
    registers(program, topic)
    assert "Traceback" not in store.log.read_text()
    assert len(re.findall(f"failed to do this.*{LIMITS[kind]}", store.log.read_text())) == 1, "once"


def test_a_store_that_cannot_map_a_large_ring_serves_who_is_there(store: LimitedRole, program: LimitedRole) -> None:
    store("leave", "addresses", MARGIN)
    assert program("source", "late", LARGE) == ""
    is_named(program("registered", "late"), "addresses", store)
    assert program("send", "there", "goes on") == ""
    store("room")
    registers(program, "late")


@pytest.mark.parametrize(("kind", "spare"), AT_RECEIVER)
def test_a_receiver_without_room_names_the_limit_and_receives_when_there_is_some(
    program: LimitedRole, kind: str, spare: int
) -> None:
    """It had failed for good where its board did not fit, and was silent for ever where its feed did not."""
    program("leave", kind, spare)
    assert program("receiver", "there") == ""
    is_named(program("heard", "there"), kind, program)
    program("room")
    assert until_received(program) == "before"
    assert "Traceback" not in program.log.read_text()


def until_received(program: LimitedRole) -> str:
    """The next message; what an older attempt has failed of may be said first."""
    said: list[str] = []

    def comes() -> bool:
        said.append(program("receive", "there"))
        return ": " not in said[-1]

    until("a message comes", comes)
    return said[-1]


def test_memory_that_python_does_not_get_is_a_limit_of_addresses(program: LimitedRole) -> None:
    program("leave", "addresses", 0)
    is_named(program("without_memory"), "addresses", program)
    program("room")
    assert program("without_memory") == "MemoryError: "


def test_a_request_that_finds_no_memory_is_refused_and_the_store_goes_on(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = run_store()
    assert isinstance(named(MemoryError()), MemoryError), "no limit is blamed"

    def fail(*_: object) -> None:
        raise MemoryError

    options = {"ume_store_name": ["a"], "ring_size": RING}
    with hf.Context() as ctx, ctx.source("quotes", options=options) as src:
        with monkeypatch.context() as full:
            full.setattr(store.store.sources, "register", fail)
            with pytest.raises(hf.RegistrationError, match="store a failed to do this: MemoryError"):
                src.wait_registered(60)
        until("it registers", lambda: registered(src))


def registered(src: hf.Source) -> bool:
    try:
        src.wait_registered(60)
    except hf.RegistrationError:
        return False
    return True
