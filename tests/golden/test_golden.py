"""Directories that an earlier version wrote stay readable: v1/ is opened, and has exactly the messages that
make.py put there."""

from __future__ import annotations

import os
import shutil
import threading
from typing import TYPE_CHECKING

import pytest
from golden import make

import holdfast as hf
from holdfast.engine.log.state_file import StateFile
from holdfast.engine.native.core import CData, ffi, lib
from holdfast.engine.native.status import check
from holdfast.engine.store.store import Store, StoreConfig

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOG = make.V1 / "logs" / make.SOURCE.hex()
SHORT = 90.0


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy that may be written to."""
    path = tmp_path / "v1"
    shutil.copytree(make.V1, path, copy_function=shutil.copyfile)
    path.chmod(0o700)
    return path


class LogReader:
    """A log's reader, and what it says number by number."""

    def __init__(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        out = ffi.new("struct hf_logr **")
        try:
            check(lib.hf_logr_open(fd, out))
        finally:
            os.close(fd)
        self.handle: CData = out[0]

    def __enter__(self) -> LogReader:
        return self

    def __exit__(self, *_: object) -> None:
        lib.hf_logr_close(self.handle)

    def range(self) -> tuple[int, int]:
        out = ffi.new("uint64_t[2]")
        check(lib.hf_logr_range(self.handle, out, out + 1))
        return int(out[0]), int(out[1])

    def messages(self) -> Iterator[tuple[int, int, int, bytes]]:
        """(first, last, timestamp, payload); for what is lost (first, last, 0, b"lost")."""
        number, end = self.range()
        block, following, consumed = ffi.new("uint8_t[]", 65536), ffi.new("uint64_t *"), ffi.new("uint64_t *")
        entries = ffi.new("struct hf_entry[]", 64)
        while number < end:
            got = int(lib.hf_logr_read(self.handle, number, block, 65536, following))
            if got == lib.HF_LOST:
                yield number, int(following[0]) - 1, 0, b"lost"
            else:
                for i in range(check(lib.hf_scan(block, check(got), entries, 64, consumed))):
                    entry = entries[i]
                    payload = bytearray(int(entry.length))
                    if payload:
                        check(lib.hf_gather(block, 0, entries + i, ffi.from_buffer(payload)))
                    yield entry.first_sequence_number, entry.sequence_number, entry.timestamp_ns, bytes(payload)
            assert following[0] > number
            number = int(following[0])


def read(sent: make.Sent) -> tuple[int, int, int, bytes]:
    return sent.first, sent.first + len(sent.parts) - 1, sent.timestamp_ns, b"".join(sent.parts)


def expected() -> list[tuple[int, int, int, bytes]]:
    return sorted([*map(read, make.READABLE), (*make.LOST_NUMBERS, 0, b"lost")])


def test_the_files_are_what_the_generator_writes() -> None:
    found = {str(path.relative_to(make.V1)): path.read_bytes() for path in make.V1.rglob("*") if path.is_file()}
    assert found == make.files()
    assert {path.name: path.read_bytes() for path in make.V1_FILL.iterdir()} == dict([make.fill()])
    assert (make.V2_HEAD / "head").read_bytes() == make.head_v2(make.segments()[1].end)


def test_this_build_has_the_layout_that_the_files_have() -> None:
    assert make.LAYOUT_VERSION == lib.HF_LAYOUT_VERSION, "a new layout version: add tests/golden/v2, keep v1 readable"
    kinds = make.STRUCT_HASH.keys() - {make.HEAD}
    assert {lib.hf_layout_version(kind) for kind in kinds} == {make.LAYOUT_VERSION}
    found = {kind: lib.hf_struct_hash(kind) for kind in kinds} | {make.HEAD: lib.hf_head_v1_hash()}
    assert found == make.STRUCT_HASH, "the layout has changed: raise the version of that kind"
    assert (lib.hf_layout_version(make.HEAD), lib.hf_struct_hash(make.HEAD)) == (make.HEAD_VERSION, make.HEAD_HASH)


def test_a_reader_finds_every_message_without_a_store() -> None:
    with LogReader(LOG) as log:
        assert log.range() == (0, make.NEXT)
        assert list(log.messages()) == expected()


def test_a_reader_finds_what_was_lost_in_the_fill(copy: Path) -> None:
    log = copy / "logs" / make.SOURCE.hex()
    for path in make.V1_FILL.iterdir():
        shutil.copyfile(path, log / path.name)
    with LogReader(log) as reader:
        assert list(reader.messages()) == sorted(map(read, [*make.READABLE, make.FILLED]))


def test_a_check_finds_nothing() -> None:
    summary, found = ffi.new("struct hf_check_summary *"), ffi.new("struct hf_finding[4]")
    fd = os.open(LOG, os.O_RDONLY | os.O_DIRECTORY)
    try:
        assert lib.hf_log_check(fd, found, 4, summary) == 0
    finally:
        os.close(fd)
    assert (summary.segments, summary.oldest_sqn, summary.next_sqn) == (2, 0, make.NEXT)


def table(path: Path) -> list[tuple[int, int]]:
    """The BEGINs that readers find."""
    begins = ffi.new("struct hf_begin[]", lib.HF_INCARNATIONS)
    with LogReader(path) as log:
        count = check(lib.hf_logr_begins(log.handle, begins))
    return [(begins[i].incarnation, begins[i].start_sqn) for i in range(count)]


def test_a_reader_finds_the_newest_table_of_begins_that_is_whole(copy: Path) -> None:
    path = copy / "logs" / make.SOURCE.hex()
    assert table(path) == list(make.BEGINS)
    shutil.copyfile(make.V2_HEAD / "head", path / "head")
    assert table(path) == list(make.BEGINS)
    with LogReader(path) as log:
        assert list(log.messages()) == expected()


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("level", [lib.HF_LEVEL_MEMORY, lib.HF_LEVEL_DISK])
def test_a_store_opens_the_log_and_goes_on_in_it(copy: Path, level: int, version: int) -> None:
    config = ffi.new("struct hf_log_config *")
    ffi.memmove(config.uuid, make.SOURCE, 16)
    config.level = level
    path = copy / "logs" / make.SOURCE.hex()
    if version == make.HEAD_VERSION:
        shutil.copyfile(make.V2_HEAD / "head", path / "head")
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    out, info = ffi.new("struct hf_log **"), ffi.new("struct hf_log_info *")
    try:
        check(lib.hf_log_open(fd, config, out))
    finally:
        os.close(fd)
    lib.hf_log_info(out[0], info)
    assert (info.next_sqn, info.appended_sqn, info.incarnation, info.begin_sqn) == (make.NEXT, make.NEXT, 2, 9)
    assert (info.cut_bytes, info.damaged, info.segments, info.unsure) == (0, 0, 2, 0)
    assert lib.hf_log_begin(out[0], 3, make.NEXT) == 0
    lib.hf_log_close(out[0])
    assert table(path) == [*make.BEGINS, (3, make.NEXT)]
    with LogReader(path) as log:
        assert list(log.messages()) == expected()


def test_the_state_is_the_newer_of_the_two_slots(copy: Path) -> None:
    state = StateFile(copy).load()
    assert state is not None
    assert (state.name, state.uuid, state.opened, state.next_registration_id) == ("golden", make.STORE, 4, 702)
    (source,) = state.sources
    assert (source.uuid, source.topic, source.registration_id, source.session_id) == (make.SOURCE, "golden", 700, 9)
    assert (source.incarnation, source.start_sqn, source.stores) == (2, 9, ["golden"])
    (receiver,) = source.receivers
    assert (receiver.uuid, receiver.registration_id, receiver.session_id, receiver.ack) == (make.RECEIVER, 701, 42, 2)


def test_a_receiver_goes_on_behind_its_ack_in_an_old_directory(copy: Path, domain: str) -> None:
    store = Store(StoreConfig("golden", copy, domain=domain))
    store.open()
    thread = threading.Thread(target=store.run)
    thread.start()
    lost: list[int] = []
    told = threading.Event()

    def on_event(event: object) -> None:
        if isinstance(event, hf.events.receiver.UnrecoverableLoss):
            lost.append(event.sequence_number)
            if event.sequence_number == make.LOST_NUMBERS[-1]:
                told.set()

    try:
        with hf.Context(domain, session_id=42) as ctx:
            rcv = ctx.receiver("golden", on_event=on_event)
            wanted = [m for m in make.READABLE if m.first >= 2]
            for sent in wanted:
                message = rcv.receive(timeout=SHORT)
                assert message is not None
                assert (message.first_sequence_number, bytes(message)) == (sent.first, b"".join(sent.parts))
                assert message.is_retransmit
                message.release()
            assert told.wait(SHORT)
    finally:
        store.stop()
        thread.join()
        store.close()
    assert lost == list(make.LOST_NUMBERS)
