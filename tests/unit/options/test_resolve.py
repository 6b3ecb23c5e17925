"""The option table: names, forms of values, limits, inheritance, and what is refused with which words."""

from __future__ import annotations

import re

import pytest

from holdfast.engine.errors import ConfigError
from holdfast.engine.options.resolve import Layer, resolve
from holdfast.engine.options.table import ROWS
from holdfast.engine.options.values import Group, StoreAddress

MIB = 1 << 20


@pytest.mark.parametrize("scope", ["context", "source", "receiver", "store"])
def test_a_view_has_every_option_of_its_scope_and_no_other(scope: str) -> None:
    view = resolve(scope, {})
    for option in ROWS:
        assert hasattr(view, option.attribute) is (scope in option.scopes)
        assert not view.given(option.name)


DEFAULTS = [
    ("context", "ume_ack_batching_interval", 100),
    ("context", "operational_mode", "embedded"),
    ("context", "wait_strategy", "backoff"),
    ("context", "callback_errors", "log"),
    ("source", "ume_registration_interval", 3000),
    ("source", "ume_flight_size", 1000),
    ("source", "ume_flight_size_bytes", 25165824 // 4 * 3),
    ("source", "retransmit_retention_size_limit", 25165824),
    ("source", "ring_size", 32 * MIB),
    ("source", "fragment_size", 65536),
    ("source", "receiver_pin_timeout", 100),
    ("source", "ume_consensus_sequence_number_behavior", "majority"),
    ("source", "ume_message_stability_notification", None),
    ("source", "ume_store_activity_timeout", 10000),
    ("source", "ume_store_check_interval", 500),
    ("source", "late_join", True),
    ("source", "stores", ()),
    ("receiver", "use_late_join", True),
    ("receiver", "ume_use_ack_batching", True),
    ("receiver", "ume_explicit_ack_only", False),
    ("receiver", "ume_session_id", 0),
    ("receiver", "retransmit_request_maximum", 0),
    ("store", "repository_size_limit", 256 * MIB),
    ("store", "repository_size_threshold", 256 * MIB),
    ("store", "repository_disk_file_size_limit", 1024 * MIB),
]


@pytest.mark.parametrize(("scope", "name", "value"), DEFAULTS)
def test_defaults_are_those_of_the_contract(scope: str, name: str, value: object) -> None:
    assert getattr(resolve(scope, {}), name) == value


@pytest.mark.parametrize(
    ("given", "value"),
    [
        (42, 42),
        ("42", 42),
        ("0x2A", 42),
        ("052", 42),
        ("0", 0),
        (2**64 - 2, 2**64 - 2),
        ("0xFFFFFFFFFFFFFFFE", 2**64 - 2),
    ],
)
def test_a_session_id_is_a_number_in_any_of_ums_forms(given: object, value: int) -> None:
    assert resolve("source", {"ume_session_id": given}).ume_session_id == value


@pytest.mark.parametrize("given", [2**64 - 1, "0xFFFFFFFFFFFFFFFF", -1, "abc", "089", 1.5, True, None, ""])
def test_a_session_id_that_um_refuses_is_refused(given: object) -> None:
    with pytest.raises(ConfigError, match="ume_session_id"):
        resolve("context", {"ume_session_id": given})


@pytest.mark.parametrize(
    ("context", "own", "effective"), [(5, None, 5), (5, 0, 5), (5, 7, 7), (0, 7, 7), (0, None, 0), (None, None, 0)]
)
def test_the_narrower_session_id_wins_and_zero_means_the_contexts(
    context: int | None, own: int | None, effective: int
) -> None:
    outer = resolve("context", {} if context is None else {"ume_session_id": context})
    for scope in ("source", "receiver"):
        view = resolve(scope, {} if own is None else {"ume_session_id": own}, outer)
        assert view.ume_session_id == effective


def test_what_the_context_was_given_is_inherited_where_both_have_it() -> None:
    outer = resolve("context", {"wait_strategy": "block", "ume_ack_batching_interval": 10})
    assert resolve("source", {}, outer).wait_strategy == "block"
    assert resolve("source", {"wait_strategy": "yield"}, outer).wait_strategy == "yield"
    assert not hasattr(resolve("source", {}, outer), "ume_ack_batching_interval")


ADDRESSES: list[tuple[object, list[StoreAddress]]] = [
    ("127.0.0.1:14567:100:2", [StoreAddress("", 14567, 100, 2)]),
    ("127.0.0.1:14567", [StoreAddress("", 14567, 0, 0)]),
    ("3:127.0.0.1:14567:100:2", [StoreAddress("", 14567, 100, 2)]),
    ("127.0.0.1:14567::2", [StoreAddress("", 14567, 0, 2)]),
    ("localhost:1:2", [StoreAddress("", 1, 2, 0)]),
    (["127.0.0.1:1", "127.0.0.2:2"], [StoreAddress("", 1, 0, 0), StoreAddress("", 2, 0, 0)]),
    ("127.0.0.1:1, 127.0.0.1:2", [StoreAddress("", 1, 0, 0), StoreAddress("", 2, 0, 0)]),
    (["127.0.0.1:1", "0.0.0.0:0", "127.0.0.1:2"], [StoreAddress("", 2, 0, 0)]),
    (["127.0.0.1:1", "127.0.0.1:1"], [StoreAddress("", 1, 0, 0)]),
]


@pytest.mark.parametrize(("given", "stores"), ADDRESSES)
def test_stores_by_port(given: object, stores: list[StoreAddress]) -> None:
    assert list(resolve("source", {"ume_store": given}).stores) == stores


@pytest.mark.parametrize(
    ("given", "stores"),
    [
        ("a:5:1", [StoreAddress("a", 0, 5, 1)]),
        ("a", [StoreAddress("a", 0, 0, 0)]),
        ("a::3", [StoreAddress("a", 0, 0, 3)]),
        ("a:", [StoreAddress("a", 0, 0, 0)]),
        (["a:4294967295", "b-2_C.x:0:4"], [StoreAddress("a", 0, 2**32 - 1, 0), StoreAddress("b-2_C.x", 0, 0, 4)]),
        ([], []),
    ],
)
def test_stores_by_name(given: object, stores: list[StoreAddress]) -> None:
    assert list(resolve("source", {"ume_store_name": given}).stores) == stores


def test_store_indexes_count_addresses_first() -> None:
    view = resolve("source", {"ume_store_name": "a", "ume_store": "127.0.0.1:7"})
    assert [str(store) for store in view.stores] == ["127.0.0.1:7", "a"]


def test_groups_are_kept_in_order() -> None:
    view = resolve("source", {"ume_store_name": ["a:0:0", "b:0:0", "c:0:1"], "ume_store_group": ["0:2", "1:1"]})
    assert view.ume_store_group == (Group(0, 2), Group(1, 1))


REFUSED: list[tuple[str, dict[str, object], str]] = [
    ("source", {"ume_flight_sise": 1}, "did you mean ume_flight_size"),
    ("source", {"no such thing at all": 1}, "does not exist"),
    ("source", {"ume_ack_batching_interval": 1}, "give it to: context"),
    ("store", {"repository_size_limit": 1}, "did you mean repository-size-limit"),
    ("source", {"ume_flight_size": 0}, "source option ume_flight_size = 0: the minimum is 1 fragments"),
    ("source", {"ume_flight_size": 2**31}, "the maximum is 2147483647"),
    ("source", {"ume_flight_size": "many"}, "expected a whole number"),
    ("source", {"ume_flight_size": 1.0}, "expected a whole number"),
    ("source", {"ume_message_stability_notification": 4}, "the maximum is 3"),
    ("context", {"ume_ack_batching_interval": 0}, "the minimum is 1 ms"),
    ("context", {"wait_strategy": "spin"}, "busy_spin, yield, backoff, block"),
    ("context", {"operational_mode": 1}, "expected a word"),
    ("source", {"ume_store": "10.0.0.1:14567"}, "loopback"),
    ("source", {"ume_store": "host.example:14567"}, "loopback"),
    ("source", {"ume_store": "127.0.0.1"}, "127.0.0.1:PORT"),
    ("source", {"ume_store": "127.0.0.1:0"}, "a port from 1"),
    ("source", {"ume_store": "127.0.0.1:65536"}, "a port from 0 to 65535"),
    ("source", {"ume_store": "127.0.0.1:1:4294967296"}, "a RegID"),
    ("source", {"ume_store": "127.0.0.1:1:2:3:4"}, "127.0.0.1:PORT:RegID:Group"),
    ("source", {"ume_store": 7}, "a string or a list"),
    ("source", {"ume_store": [7]}, "a string or a list"),
    ("source", {"ume_store_name": "a b"}, "store name"),
    ("source", {"ume_store_name": "x" * 32}, "1 to 31"),
    ("source", {"ume_store_name": "x" * 128}, "1 to 31 characters A-Z a-z 0-9 _ . + -, not 'xxx"),
    ("source", {"ume_store_name": "x" * 128}, "(128 characters)"),
    (
        "source",
        {"ume_store_name": "a:4294967296"},
        "a RegID (0: the store chooses) from 0 to 4294967295, not '4294967296'",
    ),
    ("source", {"ume_store_group": "5:3"}, "a group from 0 to 4, not '5'"),
    ("source", {"ume_store": "10.0.0.1:14567"}, "give 127.0.0.1:PORT"),
    ("source", {"ume_store_name": [f"s{i}" for i in range(27)]}, "drop 2 of them"),
    (
        "source",
        {"ume_store_name": "a,b", "ume_store_group": "0:5"},
        "name 3 more with group 0, or declare a smaller size",
    ),
    ("source", {"ume_store_name": ["a:0:0", "b:0:1"], "ume_store_group": "0:1"}, "add 1:SIZE to ume_store_group"),
    ("source", {"ume_store_name": "a:1:5"}, "a group from 0 to 4"),
    ("source", {"ume_store_name": "a:-1"}, "a RegID"),
    ("source", {"ume_store_name": [f"s{i}" for i in range(26)]}, "26 stores, the maximum is 25"),
    (
        "source",
        {"ume_store_name": "a", "ume_store_group": "0:3"},
        "Group 0 does not have enough stores specified, 1 of 3",
    ),
    ("source", {"ume_store_name": "a:0:1", "ume_store_group": "0:0,1:1,0:1"}, "ascending"),
    ("source", {"ume_store_name": ["a:0:0", "b:0:1"], "ume_store_group": "0:1"}, "store b is in group 1"),
    ("source", {"ume_store_group": "0"}, "index:size"),
    ("source", {"ring_size": 100000}, "a power of two"),
    ("source", {"ring_size": 65536, "retransmit_retention_size_limit": 65537}, "less than"),
    ("source", {"ring_size": 65536, "fragment_size": 16353}, "allows 16352"),
    ("source", {"late_join": 2}, "0 or 1"),
    ("source", {"late_join": 1, "ume_late_join": 1}, "twice"),
    ("receiver", {"ume_use_ack_batching": 1, "ume_explicit_ack_only": 1}, "exclude each other"),
    ("receiver", {"ume_registration_extended_function": 3}, "a callable"),
    ("receiver", {"source_notification_function": print}, "a pair"),
    ("store", {"repository-size-threshold": 300000000, "repository-size-limit": 200000000}, "repository-size-limit is"),
]


@pytest.mark.parametrize(("scope", "given", "words"), REFUSED)
def test_a_wrong_option_is_refused_in_one_line_that_helps(scope: str, given: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        resolve(scope, given)
    assert words in str(raised.value)
    assert scope in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("given", "batching", "explicit"),
    [
        ({}, True, False),
        ({"ume_explicit_ack_only": 1}, False, True),
        ({"ume_explicit_ack_only": "1", "ume_use_ack_batching": "0"}, False, True),
        ({"ume_use_ack_batching": 0}, False, False),
        ({"ume_explicit_ack_only": 0}, True, False),
    ],
)
def test_explicit_acknowledgement_turns_batching_off(given: dict[str, object], batching: bool, explicit: bool) -> None:
    view = resolve("receiver", given)
    assert (view.ume_use_ack_batching, view.ume_explicit_ack_only) == (batching, explicit)


@pytest.mark.parametrize(
    ("given", "ring", "limit", "fragment"),
    [
        ({}, 32 * MIB, 24 * MIB, 65536),
        ({"retransmit_retention_size_limit": 8192}, 65536, 8192, 16352),
        ({"retransmit_retention_size_limit": 26843545}, 32 * MIB, 26843545, 65536),
        ({"retransmit_retention_size_limit": 26843546}, 64 * MIB, 26843546, 65536),
        ({"ume_retention_size_limit": 52428}, 65536, 52428, 16352),
        ({"ring_size": 65536}, 65536, 52428, 16352),
        ({"ring_size": 64 * MIB}, 64 * MIB, 24 * MIB, 65536),
        ({"ring_size": MIB, "fragment_size": 32}, MIB, MIB // 5 * 4, 32),
    ],
)
def test_ring_retention_and_fragment_fit_each_other(
    given: dict[str, object], ring: int, limit: int, fragment: int
) -> None:
    view = resolve("source", given)
    assert (view.ring_size, view.retransmit_retention_size_limit, view.fragment_size) == (ring, limit, fragment)
    assert ring >= limit * 5 // 4
    assert view.ume_flight_size_bytes == limit // 4 * 3


def test_flight_size_in_bytes_can_be_turned_off_as_in_um() -> None:
    assert resolve("source", {"ume_flight_size_bytes": 0}).ume_flight_size_bytes == 0


def test_callbacks_are_kept_as_they_are() -> None:
    def create(info: object) -> object:
        return info

    view = resolve("receiver", {"source_notification_function": (create, print)})
    assert view.source_notification_function == (create, print)


def test_a_view_is_frozen_and_says_what_was_given() -> None:
    view = resolve("source", {"ume_flight_size": 5})
    with pytest.raises(AttributeError, match="frozen"):
        view.ume_flight_size = 6
    with pytest.raises(AttributeError, match="no option ume_flight_sizes"):
        _ = view.ume_flight_sizes
    assert view.given("ume_flight_size")
    assert repr(view) == "Options(source: ume_flight_size=5)"


def test_a_context_passes_on_what_only_its_sources_and_receivers_have() -> None:
    given = {"ume_flight_size": 7, "use_late_join": 0, "ume_retention_intragroup_stability_behavior": "all"}
    context = resolve("context", given)
    source, receiver = resolve("source", {}, context), resolve("receiver", {}, context)
    assert source.ume_flight_size == 7
    assert source.given("ume_flight_size")
    assert source.ume_retention_intragroup_stability_behavior == "all"
    assert receiver.use_late_join == 0
    assert resolve("source", {"ume_flight_size": 8}, context).ume_flight_size == 8
    with pytest.raises(AttributeError):
        _ = context.ume_flight_size


def test_what_a_context_passes_on_goes_before_files() -> None:
    context = resolve("context", {"ume_flight_size": 7})
    layer = Layer({"ume_flight_size": 9, "ume_flight_size_bytes": 10_000})
    source = resolve("source", {}, context, [layer])
    assert (source.ume_flight_size, source.ume_flight_size_bytes) == (7, 10_000)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"ume_flight_size": 0}, "context option ume_flight_size = 0: the minimum is 1"),
        ({"ume_flight_siz": 7}, "did you mean ume_flight_size"),
        ({"repository-type": "memory"}, "is not an option of a context; give it to: store"),
    ],
)
def test_a_context_refuses_what_nobody_of_its_own_has(given: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        resolve("context", given)
