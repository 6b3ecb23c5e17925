"""What options say together: groups of stores (docs/semantics.md E.1), warnings, values that UM has and this
does not, layers."""

from __future__ import annotations

import pytest

from holdfast.engine.errors import ConfigError
from holdfast.engine.options.resolve import Layer, Rule, resolve
from holdfast.engine.options.values import Group

NAMES = [f"s{i}" for i in range(25)]

GOOD_GROUPS: list[tuple[list[str], list[str], int]] = [
    (NAMES, [], 25),  # no statement: one group of all
    (["a", "b", "c"], ["0:3"], 3),
    (["a", "b", "c", "d"], ["0:3"], 4),  # one backup
    (["a:0:1", "b:0:2"], ["1:1", "2:1"], 2),
    ([f"s{i}:0:{i}" for i in range(5)], [f"{i}:1" for i in range(5)], 5),
    (["a", "a", "b"], ["0:2"], 2),  # one reference
]


@pytest.mark.parametrize(("stores", "groups", "count"), GOOD_GROUPS)
def test_stores_and_groups_that_fit(stores: list[str], groups: list[str], count: int) -> None:
    view = resolve("source", {"ume_store_name": stores, "ume_store_group": groups})
    assert len(view.stores) == count
    assert view.ume_store_group == tuple(Group(*map(int, group.split(":"))) for group in groups)


BAD_GROUPS: list[tuple[object, object, str]] = [
    ([*NAMES, "one_more"], [], "26 stores, the maximum is 25"),
    (["a", "b"], ["0:3"], "Group 0 does not have enough stores specified, 2 of 3"),
    (["a:0:1"], ["0:1", "1:1"], "Group 0 does not have enough stores specified, 0 of 1"),
    (["a", "a"], ["0:2"], "Group 0 does not have enough stores specified, 1 of 2"),
    (["a:0:5"], [], "a group from 0 to 4"),
    (["a"], ["5:1"], "a group from 0 to 4"),
    (["a:0:0", "b:0:1"], ["1:1", "0:1"], "ascending"),
    (["a:0:0", "b:0:0"], ["0:1", "0:1"], "ascending"),
    (["a:1", "a:2"], [], "each store once"),
    (["a:0:0", "a:0:1"], ["0:1", "1:1"], "each store once"),
]


@pytest.mark.parametrize(("stores", "groups", "words"), BAD_GROUPS)
def test_stores_and_groups_that_do_not_fit(stores: object, groups: object, words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        resolve("source", {"ume_store_name": stores, "ume_store_group": groups})
    assert words in str(raised.value)


def test_zero_clears_each_list() -> None:
    view = resolve(
        "source",
        {
            "ume_store": ["127.0.0.1:7", "0.0.0.0:0"],
            "ume_store_name": ["a", "0.0.0.0:0", "b"],
            "ume_store_group": ["0:9", "0:0", "0:1"],
        },
    )
    assert [str(store) for store in view.stores] == ["b"]
    assert view.ume_store_group == (Group(0, 1),)


# Values -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "given", "kept"),
    [
        ("ume_store_behavior", "Quorum-Consensus", "qc"),
        ("ume_retention_intragroup_stability_behavior", "all-stores", "all"),
        ("ume_retention_intergroup_stability_behavior", "ANY-GROUP", "any"),
        ("ume_retention_intergroup_stability_behavior", "all-groups", "all"),
        ("ume_flight_size_behavior", "Notify", "notify"),
    ],
)
def test_ums_words_in_any_form(name: str, given: str, kept: str) -> None:
    assert getattr(resolve("source", {name: given}), name) == kept


def test_order_of_delivery_is_in_order_or_of_arrival() -> None:
    assert resolve("receiver", {"ordered_delivery": "-1"}).ordered_delivery == -1
    for wrong in (0, 2, -2):
        with pytest.raises(ConfigError, match="0, fragments one by one, is not in this version"):
            resolve("receiver", {"ordered_delivery": wrong})


@pytest.mark.parametrize(("given", "good"), [(0, True), (1499, False), (1500, True), (-1, False)])
def test_the_keepalive_interval_is_off_or_long(given: int, good: bool) -> None:
    if good:
        assert resolve("context", {"ume_proactive_keepalive_interval": given}).ume_proactive_keepalive_interval == given
    else:
        with pytest.raises(ConfigError, match="ume_proactive_keepalive_interval"):
            resolve("context", {"ume_proactive_keepalive_interval": given})


# Warnings ---------------------------------------------------------------------------------------------------


def test_round_robin_is_taken_as_quorum_consensus_with_a_warning() -> None:
    view = resolve("source", {"ume_store_behavior": "rr"})
    assert view.ume_store_behavior == "qc"
    assert [warning.partition(":")[0] for warning in view.warnings] == ["ume_store_behavior = rr is taken as qc"]


@pytest.mark.parametrize(("size", "warned"), [(1_000_000, False), (1_000_001, True)])
def test_a_very_large_flight_size_is_warned_of(size: int, warned: bool) -> None:
    assert bool(resolve("source", {"ume_flight_size": size}).warnings) is warned


# Layers -----------------------------------------------------------------------------------------------------


def test_what_is_given_goes_before_layers_and_a_higher_layer_before_a_lower() -> None:
    outer = resolve(
        "context", {"wait_strategy": "block"}, None, [Layer({"ume_session_id": 9, "callback_errors": "raise"})]
    )
    high = Layer({"ume_flight_size": 2, "wait_strategy": "yield", "ume_session_id": 7})
    low = Layer({"ume_flight_size": 3, "ume_registration_interval": 4, "callback_errors": "log", "not_of_a_source": 1})
    view = resolve("source", {"ume_store_check_interval": 1}, outer, [high, low])
    assert view.ume_store_check_interval == 1
    assert view.ume_flight_size == 2
    assert view.ume_registration_interval == 4
    assert view.wait_strategy == "block", "the context was given it"
    assert view.ume_session_id == 7, "what a file says of the context is inherited through its own layer alone"
    assert view.callback_errors == "log"
    assert view.given("ume_flight_size")
    assert view.given("ume_registration_interval")
    assert not view.given("ume_flight_size_bytes")


def test_session_zero_leaves_it_to_the_next() -> None:
    layers = [Layer({"ume_session_id": 0}), Layer({"ume_session_id": 5})]
    assert resolve("source", {"ume_session_id": 0}, None, layers).ume_session_id == 5


def test_a_default_that_depends_on_an_option_of_a_layer_follows_it() -> None:
    assert resolve("source", {}, None, [Layer({"retransmit_retention_size_limit": 8192})]).ume_flight_size_bytes == 6144


@pytest.mark.parametrize(
    ("rule", "value", "good"),
    [
        (Rule(True, ((False, 7),), "a.xml", 3), 7, False),
        (Rule(True, ((False, 7),), "a.xml", 3), 8, True),
        (Rule(False, ((True, 7),), "a.xml", 3), 7, True),
        (Rule(False, ((True, 7),), "a.xml", 3), 8, False),
        (Rule(True, ((False, 7), (True, 7)), "a.xml", 3), 7, True),
        (Rule(False, ((True, 7), (False, 7)), "a.xml", 3), 7, False),
        (Rule(False, (), "a.xml", 3), 1000, False),  # the default is not exempt
    ],
)
def test_a_rule_holds_for_what_is_in_force(rule: Rule, value: int, good: bool) -> None:
    layers = [Layer({}, {"ume_flight_size": rule}), Layer({}, {"ume_flight_size": Rule(not good, (), "below", 1)})]
    if good:
        assert resolve("source", {"ume_flight_size": value}, None, layers).ume_flight_size == value
    else:
        with pytest.raises(ConfigError, match=rf"ume_flight_size = {value} is forbidden here") as raised:
            resolve("source", {"ume_flight_size": value}, None, layers)
        assert (raised.value.file, raised.value.line) == ("a.xml", 3)


# Receiver-paced persistence (docs/semantics.md J.1) ---------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"ume_receiver_paced_persistence": 1}, "without ume_flight_size_bytes"),
        ({"ume_receiver_paced_persistence": 1, "ume_flight_size_bytes": 0}, "without ume_flight_size_bytes"),
        ({"ume_receiver_paced_persistence": 2, "ume_flight_size_bytes": 1000}, "= 2: expected 0 or 1"),
        ({"ume_receiver_paced_persistence": 3}, "the maximum is 2"),
    ],
)
def test_a_receiver_paced_source_says_how_much_may_be_in_flight(given: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        resolve("source", given)
    assert words in str(raised.value)


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_a_receiver_says_whether_it_may_block(mode: int) -> None:
    assert resolve("receiver", {"ume_receiver_paced_persistence": mode}).ume_receiver_paced_persistence == mode


def test_what_only_a_receiver_paced_source_has_use_for_is_warned_of() -> None:
    idle = {"ume_repository_size_limit": 10**6, "ume_write_delay": 5}
    assert resolve("source", idle).warnings == (
        "ume_repository_size_limit has no effect: ume_receiver_paced_persistence is 0",
        "ume_write_delay has no effect: ume_receiver_paced_persistence is 0",
    )
    assert resolve("source", {**idle, "ume_receiver_paced_persistence": 1, "ume_flight_size_bytes": 9}).warnings == ()
