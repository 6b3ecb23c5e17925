"""``holdfast store dump``: everything that a store keeps, with the store running or dead."""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING

import pytest
from support.command_line import one_error, run

import holdfast as hf
from holdfast.cli.store_dump import item_line, number_range
from holdfast.engine.log.dump import kept_messages, kept_sources
from holdfast.engine.log.undeliverable import MarkFile

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from process.conftest import ThreadStore

SHORT = 90.0
SENT = [b"one", b"\xff\x00", b"", b"x" * 200, b"y" * 100_000]
"""The last one has two fragments."""


@pytest.fixture
def store(run_store: Callable[..., ThreadStore]) -> ThreadStore:
    """A disk store that keeps SENT on a topic, of which a receiver has consumed two, and nothing on
    another."""
    running = run_store("a", "disk")
    with hf.Context() as ctx:
        source = ctx.source("quotes", options={"ume_store_name": ["a:1000"]})
        receiver = ctx.receiver("quotes", options={"ume_session_id": 7})
        other = ctx.source("orders", options={"ume_store_name": ["a:2000"]})
        for one in (source, other):
            one.wait_registered(SHORT)
        for text in SENT:
            source.send(text)
        source.wait_stable(timeout=SHORT)
        for _ in range(2):
            message = receiver.receive(timeout=SHORT)
            assert message is not None
            message.release()
    return running


def lines(*arguments: str) -> list[str]:
    code, out, err = run("store", "dump", *arguments)
    assert (code, err) == (0, "")
    return out.splitlines()


@pytest.mark.parametrize("running", [True, False])
def test_everything_is_printed(store: ThreadStore, tmp_path: Path, running: bool) -> None:
    if not running:
        store.stop()
    shown = lines(str(tmp_path / "store-a"), "--topic", "quotes")
    assert shown[0] == "quotes: numbers 0..5"
    assert re.fullmatch(r"  source [0-9a-f]{32}, RegID 1000, incarnation 1", shown[1])
    assert re.fullmatch(r"  receiver RegID \d+, session 0x7, acknowledged below 2", shown[2]) or running
    texts = [line.split(" bytes: ") for line in shown[3:]]
    assert [head.split()[0] for head, _ in texts] == ["0", "1", "2", "3", "4..5"]
    assert [int(head.split()[-1]) for head, _ in texts] == [len(text) for text in SENT]
    assert [tail for _, tail in texts] == ["one", r"\xff\x00", "", "x" * 60 + " ...", "y" * 60 + " ..."]
    assert "orders: no messages" in lines(str(tmp_path / "store-a"), "--terse")


def test_json_has_every_byte(store: ThreadStore, tmp_path: Path) -> None:
    objects = [json.loads(line) for line in lines(str(tmp_path / "store-a"), "--json", "--topic", "quotes")]
    assert [objects[0][name] for name in ("topic", "registration_id", "oldest", "next")] == ["quotes", 1000, 0, 6]
    messages = objects[1:]
    data = [base64.b64decode(m["data_base64"]) if "data_base64" in m else m["data"].encode() for m in messages]
    assert data == SENT
    assert [(m["first_sequence_number"], m["sequence_number"]) for m in messages][-1] == (4, 5)


@pytest.mark.parametrize(
    ("numbers", "found"),
    [
        ("1", ["1"]),
        ("1-2", ["1", "2"]),
        ("3-", ["3", "4..5"]),
        ("5", ["4..5"]),
        ("6-", []),
        ("0-3", ["0", "1", "2", "3"]),
    ],
)
def test_a_range_of_numbers(store: ThreadStore, tmp_path: Path, numbers: str, found: list[str]) -> None:
    first, last = number_range(numbers)
    (source,) = [each for each in kept_sources(tmp_path / "store-a") if each.next]
    shown = [item_line(item).split()[0] for item in kept_messages(source, first, last)]
    assert shown == found


def test_what_is_damaged_is_a_hole_and_the_rest_is_there(store: ThreadStore, tmp_path: Path) -> None:
    store.stop()
    (segment,) = [path for path in (tmp_path / "store-a" / "logs").glob("*/seg-*") if b"x" * 200 in path.read_bytes()]
    data = bytearray(segment.read_bytes())
    data[data.index(b"x" * 200)] ^= 1
    segment.write_bytes(data)
    shown = lines(str(tmp_path / "store-a"), "--topic", "quotes")
    assert [line.split()[0].rstrip(":") for line in shown if " bytes: " in line or "not here" in line] == [
        "0",
        "1",
        "2",
        "3..3",
        "4..5",
    ]
    objects = [
        json.loads(line) for line in lines(str(tmp_path / "store-a"), "--json", "--topic", "quotes", "--numbers", "3")
    ]
    assert objects[1]["missing"] == {"first": 3, "next": 4, "marked": False}


def test_what_is_marked_is_told_from_what_is_missing(store: ThreadStore, tmp_path: Path) -> None:
    store.stop()
    (source,) = [each for each in kept_sources(tmp_path / "store-a") if each.next]
    assert MarkFile(source.path).add(1, [(1, 2)])
    shown = lines(str(tmp_path / "store-a"), "--topic", "quotes", "--numbers", "0-3")
    assert [line.strip() for line in shown if "marked" in line] == ["1..2: marked undeliverable"]
    objects = [json.loads(line) for line in lines(str(tmp_path / "store-a"), "--json", "--topic", "quotes")]
    assert objects[2]["missing"] == {"first": 1, "next": 3, "marked": True}


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_topic_that_is_not_kept_is_a_negative_finding(store: ThreadStore, tmp_path: Path, form: list[str]) -> None:
    directory = str(tmp_path / "store-a")
    assert run("store", "dump", directory, "--topic", "nope", *form) == (
        1, "", f"{directory} keeps no source on topic 'nope'\n",
    )  # fmt: skip


@pytest.mark.parametrize("numbers", ["x", "3-1", "-1", "1-2-3", "0-99999999999999999999"])
def test_numbers_that_are_none_are_refused(numbers: str) -> None:
    with pytest.raises(hf.UsageError, match=f"{numbers!r}; one number, or FIRST-LAST"):
        number_range(numbers)


def test_a_directory_without_a_store_is_refused(tmp_path: Path) -> None:
    one_error(run("store", "dump", str(tmp_path)), 2, "is not a store's directory")
