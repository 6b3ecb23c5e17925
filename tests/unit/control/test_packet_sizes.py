"""Every control message fits into one datagram, with as many of the longest names, paths and texts as the
limits allow."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, get_args

import msgspec
import pytest

from holdfast.engine.control import wire
from holdfast.engine.log import register
from holdfast.engine.log.state_file import LIVES_MAX, SERVED_MAX, SourceState
from holdfast.engine.native.core import lib
from holdfast.engine.options.receiver_paced import Wanted
from holdfast.engine.options.values import GROUPS_MAX, NAME_MAX, SESSION_MAX, STORES_MAX
from holdfast.engine.printable import cut
from holdfast.engine.rules.election import Written
from holdfast.engine.rules.exclusions import OVER_MAX
from holdfast.engine.rules.quorum import Groups
from holdfast.engine.rules.reconcile import BEGINS_MAX
from holdfast.engine.rules.reports import Configuration
from holdfast.engine.store import answers

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST = 2**63 - 1
U32 = 2**32 - 1
ID = 2**62
UUID = b"u" * 16
PATH_MAX = 4095
"""Bytes of a path that the kernel takes."""
WIDE = ["x", "é", "€", "𝄞"]
"""One byte to four in UTF-8."""


def filled(size: int, start: str = "", wide: str = "𝄞") -> str:
    """``size`` bytes of text, most of it characters of several bytes."""
    left = size - len(start.encode())
    count, rest = divmod(left, len(wide.encode()))
    text = start + "x" * rest + wide * count
    assert len(text.encode()) == size
    return text


def names(count: int, start: int = 0) -> list[str]:
    return [filled(NAME_MAX, f"{number}") for number in range(start, start + count)]


def numbered(count: int, start: int = 0) -> dict[str, int]:
    return dict.fromkeys(names(count, start), MOST)


OTHERS = answers.OTHERS_MAX
TOPIC = filled(int(lib.HF_TOPIC_MAX) - 1)
PATH = filled(PATH_MAX, "/")
LONG = filled(1 << 20)
"""A text that nobody has cut."""
BEGINS = [(MOST, MOST)] * BEGINS_MAX
STORES, SIZES, GROUPS = names(STORES_MAX), [STORES_MAX] * GROUPS_MAX, [GROUPS_MAX - 1] * STORES_MAX
LOGS = STORES_MAX + OTHERS + register.OTHERS_MAX
"""Declared, remembered by the store as of earlier lists, and told by the source."""
PACED = Wanted(MOST, MOST, MOST, MOST, MOST, True)
OVER = wire.Over(MOST, MOST, MOST, MOST, UUID, U32)
INFO = wire.SourceInfo(UUID, TOPIC, U32, SESSION_MAX, MOST, STORES, PATH, False, MOST, SIZES, GROUPS, OVER)


def granted(*logs: wire.PeerLog) -> wire.SourceGranted:
    return wire.SourceGranted(
        ID, U32, UUID, MOST, MOST, True, BEGINS, False, True, MOST, numbered(STORES_MAX), U32, [MOST] * 2 * LIVES_MAX, MOST,
        list(logs), STORES, SIZES, GROUPS, 3, 3, numbered(wire.EXCLUDED_MAX), numbered(wire.EXCLUDED_MAX),
        [MOST] * SERVED_MAX, [MOST] * OVER_MAX,
    )  # fmt: skip


def receiver_granted(others: Mapping[str, tuple[str, int]]) -> wire.ReceiverGranted:
    return wire.ReceiverGranted(
        ID, U32, SESSION_MAX, U32, UUID, MOST, MOST, MOST, True, PATH, MOST, MOST, U32, BEGINS, MOST, MOST, dict(others), LONG,
        names(wire.EXCLUDED_MAX), True, names(wire.EXCLUDED_MAX), True,
    )  # fmt: skip


EACH: list[Any] = [
    wire.Hello(1, 2**64 - 1, U32, 2**64 - 1, U32),
    wire.Welcome(1, names(1)[0], UUID, PATH, 9, U32, 2**64 - 1),
    wire.RegisterSource(
        ID, TOPIC, U32, SESSION_MAX, UUID, MOST, MOST, MOST, PACED, True, UUID, MOST,
        {bytes([i]) * 16: {name: (MOST, MOST)} for i, name in enumerate(names(register.OTHERS_MAX))},
    ),
    granted(*(wire.PeerLog(name, name, MOST, BEGINS) for name in names(LOGS))),
    granted(*(wire.PeerLog(name, name, -1, [], LONG) for name in names(LOGS))),
    wire.Begin(
        ID, UUID, MOST, MOST, filled(255), STORES, UUID, BEGINS, numbered(STORES_MAX), SIZES, GROUPS, 3, 3, UUID,
        [MOST] * 2 * STORES_MAX, numbered(register.OTHERS_MAX, 100), MOST, [MOST] * OVER_MAX,
    ),
    wire.Begun(ID, MOST, True),
    wire.RegisterReceiver(ID, UUID, TOPIC, U32, SESSION_MAX, UUID, True, MOST, MOST, 2, UUID, True),
    receiver_granted(dict.fromkeys(names(OTHERS), (PATH, MOST))),
    receiver_granted({name: (filled(PATH_MAX // 2, "/"), MOST) for name in names(OTHERS)}),
    wire.Refused(ID, "receiver_paced", LONG, U32, MOST, U32, SESSION_MAX),
    wire.ListSources(ID, TOPIC, UUID, UUID, SESSION_MAX, MOST, UUID),
    wire.Sources(ID, [INFO] * wire.PAGE_MAX, True, MOST),
    wire.Leave(ID, "receiver", UUID, UUID),
    wire.Left(ID),
    wire.Deregister(ID, "receiver", UUID, UUID, MOST, UUID),
    wire.Deregistered(ID, MOST),
    wire.OperatorDeregister(ID, U32, U32, True, UUID),
    wire.ForgetFinished(ID, [wire.Finished(UUID, MOST, MOST, MOST)] * wire.FINISHED_MAX, True, True),
    wire.ForgotFinished(ID, [(UUID, LONG)] * wire.FINISHED_MAX, [UUID] * wire.FINISHED_MAX),
    wire.Expelled(UUID),
    wire.Exclude(ID, names(1)[0], MOST),
    wire.Excluded(ID, [(TOPIC, U32, MOST)] * wire.EXCLUDED_MAX),
    wire.Mark(ID, U32, [(MOST, MOST)] * wire.RANGES_MAX),
    wire.Marked(ID, [(MOST, MOST)] * wire.RANGES_MAX),
]  # fmt: skip


def test_each_message_and_each_field_of_it_is_looked_at() -> None:
    assert {type(message) for message in EACH} == {*get_args(wire.Request), *get_args(wire.Answer)}
    logs = [log for message in EACH if isinstance(message, wire.SourceGranted) for log in message.logs]
    given: dict[type, set[str]] = {}
    for message in [*EACH, INFO, OVER, PACED, *logs]:
        for field in msgspec.structs.fields(message):
            value = getattr(message, field.name)
            if value != field.default and value not in ([], {}, "", b"", None):
                given.setdefault(type(message), set()).add(field.name)
    for kind, fields in given.items():
        assert fields == {field.name for field in msgspec.structs.fields(kind)}, kind


@pytest.mark.parametrize("message", EACH, ids=lambda message: type(message).__name__)
def test_it_fits_and_is_read_again(message: Any) -> None:
    packet = wire.encode(message)
    assert len(packet) <= wire.PACKET_MAX
    decode = wire.decode_request if isinstance(message, get_args(wire.Request)) else wire.decode_answer
    said = decode(packet)
    assert wire.encode(said) == packet, "what is cut once is not cut again"
    for field in msgspec.structs.fields(message):
        if field.name not in {"text", "logs", "unrecorded", "others", "kept"}:
            assert getattr(said, field.name) == getattr(message, field.name)


def test_a_socket_takes_a_packet_of_that_size_whole() -> None:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with one, other:
        one.setblocking(False)
        assert one.send(bytes(wire.PACKET_MAX)) == wire.PACKET_MAX
        assert len(other.recv(wire.PACKET_MAX)) == wire.PACKET_MAX


@pytest.mark.parametrize("wide", WIDE)
def test_a_text_is_cut_between_characters_in_its_middle(wide: str) -> None:
    whole = f"/a/path{wide * 300}: the reason"
    for size in range(40, 60):
        text = cut(whole, size)
        assert size - 8 < len(text.encode()) <= size
        begin, end = text.split("…")
        assert whole.startswith(begin)
        assert whole.endswith(end)
        assert (begin[:7], end[-10:]) == ("/a/path", "the reason")
    size = len(whole.encode())
    assert cut(whole, size) == whole
    assert "…" in cut(whole, size - 1)


def test_a_path_that_is_no_text_is_told_all_the_same() -> None:
    said = wire.decode_answer(wire.encode(wire.Refused(1, "busy", "/a\udcff: no room")))
    assert isinstance(said, wire.Refused)
    assert said.text == "/a\\udcff: no room"


def test_of_the_logs_of_earlier_lists_those_with_the_latest_messages_are_told() -> None:
    """Paths are not cut: this many of the longest fit."""
    others = {name: (PATH, number) for number, name in enumerate(names(OTHERS))}
    said = wire.decode_answer(wire.encode(receiver_granted(others)))
    assert isinstance(said, wire.ReceiverGranted)
    kept = sorted(below for _, below in said.others.values())
    assert kept == list(range(OTHERS - len(kept), OTHERS))
    assert 20 < len(kept) < OTHERS
    short = {name: (filled(2000, "/"), number) for number, name in enumerate(names(OTHERS))}
    said = wire.decode_answer(wire.encode(receiver_granted(short)))
    assert isinstance(said, wire.ReceiverGranted)
    assert said.others == short


# The limits are kept ----------------------------------------------------------------------------------------


def test_a_source_tells_so_many_stores_of_earlier_lists_however_many_identities_it_has_had() -> None:
    lists = [Configuration(tuple(names(STORES_MAX, 40 * i)), Groups.single(STORES_MAX)) for i in range(5000)]
    known = {i.to_bytes(16, "big"): Written((each,)) for i, each in enumerate(lists)}
    told = register.elsewhere(known)
    assert [len(each) for each in told.values()] == [STORES_MAX, register.OTHERS_MAX - STORES_MAX]
    newest, before = told
    assert (int.from_bytes(newest, "big"), int.from_bytes(before, "big")) == (4999, 4998)


def test_a_store_remembers_so_many_stores_of_earlier_lists_those_with_the_latest_messages() -> None:
    source = SourceState(UUID, "t", 7, 0, others={f"s{number}": 100 + number for number in range(2 * OTHERS)})
    request = wire.Begin(1, UUID, 2, 500, "stream", ["a"], others={"latest": 1000})
    found = answers._others(request, source, 0)
    assert len(found) == OTHERS
    assert found == {"latest": 1000} | {f"s{n}": 100 + n for n in range(OTHERS + 1, 2 * OTHERS)}


def test_a_store_that_is_excluded_again_and_again_remembers_the_last_times() -> None:
    source = SourceState(UUID, "t", 7, 0)
    for number in range(300):
        source.learner = False
        assert source.learn([number])
        assert source.learner
        assert not source.learn([number])
    assert source.served == list(range(300 - SERVED_MAX, 300))


def test_of_exclusions_that_are_over_the_last_ones_are_remembered() -> None:
    source = SourceState(UUID, "t", 7, 0)
    for number in range(2 * OVER_MAX):
        assert source.readmit([number])
        assert not source.readmit([number])
    assert source.over == list(range(OVER_MAX, 2 * OVER_MAX))


def test_a_store_that_is_restored_again_and_again_remembers_the_last_lives_that_it_took_over() -> None:
    source = SourceState(UUID, "t", 7, 0)
    for life in range(2 * LIVES_MAX):
        source.take_over(life)
    assert source.taken == list(range(LIVES_MAX, 2 * LIVES_MAX))
