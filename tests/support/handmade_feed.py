"""A feed over logs and rings that a test makes by hand, and a clock that it turns."""

from __future__ import annotations

import os
import secrets
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.engine.log.reader import FOR_EVER, ONLY_DECLARED, Logs
from holdfast.engine.log.state_file import SourceState, State, StateFile
from holdfast.engine.memory.discovery import Discovery
from holdfast.engine.memory.domain import Domain, open_object, unlink_object
from holdfast.engine.memory.mapping import Bells, Mapping, own_board
from holdfast.engine.memory.message_slot import Slot
from holdfast.engine.native.core import CData, Gate, ffi, lib
from holdfast.engine.native.status import check
from holdfast.engine.receiver.feed import Feed
from holdfast.engine.rules.start_and_gap import Gap

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.engine.log.reader import Bounds
    from holdfast.engine.receiver.feed import Listener

GRANULE = 32
RECORDS = 8192
"""Where a segment's records begin."""
FIRST, LAST = 1, 2
RING = 1 << 16
PATIENCE_S = 10


def frames(number: int, *messages: Sequence[bytes], time_ns: int = 1) -> bytes:
    """Messages from ``number`` on, each a list of its fragments' payloads, as a ring holds them."""
    out = b""
    for fragments in messages:
        for index, data in enumerate(fragments):
            flags = (FIRST if index == 0 else 0) | (LAST if index == len(fragments) - 1 else 0)
            frame = struct.pack("<QQqHHI", GRANULE + len(data), number, time_ns, flags, index, 0) + data
            out += frame + bytes(-len(frame) % GRANULE)
            number += 1
    return out


class Log:
    """A log that a test writes as a store does; memory level, so that it is published at once."""

    def __init__(self, path: Path, uuid: bytes, **config: Any) -> None:
        path.mkdir(exist_ok=True)
        self.path = path
        made = ffi.new("struct hf_log_config *", {"level": lib.HF_LEVEL_MEMORY, **config})
        ffi.memmove(made.uuid, uuid, 16)
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        out = ffi.new("struct hf_log **")
        try:
            check(lib.hf_log_open(fd, made, out), what=str(path))
        finally:
            os.close(fd)
        self.handle: CData = out[0]

    def begin(self, incarnation: int, start: int) -> None:
        """BEGIN."""
        check(lib.hf_log_begin(self.handle, incarnation, start))

    def append(self, number: int, *messages: Sequence[bytes], time_ns: int = 1) -> None:
        """Messages from ``number`` on."""
        data = frames(number, *messages, time_ns=time_ns)
        block = ffi.new("uint8_t[]", data)
        status = lib.hf_log_append(self.handle, block, len(data))
        if status == lib.HF_ROLL:
            self.roll()
            status = lib.hf_log_append(self.handle, block, len(data))
        check(status)
        check(lib.hf_log_sync(self.handle))

    def plain(self, first: int, last: int) -> None:
        """Numbers first..last, one fragment each, that say their number."""
        self.append(first, *([b"%d" % number] for number in range(first, last + 1)))

    def lost(self, first: int, last: int) -> None:
        """A LOST record."""
        self._lacks(lib.hf_log_lost, first, last)

    def hole(self, first: int, last: int) -> None:
        """A record that another store may have these."""
        self._lacks(lib.hf_log_hole, first, last)

    def _lacks(self, record: Callable[[CData, int, int], int], first: int, last: int) -> None:
        status = record(self.handle, first, last)
        if status == lib.HF_ROLL:
            self.roll()
            status = record(self.handle, first, last)
        check(status)
        check(lib.hf_log_sync(self.handle))

    def release(self, below: int) -> None:
        """Retention."""
        check(lib.hf_log_release(self.handle, below))

    def roll(self) -> None:
        """The next segment."""
        check(lib.hf_log_roll(self.handle))

    def flip(self, content: bytes, *, times: int = 1) -> None:
        """One bit of the oldest messages that begin with this turns over, and no digit stays one.

        Payloads begin at granules: anywhere else the same bytes may be a checksum's.
        """
        for path in sorted(self.path.glob("seg-*")):
            data = path.read_bytes()
            starts = [at for at in range(RECORDS, len(data), GRANULE) if data.startswith(content, at)]
            with path.open("r+b") as file:
                for at in starts[:times]:
                    file.seek(at)
                    file.write(bytes([data[at] ^ 16]))
            times -= len(starts[:times])
            if not times:
                return
        raise AssertionError(content)

    def close(self) -> None:
        """Ends it; it stays readable."""
        handle, self.handle = self.handle, ffi.NULL
        if handle:
            lib.hf_log_close(handle)


class Ring:
    """A stream that a test writes, without limits: it laps whoever is slow. Its BEGIN is durable, unless
    ``began`` is false."""

    def __init__(self, stage: Stage, incarnation: int, start: int, *, began: bool = True) -> None:
        config = ffi.new("struct hf_stream_config *")
        ffi.memmove(config.uuid, stage.uuid, 16)
        config.incarnation, config.start_sqn, config.ring_bytes = incarnation, start, RING
        config.fragment_bytes, config.pin_timeout_ms, config.topic = 1024, 1, b"t"
        self.stage, self.incarnation = stage, incarnation
        self.name = stage.domain.stream_name(stage.uuid, incarnation)
        fd = open_object(self.name, create=True)
        out = ffi.new("struct hf_source **")
        try:
            check(lib.hf_source_create(fd, config, stage.board.handle, stage.bells.handle, out))
        finally:
            os.close(fd)
        self.handle: CData = out[0]
        stage.rings.append(self)
        if began:
            self.begin()

    @property
    def next(self) -> int:
        """Number of the next message."""
        return int(lib.hf_source_next(self.handle))

    def begin(self) -> None:
        """Its first SRI: a source writes it when the first store has answered BEGIN."""
        lib.hf_source_sri(self.handle, ffi.NULL, 0, ffi.new("struct hf_sri_groups *"))
        lib.hf_bell_ring_all(self.stage.bells.handle)

    def send(self, count: int, pad: int = 0) -> None:
        """This many messages that say their number, ``pad`` bytes longer than they must be."""
        for _ in range(count):
            data = b"%d" % self.next + b" " * pad
            lib.hf_source_release(self.handle, self.next)
            check(lib.hf_source_send(self.handle, data, len(data)))

    def end(self) -> None:
        """A clean close."""
        lib.hf_source_close(self.handle)

    def remove(self) -> None:
        """Its name goes, as when its stores have drained it."""
        unlink_object(self.name)
        self.stage.rings.remove(self)

    def free(self) -> None:
        """Unmaps it."""
        lib.hf_source_destroy(self.handle)


class Stage:
    """One source identity: its board, rings and logs, and one feed over them. It is the feed's listener,
    too."""

    def __init__(self, path: Path, domain: str) -> None:
        self.path = path
        self.domain = Domain(domain)
        self.bells = Bells.of(self.domain)
        self.discovery = Discovery(self.domain)
        self.uuid = secrets.token_bytes(16)
        self.board: Mapping = own_board(self.domain, self.uuid)
        self.rings: list[Ring] = []
        self.logs: list[Log] = []
        self.now_ns = 0
        self.told: list[object] = []
        """What the feed said, in order; messages among it, as their payload."""
        self.voids: list[int] = []
        """From where each BEGIN that it told of makes void."""
        self.slot = Slot(Gate())
        who = ffi.new("struct hf_identity *", {"role": lib.HF_ROLE_RECEIVER, "bell": self.bells.index})
        ffi.memmove(who.uuid, secrets.token_bytes(16), 16)
        self.line = int(check(lib.hf_board_claim(self.board.handle, self.domain.fd, who, ffi.NULL)))
        self.feed: Feed | None = None

    def log(self, name: str, **config: int) -> Log:
        """One more store's log."""
        log = Log(self.path / name, self.uuid, **config)
        self.logs.append(log)
        return log

    def kept(self, name: str, lost_below: int = 0, incarnation: int = 1) -> Log:
        """One more store's log, in a directory whose state says: it has all from ``lost_below`` on, and began
        this last."""
        logs = self.path / f"store-{name}" / "logs"
        logs.mkdir(parents=True)
        source = SourceState(self.uuid, "t", 7, 0, incarnation=incarnation, lost_below=lost_below)
        StateFile(logs.parent).save(State(name, secrets.token_bytes(16), 1, 8, [source]))
        return self.log(str(logs.relative_to(self.path) / self.uuid.hex()))

    def open(
        self, start: int, *, begun: tuple[int, int] = (1, 0), paths: Sequence[str] | None = None,
        listener: Listener | None = None, line: int | None = None, stop: int = FOR_EVER, until: Bounds = ONLY_DECLARED,
    ) -> Feed:  # fmt: skip
        """A feed from number ``start`` on over all logs (``paths``: other ones)."""
        where = [str(log.path) for log in self.logs] if paths is None else list(paths)
        self.feed = Feed(
            self.uuid, self.board, self.bells, self.line if line is None else line, self.discovery, Logs(where, until),
            start, 0, begun, listener or self, Gap(PATIENCE_S * 10**9), lambda: self.now_ns, stop,
        )  # fmt: skip
        self.feed.late = self._late
        return self.feed

    def drain(self, feed: Feed | None = None) -> list[object]:
        """Everything that the feed has when it looks next; what it told meanwhile is among it."""
        feed = feed or self.feed
        assert feed is not None
        self.now_ns = max(self.now_ns, feed._rests_until_ns)
        self.told.clear()
        while feed.receive(self.slot):
            self.told.append(payload(self.slot).rstrip())
        return list(self.told)

    def _late(self, number: int, paths: Sequence[str]) -> bool:
        self.told.append(("late", number, [Path(path).name for path in paths]))
        return True

    def lost(self, first: int, last: int) -> None:
        """Listener."""
        self.told.append(("lost", first, last))

    def resumed(self) -> None:
        """Listener."""
        self.told.append("began")

    def ended(self) -> None:
        """Listener."""
        self.told.append("ended")

    def parted(self) -> None:
        """Listener."""
        self.told.append("parted")

    def rebased(self, incarnation: int, start: int, void: int) -> None:
        """Listener."""
        self.voids.append(void)
        self.told.append(("begun", incarnation, start))

    def close(self) -> None:
        """Frees what was made."""
        if self.feed is not None:
            self.feed.close()
        for log in self.logs:
            log.close()
        for ring in self.rings:
            ring.free()
        lib.hf_board_release(self.board.handle, self.line)


def payload(slot: Slot) -> bytes:
    """What was received into it."""
    return bytes(ffi.buffer(slot.memory, slot.length))


def numbers(first: int, last: int) -> list[bytes]:
    """Payloads of the messages first..last that say their number."""
    return [b"%d" % number for number in range(first, last + 1)]
