"""Every option: name, scopes, form, unit, default, limits, meaning. The only list: validation and the
reference in bindings/README.md are made from it.

UM's names letter for letter, and UM's units and defaults; where a default differs, the doc says so. What UM
needs a network for, and one host does not, is in `network_options`; what UM has and shared memory makes
pointless says "no effect". Source: docs/semantics.md I.2, I.3, K; bindings/README.md, "Options".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from . import values

CONTEXT, SOURCE, RECEIVER, STORE = "context", "source", "receiver", "store"
WILDCARD = "wildcard_receiver"
"""A scope of configuration files: in Python a receiver with a pattern is a receiver, and takes these options
as well."""

GIB = 1 << 30
MIB = 1 << 20

Parser = Callable[[object], object]


@dataclass(frozen=True, slots=True)
class Option:
    """One option. `type` parses a value; `minimum` and `maximum` bound a number; `choices` are the words it
    may be.

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
_MS_LIFETIME = 2**46  # UM: an unsigned long; 2**31 ms are not 25 days
_READS_RING = "no effect: a store reads the ring itself, until it has everything"
_READS_FILES = "no effect: a receiver reads the stores' files itself, and asks nobody"
_LATER = "only 0 in this version"
_LIVES = "no effect: a process is alive until its lock is free"
_WRITES = "no effect: messages are written at once; what all receivers have acknowledged is removed again"
_LOWERS = "receiver-paced: lowers the store's own value; 0 = as the store has it"
_ONE_ACK = (
    "no effect: an acknowledgement is one number on the board, after each group commit: there is nothing to batch"
)

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
    Option("ume_source_liveness_behavior", (CONTEXT,), values.word, "death", choices=("death", "silence"),
           doc="of a sending context: what ends a receiving context, its proved death, or silence alone, as in UM"),
    Option("ume_receiving_context_notification_function", (CONTEXT,), values.function_pair,
           doc="(create, delete), per receiving context"),
    Option("ume_proactive_keepalive_interval", (CONTEXT,), values.keepalive, 3000, "ms", 0, _MS, doc=_LIVES),

    # Stores and registration
    Option("ume_store", (SOURCE,), values.store_addresses, (),
           doc="stores by port: 127.0.0.1:PORT:RegID:Group"),
    Option("ume_store_name", (SOURCE,), values.store_names, (),
           doc="stores by name: name:RegID:Group"),
    Option("ume_store_group", (SOURCE,), values.store_groups, (),
           doc="declared groups: index:size, ascending; stores beyond the size are backups"),
    Option("ume_store_behavior", (SOURCE,), values.word, "qc", choices=("qc", "rr"),
           doc="quorum/consensus; rr is taken as qc, with a warning"),
    Option("ume_registration_interval", (SOURCE, RECEIVER), values.integer, 3000, "ms", 1, _MS,
           doc="how long all stores are waited for before a quorum will do"),
    Option("ume_activity_timeout", (SOURCE, RECEIVER), values.integer, 0, "ms", 0, _MS,
           doc="from close or death, not forgotten before; the RegID is free at once; 0 = the store's"),
    Option("ume_state_lifetime", (SOURCE, RECEIVER), values.integer, 0, "ms", 0, _MS_LIFETIME,
           doc="from close or death until the stores forget; the shorter of this and the store's; 0 = the store's"),
    Option("ume_store_activity_timeout", (SOURCE,), values.integer, 10000, "ms", 1, _MS,
           doc="a store that does nothing for so long (stopped, or its disk is) does not count until it goes on"),
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
           doc="delivery pauses while this many are delivered and not consumed; 0 = never"),
    Option("retransmit_request_maximum", (RECEIVER,), values.integer, 0, "messages", 0, 2**62,
           doc="start at most so far back from the newest; 0 = no limit"),
    Option("retransmit_request_message_timeout", (RECEIVER,), values.integer, 10000, "ms", 0, _MS,
           doc="how long a number that nobody has is waited for, before that is told", aliases=("otr_request_message_timeout",)),
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

    # Receiver-paced persistence, and proxies
    Option("ume_receiver_paced_persistence", (SOURCE, RECEIVER), values.integer, 0, "", 0, 2,
           doc="1: messages stay until all receivers have acknowledged them, and then go; the stores must allow it, the source "
               "must give ume_flight_size_bytes, and its receivers say 1 too, or 2: never blocks the source"),
    Option("ume_repository_ack_on_reception", (SOURCE,), values.flag, False,
           doc="receiver-paced: 1: stable means in the store's pages, before the sync to disk"),
    Option("ume_repository_size_threshold", (SOURCE,), values.integer, 0, "bytes", 0, 2**46, doc=_LOWERS),
    Option("ume_repository_size_limit", (SOURCE,), values.integer, 0, "bytes", 0, 2**46, doc=_LOWERS),
    Option("ume_repository_disk_file_size_limit", (SOURCE,), values.integer, 0, "bytes", 0, 2**46, doc=_LOWERS),
    Option("ume_write_delay", (SOURCE,), values.integer, None, "ms", 0, _MS, doc=_WRITES),
    Option("ume_proxy_source", (SOURCE,), values.flag, False,
           doc="1: when it is dead, one of its stores says that it stands in for it; needs a RegID or a session ID"),

    # Not in this version: only UM's default is accepted, so that UM's files pass
    Option("smart_src_enable_spectrum_channel", (SOURCE,), values.only_zero, 0, doc=_LATER),
    Option("smart_src_message_property_int_count", (SOURCE,), values.only_zero, 0, doc=_LATER),

    # Stores: the whole store (docs/semantics.md I.2)
    Option("allow-proxy-source", (STORE,), values.flag, False,
           doc="1: stands in for a dead source that wants it (ume_proxy_source)"),
    Option("proxy-source-repo-quorum-required", (STORE,), values.flag, False,
           doc="no effect: only a store that has the source's messages ever stands in for it"),
    Option("retransmission-request-processing-rate", (STORE,), values.integer, 262144, "requests/s", 0, _MS,
           doc=_READS_FILES),
    Option("holdfast-scrub-interval", (STORE,), values.integer, 3600, "s", 0, 2**31 - 1,
           doc="each log is looked through when it is opened and then so often, and what is damaged or missing is copied from "
               "another store; 0 = only when it is opened"),

    # Stores: per topic (docs/semantics.md I.3)
    Option("repository-type", (STORE,), values.word, None, choices=("disk", "memory", "no-cache"),
           doc="where messages are kept; no-cache: nowhere, only who is registered and acknowledged what, and such a store never "
               "acknowledges; default: the store's type (UM: memory)"),
    Option("holdfast-acknowledge", (STORE,), values.word, None, choices=("disk", "memory"),
           doc="what stable means: synced to disk, or in the store's shared pages; default: as the type implies"),
    Option("repository-size-limit", (STORE,), values.integer, 256 * MIB, "bytes", 196992, 2**46,
           doc="what a memory repository keeps at most, per source (UM: 50331648)"),
    Option("repository-size-threshold", (STORE,), values.integer, None, "bytes", 0, 2**46,
           doc="above it a memory repository lets its oldest messages go; default: the limit (UM: 1024)"),
    Option("repository-age-threshold", (STORE,), values.integer, 0, "s", 0, _MS,
           doc="a memory repository lets go what is so much older than its newest message; 0 = never"),
    Option("repository-disk-file-size-limit", (STORE,), values.integer, GIB, "bytes", 196992, 2**46,
           doc="what a disk repository keeps, per source; its files take an eighth more (64 MiB at most), and up to 16 MiB after "
               "a burst. Receiver-paced: bytes of payload; in the files each fragment takes 32 bytes more, in steps of 32 (UM: "
               "104857600)"),
    Option("repository-disk-file-preallocate", (STORE,), values.flag, False,
           doc="no effect: the next segment of a log is always made ahead"),
    Option("repository-disk-async-buffer-length", (STORE,), values.integer, 1024000, "bytes", 65664, _MS,
           doc="no effect: blocks of up to 256 KiB are written, as large as what has come meanwhile"),
    Option("repository-disk-max-async-cbs", (STORE,), values.integer, 10000, "operations", 1, _MS, doc=_READS_FILES,
           aliases=("repository-disk-max-read-async-cbs",)),
    Option("repository-disk-max-write-async-cbs", (STORE,), values.integer, 1, "operations", 1, _MS,
           doc="no effect: one group commit at a time, in order"),
    Option("repository-disk-message-checksum", (STORE,), values.flag, False,
           doc="no effect: every message has a checksum, and every reader verifies it"),
    Option("repository-disk-write-delay", (STORE,), values.integer, 0, "ms", 0, _MS, doc=_WRITES),
    Option("repository-allow-receiver-paced-persistence", (STORE,), values.flag, False,
           doc="1: sources may ask that messages stay until all receivers have acknowledged them"),
    Option("repository-allow-ack-on-reception", (STORE,), values.flag, False,
           doc="1: receiver-paced sources may ask for stability before the sync to disk"),
    Option("source-flight-size-bytes-maximum", (STORE,), values.integer, 4194304, "bytes", 1, 2**46,
           doc="largest ume_flight_size_bytes of a receiver-paced source"),
    Option("source-activity-timeout", (STORE,), values.integer, 30000, "ms", 0, _MS,
           doc="a source that has closed or died is not forgotten before; its RegID is free at once"),
    Option("receiver-activity-timeout", (STORE,), values.integer, 30000, "ms", 0, _MS,
           doc="a receiver that has closed or died is not forgotten before; its RegID is free at once"),
    Option("source-state-lifetime", (STORE,), values.integer, 0, "ms", 0, _MS_LIFETIME,
           doc="from a source's close or death until it is forgotten, with its messages, unless somebody needs "
               "them still (docs/semantics.md A.4); 0 = never"),
    Option("receiver-state-lifetime", (STORE,), values.integer, 0, "ms", 0, _MS_LIFETIME,
           doc="from a receiver's close or death until its acknowledgement is forgotten; 0 = never, or at once if ephemeral"),
    Option("source-check-interval", (STORE,), values.integer, 750, "ms", 1, _MS,
           doc="period of looking at these timeouts; of all topics the shortest"),
    Option("keepalive-interval", (STORE,), values.integer, 3000, "ms", 1, _MS, doc=_LIVES),
    Option("receiver-new-registration-rollback", (STORE,), values.integer, 2**31 - 1, "messages", 1, 2**31 - 1,
           doc="a receiver starts at most so far behind the newest message"),
    Option("proxy-election-interval", (STORE,), values.integer, 60000, "ms", 0, _MS,
           doc="no effect: which store stands in is known at once, to all of them alike"),
    Option("stability-ack-minimum-number", (STORE,), values.integer, 1, "fragments", 1, _MS, doc=_ONE_ACK),
    Option("stability-ack-interval", (STORE,), values.integer, 200, "ms", 0, _MS, doc=_ONE_ACK),
    Option("retransmission-request-forwarding", (STORE,), values.flag, False, doc=_READS_RING),
)
# fmt: on
WHOLE_STORE = frozenset(
    {
        "allow-proxy-source",
        "holdfast-scrub-interval",
        "proxy-source-repo-quorum-required",
        "retransmission-request-processing-rate",
        "wait_strategy",
    }
)
"""Options of stores that no topic can have of its own."""
IN_XML = {"context-name": "name", "disk-cache-directory": "cache", "disk-state-directory": "directory"}
"""Options of a store's XML file that are no options here -> the field of StoreConfig that they are."""
BY_ANY_NAME: dict[str, Option] = {name: row for row in ROWS for name in (row.name, *row.aliases)}
