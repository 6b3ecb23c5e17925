"""What a smart source is made of: sizes from two options, and what it refuses (docs/semantics.md J.3)."""

from __future__ import annotations

import logging

import pytest

from holdfast.engine.errors import ConfigError
from holdfast.engine.options.resolve import Options, resolve
from holdfast.engine.source.smart_source import smart_options


def settled(**given: object) -> Options:
    """As Context.smart_source does it."""
    return resolve("source", smart_options("quotes", given, resolve("source", given)))


@pytest.mark.parametrize(
    ("given", "limit", "ring", "fragment"),
    [
        ({}, 1024 * 416, 1 << 20, 368),
        ({"smart_src_max_message_length": 369}, 1024 * 416, 1 << 20, 369),
        ({"smart_src_max_message_length": 385}, 1024 * 448, 1 << 20, 385),
        ({"smart_src_retention_buffer_count": 4096}, 4096 * 416, 1 << 22, 368),
        ({"smart_src_retention_buffer_count": 1}, 8192, 1 << 16, 368),
        (
            {"smart_src_retention_buffer_count": 1, "smart_src_max_message_length": 1 << 20},
            (1 << 20) + 32,
            1 << 23,
            1 << 20,
        ),
        ({"smart_src_max_message_length": 1}, 1024 * 64, 1 << 17, 32),
    ],
)
def test_ring_and_retention_follow_from_count_and_length(
    given: dict[str, object], limit: int, ring: int, fragment: int
) -> None:
    options = settled(**given)
    assert options.retransmit_retention_size_limit == limit
    assert (options.ring_size, options.fragment_size) == (ring, fragment)


@pytest.mark.parametrize("mode", [1, 3])
def test_stability_notification_per_fragment_is_refused(mode: int) -> None:
    with pytest.raises(ConfigError, match=f"ume_message_stability_notification = {mode}.*0 or 2"):
        settled(ume_message_stability_notification=mode)


@pytest.mark.parametrize("mode", [0, 2])
def test_stability_notification_none_and_per_message_are_allowed(mode: int) -> None:
    assert settled(ume_message_stability_notification=mode).ume_message_stability_notification == mode


@pytest.mark.parametrize("mode", [1, 2, 3])
def test_delivery_confirmation_is_refused(mode: int) -> None:
    with pytest.raises(ConfigError, match=f"ume_confirmed_delivery_notification = {mode}.*0 only"):
        settled(ume_confirmed_delivery_notification=mode)


def test_unique_confirmations_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"ume_retention_unique_confirmations = 1.*0 only"):
        settled(ume_retention_unique_confirmations=1)


@pytest.mark.parametrize("count", [1000, 0])
def test_a_count_that_is_no_power_of_two_is_refused(count: int) -> None:
    with pytest.raises(ConfigError, match="smart_src_retention_buffer_count"):
        settled(smart_src_retention_buffer_count=count)


def test_more_memory_than_a_ring_may_have_is_refused_by_both_names() -> None:
    with pytest.raises(ConfigError, match=r"buffer_count = 16777216 .*message_length = 4096 .*17179869184"):
        settled(smart_src_retention_buffer_count=1 << 24, smart_src_max_message_length=4096)


RETENTION = {
    "retransmit_retention_size_limit": 1 << 22,
    "retransmit_retention_size_threshold": 1 << 20,
    "retransmit_retention_age_threshold": 7,
    "ring_size": 1 << 23,
    "fragment_size": 1000,
}


def test_retransmit_retention_and_ring_size_are_ignored_with_one_line_of_information(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "holdfast")
    plain = settled()
    assert caplog.messages == []
    given = settled(**RETENTION)
    assert [getattr(given, name) for name in RETENTION] == [getattr(plain, name) for name in RETENTION]
    assert given.retransmit_retention_age_threshold == given.retransmit_retention_size_threshold == 0
    assert len(caplog.messages) == 1
    assert all(name in caplog.messages[0] for name in RETENTION)


def test_their_old_names_are_ignored_too() -> None:
    given = settled(ume_retention_size_limit=1 << 22, transport_lbtipc_datagram_max_size=1000)
    assert given.retransmit_retention_size_limit == settled().retransmit_retention_size_limit


@pytest.mark.parametrize(("flight", "said"), [(1023, 0), (1024, 1), (5000, 1)])
def test_a_retention_count_that_does_not_exceed_the_flight_size_is_told(
    flight: int, said: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "holdfast")
    settled(ume_flight_size=flight)
    assert len(caplog.messages) == said
    assert all("1024" in text and str(flight) in text for text in caplog.messages)


def test_messages_are_counted_and_bytes_only_if_asked_for() -> None:
    assert settled().ume_flight_size_bytes == 0
    assert settled(ume_flight_size_bytes=5000).ume_flight_size_bytes == 5000
