"""Bytes that no peer of ours writes: text that is not UTF-8, and more brackets than a parser's stack takes.

The fuzz targets found them: msgspec and json raise other errors for these than for everything else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import msgspec
import pytest

from holdfast.engine.control import wire
from holdfast.engine.errors import CorruptionError
from holdfast.engine.log.info_file import StoreInfo, read_info
from holdfast.engine.log.state_file import _HEADER, _MAGIC, State, StateFile
from holdfast.engine.native.core import lib
from holdfast.spark.offsets import place, positions_of
from holdfast.spark.options import OptionError, parse

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.engine.memory.domain import Domain

UUID = bytes(16)
DEEP = b"\x91" * 100_000 + b"\xc0"
"""One array in another, a hundred thousand times."""


class Place:
    """All of a Domain that read_info asks for."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def info_path(self, name: str) -> Path:
        return self._path / f"{name}.info"


@pytest.mark.parametrize(
    "packet",
    [
        wire.encode(wire.ListSources(1, "orders")).replace(b"orders", b"ord\xffrs"),
        wire.encode(wire.Refused(1, "busy", "orders")).replace(b"orders", b"ord\xffrs"),
        b"\x82\xa4type\xa5hello\xa1x" + DEEP,
    ],
)
def test_a_packet_that_no_peer_sends_is_corrupt(packet: bytes) -> None:
    with pytest.raises(CorruptionError):
        wire.decode_request(packet)
    with pytest.raises(CorruptionError):
        wire.decode_answer(packet)


@pytest.mark.parametrize("wrong", [b'"na\xffme"', b"[" * 100_000])
def test_an_info_file_that_no_store_writes_is_none(wrong: bytes, tmp_path: Path) -> None:
    good = msgspec.json.encode(StoreInfo("name", UUID, "/d", "/d/logs", "disk", 1, 2, 3))
    (tmp_path / "a.info").write_bytes(good.replace(b'"name"', wrong, 2).replace(wrong, b'"name"', 1))
    assert read_info(cast("Domain", Place(tmp_path)), "a") is None


def test_a_state_with_a_right_checksum_over_wrong_text_is_corrupt(tmp_path: Path) -> None:
    body = msgspec.msgpack.encode(State("name", UUID, 1, 2)).replace(b"\xa4name\xa4name", b"\xa4name\xa4n\xffme")
    assert b"\xff" in body
    header = _HEADER.pack(_MAGIC, len(body), lib.hf_crc32c(2, body, len(body)), 2, 0)
    (tmp_path / "state.0").write_bytes(header + body)
    with pytest.raises(CorruptionError):
        StateFile(tmp_path).load()


def test_brackets_without_end_are_no_offset_and_no_option() -> None:
    for read in (positions_of, place):
        with pytest.raises(ValueError, match="JSON such as"):
            read('{"x":' * 100_000)
    with pytest.raises(OptionError, match="JSON such as"):
        parse({"assign": "[" * 100_000}, "batch")
