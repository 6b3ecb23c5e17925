"""Options in force: what was given, checked, with the defaults filled in. The table is in `option_table`.

`resolve` turns what a user gave for one object into a frozen view with every option of that scope, or raises
ConfigError with name, value, limit and scope. Defaults that depend on other options (sizes) are worked out here, so
that a view always holds the numbers in force. Source: um_semantics K.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from . import option_values as values
from .errors import ConfigError
from .option_table import BY_ANY_NAME, MIB, RECEIVER, ROWS, SOURCE, STORE, TABLE, Option

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["TABLE", "Option", "Options", "resolve"]

RING_MIN = 65536
FRAME_BYTES = 32


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
    rows = [row for row in ROWS if scope in row.scopes]
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
    row = BY_ANY_NAME.get(name)
    if row is None:
        valid = [known for known, option in BY_ANY_NAME.items() if scope in option.scopes]
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
