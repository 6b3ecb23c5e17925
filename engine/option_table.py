"""Every option: name, scopes, form, unit, default, limits, meaning. The only list: validation and the reference in
bindings/README.md are made from it.

UM's names letter for letter, and UM's units and defaults; where a default differs, the doc says so. What UM needs a network
for, and one host does not, is in `network_options`; what UM has and shared memory makes pointless says "no effect".
Source: um_semantics I.2, I.3, K; CONTRACT.md, "Defaults that differ from UM".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from . import option_values as values

CONTEXT, SOURCE, RECEIVER, STORE = "context", "source", "receiver", "store"
WILDCARD = "wildcard_receiver"
"""A scope of configuration files: in Python a receiver with a pattern is a receiver, and takes these options as well."""

GIB = 1 << 30
MIB = 1 << 20

Parser = Callable[[object], object]


@dataclass(frozen=True, slots=True)
class Option:
    """One option. `type` parses a value; `minimum` and `maximum` bound a number; `choices` are the words it may be.

    `default` None: not set, or worked out from other options. `aliases` are other names that UM has for it.
    """

    name: str
    scopes: tuple[str, ...]
    type: Parser
    default: object = None
    unit: str = ""
    minimum: int | None = None
    maximum: int | None = None
    choices: tuple[str, ...] = ()
    doc: str = ""
    aliases: tuple[str, ...] = ()

    @property
    def attribute(self) -> str:
        """Name of the value in a view."""
        return self.name.replace("-", "_")


_WAITS = ("busy_spin", "yield", "backoff", "block")
_MS = 2**31 - 1
_READS_RING = "no effect: a store reads the ring itself, until it has everything"
_READS_FILES = "no effect: a receiver reads the stores' files itself, and asks nobody"
_LATER = "only 0 in this version"
_LIVES = "no effect: a process is alive until its lock is free"

# fmt: off
ROWS = (
    # Identity and the context
    Option("context_name", (CONTEXT,), values.name, None,
           doc="what others are shown, and what chooses a context of an XML file; Context(name=...) goes before it"),
    Option("ume_session_id", (CONTEXT, SOURCE, RECEIVER), values.session, 0,
           doc="64-bit number that stands for its RegIDs at all stores; 0 = the context's, or none"),
    Option("operational_mode", (CONTEXT,), values.word, "embedded", choices=("embedded", "sequential"),
           doc="sequential: no thread, call poll()"),
    Option("callback_errors", (CONTEXT, SOURCE, RECEIVER), values.word, "log", choices=("log", "raise"),
           doc="an exception of a callback is logged and counted; raise: the next call that waits raises it as well"),
    Option("wait_strategy", (CONTEXT, SOURCE, RECEIVER, STORE), values.word, "backoff", choices=_WAITS,
           doc="how a thread waits for the next message or acknowledgement"),
    Option("ume_ack_batching_interval", (CONTEXT,), values.integer, 100, "ms", 1, _MS,
           doc="how often what was consumed is acknowledged, where acks are batched"),
    Option("ume_user_receiver_registration_id", (CONTEXT,), values.integer, 0, "", 0, 2**32 - 1,
           doc="identity that delivery confirmations and liveness callbacks carry; 0 = none"),
    Option("ume_receiver_liveness_interval", (CONTEXT,), values.integer, 0, "ms", 0, _MS,
           doc="of a receiving context: shows itself to sources so often; 0 = not at all"),
    Option("ume_source_liveness_timeout", (CONTEXT,), values.integer, 0, "ms", 0, _MS,
           doc="of a sending context: silence after which a receiving context is looked at; 0 = not at all"),
    Option("ume_receiving_context_notification_function", (CONTEXT,), values.function_pair,
           doc="(create, delete), per receiving context"),
    Option("ume_proactive_keepalive_interval", (CONTEXT,), values.keepalive, 3000, "ms", 0, _MS, doc=_LIVES),

    # Stores and registration
    Option("ume_store", (SOURCE,), values.store_addresses, (),
           doc="stores by port: 127.0.0.1:PORT:RegID:Group; not in this version"),
    Option("ume_store_name", (SOURCE,), values.store_names, (),
           doc="stores by name: name:RegID:Group; only group 0 in this version"),
    Option("ume_store_group", (SOURCE,), values.store_groups, (),
           doc="declared groups: index:size, ascending; stores beyond the size are backups"),
    Option("ume_store_behavior", (SOURCE,), values.word, "qc", choices=("qc", "rr"),
           doc="quorum/consensus; rr is taken as qc, with a warning"),
    Option("ume_registration_interval", (SOURCE, RECEIVER), values.integer, 3000, "ms", 1, _MS,
           doc="how long all stores are waited for before a quorum will do"),
    Option("ume_activity_timeout", (SOURCE, RECEIVER), values.integer, 0, "ms", 0, _MS,
           doc="from close or death, not forgotten before; the RegID is free at once; 0 = the store's"),
    Option("ume_state_lifetime", (SOURCE, RECEIVER), values.integer, 0, "ms", 0, _MS,
           doc="from close or death until the stores forget; the shorter of this and the store's; 0 = the store's"),
    Option("ume_store_activity_timeout", (SOURCE,), values.integer, 10000, "ms", 1, _MS,
           doc="silence after which a store is looked at"),
    Option("ume_store_check_interval", (SOURCE,), values.integer, 500, "ms", 1, _MS,
           doc="period of looking at stores and at the age of messages"),
    Option("ume_use_store", (RECEIVER,), values.flag, True, doc="0: joins as a streaming receiver, without recovery"),
    Option("ume_consensus_sequence_number_behavior", (SOURCE, RECEIVER), values.word, "majority",
           choices=("lowest", "majority", "highest"), doc="first number from the stores' reports (UM: highest)"),
    Option("ume_registration_extended_function", (RECEIVER,), values.function,
           doc="called before registration with a store; returns the RegID to ask for, 0 = any",
           aliases=("ume_registration_function",)),

    # Retention, stability, flight
    Option("retransmit_retention_size_threshold", (SOURCE,), values.integer, 0, "bytes", 0, 2**40,
           doc="nothing is released while less is retained", aliases=("ume_retention_size_threshold",)),
    Option("retransmit_retention_size_limit", (SOURCE,), values.integer, None, "bytes", 8192, 2**40,
           doc="retained at most, headers included; then the oldest is reclaimed by force",
           aliases=("ume_retention_size_limit",)),
    Option("retransmit_retention_age_threshold", (SOURCE,), values.integer, 0, "s", 0, _MS,
           doc="nothing younger is released"),
    Option("ume_retention_unique_confirmations", (SOURCE,), values.integer, 0, "receivers", 0, 128,
           doc="receivers that must have consumed a message before it is released and leaves the flight"),
    Option("ume_retention_intragroup_stability_behavior", (SOURCE,), values.word, "quorum",
           choices=("quorum", "all-active", "all"), doc="when a message is stable in a group of stores"),
    Option("ume_retention_intergroup_stability_behavior", (SOURCE,), values.word, "any",
           choices=("any", "all-active", "majority", "all"), doc="when a message is stable over the groups"),
    Option("ume_message_stability_notification", (SOURCE,), values.integer, None, "", 0, 3,
           doc="0 none, 1 per fragment and store, 2 per message, 3 both; not given: coalesced ranges (UM: 1)"),
    Option("ume_confirmed_delivery_notification", (SOURCE,), values.integer, 0, "", 0, 3,
           doc="0 none, 1 per fragment, 2 per message, 3 both"),
    Option("ume_message_stability_timeout", (SOURCE,), values.integer, 5000, "ms", 0, _MS, doc=_READS_RING),
    Option("ume_message_stability_lifetime", (SOURCE,), values.integer, 1200000, "ms", 0, _MS,
           doc="a message that is not stable by then is given up and reclaimed by force; 0 = never"),
    Option("ume_flight_size", (SOURCE,), values.integer, 1000, "fragments", 1, _MS,
           doc="sent and not yet stable and confirmed, at most"),
    Option("ume_flight_size_bytes", (SOURCE,), values.integer, None, "bytes", 0, 2**62,
           doc="payload in flight, at most; 0 = off; 3/4 of retransmit_retention_size_limit (UM: off)"),
    Option("ume_flight_size_behavior", (SOURCE,), values.word, "block", choices=("block", "notify"),
           doc="at the flight size: sends wait, or go on and an event tells"),
    Option("ume_force_reclaim_function", (SOURCE,), values.function, doc="called for each message reclaimed by force"),
    Option("use_extended_reclaim_notifications", (SOURCE,), values.flag, True,
           doc="0: MessageReclaimed without flags: forced cannot be told"),
    Option("ring_size", (SOURCE,), values.integer, 0, "bytes", 0, 1 << 34,
           doc="a power of two; 0 = the next one from 1.25 x retransmit_retention_size_limit"),
    Option("fragment_size", (SOURCE,), values.integer, None, "bytes", 32, 2**31,
           doc="largest payload of one fragment; less by default in a small ring",
           aliases=("transport_lbtipc_datagram_max_size",)),
    Option("receiver_pin_timeout", (SOURCE,), values.integer, 100, "ms", 0, _MS,
           doc="how long a receiver's view may hold the source back"),
    Option("late_join", (SOURCE,), values.flag, True, doc="0: no recovery from this source (UM: forced on)",
           aliases=("ume_late_join",)),

    # Smart sources
    Option("smart_src_max_message_length", (SOURCE,), values.integer, 368, "bytes", 1, 2**31,
           doc="largest message of a smart source"),
    Option("smart_src_retention_buffer_count", (SOURCE,), values.power_of_two, 1024, "messages", 1, 2**24,
           doc="messages that a smart source retains; beyond, the oldest is reclaimed by force"),
    Option("smart_src_user_buffer_count", (SOURCE,), values.power_of_two, 32, "buffers", 1, 2**24,
           doc="no effect: claim() lends the ring itself"),

    # Receiving, acknowledging, recovery
    Option("use_late_join", (RECEIVER,), values.flag, True, doc="0: live messages only (UM: forced on)",
           aliases=("ume_use_late_join",)),
    Option("ume_use_ack_batching", (RECEIVER,), values.flag, None,
           doc="1: acks at the context's interval; 0: each at once; default: 1 unless ume_explicit_ack_only"),
    Option("ume_explicit_ack_only", (RECEIVER,), values.flag, False, doc="1: only send_explicit_ack() acknowledges"),
    Option("ume_allow_confirmed_delivery", (RECEIVER,), values.flag, True,
           doc="0: its acks are no delivery confirmations for the source"),
    Option("ume_application_outstanding_maximum", (RECEIVER,), values.integer, 0, "fragments", 0, 2**20,
           doc="delivery pauses while so many are delivered and not consumed; 0 = never"),
    Option("retransmit_request_maximum", (RECEIVER,), values.integer, 0, "messages", 0, 2**62,
           doc="start at most so far back from the newest; 0 = no limit"),
    Option("retransmit_request_message_timeout", (RECEIVER,), values.integer, 10000, "ms", 0, _MS,
           doc="a number that nobody has by then is lost", aliases=("otr_request_message_timeout",)),
    Option("retransmit_request_interval", (RECEIVER,), values.integer, 500, "ms", 0, _MS, doc=_READS_FILES),
    Option("retransmit_request_outstanding_maximum", (RECEIVER,), values.integer, 10, "messages", 0, _MS,
           doc=_READS_FILES),
    Option("retransmit_message_caching_proximity", (RECEIVER,), values.integer, 5000, "messages", 0, 2**62,
           doc="no effect: the ring is the cache, and a receiver joins it as soon as it has the next number"),
    Option("use_otr", (RECEIVER,), values.integer, 2, "", 0, 2,
           doc="no effect: what the ring no longer has is always read from the stores"),
    Option("ordered_delivery", (RECEIVER,), values.delivery_order, 1,
           doc="1: in order; -1: in order of arrival, live messages before recovery has ended; 0 (fragments) is refused"),
    Option("delivery_control_maximum_burst_loss", (RECEIVER,), values.integer, 1024, "fragments", 0, _MS,
           doc="a longer gap is told as one UnrecoverableLossBurst; it never gives up recovery"),
    Option("delivery_control_loss_check_interval", (RECEIVER,), values.integer, 0, "ms", 0, _MS,
           doc="no effect: a gap is seen at once"),
    Option("ume_recovery_sequence_number_info_function", (RECEIVER,), values.function,
           doc="called before recovery; may assign info.low_sequence_number"),
    Option("source_notification_function", (RECEIVER,), values.function_pair, doc="(create, delete), per source"),
    Option("pattern_type", (RECEIVER, WILDCARD), values.word, "pcre", choices=("pcre", "regex", "prefix"),
           doc="of a wildcard receiver's pattern: a regular expression that is found anywhere in a topic, or a prefix"),

    # Not in this version: only UM's default is accepted, so that UM's files pass
    Option("ume_proxy_source", (SOURCE,), values.only_zero, 0, doc=_LATER),
    Option("ume_receiver_paced_persistence", (SOURCE, RECEIVER), values.only_zero, 0, doc=_LATER),
    Option("ume_repository_ack_on_reception", (SOURCE,), values.only_zero, 0, doc=_LATER),
    Option("ume_repository_size_threshold", (SOURCE,), values.only_zero, 0, "bytes", doc=_LATER),
    Option("ume_repository_size_limit", (SOURCE,), values.only_zero, 0, "bytes", doc=_LATER),
    Option("ume_repository_disk_file_size_limit", (SOURCE,), values.only_zero, 0, "bytes", doc=_LATER),
    Option("ume_write_delay", (SOURCE,), values.only_zero, 0, "ms", doc=_LATER),
    Option("smart_src_enable_spectrum_channel", (SOURCE,), values.only_zero, 0, doc=_LATER),
    Option("smart_src_message_property_int_count", (SOURCE,), values.only_zero, 0, doc=_LATER),

    # Stores
    Option("repository-size-limit", (STORE,), values.integer, 256 * MIB, "bytes", 196992, 2**46,
           doc="what a memory store keeps per source (UM: 50331648)"),
    Option("repository-size-threshold", (STORE,), values.integer, None, "bytes", 0, 2**46,
           doc="kept before anything is let go; default: the limit (UM: 1024)"),
    Option("repository-disk-file-size-limit", (STORE,), values.integer, GIB, "bytes", 196992, 2**46,
           doc="what a disk store keeps per source (UM: 104857600)"),
    Option("source-activity-timeout", (STORE,), values.integer, 30000, "ms", 0, _MS,
           doc="a source that has closed or died is not forgotten before; its RegID is free at once"),
    Option("receiver-activity-timeout", (STORE,), values.integer, 30000, "ms", 0, _MS,
           doc="a receiver that has closed or died is not forgotten before; its RegID is free at once"),
    Option("source-state-lifetime", (STORE,), values.integer, 0, "ms", 0, _MS,
           doc="from a source's close or death until it is forgotten, with its messages; 0 = never"),
    Option("receiver-state-lifetime", (STORE,), values.integer, 0, "ms", 0, _MS,
           doc="from a receiver's close or death until its acknowledgement is forgotten; 0 = never"),
    Option("source-check-interval", (STORE,), values.integer, 750, "ms", 1, _MS,
           doc="period of looking at these timeouts"),
    Option("receiver-new-registration-rollback", (STORE,), values.integer, 2**31 - 1, "messages", 1, 2**31 - 1,
           doc="a receiver starts at most so far behind the newest message"),
)
# fmt: on
BY_ANY_NAME: dict[str, Option] = {name: row for row in ROWS for name in (row.name, *row.aliases)}
