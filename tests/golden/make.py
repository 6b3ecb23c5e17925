"""Writes v1/: a store's directory, byte by byte as csrc/README.md describes it, without any code of holdfast.
And v1-fill/: a fill that gives its log the numbers that it has lost; and v2-head/: the head of that log in
layout version 2.

    python tests/golden/make.py [DIRECTORY]

A layout change needs a v2/ beside v1/, not another v1/: this file is what says that old directories stay
readable.
"""

from __future__ import annotations

import struct
import sys
from dataclasses import dataclass, field
from pathlib import Path

import google_crc32c
import msgspec

V1 = Path(__file__).resolve().parent / "v1"
V1_FILL, V2_HEAD = V1.with_name("v1-fill"), V1.with_name("v2-head")
LAYOUT_VERSION = 1
"""Of every kind of file; of a head there is version 2, too."""
HEAD_VERSION = 2
MAGIC = 0x3154534644484600
SEGMENT, HEAD, FILL = 4, 5, 6
CREATED_NS = 1_700_000_000_000_000_000
SOURCE = b"golden source 01"
STORE = b"golden store 001"
RECEIVER = b"golden receiver1"
SEGMENTS = (b"golden segment 1", b"golden segment 2")
FILL_UUID = b"golden fill 0001"
FILE_BYTES, HEADER_BYTES, PAGE = 16384, 8192, 4096
FIRST, LAST, CONTROL = 1, 2, 4
SYNC, LOST = 1, 2
STRUCT_HASH = {SEGMENT: 0x7942F497, HEAD: 0x897F273F, FILL: 0x7106DF3F}
"""Of layout version 1, by kind of file (csrc/base/layout.h: hf_struct_hash)."""
HEAD_HASH = 0x0208C605
"""Of version 2."""


@dataclass(frozen=True)
class Sent:
    """A message; ``incarnation`` of the source that sent it."""

    first: int
    parts: tuple[bytes, ...]
    incarnation: int

    @property
    def timestamp_ns(self) -> int:
        """When it was published."""
        return CREATED_NS + self.first * 1000


MESSAGES = (
    Sent(0, (b"",), 1),
    Sent(1, (b"one",), 1),
    Sent(2, (bytes(range(100)), bytes(range(100, 200)), b"the end"), 1),
    Sent(5, (b"x" * 33,), 1),
    Sent(8, (b"behind the loss",), 1),
    Sent(9, (b"void: the second incarnation began at 9",), 1),
    Sent(9, (b"nine",), 2),
    Sent(10, (b"ten",), 2),
)
READABLE = tuple(message for message in MESSAGES if message.first < 9 or message.incarnation == 2)
LOST_NUMBERS = (6, 7)
FILLED = Sent(6, (b"lost here", b"and copied from another store"), 1)
"""In the fill."""
BEGINS = ((1, 0), (2, 9))
NEXT = 11


def crc(data: bytes, seed: int = 0) -> int:
    """CRC-32C, continued from ``seed``."""
    return int(google_crc32c.extend(seed, data))


def preamble(kind: int, header: int, total: int, incarnation: int, uuid: bytes) -> bytes:
    """struct hf_preamble. The boot id is zero: on disk it says nothing."""
    head = struct.pack("<QIIIIQQ", MAGIC | kind, LAYOUT_VERSION, STRUCT_HASH[kind], PAGE, header, total, incarnation)
    return head + struct.pack("<QQQII16s16s24x", 0, CREATED_NS, 0, 1, 0, uuid, bytes(16))


@dataclass
class Segment:
    """One segment file: frames are appended, then it is packed."""

    uuid: bytes
    incarnation: int
    base: int
    first_sqn: int
    synced_below: int
    frames: bytearray = field(default_factory=bytearray)

    @property
    def end(self) -> int:
        """Log position behind the last frame."""
        return self.base + len(self.frames)

    def add(self, sqn: int, timestamp_ns: int, flags: int, fragment: int, payload: bytes) -> None:
        """struct hf_frame, its payload and the padding."""
        length = 32 + len(payload)
        commit = (self.end // 32 + 1) << 32 | length
        head = struct.pack("<QQqHH", commit, sqn, timestamp_ns, flags, fragment)
        seed = crc(self.uuid + struct.pack("<Q", self.incarnation))
        frame = head + struct.pack("<I", crc(head + payload, seed)) + payload
        self.frames += frame + bytes(-len(frame) % 32)

    def message(self, sent: Sent) -> None:
        """All fragments."""
        for index, part in enumerate(sent.parts):
            flags = (FIRST if index == 0 else 0) | (LAST if index == len(sent.parts) - 1 else 0)
            self.add(sent.first + index, sent.timestamp_ns, flags, index, part)

    def control(self, kind: int, sqn: int, first: int, last: int) -> None:
        """A SYNC or LOST record."""
        self.add(sqn, 0, CONTROL, kind, struct.pack("<QQ", first, last))

    def pack(self, *, sealed: bool, next_sqn: int) -> bytes:
        """The whole file: header, its copy, index, frames; with ``sealed`` also the seal."""
        head = preamble(SEGMENT, HEADER_BYTES, FILE_BYTES, self.incarnation, self.uuid)
        head += struct.pack("<16sQQQQI", SOURCE, self.base, self.first_sqn, self.synced_below, 0, 0)
        head += struct.pack("<I", crc(head))
        index = struct.pack("<QQ", self.first_sqn, HEADER_BYTES + 64)  # behind the SYNC frame
        file = bytearray(FILE_BYTES)
        file[: len(head)] = file[2048 : 2048 + len(head)] = head
        if sealed:
            seal = struct.pack("<QQIII", self.end, next_sqn, 1, crc(index), 0)
            file[256:288] = seal + struct.pack("<I", crc(seal, crc(self.uuid)))
            file[PAGE : PAGE + len(index)] = index
        file[HEADER_BYTES : HEADER_BYTES + len(self.frames)] = self.frames
        return bytes(file)


def segments() -> list[Segment]:
    """Both segments with their frames: the second one belongs to the second incarnation."""
    one = Segment(SEGMENTS[0], 1, 0, 0, 0)
    one.control(SYNC, 0, 0, 0)
    for sent in MESSAGES[:4]:
        one.message(sent)
    one.control(LOST, LOST_NUMBERS[0], *LOST_NUMBERS)
    one.control(SYNC, 8, one.end, 0)
    for sent in MESSAGES[4:6]:
        one.message(sent)
    two = Segment(SEGMENTS[1], 2, one.end, 9, one.end)
    two.control(SYNC, 9, one.end, 0)
    for sent in MESSAGES[6:]:
        two.message(sent)
    return [one, two]


def head(end: int) -> bytes:
    """The file ``head``."""
    begins = b"".join(struct.pack("<QQ", *begin) for begin in BEGINS)
    file = bytearray(PAGE)
    file[:128] = preamble(HEAD, PAGE, PAGE, 0, SOURCE)
    check = end ^ int.from_bytes(SOURCE[:8], "little")
    file[128:172] = struct.pack("<QQQQQI", end, check, NEXT, 2, 0, crc(begins))
    file[256:288] = struct.pack("<QQQQ", 0, 0, 2, len(BEGINS))
    file[288 : 288 + len(begins)] = begins
    return bytes(file)


def head_v2(end: int) -> bytes:
    """The same in layout version 2: the words, and the BEGINs as the third table that was ever written; the
    second is torn."""
    file = bytearray(3 * PAGE)
    file[:280] = head(end)[:280]
    file[8:16] = struct.pack("<II", HEAD_VERSION, HEAD_HASH)
    file[24:32] = struct.pack("<Q", len(file))
    file[168:256] = bytes(88)
    file[272:280] = struct.pack("<Q", 3)
    for generation, begins in ((2, BEGINS[:1]), (3, BEGINS)):
        table = b"".join(struct.pack("<QQ", *begin) for begin in begins)
        words = struct.pack("<QQ", generation, len(begins))
        page = words + struct.pack("<II", 0, crc(words + table)) + table
        at = PAGE * (1 + generation % 2)
        file[at : at + len(page)] = page
    file[PAGE + 24] ^= 0xFF
    return bytes(file)


def fill() -> tuple[str, bytes]:
    """Name and content of the fill."""
    frames = Segment(FILL_UUID, FILLED.incarnation, 0, 0, 0)
    frames.message(FILLED)
    first, following = FILLED.first, FILLED.first + len(FILLED.parts)
    page = bytearray(PAGE)
    page[:128] = preamble(FILL, PAGE, PAGE + frames.end, FILLED.incarnation, FILL_UUID)
    page[128:172] = struct.pack("<16sQQQI", SOURCE, first, following, frames.end, 0)
    page[172:176] = struct.pack("<I", crc(bytes(page)))
    return f"fill-{first:016x}-{following:016x}", bytes(page) + bytes(frames.frames)


def state(generation: int) -> bytes:
    """``state.0`` or ``state.1``."""
    receiver = {"uuid": RECEIVER, "registration_id": 701, "session_id": 42, "ack": 2}
    source = {
        "uuid": SOURCE, "topic": "golden", "registration_id": 700, "session_id": 9, "incarnation": 2, "start_sqn": 9,
        "stores": ["golden"], "receivers": [receiver],
    }  # fmt: skip
    record = {
        "name": "golden", "uuid": STORE, "opened": generation, "next_registration_id": 702, "sources": [source],
    }  # fmt: skip
    body = msgspec.msgpack.encode(record)
    return struct.pack("<8sIIQI4x", b"HFSTATE1", len(body), crc(body, generation), generation, 0) + body


def files() -> dict[str, bytes]:
    """Path below v1/ -> content."""
    one, two = segments()
    log = f"logs/{SOURCE.hex()}"
    return {
        f"{log}/head": head(two.end),
        f"{log}/seg-{one.base:016x}": one.pack(sealed=True, next_sqn=10),
        f"{log}/seg-{two.base:016x}": two.pack(sealed=False, next_sqn=0),
        "state.0": state(4),
        "state.1": state(3),
    }


def main() -> None:
    """Writes what is in files()."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else V1
    for name, content in files().items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    V2_HEAD.mkdir(exist_ok=True)
    (V2_HEAD / "head").write_bytes(head_v2(segments()[1].end))
    V1_FILL.mkdir(exist_ok=True)
    name, content = fill()
    (V1_FILL / name).write_bytes(content)


if __name__ == "__main__":
    main()
