"""The option table: names, scopes, types, limits, defaults. UM's names letter for letter; units are in the table.

`resolve` turns what a user gave for one object into a frozen view with every option of that scope, or raises
ConfigError with name, value, limit and scope. Defaults that depend on other options (sizes) are worked out here, so
that a view always holds the numbers in force. Source: um_semantics K; where a default differs from UM's, the doc says
so.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from . import option_values as values
from .errors import ConfigError

CONTEXT, SOURCE, RECEIVER, STORE = "context", "source", "receiver", "store"

RING_MIN = 65536
FRAME_BYTES = 32
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


def _word(value: object) -> str:
    """Accept a str; case and blanks do not matter, as in UM's files."""
    if isinstance(value, str):
        return value.strip().lower()
    raise ValueError("a word")


_WAITS = ("busy_spin", "yield", "backoff", "block")
_MS = 2**31 - 1

# fmt: off
_ROWS = (
    Option("ume_session_id", (CONTEXT, SOURCE, RECEIVER), values.session, 0, doc="64-bit; 0 = the context's, or none"),
    Option("operational_mode", (CONTEXT,), _word, "embedded", choices=("embedded", "sequential"),
           doc="sequential: no thread, call poll()"),
    Option("callback_errors", (CONTEXT, SOURCE, RECEIVER), _word, "log", choices=("log", "raise"),
           doc="what becomes of an exception of a callback"),
    Option("wait_strategy", (CONTEXT, SOURCE, RECEIVER, STORE), _word, "backoff", choices=_WAITS,
           doc="how a thread waits for the next message or acknowledgement"),
    Option("ume_ack_batching_interval", (CONTEXT,), values.integer, 100, "ms", 1, _MS, doc="period of batched acks"),

    Option("ume_store", (SOURCE,), values.store_addresses, (), doc="stores by port: 127.0.0.1:PORT:RegID:Group"),
    Option("ume_store_name", (SOURCE,), values.store_names, (), doc="stores by name: name:RegID:Group"),
    Option("ume_store_group", (SOURCE,), values.store_groups, (), doc="declared groups: index:size, ascending"),
    Option("ume_registration_interval", (SOURCE, RECEIVER), values.integer, 3000, "ms", 1, _MS,
           doc="period of registration attempts"),
    Option("ume_store_activity_timeout", (SOURCE,), values.integer, 10000, "ms", 1, _MS,
           doc="silence after which a store is looked at"),
    Option("ume_store_check_interval", (SOURCE,), values.integer, 500, "ms", 1, _MS, doc="period of looking at stores"),
    Option("ume_consensus_sequence_number_behavior", (SOURCE, RECEIVER), _word, "majority",
           choices=("lowest", "majority", "highest"), doc="first number from the stores' reports (UM: highest)"),
    Option("ume_flight_size", (SOURCE,), values.integer, 1000, "fragments", 1, 2**31 - 1,
           doc="sent and not yet stable, at most"),
    Option("ume_flight_size_bytes", (SOURCE,), values.integer, None, "bytes", 0, 2**62,
           doc="payload sent and not yet stable, at most; 0 = off; 3/4 of retransmit_retention_size_limit (UM: off)"),
    Option("ume_message_stability_notification", (SOURCE,), values.integer, None, "", 0, 3,
           doc="UM's modes; not given: coalesced ranges"),
    Option("retransmit_retention_size_limit", (SOURCE,), values.integer, None, "bytes", 8192, 2**40,
           doc="headers and payload that the source retains at most; 25165824", aliases=("ume_retention_size_limit",)),
    Option("ring_size", (SOURCE,), values.integer, 0, "bytes", 0, 2**41,
           doc="a power of two; 0 = the next one from 1.25 x retransmit_retention_size_limit"),
    Option("fragment_size", (SOURCE,), values.integer, None, "bytes", 32, 2**31,
           doc="largest payload of one fragment; 65536, less in a small ring"),
    Option("receiver_pin_timeout", (SOURCE,), values.integer, 100, "ms", 0, _MS,
           doc="how long a receiver's view may hold the source back"),
    Option("late_join", (SOURCE,), values.flag, True, doc="0: no recovery from this source (UM: forced on)",
           aliases=("ume_late_join",)),

    Option("use_late_join", (RECEIVER,), values.flag, True, doc="0: live messages only",
           aliases=("ume_use_late_join",)),
    Option("ume_use_ack_batching", (RECEIVER,), values.flag, None,
           doc="1: acks at the context's interval; 0: each at once; default: 1 unless ume_explicit_ack_only"),
    Option("ume_explicit_ack_only", (RECEIVER,), values.flag, False, doc="1: only send_explicit_ack() acknowledges"),
    Option("retransmit_request_maximum", (RECEIVER,), values.integer, 0, "messages", 0, 2**62,
           doc="start at most so far back from the newest; 0 = no limit"),
    Option("ume_recovery_sequence_number_info_function", (RECEIVER,), values.function,
           doc="called before recovery; may assign info.low_sequence_number"),
    Option("ume_registration_extended_function", (RECEIVER,), values.function, doc="returns the RegID to ask for"),
    Option("source_notification_function", (RECEIVER,), values.function_pair, doc="(create, delete), per source"),

    Option("repository-size-limit", (STORE,), values.integer, 256 * MIB, "bytes", 196992, 2**46,
           doc="what a memory store keeps per source (UM: 50331648)"),
    Option("repository-size-threshold", (STORE,), values.integer, None, "bytes", 0, 2**46,
           doc="kept before anything is let go; default: the limit (UM: 1024)"),
    Option("repository-disk-file-size-limit", (STORE,), values.integer, GIB, "bytes", 196992, 2**46,
           doc="what a disk store keeps per source (UM: 104857600)"),
)
# fmt: on
TABLE: dict[str, Option] = {row.name: row for row in _ROWS}
_BY_ANY_NAME: dict[str, Option] = {name: row for row in _ROWS for name in (row.name, *row.aliases)}


class Options:
    """A frozen view of all options of one scope: `options.ume_flight_size`, `-` in names turned into `_`."""

    __slots__ = ("_given", "_values", "scope")

    scope: str
    _values: dict[str, Any]
    _given: frozenset[str]

    def __init__(self, scope: str, values: dict[str, object], given: frozenset[str]) -> None:
        object.__setattr__(self, "scope", scope)
        object.__setattr__(self, "_values", values)
        object.__setattr__(self, "_given", given)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and name in self._values:
            return self._values[name]
        raise AttributeError(f"the {self.scope} scope has no option {name}")

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("options are frozen")

    def given(self, name: str) -> bool:
        """Tell whether the user gave this option here, or in the scope that it was inherited from."""
        return name.replace("-", "_") in self._given

    @property
    def stores(self) -> tuple[values.StoreAddress, ...]:
        """All stores of a source, in the order of store indexes: ume_store, then ume_store_name."""
        return tuple(self._values["ume_store"] + self._values["ume_store_name"])

    def __repr__(self) -> str:
        """Show scope and what was given."""
        shown = ", ".join(f"{name}={self._values[name]!r}" for name in sorted(self._given))
        return f"Options({self.scope}: {shown})"


def resolve(scope: str, given: Mapping[str, object], inherited: Options | None = None) -> Options:
    """Check what was given for one object and fill in the rest: from `inherited` (the context's view), else the
    defaults.

    Raises ConfigError: unknown name (with the nearest valid one), option of another scope, wrong type, out of range,
    or values that contradict each other.
    """
    found: dict[str, object] = {}
    for name, value in given.items():
        row = _row(scope, name)
        if row.attribute in found:
            raise ConfigError(f"{scope} option {name} is given twice, also under its other name")
        found[row.attribute] = _value(scope, row, value)
    rows = [row for row in _ROWS if scope in row.scopes]
    if inherited is not None:
        for row in rows:
            unset = row.attribute not in found or (row.name == "ume_session_id" and not found[row.attribute])
            if unset and inherited.given(row.name):
                found[row.attribute] = getattr(inherited, row.attribute)
    explicit = frozenset(found)
    for row in rows:
        found.setdefault(row.attribute, row.default)
    if scope == SOURCE:
        _settle_sizes(found)
        _check_groups(found)
    elif scope == RECEIVER:
        _settle_acks(found)
    elif scope == STORE:
        _settle_repository(found)
    return Options(scope, found, explicit)


def _row(scope: str, name: str) -> Option:
    """Find an option by name, in this scope."""
    row = _BY_ANY_NAME.get(name)
    if row is None:
        valid = [known for known, option in _BY_ANY_NAME.items() if scope in option.scopes]
        near = difflib.get_close_matches(name, valid, n=1, cutoff=0.5)
        raise ConfigError(f"{scope} option {name!r} does not exist", hint=f"did you mean {near[0]}?" if near else None)
    if scope not in row.scopes:
        raise ConfigError(f"{name} is not an option of a {scope}", hint=f"give it to: {', '.join(row.scopes)}")
    return row


def _value(scope: str, row: Option, value: object) -> object:
    """Parse and check one value."""
    try:
        parsed = row.type(value)
    except ValueError as wrong:
        raise ConfigError(f"{scope} option {row.name} = {value!r}: expected {wrong}") from None
    if row.choices and parsed not in row.choices:
        raise ConfigError(f"{scope} option {row.name} = {value!r}: expected one of {', '.join(row.choices)}")
    if isinstance(parsed, int) and not isinstance(parsed, bool):
        unit = f" {row.unit}" if row.unit else ""
        if row.minimum is not None and parsed < row.minimum:
            raise ConfigError(f"{scope} option {row.name} = {parsed}: the minimum is {row.minimum}{unit}")
        if row.maximum is not None and parsed > row.maximum:
            raise ConfigError(f"{scope} option {row.name} = {parsed}: the maximum is {row.maximum}{unit}")
    return parsed


def _settle_sizes(found: dict[str, Any]) -> None:
    """Work out ring, retention limit, flight size in bytes and fragment size from those that were given."""
    ring, limit = found["ring_size"], found["retransmit_retention_size_limit"]
    if ring:
        if ring < RING_MIN or ring & (ring - 1):
            raise ConfigError(f"source option ring_size = {ring}: expected a power of two from {RING_MIN} bytes, or 0")
        if limit is None:
            limit = min(24 * MIB, ring // 5 * 4)
        if limit > ring:
            raise ConfigError(
                f"source option ring_size = {ring} is less than retransmit_retention_size_limit = {limit}",
                hint="leave ring_size out, or raise it",
            )
    else:
        limit = 24 * MIB if limit is None else limit
        ring = max(RING_MIN, 1 << (-(-limit * 5 // 4) - 1).bit_length())
    largest = ring // 4 - FRAME_BYTES
    fragment = found["fragment_size"]
    if fragment is not None and fragment > largest:
        raise ConfigError(f"source option fragment_size = {fragment}: a ring of {ring} bytes allows {largest}")
    found["ring_size"], found["retransmit_retention_size_limit"] = ring, limit
    found["fragment_size"] = min(65536, largest) if fragment is None else fragment
    if found["ume_flight_size_bytes"] is None:
        found["ume_flight_size_bytes"] = limit // 4 * 3


def _check_groups(found: dict[str, Any]) -> None:
    """Refuse groups and stores that do not fit together (um_semantics E.1)."""
    stores = found["ume_store"] + found["ume_store_name"]
    if len(stores) > values.STORES_MAX:
        raise ConfigError(f"source options name {len(stores)} stores, the maximum is {values.STORES_MAX}")
    groups = found["ume_store_group"]
    for group in groups:
        members = sum(store.group == group.number for store in stores)
        if members < group.size:
            raise ConfigError(
                f"source option ume_store_group: group {group.number} has {members} of {group.size} stores"
            )
    declared = {group.number for group in groups}
    for store in stores:
        if groups and store.group not in declared:
            raise ConfigError(f"source options: store {store} is in group {store.group}, not in ume_store_group")


def _settle_acks(found: dict[str, Any]) -> None:
    """Batching is the default; explicit acknowledgement turns it off; both at once contradict each other."""
    explicit, batching = found["ume_explicit_ack_only"], found["ume_use_ack_batching"]
    if explicit and batching:
        raise ConfigError(
            "receiver options ume_use_ack_batching = 1 and ume_explicit_ack_only = 1 exclude each other",
            hint="leave one of them out",
        )
    found["ume_use_ack_batching"] = not explicit if batching is None else batching


def _settle_repository(found: dict[str, Any]) -> None:
    """The threshold follows the limit, and is never above it."""
    limit, threshold = found["repository_size_limit"], found["repository_size_threshold"]
    if threshold is None:
        found["repository_size_threshold"] = limit
    elif threshold > limit:
        raise ConfigError(f"store option repository-size-threshold = {threshold}: repository-size-limit is {limit}")
