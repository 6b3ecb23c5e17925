"""Wrong use gives one typed error of one line that names the value and what to do, at once, and changes
nothing."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import holdfast as hf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SHORT = 90.0


@pytest.fixture
def ctx(domain: str) -> Iterator[hf.Context]:
    with hf.Context(domain) as made:
        yield made


@pytest.fixture
def src(ctx: hf.Context) -> hf.Source:
    """A source that streams: it needs no store."""
    source = ctx.source("ticks", options={"ring_size": 1 << 16, "fragment_size": 1000})
    source.wait_registered(SHORT)
    return source


def one_line(error: hf.Error, *words: str) -> None:
    text = str(error)
    assert "\n" not in text
    assert text.startswith(error.code)
    missing = [word for word in words if word not in text]
    assert not missing, f"{missing} not in {text!r}"


BAD_CALLS: list[tuple[Callable[[hf.Context], object], type[hf.Error], tuple[str, ...]]] = [
    (lambda ctx: ctx.source(""), hf.ConfigError, ("''", "255")),
    (lambda ctx: ctx.source("x" * 256), hf.ConfigError, ("255",)),
    (lambda ctx: ctx.source("nul\0"), hf.ConfigError, ("NUL",)),
    (lambda ctx: ctx.source(7), hf.ConfigError, ("7", "string")),  # type: ignore[arg-type]
    (lambda ctx: ctx.receiver(), hf.ConfigError, ("topic", "pattern")),
    (lambda ctx: ctx.receiver("a", pattern="b"), hf.ConfigError, ("topic", "pattern")),
    (lambda ctx: ctx.receiver(pattern="("), hf.ConfigError, ("'('", "regular expression")),
    (lambda ctx: ctx.receiver("x" * 256), hf.ConfigError, ("255",)),
    (lambda ctx: ctx.source("t", options={"ume_flight_sise": 1}), hf.ConfigError, ("ume_flight_size",)),
    (lambda ctx: ctx.source("t", options={"ume_flight_size": 0}), hf.ConfigError, ("ume_flight_size", "0", "1")),
    (lambda ctx: ctx.source("t", options={"ume_flight_size": "many"}), hf.ConfigError, ("many",)),
    (lambda ctx: ctx.source("t", options={"ring_size": 1000}), hf.ConfigError, ("1000", "power of two", "65536")),
    (lambda ctx: ctx.source("t", options={"ring_size": 1 << 16, "fragment_size": 1 << 20}), hf.ConfigError, ("16352",)),
    (lambda ctx: ctx.source("t", options={"use_late_join": 0}), hf.ConfigError, ("receiver",)),
    (lambda ctx: ctx.source("t", options={"ume_store_name": ["a b"]}), hf.ConfigError, ("a b", "31")),
    (lambda ctx: ctx.source("t", options={"ume_store": ["10.0.0.1:1:0:0"]}), hf.ConfigError, ("10.0.0.1", "loopback")),
    (
        lambda ctx: ctx.receiver("t", options={"ume_use_ack_batching": 1, "ume_explicit_ack_only": 1}),
        hf.ConfigError,
        ("ume_use_ack_batching", "ume_explicit_ack_only"),
    ),
    (lambda ctx: ctx.poll(0), hf.UsageError, ("sequential",)),
]


@pytest.mark.parametrize(("call", "kind", "words"), BAD_CALLS)
def test_a_wrong_argument_of_a_context_is_named(
    ctx: hf.Context, call: Callable[[hf.Context], object], kind: type[hf.Error], words: tuple[str, ...]
) -> None:
    with pytest.raises(kind) as error:
        call(ctx)
    one_line(error.value, *words)


@pytest.mark.parametrize("name", ["", "a/b", "..", "x" * 65, "spa ce"])
def test_a_wrong_domain_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_DOMAIN", name or "/")
    with pytest.raises(hf.ConfigError) as error:
        hf.Context(name)
    one_line(error.value, repr(name or "/"), "64")


def test_a_session_id_out_of_range_is_named(domain: str) -> None:
    with pytest.raises(hf.ConfigError) as error:
        hf.Context(domain, session_id=2**64 - 1)
    one_line(error.value, "session", str(2**64 - 2))


WRONG_ROWS = [
    np.zeros(8, np.uint8),
    np.zeros((2, 2, 2), np.uint8),
    np.zeros((2, 8), np.int32),
    np.zeros((8, 16), np.uint8)[:, ::2],
    np.zeros((8, 16), np.uint8)[::-1],
    {b"a", b"b"},
    b"bytes",
]


@pytest.mark.parametrize("rows", WRONG_ROWS, ids=lambda rows: str(getattr(rows, "shape", type(rows).__name__)))
def test_rows_of_another_shape_are_refused(src: hf.Source, rows: Any) -> None:
    with pytest.raises(hf.UsageError) as error:
        src.send_batch(rows)
    one_line(error.value, "np.ascontiguousarray")
    assert src.next_sequence_number == 0


def test_no_rows_are_refused(src: hf.Source) -> None:
    with pytest.raises(hf.UsageError, match="no rows"):
        src.send_batch(np.zeros((0, 8), np.uint8))


def test_what_is_no_buffer_is_a_type_error(src: hf.Source) -> None:
    for wrong in ("text", 7, None, ["text"], (b"a", 7), [[b"a"]]):
        with pytest.raises(TypeError):
            src.send(wrong)
    with pytest.raises(BufferError):
        src.send(memoryview(b"abcdef")[::2])
    assert src.next_sequence_number == 0


@pytest.mark.parametrize("data", ["text", [b"a", "text"]], ids=["one", "several"])
def test_text_is_told_how_it_becomes_bytes(src: hf.Source, data: object) -> None:
    for client_data in (None, 1):
        with pytest.raises(TypeError, match=r"text.*\.encode\(\)"):
            src.send(data, client_data=client_data)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda data: np.frombuffer(data, np.uint8)])
def test_any_contiguous_buffer_is_sent(ctx: hf.Context, src: hf.Source, kind: Callable[[bytes], Any]) -> None:
    rcv = ctx.receiver("ticks")
    assert src.send(kind(b"payload")) == 0
    message = rcv.receive(timeout=SHORT)
    assert message is not None
    assert bytes(message) == b"payload"


PARTS: list[tuple[Any, bytes]] = [
    ([b"one", b"two"], b"onetwo"),
    ((b"one", bytearray(b"-"), memoryview(b"two")), b"one-two"),
    ([np.arange(3, dtype=np.uint8), b"x"], b"\0\1\2x"),
    ([b"", b"x"], b"x"),
    ([], b""),
    ([bytes(900), b"x" * 900], bytes(900) + b"x" * 900),
]


@pytest.mark.parametrize(("parts", "whole"), PARTS)
def test_parts_are_sent_as_one_message(ctx: hf.Context, src: hf.Source, parts: Any, whole: bytes) -> None:
    rcv = ctx.receiver("ticks")
    number = src.send(parts)
    assert number == len(whole) // 1001
    message = rcv.receive(timeout=SHORT)
    assert message is not None
    assert bytes(message) == whole
    assert message.sequence_number == number


def test_parts_that_are_too_large_together_are_refused_before_they_are_joined(src: hf.Source) -> None:
    with pytest.raises(hf.MessageTooLargeError) as error:
        src.send([bytes(10_000), bytes(10_000)])
    one_line(error.value, "20000", "16384", "ring_size")
    assert src.next_sequence_number == 0


def test_parts_that_do_not_follow_each_other_in_memory_are_no_buffer(src: hf.Source) -> None:
    with pytest.raises(BufferError):
        src.send([b"a", memoryview(b"abcdef")[::2]])
    assert src.next_sequence_number == 0


def test_a_message_that_can_never_fit_names_the_option(src: hf.Source) -> None:
    with pytest.raises(hf.MessageTooLargeError) as error:
        src.send(bytes(20_000))
    one_line(error.value, "20000", "16384", "ring_size")
    assert (error.value.size, error.value.limit, error.value.option) == (20_000, 16_384, "ring_size")
    assert src.next_sequence_number == 0


def test_a_claim_is_one_fragment_at_most(src: hf.Source) -> None:
    with pytest.raises(hf.MessageTooLargeError) as error:
        src.claim(1001)
    one_line(error.value, "1001")
    for wrong in (-1, "x"):
        with pytest.raises((OverflowError, TypeError, hf.UsageError)):
            src.claim(wrong)  # type: ignore[arg-type]
    with src.claim(1000) as view:
        view[:] = bytes(1000)
    assert src.next_sequence_number == 1


def test_a_claim_ends_once(src: hf.Source) -> None:
    claim = src.claim(1)
    with claim as view:
        view[:] = b"x"
    with pytest.raises(hf.UsageError, match="ended"), claim:
        pass


def test_a_claim_that_nobody_ends_is_aborted(src: hf.Source) -> None:
    src.claim(1)
    assert src.send(b"the first message") == 0
    claim = src.claim(1)
    kept = claim.__enter__()[:]
    del claim
    with pytest.raises(hf.UsageError, match="claim is open"):
        src.send(b"these bytes may still be written by whoever has the view")
    kept.release()


def test_a_wrong_sequence_info_is_refused(src: hf.Source) -> None:
    with pytest.raises(hf.UsageError) as error:
        src.send(b"x", sequence_info="never")
    one_line(error.value, "'never'", '"always"')


def test_waiting_for_what_was_not_sent_is_refused(src: hf.Source) -> None:
    with pytest.raises(hf.UsageError) as error:
        src.wait_stable(5, timeout=0)
    one_line(error.value, "5", "0")


def test_a_batch_of_no_messages_is_refused(ctx: hf.Context) -> None:
    with pytest.raises(hf.UsageError, match="0"):
        ctx.receiver("ticks").receive_batch(0)


def test_nothing_is_pickled(ctx: hf.Context, src: hf.Source) -> None:
    rcv = ctx.receiver("ticks")
    src.send(b"one")
    src.send(b"two")
    message = rcv.receive(timeout=SHORT)
    batch = rcv.receive_batch(timeout=SHORT)
    assert batch is not None
    for handle in (ctx, src, rcv, message, batch, batch.extract_ack()):
        with pytest.raises(hf.UsageError, match="pickled") as error:
            pickle.dumps(handle)
        one_line(error.value)
        assert error.value.hint, "advice"


def test_closed_things_say_so(domain: str) -> None:
    ctx = hf.Context(domain)
    src = ctx.source("ticks", options={"ring_size": 1 << 16})
    src.wait_registered(SHORT)
    rcv = ctx.receiver("ticks")
    src.send(b"x")
    message = rcv.receive(timeout=SHORT)
    assert message is not None
    ack = message.extract_ack()
    for handle in (src, rcv, ctx):
        handle.close()
        handle.close()
    calls: list[Callable[[], object]] = [
        lambda: src.send(b"x"),
        lambda: src.send(b"x", timeout=0, client_data=1),
        lambda: src.send_batch(np.zeros((1, 1), np.uint8)),
        lambda: src.claim(1),
        lambda: src.wait_registered(0),
        lambda: rcv.receive(0),
        lambda: rcv.receive(None),
        lambda: rcv.receive_batch(1, 0),
        lambda: ctx.source("t"),
        lambda: ctx.receiver("t"),
        ack.send,
    ]
    for call in calls:
        with pytest.raises(hf.ClosedError) as error:
            call()
        one_line(error.value, "closed")
    with pytest.raises(ValueError, match="released"):
        bytes(message.data)
    message.release()


def test_an_explicit_ack_where_acks_are_batched_is_refused(ctx: hf.Context, src: hf.Source) -> None:
    rcv = ctx.receiver("ticks")
    src.send(b"x")
    message = rcv.receive(timeout=SHORT)
    assert message is not None
    with pytest.raises(hf.UsageError) as error:
        message.send_explicit_ack()
    one_line(error.value, "ume_explicit_ack_only=1")


def test_errors_survive_a_pickle(src: hf.Source) -> None:
    with pytest.raises(hf.MessageTooLargeError) as error:
        src.send(bytes(20_000))
    again = pickle.loads(pickle.dumps(error.value))
    assert str(again) == str(error.value)
    assert again.limit == 16_384
