"""The targets that are Python: text and records that somebody else wrote, and what reads them.

A target takes any bytes. What its reader documents as its error is caught here; every other exception is a
finding, and so is an assertion: what was read is written and read again, and is the same. ``plant`` breaks
the reader as it could be broken.
"""

from __future__ import annotations

import os
import struct
import tempfile
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from unittest import mock

import msgspec
from fuzz import blocks, censuses

from holdfast.config import Configuration
from holdfast.config.text import Text, Word, read
from holdfast.daemon.store_xml import StoreFile
from holdfast.engine.control import wire
from holdfast.engine.errors import ConfigError, CorruptionError
from holdfast.engine.log.info_file import StoreInfo, read_info
from holdfast.engine.log.state_file import ReceiverState, SourceState, State, StateFile
from holdfast.engine.native.core import lib
from holdfast.engine.options.resolve import resolve
from holdfast.spark import offsets, options, record_ddl

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.engine.memory.domain import Domain

__all__ = ["TARGETS", "Target"]

_files = tempfile.TemporaryDirectory(prefix="hf-fuzz-")
PLACE = Path(_files.name)
UUID = bytes(range(16))


class _File:
    """What a target reads. It stays open, for opening it costs as much as many a reader."""

    def __init__(self, name: str) -> None:
        self.path = PLACE / name
        self._fd = self._open()

    def _open(self) -> int:
        return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, data: bytes) -> None:
        """It is this and nothing else. What was read may have been saved in a new file under its name."""
        if not self.path.exists() or self.path.stat().st_ino != os.fstat(self._fd).st_ino:
            os.close(self._fd)
            self._fd = self._open()
        os.pwrite(self._fd, data, 0)
        os.ftruncate(self._fd, len(data))


STATE, INFO, CONFIGURATION, STORE_XML = (_File(name) for name in ("state.0", "a.info", "um.cfg", "store.xml"))


class Target(NamedTuple):
    """What is read, from which inputs, and a bug to be found."""

    run: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]
    words: tuple[bytes, ...]
    plant: Callable[[], AbstractContextManager[Any]]


def _decode_errors_escape(module: str) -> AbstractContextManager[Any]:
    return mock.patch(f"holdfast.engine.{module}.UNDECODABLE", (ZeroDivisionError,))


# The state of a store ---------------------------------------------------------------------------------------

_STATE_HEADER = struct.Struct("<8sIIQI4x")


def run_state(data: bytes) -> None:
    """The first byte: whether the header is mended, and whether there is another slot. Raises nothing but
    CorruptionError."""
    flags, slot = data[:1], data[1:]
    mend = bool(flags and flags[0] & 1)
    if mend:
        body = slot[_STATE_HEADER.size :]
        slot = _STATE_HEADER.pack(b"HFSTATE1", len(body), lib.hf_crc32c(2, body, len(body)), 2, 0) + body
    STATE.write(slot)
    (PLACE / "state.1").unlink(missing_ok=True)
    if flags and flags[0] & 2:
        body = msgspec.msgpack.encode(State("a", UUID, 1, 2))
        header = _STATE_HEADER.pack(b"HFSTATE1", len(body), lib.hf_crc32c(1, body, len(body)), 1, 0)
        (PLACE / "state.1").write_bytes(header + body)
    file = StateFile(PLACE)
    try:
        state = file.load()
    except CorruptionError:
        assert not (flags and flags[0] & 2), "the other slot was valid"
        return
    assert state is not None
    file.save(state, sync=False)
    assert StateFile(PLACE).load() == state


def seeds_state() -> list[bytes]:
    receiver = ReceiverState(UUID, 7, 8, 9, joined=False)
    source = SourceState(
        UUID, "orders", 1, 2, 3, 4, [(1, 0), (3, 4)], ["a", "b"], [receiver], peers={"b": 3}, sizes=[2]
    )
    states = (State("a", UUID, 1, 2), State("a", UUID, 5, 9, [source, source], going=[UUID], lives=[1, 4, 5]))
    bodies = [msgspec.msgpack.encode(state) for state in states]
    return [bytes([flag]) + bytes(_STATE_HEADER.size) + body for body in bodies for flag in (1, 3)]


# Control messages -------------------------------------------------------------------------------------------


def run_wire(data: bytes) -> None:
    """Raises nothing but CorruptionError."""
    for decode in (wire.decode_request, wire.decode_answer):
        try:
            message = decode(data)
        except CorruptionError:
            continue
        assert decode(wire.encode(message)) == message


def seeds_wire() -> list[bytes]:
    source = wire.SourceInfo(UUID, "orders", 1, 2, 3, ["a"], "/d/logs/x", sizes=[1], groups=[0])
    messages = (
        wire.Hello(1, 2, 3, 4, 5),
        wire.RegisterSource(1, "orders", 2, 3, UUID, activity_timeout=5),
        wire.Begin(1, UUID, 2, 100, "hf.x", ["a", "b"], UUID, [(1, 0)], {"a": 3}, [2], [0, 0], 1, 2),
        wire.RegisterReceiver(1, UUID, "orders", 2, 3, UUID, paced=1),
        wire.ListSources(1, "", UUID),
        wire.Leave(1, "source", UUID, UUID),
        wire.Deregister(1, "receiver", UUID, UUID, 3, UUID),
        wire.OperatorDeregister(1, 2, 3, True, UUID),
        wire.ForgetFinished(1, [wire.Finished(UUID, 2, 3, 4)], True, True),
        wire.ForgotFinished(1, [(UUID, "why")], [UUID]),
        wire.Mark(1, 2, [(3, 4), (5, 6)]),
        wire.Welcome(1, "a", UUID, "/d", 2, 3, 4),
        wire.SourceGranted(1, 2, UUID, 3, 4, True, [(1, 0)], peers={"b": 2}, lives=[1, 2]),
        wire.Begun(1, 2, True),
        wire.ReceiverGranted(1, 2, 3, 4, UUID, 5, 6, 7, True, "/d/logs/x", begins=[(1, 0)]),
        wire.Refused(1, "busy", "why"),
        wire.Sources(1, [source, source], True),
        wire.Left(1),
        wire.Deregistered(1, 2),
        wire.Expelled(UUID),
        wire.Marked(1, [(3, 4)]),
    )
    return [wire.encode(message) for message in messages]


_MSGPACK = (
    *(
        b"\x90",
        b"\x91",
        b"\x80",
        b"\x81",
        b"\xc0",
        b"\xc4\x10",
        b"\xcf" + b"\xff" * 8,
        b"\xd3\x80" + bytes(7),
        b"\xd4\x05a",
    ),
    *(
        b"\xdf\xff\xff\xff\xff",
        b"\xdd\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\xdb\x7f\xff\xff\xff",
        b"\xca\x7f\xc0\x00\x00",
    ),
)


# The file that says who a store is --------------------------------------------------------------------------


class _Place:
    """All of a Domain that read_info asks for."""

    def info_path(self, name: str) -> Path:
        return PLACE / f"{name}.info"


def run_info(data: bytes) -> None:
    """Raises nothing at all."""
    INFO.write(data)
    info = read_info(cast("Domain", _Place()), "a")
    if info is not None:
        assert msgspec.json.decode(msgspec.json.encode(info), type=StoreInfo) == info


def seeds_info() -> list[bytes]:
    infos = (
        StoreInfo("a", UUID, "/d", "/d/logs", "disk", 1, 2, 3),
        StoreInfo("a", UUID, "/d", "/d/logs", "memory", 1, 2**63, 3, True, (UUID, UUID), census=UUID),
    )
    return [msgspec.json.encode(info) for info in infos]


# Configuration ----------------------------------------------------------------------------------------------

_SCOPES = ("context", "source", "receiver")


def _configuration(data: bytes) -> None:
    """Raises nothing but ConfigError, for the file or for one of its objects."""
    CONFIGURATION.write(data)
    with suppress(ConfigError):
        found = Configuration(CONFIGURATION.path, None, None)
        for scope in _SCOPES:
            for wildcard in (False, True):
                with suppress(ConfigError):
                    resolve(scope, {}, None, found.layers(scope, "orders", wildcard=wildcard and scope == "receiver"))


def seeds_flat() -> list[bytes]:
    return [
        b"# a comment\n\nsource ume_flight_size 1000\nsource ume_store 127.0.0.1:14567:101:0\n",
        b"\xef\xbb\xbfsource ume_store_name a\r\nsource ume_store_group 0:3\r\nreceiver ume_session_id 0x11\n",
        b"context ume_session_id 5\nreceiver ume_use_late_join 0 # no\nsource retransmit_retention_size_threshold 2000000\n",
        b"source ume_message_stability_notification 1\nsource ume_retention_intragroup_stability_behavior quorum\n",
    ]


def seeds_xml() -> list[bytes]:
    flight = '<options type="source"><option name="ume_flight_size" default-value="1000" order="deny,allow">{}</option></options>'
    template = '<template name="t"><options type="receiver"><option name="use_late_join" default-value="0"/></options></template>'
    context = (
        f'<context template="t">{flight.format("")}<sources><topic topicname="orders">'
        f"{flight.format('<deny>500</deny><allow>1000</allow>')}</topic></sources>"
        '<receivers order="allow,deny"><topic pattern="^o" rule="allow"/></receivers></context>'
    )
    whole = '<um-configuration version="1.0">{}<applications><application>{}</application></applications></um-configuration>'
    return [
        b'<?xml version="1.0" encoding="UTF-8" ?>\n'
        + whole.format(f"<templates>{template}</templates>", f"<contexts>{context}</contexts>").encode(),
        whole.format("", "<contexts/>").encode(),
    ]


def run_store_xml(data: bytes) -> None:
    """Raises nothing but ConfigError, and collects nothing else."""
    STORE_XML.write(data)
    with suppress(ConfigError):
        assert all(isinstance(error, ConfigError) and str(error) for error in StoreFile(read(STORE_XML.path)).errors)


def seeds_store_xml() -> list[bytes]:
    option = '<ume-attributes><option type="store" name="{}" value="{}"/></ume-attributes>'
    topic = f'<topic pattern="." type="PCRE">{option.format("repository-type", "disk")}</topic>'
    store = (
        f'<store name="{{}}" port="{{}}">{option.format("disk-cache-directory", "d")}<topics>{topic}</topics></store>'
    )
    log = '<log type="file" frequency="daily" max-history="3">store.log</log>'
    daemon = f'<daemon>{log}<pidfile xml:space="preserve">p </pidfile></daemon>'
    stores = "".join(store.format(name, port) for name, port in (("one", 14567), ("two", 14568)))
    return [f'<?xml version="1.0"?>\n<ume-store version="1.3">{daemon}<stores>{stores}</stores></ume-store>'.encode()]


_XML = (
    *rb"""<!-- --> <![CDATA[ ]]> <?x?> &lt; &#0; &x; " ' > < /> <a> a="1>2" <option </option> <topic/>""".split(),
    *(
        b"<!DOCTYPE x [",
        b' xmlns:x="y"',
        b" x:y='1'",
        b"\xff",
        b"\xef\xbb\xbf",
        b"\r\n",
        b"\x85",
        b'<topic pattern="("/>',
    ),
)
_FLAT = (
    *b"wildcard_receiver ume_flight_size ume_store_name ume_session_id # 0x nan 1e400 : ,".split(),
    *(b"source ", b"receiver ", b"context ", b"event_queue ", b"ume_store ", b"\n", b"\r", b"\t", b"\x00", b"\xc2\x85"),
    *(b"\xe2\x80\xa8",),
)


# Spark: offsets, options, record types ----------------------------------------------------------------------


def run_offsets(data: bytes) -> None:
    """Raises nothing but ValueError."""
    text = data.decode(errors="replace")
    with suppress(ValueError):
        found = offsets.positions_of(text)
        assert offsets.positions_of(offsets.as_offset(found)) == found
    for taken in (offsets.place, offsets.named_numbers):
        with suppress(ValueError):
            taken(text)


def seeds_offsets() -> list[bytes]:
    return [
        b'{"topics": {"orders": {"3847562910/0a1b2c3d": 120034, "1/00": 0}, "x": {}}, "v": 1}',
        b"earliest",
        b'{"orders": {"3847562910": -2, "7": -1}}',
    ]


def run_ddl(data: bytes) -> None:
    """Raises nothing but ValueError (for the options: OptionError)."""
    text = data.decode(errors="replace")
    with suppress(ValueError):
        fields = record_ddl.record_fields(text)
        assert record_ddl.record_size(fields) <= record_ddl.RECORD_MAX
    given = dict(line.partition("=")[::2] for line in text.split("\n"))
    for role in ("batch", "stream", "write"):
        with suppress(options.OptionError):
            options.parse(given, cast("Any", role))


def seeds_ddl() -> list[bytes]:
    return [
        b"price DOUBLE, venue CHAR(4), `a b`: BINARY(16)",
        b"topic=orders\nstartingOffsets=earliest\nreadFrom=store:a\nvalueFormat=struct:price DOUBLE\nsession=5",
        b'assign={"orders": ["1"]}\nendingOffsets={"orders": {"1": 5}}\nmaxRecordsPerTrigger=10\nminPartitions=3',
        b"subscribePattern=o.*\nfailOnDataLoss=false\ncolumns=value,topic\nmaxTriggerDelay=15m",
        b"topic=orders\nholdfast.ume_flight_size=3",
    ]


_JSON = tuple(rb"""{ } [ ] " : , null true NaN Infinity 1e999 -0 {"": \\ud800 "v" """.split())
_DDL = (
    *b"DOUBLE CHAR( BINARY(0) CHAR(99999999999) , ` : = ( ) topic= -1 1e9 struct: session= readFrom=".split(),
    *(b"startingTimestamp=", b"endingTimestamp=", b"maxTriggerDelay=", b" ", b"\n", b"\xd9\xa3"),
)


def _error_of_the_next_line(text: Text, message: str, place: Word, hint: str | None = None) -> ConfigError:
    return ConfigError(message, text.name, place.line, place.column, hint=hint, text=text.lines[place.line])


TARGETS = {
    "state": Target(run_state, seeds_state, _MSGPACK, lambda: _decode_errors_escape("log.state_file")),
    "wire": Target(run_wire, seeds_wire, _MSGPACK, lambda: _decode_errors_escape("control.wire")),
    "info": Target(run_info, seeds_info, _JSON, lambda: _decode_errors_escape("log.info_file")),
    "flat": Target(
        _configuration, seeds_flat, _FLAT,
        lambda: mock.patch("holdfast.config.text.Text.error", _error_of_the_next_line),
    ),
    "xml": Target(
        _configuration, seeds_xml, _XML,
        lambda: mock.patch("holdfast.config.text.Text.error", _error_of_the_next_line),
    ),
    "store_xml": Target(
        run_store_xml, seeds_store_xml, _XML,
        lambda: mock.patch("holdfast.config.text.Text.error", _error_of_the_next_line),
    ),
    "offsets": Target(
        run_offsets, seeds_offsets, _JSON,
        lambda: mock.patch("holdfast.spark.offsets._numbers", lambda found, **_: {k: dict(v) for k, v in found.items()}),
    ),
    "block": Target(
        blocks.run_block, blocks.seeds_block, blocks.WORDS,
        lambda: mock.patch("holdfast.channel._validate", lambda batch: batch.validate()),
    ),
    "census": Target(
        censuses.run_census, censuses.seeds_census, censuses.WORDS, censuses.a_key_may_begin_anywhere
    ),
    "ddl": Target(
        run_ddl, seeds_ddl, _DDL,
        lambda: mock.patch("holdfast.spark.record_ddl._width", lambda name, kind, given: record_ddl.WIDTHS[kind]),
    ),
}  # fmt: skip
