"""UM's options that are not in the option table, and why: a network, old names, or machinery that is not
here.

A UM configuration file is full of them, so a file may have them, with one warning. In Python nobody needs
them: there they are mistakes. Source: docs/semantics.md K, columns "net" and "Default"; the names are those
of UM 6.17.
"""

from __future__ import annotations

__all__ = ["FILES_ONLY", "REMOVED", "has_no_effect"]

FILES_ONLY = "has no effect here: sources, receivers and stores meet in the memory of one host"

REMOVED = {
    "ume_registration_id": "ume_store_name = NAME:RegID:Group",
    "ume_retransmit_request_generation_interval": "nothing: it has no effect",
    "ume_retransmit_request_interval": "retransmit_request_interval",
    "ume_retransmit_request_maximum": "retransmit_request_maximum",
    "ume_retransmit_request_outstanding_maximum": "retransmit_request_outstanding_maximum",
}
"""Options that UM itself has removed or renamed -> what to write instead."""
REMOVED |= {
    f"ume_{rank}_store_{part}": "ume_store_name, or ume_store = 127.0.0.1:PORT, once per store"
    for rank in ("primary", "secondary", "tertiary")
    for part in ("address", "port")
}

PREFIXES = (
    "dbl_",
    "delivery_control_",
    "hf_",
    "implicit_batching_",
    "late_join_info_",
    "mim_",
    "monitor_",
    "otr_",
    "queue_",
    "request_tcp_",
    "resolution_",
    "resolver_",
    "response_session_",
    "response_tcp_",
    "tls_",
    "transport_",
    "ume_sri_",
    "umq_",
)
"""Families: transports and their sockets, topic resolution, what asks a source or a store over the network,
batching of datagrams, monitoring, hot failover, queues."""

NAMES = frozenset(
    {
        "broker",
        "channel_map_tablesz",
        "compatibility_include_pre_um_6_0_behavior",
        "compression",
        "datagram_acceleration_functions",
        "default_interface",
        "disable_extended_topic_resolution_message_options",
        "duplicate_delivery",
        "dynamic_fragmentation_reduction",
        "event_queue_name",
        "fd_management_type",
        "file_descriptor_management_behavior",
        "mem_mgt_callbacks",
        "multiple_receive_maximum_datagrams",
        "network_compatibility_mode",
        "null_channel_behavior",
        "onload_acceleration_stack_name",
        "rcv_sync_cache",
        "rcv_sync_cache_timeout",
        "receive_thread_pool_size",
        "receiver_callback_service_time_enabled",
        "retransmit_initial_sequence_number_request",
        "retransmit_message_map_tablesz",
        "retransmit_request_generation_interval",
        "source_includes_topic_index",
        "transport",
        "ud_acceleration",
        "ume_message_map_tablesz",
        "unrecognized_channel_behavior",
        "use_hotlink",
        "use_tls",
        "use_transport_thread",
    }
)


def has_no_effect(name: str) -> bool:
    """Tell whether UM has this option and shared memory has no use for it. Options of the table come first:
    ask them before."""
    return name in NAMES or name.startswith(PREFIXES)
