"""Receivers of a pattern (docs/semantics.md A.1): an inner registration per matched topic, also for topics
that appear later."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.receiving import SESSION, SHORT, Told, send, source, take, until

import holdfast as hf
from holdfast.engine.events import receiver as events

if TYPE_CHECKING:
    from collections.abc import Callable

    from process.conftest import ThreadStore

TOPICS = ["quotes.us", "quotes.eu", "trades.us", "my.quotes"]


@pytest.fixture
def store(run_store: Callable[..., ThreadStore]) -> ThreadStore:
    return run_store()


@pytest.mark.parametrize(
    ("pattern", "kind", "matched"),
    [
        ("quotes", "pcre", {"quotes.us", "quotes.eu", "my.quotes"}),
        ("^quotes", "pcre", {"quotes.us", "quotes.eu"}),
        (r"\.us$", "regex", {"quotes.us", "trades.us"}),
        ("quotes", "prefix", {"quotes.us", "quotes.eu"}),
        ("quotes.", "prefix", {"quotes.us", "quotes.eu"}),
        ("", "prefix", set(TOPICS)),
        (".", "prefix", set()),
        ("(", "prefix", set()),
    ],
)
def test_a_pattern_is_found_anywhere_and_a_prefix_at_the_start(
    store: object, pattern: str, kind: str, matched: set[str]
) -> None:
    with hf.Context() as ctx, hf.Context() as other:
        for topic in TOPICS:
            source(ctx, 1, topic=topic)
        told = Told()
        rcv = other.receiver(pattern=pattern, options={"pattern_type": kind}, on_event=told)
        until("it has looked", lambda: told.of(events.NoSource) or told.of(events.RegistrationComplete))
        assert {controller.topic for controller in rcv._all.values()} == matched, "all were there at the first look"


def test_topics_that_appear_later_join_and_each_has_numbers_of_its_own(store: object) -> None:
    told = Told()
    with hf.Context() as ctx, hf.Context() as other:
        source(ctx, 2, topic="quotes.us")
        rcv = other.receiver(pattern="^quotes", on_event=told)
        assert take(rcv, 2) == [0, 1]
        late = source(ctx, 3, topic="quotes.eu")
        seen = []
        for _ in range(3):
            message = rcv.receive(SHORT)
            assert message is not None
            seen.append((message.topic, message.sequence_number))
            message.release()
        assert seen == [("quotes.eu", number) for number in range(3)]
        late.close()
        source(ctx, 1, topic="quotes.jp").close()  # only the store may know it by the time that the receiver looks
        message = rcv.receive(SHORT)
        assert message is not None
        assert message.topic == "quotes.jp"
        told.wait(events.RegistrationComplete, 3)
        assert {event.topic for event in told.of(events.RegistrationComplete)} == {
            "quotes.us",
            "quotes.eu",
            "quotes.jp",
        }


def test_each_topic_keeps_its_own_acknowledgement(store: object) -> None:
    with hf.Context() as ctx, hf.Context(session_id=SESSION) as other:
        sources = [source(ctx, 3, topic=topic) for topic in ("quotes.us", "quotes.eu")]
        with other.receiver(pattern="quotes") as first:
            seen: set[tuple[str, int]] = set()
            while len(seen) < 6:
                message = first.receive(SHORT)
                assert message is not None
                seen.add((message.topic, message.sequence_number))
                if not (message.topic == "quotes.eu" and message.sequence_number > 0):
                    message.release()
        for src in sources:
            send(src, 1)
        again = other.receiver(pattern="quotes")
        rest: set[tuple[str, int]] = set()
        while len(rest) < 4:
            message = again.receive(SHORT)
            assert message is not None
            rest.add((message.topic, message.sequence_number))
            message.release()
        assert rest == {("quotes.us", 3), ("quotes.eu", 1), ("quotes.eu", 2), ("quotes.eu", 3)}


def test_a_bad_pattern_is_a_config_error_that_says_what_is_wrong() -> None:
    with hf.Context() as ctx:
        with pytest.raises(hf.ConfigError, match=r"pattern '\('.*unterminated"):
            ctx.receiver(pattern="(")
        with pytest.raises(hf.ConfigError, match="a topic or a pattern"):
            ctx.receiver("quotes", pattern="quotes")
        with pytest.raises(hf.ConfigError, match="pattern_type"):
            ctx.receiver(pattern="x", options={"pattern_type": "glob"})


def test_no_source_of_a_pattern_is_told_with_the_pattern(store: object) -> None:
    told = Told()
    with hf.Context() as ctx:
        ctx.receiver(pattern="^none", on_event=told)
        assert told.wait(events.NoSource).topic == "/^none/"
