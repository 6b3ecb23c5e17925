"""Receiver-paced persistence (docs/semantics.md J.1): who may have it, when stability is withheld, what
goes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.engine.options.receiver_paced import (
    BLOCKING,
    NON_BLOCKING,
    Pacing,
    Terms,
    Wanted,
    agree,
    changed,
    mode_refusal,
)
from holdfast.engine.options.topic_rules import TopicOptions, Topics
from holdfast.engine.rules.refusal import Refusal

KIB = 1 << 10
ALLOWED = {
    "repository-allow-receiver-paced-persistence": 1,
    "repository-allow-ack-on-reception": 1,
    "repository-size-threshold": 300 * KIB,
    "repository-size-limit": 400 * KIB,
    "repository-disk-write-delay": 1000,
    "source-flight-size-bytes-maximum": 100 * KIB,
}


def agreed(kind: str = "memory", *, options: dict[str, Any] | None = None, **wanted: Any) -> Terms | Refusal:
    given = {**ALLOWED, **(options or {})}
    rules = Topics(kind, None, {}, [TopicOptions("quotes", "direct", given)]).kept("quotes")
    return agree(Wanted(**{"flight_bytes": 10 * KIB, **wanted}), "quotes", kind, rules)


@pytest.mark.parametrize(
    ("row", "kind", "wanted", "terms"),
    [
        ("the store's limit", "memory", {}, Terms(400 * KIB, 10 * KIB, False)),
        ("a lower limit", "memory", {"size_limit": 200 * KIB}, Terms(200 * KIB, 10 * KIB, False)),
        ("the disk limit", "disk", {}, Terms(1 << 30, 10 * KIB, False)),
        ("a lower disk limit", "disk", {"disk_limit": 1 << 20}, Terms(1 << 20, 10 * KIB, False)),
        ("the largest flight", "disk", {"flight_bytes": 100 * KIB}, Terms(1 << 30, 100 * KIB, False)),
        ("on reception", "disk", {"ack_on_reception": True}, Terms(1 << 30, 10 * KIB, True)),
        ("no delay over a delay", "disk", {"write_delay": 0}, Terms(1 << 30, 10 * KIB, False)),
        ("the store's own delay", "disk", {"write_delay": 1000}, Terms(1 << 30, 10 * KIB, False)),
    ],
)
def test_j1_what_a_source_may_ask_for(row: str, kind: str, wanted: dict[str, Any], terms: Terms) -> None:
    assert agreed(kind, **wanted) == terms, row


@pytest.mark.parametrize(
    ("row", "kind", "options", "wanted", "words"),
    [
        (
            "not allowed",
            "disk",
            {"repository-allow-receiver-paced-persistence": 0},
            {},
            "is not receiver-paced at this store",
        ),
        ("no repository", "no-cache", {}, {}, "no-cache"),
        ("no flight size", "disk", {}, {"flight_bytes": 0}, "ume_flight_size_bytes = 0"),
        (
            "too large a flight",
            "disk",
            {},
            {"flight_bytes": 100 * KIB + 1},
            "source-flight-size-bytes-maximum = 102400",
        ),
        (
            "a higher threshold",
            "memory",
            {},
            {"size_threshold": 300 * KIB + 1},
            "ume_repository_size_threshold = 307201",
        ),
        ("a higher limit", "memory", {}, {"size_limit": 400 * KIB + 1}, "ume_repository_size_limit = 409601"),
        ("a higher disk limit", "disk", {}, {"disk_limit": (1 << 30) + 1}, "ume_repository_disk_file_size_limit"),
        ("a longer delay", "disk", {}, {"write_delay": 1001}, "ume_write_delay = 1001"),
        (
            "on reception",
            "disk",
            {"repository-allow-ack-on-reception": 0},
            {"ack_on_reception": True},
            "ack-on-reception is 0",
        ),
        (
            "threshold = flight",
            "memory",
            {},
            {"size_threshold": 10 * KIB},
            "repository-size-threshold = 10240 must be more",
        ),
        (
            "limit = flight",
            "disk",
            {},
            {"disk_limit": 10 * KIB},
            "repository-disk-file-size-limit = 10240 must be more",
        ),
    ],
)
def test_j1_what_a_store_rejects_names_both_values(
    row: str, kind: str, options: dict[str, Any], wanted: dict[str, Any], words: str
) -> None:
    options = {name: value for name, value in options.items() if kind != "no-cache"}
    refused = agreed(kind, options=options, **wanted)
    assert isinstance(refused, Refusal), row
    assert refused.code == "receiver_paced"
    assert "Problem with RPP configs" in refused.text
    assert words in refused.text


def test_j1_a_source_registers_again_with_the_same_or_not_at_all() -> None:
    first = Wanted(10 * KIB, size_limit=5)
    assert changed(None, None) is None
    assert changed(first, Wanted(10 * KIB, size_limit=5)) is None
    for kept, asked, words in (
        (None, first, "source-paced first, and asks for receiver-paced"),
        (first, None, "receiver-paced first, and asks for source-paced"),
        (first, Wanted(10 * KIB, size_limit=6), "size_limit 5 first, 6 now"),
        (first, Wanted(11 * KIB, size_limit=5), "flight_bytes 10240 first, 11264 now"),
    ):
        refused = changed(kept, asked)
        assert refused is not None
        assert words in refused.text


@pytest.mark.parametrize(
    ("paced", "asked", "kept", "granted"),
    [
        (False, 0, None, True),
        (False, 1, None, False),
        (False, 2, None, False),
        (True, 0, None, False),
        (True, 1, None, True),
        (True, 2, None, True),
        (True, 1, 1, True),
        (True, 2, 1, False),
        (True, 1, 2, False),
    ],
)
def test_j1_a_receivers_mode_is_the_sources_and_stays(paced: bool, asked: int, kept: int | None, granted: bool) -> None:
    refused = mode_refusal(paced, asked, kept)
    assert (refused is None) is granted
    assert refused is None or refused.code == "receiver_paced"


# Pacing: 1,000 bytes of room beside a flight of 200; messages of 100 bytes ----------------------------------

TERMS = Terms(1200, 200, False)


def paced(low: int = 0, next_sqn: int = 0, payload: int = 0, terms: Terms = TERMS) -> Pacing:
    return Pacing(terms, low, next_sqn, payload)


def send(it: Pacing, *numbers: int) -> None:
    """This many messages are stored, one by one."""
    for number in numbers:
        it.stored(number, number * 100)


@pytest.mark.parametrize(
    ("acks", "ack_payload"),
    [
        ([], 2000),  # nobody waits for the ten that are stored
        ([(0, BLOCKING)], 1000),
        ([(4, BLOCKING)], 1400),
        ([(4, BLOCKING), (9, BLOCKING)], 1400),  # the slowest decides
        ([(4, NON_BLOCKING), (9, BLOCKING)], 1900),
        ([(4, NON_BLOCKING)], 2000),
        ([(10, BLOCKING)], 2000),
    ],
)
def test_j1_stability_is_withheld_when_exactly_one_flight_size_of_room_is_left(
    acks: list[tuple[int, int]], ack_payload: int
) -> None:
    it = paced()
    send(it, *range(1, 11))
    turn = it.turn(acks)
    assert turn.ack_payload == ack_payload
    assert turn.ack == 10
    assert not it.withheld


def test_j1_what_is_stored_beyond_is_acknowledged_when_receivers_have_made_room() -> None:
    it = paced()
    send(it, *range(1, 13))
    waiting = it.turn([(0, BLOCKING)])
    assert (waiting.ack, waiting.release, it.withheld) == (10, 0, True)
    assert it.turn([(1, BLOCKING)]).ack == 11
    done = it.turn([(12, BLOCKING)])
    assert (done.ack, done.release, it.withheld) == (12, 12, False)


@pytest.mark.parametrize(
    ("acks", "release"),
    [
        ([], 10),
        ([(0, BLOCKING)], 0),
        ([(7, BLOCKING), (3, BLOCKING)], 3),
        ([(7, BLOCKING), (3, NON_BLOCKING)], 3),
        ([(10, BLOCKING), (10, NON_BLOCKING)], 10),
    ],
)
def test_j1_a_message_goes_when_all_who_were_there_have_acknowledged_it(
    acks: list[tuple[int, int]], release: int
) -> None:
    it = paced()
    send(it, *range(1, 11))
    assert it.turn(acks).release == release


def test_j1_full_with_non_blocking_receivers_alone_the_oldest_go() -> None:
    it = paced()
    send(it, *range(1, 16))
    turn = it.turn([(0, NON_BLOCKING), (15, BLOCKING)])
    assert turn.release == 5, "ten messages fit beside the flight"
    assert not it.withheld
    assert it.turn([(0, NON_BLOCKING), (15, BLOCKING)]).release == 5


def test_j1_what_a_blocking_receiver_waits_for_never_goes_for_a_non_blocking_one() -> None:
    it = paced()
    send(it, *range(1, 16))
    assert it.turn([(0, NON_BLOCKING), (2, BLOCKING)]).release == 2


def test_j1_a_receiver_that_is_forgotten_waits_for_nothing_any_more() -> None:
    it = paced()
    send(it, *range(1, 13))
    assert it.turn([(0, BLOCKING), (12, BLOCKING)]).release == 0
    assert it.turn([(12, BLOCKING)]).release == 12


def test_what_goes_never_comes_back() -> None:
    it = paced()
    send(it, *range(1, 11))
    assert it.turn([(5, BLOCKING)]).release == 5
    assert it.turn([(3, BLOCKING)]).release == 5


def test_a_store_that_was_restarted_counts_what_its_log_holds() -> None:
    it = paced(low=100, next_sqn=112, payload=1200)
    held = it.turn([(100, BLOCKING)])
    assert (held.ack, held.release, it.withheld) == (100, 100, True)
    it.stored(112, 1200)
    assert it.turn([(112, BLOCKING)]) == (112, 2200, 112)


def test_an_incarnation_that_begins_below_is_paced_from_its_start() -> None:
    it = paced()
    send(it, *range(1, 11))
    assert it.turn([(10, BLOCKING)]).release == 10
    assert it.begun(6, 1000) == 1000
    assert it.turn([(6, BLOCKING)]).release == 6
    it.stored(8, 1200)
    turn = it.turn([(6, BLOCKING)])
    assert (turn.release, turn.ack) == (6, 8)


@pytest.mark.parametrize(("start", "payload"), [(0, 0), (6, 600), (10, 1000)])
def test_what_an_incarnation_makes_void_takes_no_room(start: int, payload: int) -> None:
    it = paced()
    send(it, *range(1, 11))
    assert it.turn([(0, BLOCKING)]).ack == 10
    assert it.begun(start, 1000) == payload
    it.stored(start + 12, payload + 1200)
    turn = it.turn([(0, BLOCKING)])
    assert turn.ack_payload == 1000
    assert turn.ack == start, "a message is acknowledged when it fits with all that is left"
    assert it.withheld


def test_an_incarnation_that_begins_between_two_known_sizes_counts_the_greater() -> None:
    it = paced()
    it.stored(4, 400)
    it.stored(8, 800)
    assert it.begun(6, 1000) == 800


def test_an_incarnation_that_begins_behind_what_is_known_takes_everything_into_account() -> None:
    it = paced()
    it.stored(4, 400)
    assert it.begun(9, 900) == 900, "five more were stored since the last look"


def test_sizes_are_kept_for_a_bounded_count_of_numbers() -> None:
    it = paced(terms=Terms(1_200_000, 200_000, False))
    for number in range(1, 100_000):
        it.stored(number, number * 10)
    assert len(it._numbers) <= 1200
    half = it.turn([(50_000, BLOCKING)])
    assert half.release == 50_000
    assert 1_490_000 < half.ack_payload <= 1_500_000, "never more room than there is"


def test_wanted_travels_and_is_kept_as_it_is() -> None:
    wanted = Wanted(5, 1, 2, 3, 4, True)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(wanted), type=Wanted) == wanted
