"""fork() with handles open: the child's say so, the parent's work on, and the child may begin anew
(docs/design.md 27)."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import traceback
import warnings
from typing import TYPE_CHECKING

import numpy as np
import pytest

import holdfast as hf
from holdfast.engine.memory.domain import Domain, open_object, unlink_object
from holdfast.engine.memory.mapping import Bells, Mapping, own_board
from holdfast.engine.native.core import CData, ffi, lib

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

OPTIONS = {"ume_store_name": ["a:0:0"], "ring_size": 1 << 20}
SHORT = 90.0


def in_child(work: Callable[[], None]) -> None:
    """Runs ``work`` in a forked child; what it raises there fails here."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # newer Pythons warn of any fork beside threads: it is the point
        pid = os.fork()
    if not pid:
        code = 1
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(int(SHORT))  # one that hangs dies
        try:
            work()
            code = 0
        except BaseException:
            os.write(write, traceback.format_exc().encode())
        finally:
            os._exit(code)
    os.close(write)
    with open(read) as pipe:
        said = pipe.read()
    assert os.waitpid(pid, 0)[1] == 0, said


def raises_forked(*calls: Callable[[], object]) -> None:
    for call in calls:
        with pytest.raises(hf.ForkedHandleError):
            call()


def receive(receiver: hf.Receiver) -> bytes:
    with_timeout = receiver.receive(timeout=SHORT)
    assert with_timeout is not None
    data = bytes(with_timeout)
    with_timeout.release()
    return data


@pytest.fixture
def store(run_store: Callable[..., object]) -> object:
    return run_store(kind="memory")


@pytest.fixture
def pair(store: object) -> Iterator[tuple[hf.Context, hf.Source, hf.Receiver]]:
    """A registered source and a receiver that has one message."""
    with hf.Context(session_id=5) as ctx:
        src = ctx.source("forks", options=OPTIONS)
        src.wait_registered(SHORT)
        rcv = ctx.receiver("forks")
        src.send(b"before")
        assert receive(rcv) == b"before"
        yield ctx, src, rcv


def works_on(src: hf.Source, rcv: hf.Receiver) -> None:
    """The parent's handles after a fork."""
    src.send(b"after")
    assert receive(rcv) == b"after"
    src.wait_stable(timeout=SHORT)


# The public names -------------------------------------------------------------------------------------------


def test_context_source_and_receiver_refuse_in_the_child(pair: tuple[hf.Context, hf.Source, hf.Receiver]) -> None:
    ctx, src, rcv = pair

    def child() -> None:
        raises_forked(
            lambda: ctx.source("x"),
            lambda: ctx.receiver("x"),
            lambda: src.wait_registered(0),
            lambda: src.send(b"x"),
            lambda: src.send(b"x" * 200_000),
            lambda: src.send_batch(np.zeros((3, 8), np.uint8)),
            lambda: src.claim(1).__enter__(),
            lambda: rcv.receive(timeout=0),
            lambda: rcv.receive(timeout=SHORT),
            lambda: rcv.receive_batch(timeout=0),
            lambda: next(iter(rcv)),
        )

    in_child(child)
    works_on(src, rcv)


def test_what_the_child_releases_is_not_consumed_in_the_parent(
    pair: tuple[hf.Context, hf.Source, hf.Receiver],
) -> None:
    _, src, rcv = pair
    src.send(b"held")
    message = rcv.receive(timeout=SHORT)
    assert message is not None
    in_child(message.release)
    rcv.acknowledge(0)
    assert list(rcv.stats().acknowledged.values()) == [0]
    message.release()
    rcv.acknowledge(0)
    assert list(rcv.stats().acknowledged.values()) == [1]
    works_on(src, rcv)


@pytest.mark.parametrize(
    "ask",
    [
        lambda _, src, __: src.next_sequence_number,
        lambda _, src, __: src.stable_sequence_number,
        lambda _, src, __: src.in_flight,
        lambda _, src, __: src.registration_ids,
        lambda _, src, __: src.stats(),
        lambda _, src, __: src.wait_stable(timeout=0),
        lambda _, src, __: src.wait_stable(0, timeout=0),
        lambda _, src, __: src.wait_registered(timeout=0),
        lambda _, __, rcv: rcv.stats(),
        lambda _, __, rcv: rcv.fileno(),
        lambda ctx, src, rcv: repr((ctx, src, rcv)),
    ],
    ids=lambda ask: ",".join(ask.__code__.co_names),
)
def test_a_question_in_the_child_is_answered_or_refused(
    ask: Callable[..., object], pair: tuple[hf.Context, hf.Source, hf.Receiver]
) -> None:
    ctx, src, rcv = pair

    def child() -> None:
        with contextlib.suppress(hf.ForkedHandleError):
            ask(ctx, src, rcv)

    in_child(child)
    works_on(src, rcv)


def test_what_was_received_before_the_fork_stays_readable_and_releasing_it_in_the_child_acknowledges_nothing(
    pair: tuple[hf.Context, hf.Source, hf.Receiver],
) -> None:
    _, src, rcv = pair
    src.send(b"held")
    message = rcv.receive(timeout=SHORT)
    assert message is not None

    def child() -> None:
        assert bytes(message) == b"held"
        with contextlib.suppress(hf.ForkedHandleError):
            message.release()

    in_child(child)
    assert bytes(message) == b"held"
    assert list(rcv.stats().acknowledged.values()) == [0] or list(rcv.stats().acknowledged.values()) == [-1]
    message.release()
    works_on(src, rcv)


def test_a_batch_in_the_child_is_refused_before_its_memory_is_touched(
    pair: tuple[hf.Context, hf.Source, hf.Receiver],
) -> None:
    """The ring is not there in the child: a look into it would end the process."""
    _, src, rcv = pair
    src.send_batch(np.full((5, 8), 7, np.uint8))
    batch = rcv.receive_batch(timeout=SHORT)
    assert batch is not None

    def child() -> None:
        pytest.importorskip("pyarrow")
        raises_forked(
            lambda: bytes(batch.payload(0)),
            lambda: int(batch.memory[0]),
            lambda: batch.to_arrow(),
            lambda: batch.send_explicit_ack(),
            lambda: batch.release(),
            lambda: batch.release(),
        )
        with batch:
            pass
        repr(batch)

    in_child(child)
    assert bytes(batch.payload(4)) == b"\7" * 8
    rcv.acknowledge(0)
    assert list(rcv.stats().acknowledged.values()) == [0]
    batch.release()
    rcv.acknowledge(0)
    assert list(rcv.stats().acknowledged.values()) == [5]
    works_on(src, rcv)


def test_a_claim_that_is_open_at_the_fork_is_the_parents(pair: tuple[hf.Context, hf.Source, hf.Receiver]) -> None:
    _, src, rcv = pair
    claim = src.claim(6)
    with claim as view:

        def child() -> None:
            with pytest.raises((hf.ForkedHandleError, hf.UsageError)):
                claim.__exit__(None, None, None)

        in_child(child)
        view[:] = b"parent"
    assert receive(rcv) == b"parent"
    works_on(src, rcv)


def test_closing_in_the_child_closes_nothing_of_the_parents(pair: tuple[hf.Context, hf.Source, hf.Receiver]) -> None:
    ctx, src, rcv = pair

    def child() -> None:
        for handle in (rcv, src, ctx):
            with contextlib.suppress(hf.ForkedHandleError):
                handle.close()

    in_child(child)
    works_on(src, rcv)


def test_a_with_block_that_ends_in_the_child_too_ends_there_quietly(store: object) -> None:
    with hf.Context(session_id=5) as ctx, ctx.source("forks", options=OPTIONS) as src, ctx.receiver("forks") as rcv:
        src.wait_registered(SHORT)
        src.send(b"before")
        assert receive(rcv) == b"before"

        def child() -> None:
            with ctx, src, rcv:
                pass
            gc.collect()

        in_child(child)
        works_on(src, rcv)


def test_the_child_may_make_a_context_of_its_own(pair: tuple[hf.Context, hf.Source, hf.Receiver]) -> None:
    _, src, rcv = pair

    def child() -> None:
        with hf.Context(session_id=6) as own:
            other = own.receiver("forks")
            assert receive(other) == b"before"
            mine = own.source("childs", options=OPTIONS)
            mine.wait_registered(SHORT)
            mine.send(b"from the child")
            mine.wait_stable(timeout=SHORT)

    in_child(child)
    works_on(src, rcv)
    with hf.Context(session_id=7) as other:
        assert receive(other.receiver("childs")) == b"from the child"


def test_the_childs_child_may_too(pair: tuple[hf.Context, hf.Source, hf.Receiver]) -> None:
    _, src, rcv = pair

    def grandchild() -> None:
        with hf.Context(session_id=8) as own:
            assert receive(own.receiver("forks")) == b"before"

    def child() -> None:
        with hf.Context(session_id=6) as own:
            assert receive(own.receiver("forks")) == b"before"
            in_child(grandchild)

    in_child(child)
    works_on(src, rcv)


def test_a_child_that_lives_on_does_not_hold_what_its_parent_closes(store: object) -> None:
    read, write = os.pipe()
    with hf.Context(session_id=5) as ctx:
        src = ctx.source("forks", options=OPTIONS)
        src.wait_registered(SHORT)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if not pid:
            os.read(read, 1)  # with every descriptor of the parent's
            os._exit(0)
        src.close()
        again = ctx.source("forks", options=OPTIONS)
        again.wait_registered(SHORT)
    os.write(write, b".")
    assert os.waitpid(pid, 0)[1] == 0
    os.close(read)
    os.close(write)


# The C handles ----------------------------------------------------------------------------------------------


@pytest.fixture
def joined(own_domain: str) -> Iterator[tuple[Domain, Bells]]:
    domain = Domain(own_domain)
    yield domain, Bells.of(domain)
    domain.close()


def make_stream(domain: Domain, board: Mapping, bells: Bells) -> CData:
    config = ffi.new("struct hf_stream_config *")
    config.ring_bytes, config.fragment_bytes = 1 << 16, 1024
    out = ffi.new("struct hf_source **")
    fd = open_object(domain.stream_name(bytes(16), 1), create=True)
    assert lib.hf_source_create(fd, config, board.handle, bells.handle, out) == lib.HF_OK
    os.close(fd)
    made: CData = out[0]
    return made


def test_doorbells_that_somebody_made_anew_are_taken(joined: tuple[Domain, Bells]) -> None:
    """A domain that was removed and is used again, while a process lives that had been in it: all must ring
    the same bells."""
    domain, bells = joined
    unlink_object(domain.bells_name)
    others = Bells(domain)  # as another process does, which has none yet
    assert not bells.mapping.is_named()
    assert others.mapping.is_named()
    ours = Bells.of(domain)
    assert ours.mapping.is_named()
    ours.ring()
    assert lib.hf_bell_read(others.handle, ours.index) == 1


def test_streams_boards_and_bells_answer_forked_in_the_child(joined: tuple[Domain, Bells]) -> None:
    domain, bells = joined
    board = own_board(domain, bytes(16))
    source = make_stream(domain, board, bells)
    who = ffi.new("struct hf_identity *")
    who.role, who.bell = lib.HF_ROLE_RECEIVER, bells.index
    line = lib.hf_board_claim(board.handle, domain.fd, who, ffi.NULL)
    out = ffi.new("struct hf_reader **")
    assert lib.hf_reader_open(lib.hf_source_map(source), board.handle, bells.handle, line, out) == lib.HF_OK
    reader, entry, buf, words = out[0], ffi.new("struct hf_entry *"), ffi.new("uint8_t[2000]"), ffi.new("uint64_t[2]")
    assert lib.hf_source_send(source, b"one", 3) == 0

    def child() -> None:
        status = ffi.new("int64_t *")
        for call, arguments in (
            (lib.hf_source_send, (source, b"x", 1)),
            (lib.hf_source_send_rows, (source, b"x", 1, 1, 1)),
            (lib.hf_source_commit, (source,)),
            (lib.hf_source_abort, (source,)),
            (lib.hf_source_release, (source, 1)),
            (lib.hf_reader_receive, (reader, entry, buf, 2000)),
            (lib.hf_reader_receive_soon, (reader, entry, buf, 2000, 10**9)),
            (lib.hf_reader_receive_wait, (reader, entry, buf, 2000, lib.HF_WAIT_BLOCK, 10**9)),
            (lib.hf_reader_wait, (reader, lib.HF_WAIT_BLOCK, 10**9)),
            (lib.hf_reader_ready, (reader,)),
            (lib.hf_reader_seek, (reader, 0)),
            (lib.hf_reader_seek_oldest, (reader,)),
            (lib.hf_reader_batch, (reader, entry, 1, 2000, words, words + 1)),
            (lib.hf_reader_unpin, (reader, 0, 0)),
            (lib.hf_reader_copy, (reader, buf, 2000, words, words + 1)),
            (lib.hf_board_claim, (board.handle, domain.fd, who, ffi.NULL)),
            (lib.hf_board_release, (board.handle, line)),
            (lib.hf_bell_claim, (bells.handle, domain.fd)),
        ):
            assert call(*arguments) == lib.HF_FORKED, call
        assert lib.hf_source_claim(source, 1, status) == ffi.NULL
        assert status[0] == lib.HF_FORKED
        assert lib.hf_board_line_at(board.handle, line) == ffi.NULL
        # What returns nothing does nothing.
        lib.hf_board_ack(board.handle, bells.handle, line, 9, 9)
        lib.hf_bell_ring(bells.handle, bells.index)
        lib.hf_source_close(source)
        lib.hf_reader_close(reader)
        lib.hf_source_destroy(source)
        board.close()

    in_child(child)
    assert lib.hf_source_send(source, b"two", 3) == 1
    for number in (0, 1):
        assert lib.hf_reader_receive(reader, entry, buf, 2000) == 1
        assert entry.sequence_number == number
    assert lib.hf_board_line_at(board.handle, line).ack == 0
    lib.hf_reader_close(reader)
    lib.hf_source_destroy(source)
    assert lib.hf_board_release(board.handle, line) == lib.HF_OK
    board.close()
    unlink_object(domain.stream_name(bytes(16), 1))


def test_logs_answer_forked_in_the_child(tmp_path: Path) -> None:
    config = ffi.new("struct hf_log_config *")
    config.level = lib.HF_LEVEL_DISK
    out, out_reader = ffi.new("struct hf_log **"), ffi.new("struct hf_logr **")
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    assert lib.hf_log_open(fd, config, out) == lib.HF_OK
    assert lib.hf_logr_open(fd, out_reader) == lib.HF_OK
    log, reader, words, buf = out[0], out_reader[0], ffi.new("uint64_t[2]"), ffi.new("uint8_t[64]")

    def child() -> None:
        for call, arguments in (
            (lib.hf_log_begin, (log, 1, 0)),
            (lib.hf_log_append, (log, buf, 64)),
            (lib.hf_log_lost, (log, 0, 1)),
            (lib.hf_log_roll, (log,)),
            (lib.hf_log_sync, (log,)),
            (lib.hf_log_prepare, (log,)),
            (lib.hf_logr_range, (reader, words, words + 1)),
            (lib.hf_logr_read, (reader, 0, buf, 64, words)),
            (lib.hf_logr_begin, (reader, words, words + 1)),
        ):
            assert call(*arguments) == lib.HF_FORKED, call
        lib.hf_logr_close(reader)
        lib.hf_log_close(log)

    in_child(child)
    assert lib.hf_log_begin(log, 1, 0) == lib.HF_OK
    assert lib.hf_logr_begin(reader, words, words + 1) == 1
    assert (words[0], words[1]) == (1, 0)
    lib.hf_logr_close(reader)
    lib.hf_log_close(log)
    os.close(fd)
