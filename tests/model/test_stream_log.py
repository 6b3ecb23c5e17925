"""Stream and log against a model of two lists: any order of sends, reads, laps, drains, restarts gives what
the lists say."""

from __future__ import annotations

import os
import random
from itertools import islice
from typing import TYPE_CHECKING

import pytest
from hypothesis import seed
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from model.conftest import LONG, PROFILE, chosen_seed
from model.reference import GRANULE, Message, Model, at, behind, fragments
from model.world import RING, World

from holdfast.engine.memory.domain import Domain
from holdfast.engine.native.core import CData, ffi, lib

if TYPE_CHECKING:
    from pathlib import Path

READERS = 3
WORD = 2**64
NEVER_MS = 600_000
sizes = st.integers(0, 300) | st.integers(0, 20_000)
readers = st.integers(0, READERS - 1)
caps = st.integers(0, 500) | st.integers(0, 1 << 16)
fractions = st.floats(0, 1)


def content(number: int, size: int) -> bytes:
    return random.Random(number).randbytes(size)


def frames_of(block: bytes) -> list[tuple[int, int, bytes]]:
    """(number, index, payload) of each frame, decoded here once more from csrc/base/layout.h."""
    found, at = [], 0
    while at < len(block):
        frame = ffi.from_buffer("struct hf_frame *", block[at : at + GRANULE])
        length = int(frame.commit) & 0xFFFFFFFF
        found.append((int(frame.sequence_number), int(frame.fragment), block[at + GRANULE : at + length]))
        at += -(-length // GRANULE) * GRANULE
    assert at == len(block)
    return found


class StreamAndLog(RuleBasedStateMachine):
    """See the module. ``domain`` and ``root`` are set by the test."""

    domain: Domain
    root: Path
    world: World | None = None

    @initialize(
        level=st.sampled_from([1, 2]),
        retain=st.sampled_from([0, 200_000]),
        fragment=st.sampled_from([32, 200, 1000, 16352]),
        start=st.sampled_from([0, 2**32 - 5, 2**61]),
        position=st.sampled_from([0, 2**63 - 4096, 2**64 - 2 * RING]),
        pins=st.sampled_from([0, NEVER_MS]),
    )
    def begin(self, level: int, retain: int, fragment: int, start: int, position: int, pins: int) -> None:
        self.disk = level == lib.HF_LEVEL_DISK
        self.fragment, self.pins = fragment, pins
        self.world = self.w = World(self.domain, self.root / os.urandom(6).hex(), level, retain)
        assert lib.hf_log_begin(self.w.log, 1, start) == 0
        self.w.start_source(start, position, fragment, pins, READERS)
        self.model = Model(start, position, start)
        self.appended = self.oldest = 0
        self.published = 0
        self.flight = self.flight_bytes = self.retained = 0
        self.trail = position

    def teardown(self) -> None:
        if self.world is not None:
            self.world.close()

    # Sending ------------------------------------------------------------------------------------------------

    def unwrapped(self, raw: int) -> int:
        """Positions run freely and wrap at 2^64; the model's do not."""
        return self.model.tail - (self.model.tail - raw) % WORD

    def expected(self, message: Message) -> int:
        messages, payload, span = self.model.flight
        if message.span > RING // 4:
            return int(lib.HF_TOO_LARGE)
        if messages and self.flight and messages + len(message.parts) > self.flight:
            return int(lib.HF_FLIGHT_SIZE)
        if self.flight_bytes and payload + len(message.payload) > self.flight_bytes:  # also when nothing is in flight
            return int(lib.HF_FLIGHT_BYTES)
        if messages and self.retained and span + message.span > self.retained:
            return int(lib.HF_RETENTION)
        return int(lib.HF_RETENTION) if span + message.span + GRANULE > RING else 0

    def sent(self, message: Message, status: int) -> bool:
        """What came of an attempt is what the model says; a pin may hold a send back that would fit."""
        expected = self.expected(message)
        if status == lib.HF_PINNED:
            assert expected == 0
            assert any(reader.views for reader in self.w.readers), "nobody has a view"
            return False
        assert (min(0, status)) == expected, (status, expected)
        if status >= 0:
            assert status == message.next - 1
            self.model.send(message)
        return status >= 0

    @rule(size=sizes)
    def send(self, size: int) -> None:
        data = content(self.model.next, size)
        self.sent(self.model.message(data, self.fragment), int(lib.hf_source_send(self.w.source, data, size)))

    @rule(width=st.integers(1, 400), count=st.integers(1, 250))
    def send_rows(self, width: int, count: int) -> None:
        rows = content(self.model.next, width * count)
        done = int(lib.hf_source_send_rows(self.w.source, rows, width, width, count))
        for i in range(max(done, 0)):
            message = self.model.message(rows[i * width : (i + 1) * width], self.fragment)
            assert self.sent(message, message.next - 1)
        if done < count:
            left = self.model.message(rows[:width], self.fragment)
            assert done > 0 or not self.sent(left, done)
            assert self.expected(left) != 0 or any(reader.views for reader in self.w.readers)

    @rule(size=st.integers(0, 17_000), commit=st.booleans())
    def claim(self, size: int, commit: bool) -> None:
        status = ffi.new("int64_t *")
        place = lib.hf_source_claim(self.w.source, size, status)
        data = content(self.model.next, size)
        message = Message(self.model.next, (data,), self.model.tail)
        if size > self.fragment:
            assert status[0] == lib.HF_TOO_LARGE
        elif not place:
            assert not self.sent(message, int(status[0]))
        else:
            assert lib.hf_source_send(self.w.source, b"", 0) == lib.HF_BUSY
            ffi.memmove(place, data, size)
            if commit:
                assert self.sent(message, int(lib.hf_source_commit(self.w.source)))
            else:
                assert self.expected(message) == 0
                assert lib.hf_source_abort(self.w.source) == 0

    @rule(messages=st.sampled_from([0, 1, 50]), payload=st.sampled_from([0, 3000]), spans=st.sampled_from([0, 20_000]))
    def limits(self, messages: int, payload: int, spans: int) -> None:
        self.flight, self.flight_bytes, self.retained = messages, payload, spans
        lib.hf_source_limits(self.w.source, messages, payload, spans)

    @rule(part=fractions | st.just(1.0))
    def release(self, part: float) -> None:
        model = self.model
        number = model.released + int((model.next - model.released) * part)
        assert lib.hf_source_release(self.w.source, number) == number - model.released
        model.release(number)

    @rule(width=st.integers(200, 400))
    def lap(self, width: int) -> None:
        """About a ring of messages, released as they come."""
        for _ in range(16):
            self.send_rows(width, RING // 16 // width)
            self.release(1.0)

    @rule(
        each=st.lists(st.sampled_from([10, 500, 3000, 15_900]), min_size=5, max_size=30),
        keep=st.integers(0, 3),
        spans=st.sampled_from([0, 20_000]),
    )
    def crowd(self, each: list[int], keep: int, spans: int) -> None:
        """Small and large messages by turns, close to what is retained."""
        self.limits(0, 0, spans)
        for size in each:
            self.send(size)
            number = max(self.model.next - keep, self.model.released)
            lib.hf_source_release(self.w.source, number)
            self.model.release(number)

    # Reading ------------------------------------------------------------------------------------------------

    @rule(i=readers, capacity=caps)
    def receive(self, i: int, capacity: int) -> None:
        reader = self.w.readers[i]
        number = reader.next
        status, payload = reader.receive(capacity)
        message = self.next_message(i, number, status)
        if message is not None:
            fits = len(message.payload) <= capacity
            assert status == (1 if fits else lib.HF_SMALL)
            assert reader.entry.length == len(message.payload)
            if fits:
                self.same(reader.entry, message)
                assert payload == message.payload
            assert reader.next == (message.next if fits else number)

    def next_message(self, i: int, number: int, status: int) -> Message | None:
        """The message that a reader at ``number`` must get; None if it has to say that it is lapped, or at
        the end."""
        position = self.unwrapped(int(lib.hf_reader_position(self.w.readers[i].handle)))
        if status == lib.HF_LAPPED:
            assert position < self.trail
            lib.hf_reader_seek_oldest(self.w.readers[i].handle)
            return None
        assert position >= self.trail or status > 0, "overrun, and it does not say so"
        if number == self.model.next:
            assert status == 0
            return None
        message = at(self.model.ring, number)
        assert message is not None
        assert message.first == number
        return message

    @staticmethod
    def same(entry: CData, message: Message) -> None:
        found = entry.first_sequence_number, entry.sequence_number, entry.fragments, entry.length
        assert found == (message.first, message.next - 1, len(message.parts), len(message.payload))

    @rule(i=readers, maximum=st.integers(1, 40), max_bytes=st.integers(32, 1 << 15))
    def batch(self, i: int, maximum: int, max_bytes: int) -> None:
        reader = self.w.readers[i]
        if len(reader.views) >= 4:
            return
        number, position = reader.next, self.unwrapped(int(lib.hf_reader_position(reader.handle)))
        count, entries, pin = reader.batch(maximum, max_bytes)
        if count <= 0:
            assert self.next_message(i, number, count) is None
            return
        assert position >= self.trail
        assert self.unwrapped(pin) == position
        payloads = []
        for k in range(count):
            message = at(self.model.ring, number)
            assert message is not None
            self.same(entries[k], message)
            payloads.append(message.payload)
            number = message.next
        assert reader.next == number
        reader.views.append((pin, payloads, entries))

    @precondition(lambda self: any(reader.views for reader in self.w.readers))
    @rule(i=readers, which=st.integers(0, 3))
    def release_view(self, i: int, which: int) -> None:
        reader = self.w.readers[i]
        if reader.views:
            status, pin = reader.unpin(which % len(reader.views))
            assert status == (lib.HF_EVICTED if self.unwrapped(pin) < self.trail else lib.HF_OK)

    @rule(i=readers, back=st.integers(-2, 400))
    def seek(self, i: int, back: int) -> None:
        reader, model = self.w.readers[i], self.model
        number = max(model.next - back, model.start)
        status = lib.hf_reader_seek(reader.handle, number)
        message = at(model.ring, number)
        if status == lib.HF_LAPPED:
            assert message is None or message.position < self.trail + RING // 64 + RING // 4
        elif number > model.next:
            assert status == lib.HF_AHEAD
        else:
            assert status == 0
            assert reader.next == (message.first if message else model.next)

    # The log ------------------------------------------------------------------------------------------------

    @rule(capacity=st.integers(64, 1 << 16), rounds=st.integers(1, 20))
    def drain(self, capacity: int, rounds: int) -> None:
        handle = self.w.store.handle
        buffer, numbers = ffi.new("uint8_t[]", capacity), ffi.new("uint64_t[2]")
        expect = max(self.appended, self.model.start)
        for _ in range(rounds):
            got = int(lib.hf_reader_copy(handle, buffer, capacity, numbers, numbers + 1))
            if got == lib.HF_LAPPED:
                assert lib.hf_reader_seek_oldest(handle) == 0
                oldest = int(lib.hf_reader_next(handle))
                assert oldest > expect
                self.enter(lambda first=expect, last=oldest - 1: int(lib.hf_log_lost(self.w.log, first, last)))
                self.model.log.append(Message(expect, (b"",) * (oldest - expect), lost=True))
                expect = oldest
            elif got > 0:
                block = bytes(ffi.buffer(buffer, got))
                frames = frames_of(block)
                assert frames == list(islice(fragments(self.model.ring, expect), len(frames)))
                self.enter(lambda size=got: int(lib.hf_log_append(self.w.log, buffer, size)))
                while expect < numbers[1]:
                    message = at(self.model.ring, expect)
                    assert message is not None
                    self.model.log.append(message)
                    expect = message.next
                assert expect == numbers[1], "whole messages only"
            else:
                message = at(self.model.ring, expect)
                assert got == (lib.HF_SMALL if message else 0)
                break
            self.appended = expect
            self.published = self.published if self.disk else expect

    def enter(self, call: object) -> None:
        assert callable(call)
        status = call()
        if status == lib.HF_ROLL:
            assert lib.hf_log_roll(self.w.log) == 0
            status = call()
        assert status == 0

    @rule()
    def sync(self) -> None:
        assert lib.hf_log_sync(self.w.log) == 0
        self.published = self.appended

    @rule()
    def prepare(self) -> None:
        assert lib.hf_log_prepare(self.w.log) in {0, 1}

    @rule()
    def reopen(self) -> None:
        self.w.reopen_log()
        self.published = self.appended

    @rule(where=fractions, position=st.sampled_from([0, 2**63 - 4096]))
    def restart(self, where: float, position: int) -> None:
        """BEGIN of the next incarnation, at some message's start: what is there from it on is void."""
        model = self.model
        starts = {m.first for m in (*model.log, *model.ring) if m.first >= self.oldest} | {self.appended, model.next}
        start = sorted(starts)[int(where * (len(starts) - 1))]
        assert lib.hf_log_begin(self.w.log, self.w.incarnation + 1, start) == 0
        self.appended = self.published = min(self.appended, start)
        log = [message.before(start) for message in model.log if message.first < start]
        self.model = Model(start, position, start, log=log)
        self.trail = position
        self.w.start_source(start, position, self.fragment, self.pins, READERS)
        self.flight = self.flight_bytes = self.retained = 0

    @rule(where=fractions, back=st.integers(0, 3), capacity=caps)
    def read_log(self, where: float, back: int, capacity: int) -> None:
        """From any number: exactly what the list has there."""
        capacity = max(capacity, 2 * GRANULE)  # a control frame's room
        first = max(self.oldest - 2, self.model.log[0].first - 2 if self.model.log else 0, 0)
        number = max(0, first + int((self.published + 3 - first) * where) - back)
        buffer, following = ffi.new("uint8_t[]", capacity), ffi.new("uint64_t *")
        status = int(lib.hf_logr_read(self.w.logr, number, buffer, capacity, following))
        message = at(self.model.log, number)
        following_record = behind(self.model.log, number)
        if number >= self.published:
            assert status == lib.HF_AGAIN
        elif number < self.oldest:
            assert (status, following[0]) == (lib.HF_GONE, self.oldest)
        elif message is None:
            # A number between may be named too, of a record that a later BEGIN made void: the next read steps
            # on.
            limit = following_record.first if following_record else self.published
            assert status == lib.HF_GONE or (status == lib.HF_AGAIN and following_record is None)
            assert number < following[0] <= limit
        elif message.lost:
            assert (status, following[0]) == (lib.HF_LOST, message.next)
        elif message.span > capacity:
            assert (status, following[0]) == (lib.HF_SMALL, message.span)
        else:
            assert status > 0
            self.read_frames(message, bytes(ffi.buffer(buffer, status)), int(following[0]))

    def read_frames(self, message: Message, block: bytes, following: int) -> None:
        frames = frames_of(block)
        assert following == message.first + len(frames) <= self.published
        assert frames == list(islice(fragments(self.model.log, message.first), len(frames)))
        assert [number for number, _, _ in frames] == list(range(message.first, following)), "contiguous"

    @rule()
    def check_log(self) -> None:
        self.sync()
        summary, found = ffi.new("struct hf_check_summary *"), ffi.new("struct hf_finding[4]")
        fd = os.open(self.w.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            assert lib.hf_log_check(fd, found, 4, summary) == 0
        finally:
            os.close(fd)

    # Always -------------------------------------------------------------------------------------------------

    @invariant()
    def numbers_are_the_models(self) -> None:
        if self.world is None:
            return
        out, model, header = ffi.new("uint64_t[3]"), self.model, self.w.header
        assert lib.hf_source_next(self.w.source) == header.next_sqn == model.next
        assert header.tail == model.tail % WORD
        flight = self.model.flight
        lib.hf_source_in_flight(self.w.source, out, out + 1, out + 2)
        assert tuple(out) == flight
        trail = self.unwrapped(int(header.trail))
        assert self.trail <= trail <= model.tail - flight[2], "the trail never passes what is not released"
        assert trail >= model.tail - RING + GRANULE or model.tail - model.position < RING
        self.trail = trail
        assert lib.hf_stream_valid(self.w.store.mapping.handle, out) == 0
        while len(model.ring) > 1 and model.ring[0].next <= model.released and model.ring[0].position + RING < trail:
            del model.ring[0]

    @invariant()
    def views_show_what_they_showed(self) -> None:
        for reader in self.w.readers if self.world else []:
            for pin, payloads, entries in reader.views:
                if self.unwrapped(pin) >= self.trail:
                    assert [reader.gather(entries + k) for k in range(len(payloads))] == payloads

    @invariant()
    def the_log_keeps_a_tail_of_what_was_appended(self) -> None:
        if self.world is None:
            return
        info = self.w.log_info()
        assert info.appended_sqn == self.appended
        assert info.next_sqn == self.published
        assert self.oldest <= info.oldest_sqn <= max(self.appended, self.oldest)
        if info.oldest_sqn > self.oldest:
            first = self.model.log[0].first if self.model.log else self.appended
            assert self.w.config.retain_bytes or info.oldest_sqn <= first, "nothing goes without a limit"
            self.oldest = int(info.oldest_sqn)
            self.model.log = [m for m in self.model.log if m.first >= self.oldest]


@pytest.mark.timeout(3600 if LONG else 400)
def test_stream_and_log_do_what_the_lists_say(domain: str, tmp_path: Path) -> None:
    joined = Domain(domain)
    machine = type("Machine", (StreamAndLog,), {"domain": joined, "root": tmp_path})
    try:
        run_state_machine_as_test(seed(chosen_seed())(machine), settings=PROFILE)
    finally:
        joined.close()
