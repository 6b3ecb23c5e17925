"""The table against UM's (docs/semantics.md K): every option has UM's scope, unit and default, or is listed
as different."""

from __future__ import annotations

import pytest

from holdfast.engine.errors import ConfigError
from holdfast.engine.options.reference import reference
from holdfast.engine.options.resolve import resolve
from holdfast.engine.options.table import BY_ANY_NAME, ROWS, WHOLE_STORE
from holdfast.engine.options.unsupported import has_no_effect

C, S, R = ("context",), ("source",), ("receiver",)
SR, CSR = ("source", "receiver"), ("context", "source", "receiver")

UM: list[tuple[str, tuple[str, ...], str, object]] = [
    # K.1
    ("ume_session_id", CSR, "", 0),
    ("ume_store", S, "", ()),
    ("ume_store_name", S, "", ()),
    ("ume_store_group", S, "", ()),
    ("ume_store_behavior", S, "", "qc"),
    ("ume_registration_interval", SR, "ms", 3000),
    ("ume_registration_extended_function", R, "", None),
    ("ume_registration_function", R, "", None),
    ("ume_recovery_sequence_number_info_function", R, "", None),
    ("ume_activity_timeout", SR, "ms", 0),
    ("ume_state_lifetime", SR, "ms", 0),
    ("ume_store_activity_timeout", S, "ms", 10000),
    ("ume_store_check_interval", S, "ms", 500),
    ("ume_proactive_keepalive_interval", C, "ms", 3000),
    ("ume_proxy_source", S, "", 0),
    ("ume_use_store", R, "", 1),
    ("ume_consensus_sequence_number_behavior", SR, "", "majority"),
    ("context_name", C, "", None),
    # K.2
    ("retransmit_retention_size_threshold", S, "bytes", 0),
    ("retransmit_retention_size_limit", S, "bytes", 25165824),
    ("retransmit_retention_age_threshold", S, "s", 0),
    ("ume_retention_size_threshold", S, "bytes", 0),
    ("ume_retention_size_limit", S, "bytes", 25165824),
    ("ume_retention_unique_confirmations", S, "count", 0),
    ("ume_retention_intragroup_stability_behavior", S, "", "quorum"),
    ("ume_retention_intergroup_stability_behavior", S, "", "any"),
    ("ume_message_stability_notification", S, "", 1),
    ("ume_confirmed_delivery_notification", S, "", 0),
    ("ume_allow_confirmed_delivery", R, "", 1),
    ("ume_message_stability_timeout", S, "ms", 5000),
    ("ume_message_stability_lifetime", S, "ms", 1200000),
    ("ume_flight_size", S, "messages/fragments", 1000),
    ("ume_flight_size_bytes", S, "bytes", 0),
    ("ume_flight_size_behavior", S, "", "block"),
    ("ume_force_reclaim_function", S, "", None),
    ("use_extended_reclaim_notifications", S, "", 1),
    # K.3
    ("ume_use_ack_batching", R, "", 1),
    ("ume_ack_batching_interval", C, "ms", 100),
    ("ume_explicit_ack_only", R, "", 0),
    ("ume_application_outstanding_maximum", R, "fragments", 0),
    ("ume_receiver_liveness_interval", C, "ms", 0),
    ("ume_source_liveness_timeout", C, "ms", 0),
    ("ume_user_receiver_registration_id", C, "", 0),
    ("ume_receiving_context_notification_function", C, "", None),
    # K.4
    ("ume_receiver_paced_persistence", SR, "", 0),
    ("ume_repository_ack_on_reception", S, "", 0),
    ("ume_repository_size_threshold", S, "bytes", 0),
    ("ume_repository_size_limit", S, "bytes", 0),
    ("ume_repository_disk_file_size_limit", S, "bytes", 0),
    ("ume_write_delay", S, "ms", 0),
    # K.5
    ("late_join", S, "", 0),
    ("ume_late_join", S, "", 0),
    ("use_late_join", R, "", 1),
    ("ume_use_late_join", R, "", 1),
    ("retransmit_message_caching_proximity", R, "messages", 5000),
    ("retransmit_request_interval", R, "ms", 500),
    ("retransmit_request_maximum", R, "messages", 0),
    ("retransmit_request_message_timeout", R, "ms", 10000),
    ("retransmit_request_outstanding_maximum", R, "messages", 10),
    ("use_otr", R, "", 2),
    ("otr_request_message_timeout", R, "ms", 60000),
    ("ordered_delivery", R, "", 1),
    ("delivery_control_maximum_burst_loss", R, "fragments", 1024),
    ("delivery_control_loss_check_interval", R, "ms", 0),
    ("source_notification_function", R, "", None),
    # K.6
    ("operational_mode", C, "", "embedded"),
    ("transport_lbtipc_datagram_max_size", C, "bytes", 65535),
    ("smart_src_max_message_length", S, "bytes", 368),
    ("smart_src_user_buffer_count", S, "buffers", 32),
    ("smart_src_retention_buffer_count", S, "buffers", 1024),
    ("smart_src_enable_spectrum_channel", S, "", 0),
    ("smart_src_message_property_int_count", S, "count", 0),
    ("pattern_type", ("receiver", "wildcard_receiver"), "", "pcre"),
]

DIFFERENT: dict[str, dict[str, object]] = {
    "ume_message_stability_notification": {"default": None},  # not given: coalesced ranges
    "ume_flight_size_bytes": {"default": 25165824 // 4 * 3},  # a fast source waits before it is forced to reclaim
    "late_join": {"default": True},  # UM forces it on where it matters
    "ume_late_join": {"default": True},
    "otr_request_message_timeout": {"default": 10000},  # one way of recovery, one timeout
    "transport_lbtipc_datagram_max_size": {"default": 65536, "scopes": S},  # of the source's own ring
    "ume_write_delay": {"default": None},  # 0 must be able to lower a store's value: not given is something else
    "ume_retention_unique_confirmations": {"unit": "receivers"},
    "ume_flight_size": {"unit": "fragments"},
    "smart_src_retention_buffer_count": {"unit": "messages"},
    "smart_src_message_property_int_count": {"unit": ""},
}

UM_STORE: list[tuple[str, str, object]] = [
    # I.2
    ("allow-proxy-source", "", 0),
    ("proxy-source-repo-quorum-required", "", 0),
    ("retransmission-request-processing-rate", "requests/s", 262144),
    # I.3
    ("repository-type", "", "memory"),
    ("repository-size-threshold", "bytes", 1024),
    ("repository-size-limit", "bytes", 50331648),
    ("repository-age-threshold", "s", 0),
    ("repository-disk-file-size-limit", "bytes", 104857600),
    ("repository-disk-file-preallocate", "", 0),
    ("repository-disk-async-buffer-length", "bytes", 1024000),
    ("repository-disk-max-async-cbs", "operations", 10000),
    ("repository-disk-max-read-async-cbs", "operations", 10000),
    ("repository-disk-max-write-async-cbs", "operations", 1),
    ("repository-disk-message-checksum", "", 0),
    ("repository-disk-write-delay", "ms", 0),
    ("repository-allow-receiver-paced-persistence", "", 0),
    ("repository-allow-ack-on-reception", "", 0),
    ("source-flight-size-bytes-maximum", "bytes", 4194304),
    ("source-activity-timeout", "ms", 30000),
    ("receiver-activity-timeout", "ms", 30000),
    ("source-state-lifetime", "ms", 0),
    ("receiver-state-lifetime", "ms", 0),
    ("source-check-interval", "ms", 750),
    ("keepalive-interval", "ms", 3000),
    ("receiver-new-registration-rollback", "messages", 2**31 - 1),
    ("proxy-election-interval", "ms", 60000),
    ("stability-ack-minimum-number", "fragments", 1),
    ("stability-ack-interval", "ms", 200),
    ("retransmission-request-forwarding", "", 0),
]

DIFFERENT_STORE: dict[str, object] = {
    "repository-type": None,  # the store's type, which is disk in Python
    "repository-size-limit": 256 << 20,
    "repository-size-threshold": 256 << 20,  # nothing is let go before the limit
    "repository-disk-file-size-limit": 1 << 30,
}

OWN_STORE = {"wait_strategy", "holdfast-acknowledge", "holdfast-scrub-interval"}

OWN = {
    "callback_errors",
    "ume_source_liveness_behavior",
    "wait_strategy",
    "ring_size",
    "receiver_pin_timeout",
    "fragment_size",
}
"""Options of sources, receivers and contexts that UM does not have."""

NETWORK = [
    "transport",
    "transport_lbtipc_transmission_window_size",
    "transport_lbtipc_behavior",
    "transport_lbtipc_sm_interval",
    "transport_lbtipc_id",
    "transport_lbtrm_recycle_receive_buffers",
    "transport_lbtsmx_datagram_max_size",
    "transport_topic_sequence_number_info_interval",
    "transport_topic_sequence_number_info_request_maximum",
    "implicit_batching_interval",
    "implicit_batching_minimum_length",
    "request_tcp_bind_request_port",
    "response_tcp_nodelay",
    "resolver_multicast_address",
    "mem_mgt_callbacks",
    "ume_sri_inter_sri_interval",
    "ume_sri_request_maximum",
    "late_join_info_request_interval",
    "late_join_info_request_maximum",
    "retransmit_initial_sequence_number_request",
    "retransmit_request_generation_interval",
    "otr_request_initial_delay",
    "otr_message_caching_threshold",
    "otr_request_log_alert_cooldown",
    "delivery_control_maximum_total_map_entries",
    "ume_message_map_tablesz",
    "retransmit_message_map_tablesz",
    "fd_management_type",
    "monitor_interval",
    "use_tls",
    "compression",
]


@pytest.mark.parametrize(("name", "scopes", "unit", "default"), UM, ids=[row[0] for row in UM])
def test_an_option_is_as_in_um_or_differs_on_purpose(
    name: str, scopes: tuple[str, ...], unit: str, default: object
) -> None:
    expected = {"scopes": scopes, "unit": unit, "default": default} | DIFFERENT.get(name, {})
    row = BY_ANY_NAME[name]
    assert row.scopes == expected["scopes"]
    assert row.unit == expected["unit"]
    for scope in row.scopes:
        if scope != "wildcard_receiver":
            assert getattr(resolve(scope, {}), row.attribute) == expected["default"]


@pytest.mark.parametrize(("name", "unit", "default"), UM_STORE, ids=[row[0] for row in UM_STORE])
def test_an_option_of_a_store_is_as_in_um_or_differs_on_purpose(name: str, unit: str, default: object) -> None:
    row = BY_ANY_NAME[name]
    assert row.scopes == ("store",)
    assert row.unit == unit
    assert getattr(resolve("store", {}), row.attribute) == DIFFERENT_STORE.get(name, default)


def test_the_table_has_ums_options_of_stores_and_our_own_and_no_other() -> None:
    named = {row.name for row in ROWS if "store" in row.scopes}
    assert named - {BY_ANY_NAME[name].name for name, *_ in UM_STORE} <= OWN_STORE
    assert named >= WHOLE_STORE


@pytest.mark.parametrize(
    ("name", "instead"),
    [("context-name", "name"), ("disk-cache-directory", "cache"), ("disk-state-directory", "directory")],
)
def test_what_a_store_is_called_and_where_it_lies_is_no_option(name: str, instead: str) -> None:
    with pytest.raises(ConfigError, match=rf"use StoreConfig\({instead}=...\)"):
        resolve("store", {name: "x"})


def test_every_difference_is_one() -> None:
    for name, scopes, unit, default in UM:
        for what, value in DIFFERENT.get(name, {}).items():
            assert {"scopes": scopes, "unit": unit, "default": default}[what] != value, name
    assert DIFFERENT.keys() <= {row[0] for row in UM}


def test_the_table_has_ums_options_and_our_own_and_no_other() -> None:
    named = {row.name for row in ROWS if row.scopes != ("store",)}
    assert named == {BY_ANY_NAME[name].name for name, *_ in UM} | OWN


@pytest.mark.parametrize("name", NETWORK)
def test_what_only_a_network_needs_is_not_in_the_table(name: str) -> None:
    assert has_no_effect(name)
    assert name not in BY_ANY_NAME


def test_every_row_explains_itself() -> None:
    assert [row.name for row in ROWS if len(row.doc) < 10] == []
    names = [name for row in ROWS for name in (row.name, *row.aliases)]
    assert sorted(names) == sorted(set(names))


def test_a_default_keeps_its_own_limits() -> None:
    for row in ROWS:
        if isinstance(row.default, int) and not isinstance(row.default, bool):
            assert row.minimum is None or row.minimum <= row.default, row.name
            assert row.maximum is None or row.default <= row.maximum, row.name
        if row.choices and row.default is not None:
            assert row.default in row.choices, row.name


def test_the_reference_shows_what_is_in_force() -> None:
    text = reference()
    assert "| `ume_flight_size` | fragments | `1000` | sent and not yet stable and confirmed, at most |" in text
    assert "| `retransmit_retention_size_limit` | bytes | `25165824` |" in text
    assert "one of `quorum`, `all-active`, `all` |" in text
    assert "also `ume_late_join` |" in text
    assert "| `late_join` |  | `1` |" in text
    assert "| `ume_store` |  | – |" in text
    for scope, heading in (("context", "Context"), ("source", "Source"), ("receiver", "Receiver"), ("store", "Store")):
        part = text.partition(f"### {heading}\n")[2].partition("###")[0]
        assert part.count("\n| `") == sum(scope in row.scopes for row in ROWS)


@pytest.mark.parametrize(
    ("scope", "name", "words"),
    [
        (
            "source",
            "transport",
            "has no effect here: sources, receivers and stores meet in the memory of one host; leave it",
        ),
        ("context", "resolver_multicast_address", "has no effect here"),
        ("receiver", "otr_request_initial_delay", "has no effect here"),
        ("source", "ume_registration_id", "does not exist any more; use ume_store_name = NAME:RegID:Group"),
        ("source", "ume_secondary_store_port", "ume_store = 127.0.0.1:PORT"),
        ("receiver", "ume_retransmit_request_maximum", "use retransmit_request_maximum"),
    ],
)
def test_an_option_without_use_is_refused_in_python_with_the_reason(scope: str, name: str, words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        resolve(scope, {name: "1"})
    assert words in str(raised.value)


@pytest.mark.parametrize("row", [row for row in ROWS if row.doc == "only 0 in this version"], ids=lambda row: row.name)
def test_what_is_not_in_this_version_takes_ums_default_alone(row: object) -> None:
    name, scope = row.name, row.scopes[0]  # type: ignore[attr-defined]
    assert getattr(resolve(scope, {name: "0"}), name) == 0
    with pytest.raises(ConfigError, match=r"expected 0: the rest of it is not in this version"):
        resolve(scope, {name: 1})
