"""Batches as programs use them: records without a copy, all payloads at once, and lists of bytes that are
sent as a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.receiving import SHORT, source, until

import holdfast as hf
from holdfast.engine.memory import batch_input
from holdfast.engine.receiver.ring_reader import View

if TYPE_CHECKING:
    from collections.abc import Iterator

POINT = np.dtype([("number", "<u4"), ("where", "<f8", 2)])


@pytest.fixture
def rcv(ctx: hf.Context) -> Iterator[hf.Receiver]:
    with hf.Context() as other:
        yield other.receiver("quotes")


def sent(ctx: hf.Context, rcv: hf.Receiver, messages: list[Any], **options: Any) -> tuple[hf.Source, hf.Batch]:
    """The batch in which they arrive."""
    src = source(ctx, **options)
    until("registered", lambda: rcv.controllers)
    src.send_batch(messages, timeout=SHORT)
    src.wait_stable(timeout=SHORT)
    batch = rcv.receive_batch(timeout=SHORT)
    assert batch is not None
    assert len(batch) == len(messages)
    return src, batch


def points(count: int) -> Any:
    found = np.zeros(count, POINT)
    found["number"] = np.arange(count)
    found["where"] = np.arange(2 * count).reshape(count, 2)
    return found


def test_records_are_a_view_of_the_ring(ctx: hf.Context, rcv: hf.Receiver) -> None:
    expected = points(100)
    _, batch = sent(ctx, rcv, [row.tobytes() for row in expected])
    records = batch.as_records(POINT)
    assert records.shape == (100,)
    assert np.array_equal(records, expected)
    assert np.shares_memory(records, batch.memory)
    assert not records.flags.writeable
    with pytest.raises(ValueError, match="WRITEABLE"):
        records.flags.writeable = True


@pytest.mark.parametrize("count", [1, 2, 3])
def test_numbers_of_a_plain_dtype(ctx: hf.Context, rcv: hf.Receiver, count: int) -> None:
    _, batch = sent(ctx, rcv, [number.to_bytes(8, "little") for number in range(count)])
    assert batch.as_records("<u8").tolist() == list(range(count))


def test_records_of_several_fragments_are_copied(ctx: hf.Context, rcv: hf.Receiver) -> None:
    wide = np.dtype(("V", 3000))
    messages = [bytes([number]) * 3000 for number in range(5)]
    _, batch = sent(ctx, rcv, messages, fragment_size=1024)
    records = batch.as_records(wide)
    assert [bytes(record) for record in records] == messages
    assert not np.shares_memory(records, batch.memory)
    assert not records.flags.writeable


def test_records_with_something_between_them_are_copied(ctx: hf.Context, rcv: hf.Receiver) -> None:
    _, batch = sent(ctx, rcv, [number.to_bytes(8, "little") for number in range(5)])
    batch.frames = np.delete(batch.frames, 2)  # the distances are what decides, so the middle one goes
    view = batch._view
    kept = [index for index in range(5) if index != 2]
    for place, index in enumerate(kept):
        view.entries[place] = view.entries[index]
    view.count = 4
    assert batch.as_records("<u8").tolist() == kept


def test_a_copy_of_overwritten_records_raises(
    ctx: hf.Context, rcv: hf.Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, batch = sent(ctx, rcv, [bytes(3000)] * 2, fragment_size=1024)
    monkeypatch.setattr(View, "intact", lambda _: False)
    with pytest.raises(hf.EvictedError):
        batch.as_records(np.dtype(("V", 3000)))


def test_a_message_of_another_length_is_named(ctx: hf.Context, rcv: hf.Receiver) -> None:
    _, batch = sent(ctx, rcv, [bytes(8), bytes(8), bytes(9)])
    with pytest.raises(hf.UsageError, match="message 2 has 9 bytes, and a record of this dtype 8") as error:
        batch.as_records("<u8")
    assert "payloads()" in str(error.value)


@pytest.mark.parametrize("dtype", ["nonsense", object(), "O", np.dtype(("<f8", 3)), np.dtype([]), "V0"])
def test_a_dtype_that_cannot_be_seen_in_bytes_is_refused(ctx: hf.Context, rcv: hf.Receiver, dtype: Any) -> None:
    _, batch = sent(ctx, rcv, [bytes(8)])
    with pytest.raises(hf.UsageError, match="records of dtype"):
        batch.as_records(dtype)


def test_all_payloads_at_once_with_fragments_among_them(ctx: hf.Context, rcv: hf.Receiver) -> None:
    messages = [b"", b"short", bytes(range(256)) * 12, b"x" * 1024]
    _, batch = sent(ctx, rcv, messages, fragment_size=1024)
    found = batch.payloads()
    assert [bytes(payload) for payload in found] == messages
    assert [bytes(batch.payload(index)) for index in range(4)] == messages
    assert all(payload.readonly for payload in found)
    batch.release()
    for call in (batch.payloads, lambda: batch.as_records("<u8")):
        with pytest.raises(ValueError, match="released"):
            call()


def test_a_list_is_sent_as_a_batch(ctx: hf.Context, rcv: hf.Receiver) -> None:
    words = memoryview(b"abcdefgh").cast("H")
    messages = [b"one", bytearray(b"two"), memoryview(b"three"), b"", words, np.arange(3, dtype=np.uint8)]
    _, batch = sent(ctx, rcv, messages)
    assert [bytes(payload) for payload in batch.payloads()] == [bytes(message) for message in messages]


def test_a_long_tuple_is_sent_in_pieces(ctx: hf.Context, rcv: hf.Receiver) -> None:
    src = source(ctx)
    until("registered", lambda: rcv.controllers)
    count = 10_000
    assert src.send_batch(tuple(b"%d" % number for number in range(count)), timeout=SHORT) == (0, count - 1)
    found: list[bytes] = []
    while len(found) < count:
        batch = rcv.receive_batch(timeout=SHORT)
        assert batch is not None
        with batch:
            found += [bytes(payload) for payload in batch.payloads()]
    assert found == [b"%d" % number for number in range(count)]


class Lies(bytearray):
    """Says that it is bytes, and longer than it is."""

    def __len__(self) -> int:
        return 1 << 20

    @property
    def __class__(self) -> Any:
        return bytes

    @__class__.setter
    def __class__(self, _: Any) -> None:
        raise TypeError


def test_sizes_are_those_of_what_is_joined(ctx: hf.Context, rcv: hf.Receiver) -> None:
    _, batch = sent(ctx, rcv, [Lies(b"x"), b"yz"])
    assert [bytes(payload) for payload in batch.payloads()] == [b"x", b"yz"]


def test_what_is_looked_at_cannot_be_resized_meanwhile() -> None:
    message = bytearray(b"abc")
    part = batch_input._part(0, message)
    assert isinstance(part, memoryview)
    with pytest.raises(BufferError, match="re-sized"):
        message.clear()


def test_what_is_no_message_is_named_and_nothing_is_sent(ctx: hf.Context) -> None:
    src = source(ctx)
    with pytest.raises(TypeError, match=r"message 1 of send_batch is text: text\.encode\(\)"):
        src.send_batch([b"x", "text"])
    with pytest.raises(TypeError, match="message 2 of send_batch is of type int"):
        src.send_batch([b"x", b"y", 3])
    with pytest.raises(BufferError, match="message 0 of send_batch is not contiguous"):
        src.send_batch([memoryview(b"abcd")[::2]])
    with pytest.raises(hf.UsageError, match="no rows"):
        src.send_batch([])
    with pytest.raises(hf.MessageTooLargeError) as error:
        src.send_batch([b"fits", bytes(1 << 20)])
    assert (error.value.sent, error.value.first_sequence_number) == (1, 0)
