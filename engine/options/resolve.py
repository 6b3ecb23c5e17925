"""Options in force: what was given, checked, with the defaults filled in. The table is in `option_table`.

`resolve` turns what a user gave for one object into a frozen view with every option of that scope, or raises
ConfigError with name, value, limit and scope. Highest first: what was given for the object, what its context
was given, what configuration files say (`Layer`), the default. Defaults that depend on other options (sizes)
are worked out here, so that a view always holds the numbers in force. Source: docs/semantics.md K.
"""

from __future__ import annotations

import difflib
from collections import abc
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ..errors import ConfigError
from ..rules.quorum import Groups
from . import values
from .table import BY_ANY_NAME, CONTEXT, IN_XML, MIB, RECEIVER, ROWS, SOURCE, STORE, Option
from .unsupported import FILES_ONLY, REMOVED, has_no_effect

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "Defaults",
    "Layer",
    "NoDefaults",
    "Option",
    "Options",
    "Rule",
    "as_given",
    "check_value",
    "find",
    "resolve",
]

RING_MIN = 65536
FRAME_BYTES = 32
SHOWN_MAX = 160
"""Characters of a wrong value that a message shows."""
FLIGHT_SIZE_LARGE = 1_000_000
"""Above it UM warns (docs/semantics.md D.6)."""


class Rule(NamedTuple):
    """What a configuration file lets an option be: the last clause with that value decides, `otherwise` if
    there is none."""

    otherwise: bool
    clauses: tuple[tuple[bool, object], ...]
    file: str
    line: int


class Layer(NamedTuple):
    """What one configuration file says about one object, by attribute: values as `check_value` returns them,
    and rules."""

    values: Mapping[str, object]
    rules: Mapping[str, Rule] = {}


class Defaults(Protocol):
    """Configuration files, asked for each object that a context makes."""

    def layers(self, scope: str, name: str | None = None, *, wildcard: bool = False) -> Sequence[Layer]:
        """What is said about a context, or about a source or receiver of topic (or pattern) `name`; highest
        first.

        Raises ConfigError: a file forbids this object.
        """


class NoDefaults:
    """No configuration file."""

    def layers(self, scope: str, name: str | None = None, *, wildcard: bool = False) -> Sequence[Layer]:
        """Say nothing."""
        del scope, name, wildcard
        return ()


class Options:
    """A frozen view of all options of one scope: `options.ume_flight_size`, `-` in names turned into `_`.

    `warnings` are sentences that whoever made the object should see once.
    """

    __slots__ = ("_given", "_own", "_passed_on", "_values", "scope", "warnings")

    scope: str
    warnings: tuple[str, ...]
    _values: dict[str, Any]
    _given: frozenset[str]
    _own: frozenset[str]
    _passed_on: dict[str, object]

    def __init__(
        self, scope: str, values: dict[str, object], given: frozenset[str], own: frozenset[str], warnings: Sequence[str],
        passed_on: dict[str, object],
    ) -> None:  # fmt: skip
        object.__setattr__(self, "scope", scope)
        object.__setattr__(self, "warnings", tuple(warnings))
        object.__setattr__(self, "_values", values)
        object.__setattr__(self, "_given", given)
        object.__setattr__(self, "_own", own)
        object.__setattr__(self, "_passed_on", passed_on)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and name in self._values:
            return self._values[name]
        raise AttributeError(f"the {self.scope} scope has no option {name}")

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("options are frozen")

    def given(self, name: str) -> bool:
        """Tell whether the user gave this option: here, to the context that it was inherited from, or in a
        file."""
        return name.replace("-", "_") in self._given

    def own(self) -> dict[str, object]:
        """Give what was not read from a file: that is what sources and receivers inherit before their files
        are asked. Of a context also what only they have."""
        return {attribute: self._values[attribute] for attribute in self._own} | self._passed_on

    @property
    def stores(self) -> tuple[values.StoreAddress, ...]:
        """All stores of a source, in the order of store indexes: ume_store, then ume_store_name."""
        return tuple(self._values["ume_store"] + self._values["ume_store_name"])

    @property
    def groups(self) -> Groups | None:
        """How these stores are grouped; None without stores. Without a declared group all of them are one
        (docs/semantics.md E.1)."""
        stores, declared = self.stores, self._values["ume_store_group"]
        sizes = [0] * (declared[-1].number + 1 if declared else 1)
        for group in declared:
            sizes[group.number] = group.size
        if not declared:
            sizes[0] = len(stores)
        of = tuple(store.group if declared else 0 for store in stores)
        behaviors = (
            self._values["ume_retention_intragroup_stability_behavior"],
            self._values["ume_retention_intergroup_stability_behavior"],
        )
        return Groups(tuple(sizes), of, *behaviors) if stores else None

    def __repr__(self) -> str:
        """Show scope and what was given."""
        shown = ", ".join(f"{name}={self._values[name]!r}" for name in sorted(self._given))
        return f"Options({self.scope}: {shown})"


def as_given(scope: str, options: object) -> dict[str, object]:
    """Copy what a program gives as `options=`. Raises ConfigError: it is neither None nor a mapping of
    names."""
    if options is None:
        return {}
    if isinstance(options, abc.Mapping) and all(isinstance(name, str) for name in options):
        return dict(options)
    raise ConfigError(f"{scope} options = {options!r}: expected a dict of names and values")


def resolve(
    scope: str, given: Mapping[str, object], inherited: Options | None = None, layers: Sequence[Layer] = ()
) -> Options:
    """Check what was given for one object and fill in the rest: from `inherited` (the context's view), from
    `layers` (highest first), else the defaults.

    Raises ConfigError: unknown name (with the nearest valid one), option of another scope, wrong type, out of
    range, values that contradict each other, or that a file forbids.
    """
    found: dict[str, object] = {}
    passed_on: dict[str, object] = {}
    for name, value in given.items():
        row = find(scope, name, passes_on=scope == CONTEXT)
        if row.attribute in found or row.attribute in passed_on:
            raise ConfigError(f"{scope} option {name} is given twice, also under its other name")
        to = found if scope in row.scopes else passed_on
        to[row.attribute] = check_value(scope, row, value)
    rows = [row for row in ROWS if scope in row.scopes]
    _fill(found, rows, inherited.own() if inherited is not None else {})
    own = frozenset(found)
    for layer in layers:
        _fill(found, rows, layer.values)
    explicit = frozenset(found)
    for row in rows:
        found.setdefault(row.attribute, row.default)
    warnings: list[str] = []
    if scope == SOURCE:
        warnings = _settle_pacing(found)
        _settle_sizes(found)
        _check_groups(found)
        warnings += _settle_flight(found)
    elif scope == RECEIVER:
        _settle_acks(found)
    elif scope == STORE:
        _settle_repository(found)
    _obey(scope, rows, found, layers)
    return Options(scope, found, explicit, own, warnings, passed_on)


def _fill(found: dict[str, object], rows: list[Option], more: Mapping[str, object]) -> None:
    """Take over what is not set yet. Session ID 0 means: not set here."""
    for row in rows:
        unset = row.attribute not in found or (row.name == "ume_session_id" and not found[row.attribute])
        if unset and row.attribute in more:
            found[row.attribute] = more[row.attribute]


def _obey(scope: str, rows: list[Option], found: dict[str, object], layers: Sequence[Layer]) -> None:
    """Refuse what a configuration file forbids; of several rules for one option the highest layer's holds."""
    for row in rows:
        rule = next((layer.rules[row.attribute] for layer in layers if row.attribute in layer.rules), None)
        if rule is None:
            continue
        value = found[row.attribute]
        verdicts = [allowed for allowed, said in rule.clauses if said == value]
        if not (verdicts[-1] if verdicts else rule.otherwise):
            raise ConfigError(f"{scope} option {row.name} = {value!r} is forbidden here", rule.file, rule.line)


def find(scope: str, name: str, *, passes_on: bool = False) -> Option:
    """Find an option by name, in this scope, or (`passes_on`) in those of a context's sources and receivers.

    Raises ConfigError: there is none, with what to use instead.
    """
    scopes = {scope, SOURCE, RECEIVER} if passes_on else {scope}
    row = BY_ANY_NAME.get(name)
    if row is None:
        if scope == STORE and name in IN_XML:
            raise ConfigError(f"{name} is an option of XML files", hint=f"use StoreConfig({IN_XML[name]}=...)")
        if name in REMOVED:
            raise ConfigError(f"{scope} option {name} does not exist any more", hint=f"use {REMOVED[name]}")
        if has_no_effect(name):
            hint = "leave it out; only a configuration file may have it, so that UM's files can be read"
            raise ConfigError(f"{scope} option {name} {FILES_ONLY}", hint=hint)
        valid = [known for known, option in BY_ANY_NAME.items() if not scopes.isdisjoint(option.scopes)]
        near = difflib.get_close_matches(name, [*valid, *(IN_XML if scope == STORE else ())], n=1, cutoff=0.5)
        raise ConfigError(f"{scope} option {name!r} does not exist", hint=f"did you mean {near[0]}?" if near else None)
    if scopes.isdisjoint(row.scopes):
        raise ConfigError(f"{name} is not an option of a {scope}", hint=f"give it to: {', '.join(row.scopes)}")
    return row


def check_value(scope: str, row: Option, value: object) -> object:
    """Parse and check one value. Raises ConfigError."""
    try:
        parsed = row.type(value)
    except ValueError as wrong:
        raise ConfigError(f"{scope} option {row.name} = {_short(value)}: expected {wrong}") from None
    if row.choices and parsed not in row.choices:
        raise ConfigError(f"{scope} option {row.name} = {value!r}: expected one of {', '.join(row.choices)}")
    if isinstance(parsed, int) and not isinstance(parsed, bool):
        unit = f" {row.unit}" if row.unit else ""
        if row.minimum is not None and parsed < row.minimum:
            raise ConfigError(f"{scope} option {row.name} = {parsed}: the minimum is {row.minimum}{unit}")
        if row.maximum is not None and parsed > row.maximum:
            raise ConfigError(f"{scope} option {row.name} = {parsed}: the maximum is {row.maximum}{unit}")
    return parsed


PACED_ONLY = (
    "ume_repository_ack_on_reception",
    "ume_repository_size_threshold",
    "ume_repository_size_limit",
    "ume_repository_disk_file_size_limit",
    "ume_write_delay",
)


def _settle_pacing(found: dict[str, Any]) -> list[str]:
    """A receiver-paced source says how many bytes it may have in flight: that is what stores keep free
    (docs/semantics.md J.1)."""
    paced = found["ume_receiver_paced_persistence"]
    if paced > 1:
        raise ConfigError(
            f"source option ume_receiver_paced_persistence = {paced}: expected 0 or 1 (2 is for receivers)"
        )
    if paced and not found["ume_flight_size_bytes"]:
        raise ConfigError(
            "source option ume_receiver_paced_persistence = 1 without ume_flight_size_bytes",
            hint="give it: the stores' source-flight-size-bytes-maximum at most",
        )
    idle = [name for name in PACED_ONLY if found[name] and not paced]
    return [f"{name} has no effect: ume_receiver_paced_persistence is 0" for name in idle]


def _short(value: object) -> str:
    """A value as a message shows it."""
    shown = repr(value)
    return shown if len(shown) <= SHOWN_MAX else f"{shown[:SHOWN_MAX]}..."


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
    """Refuse groups and stores that do not fit together (docs/semantics.md E.1)."""
    stores = found["ume_store"] + found["ume_store_name"]
    if len(stores) > values.STORES_MAX:
        raise ConfigError(
            f"source options name {len(stores)} stores, the maximum is {values.STORES_MAX}",
            hint=f"drop {len(stores) - values.STORES_MAX} of them",
        )
    groups = found["ume_store_group"]
    for group in groups:
        members = sum(store.group == group.number for store in stores)
        if members < group.size:
            raise ConfigError(
                f"source option ume_store_group: Group {group.number} does not have enough stores specified, "
                f"{members} of {group.size}",
                hint=f"name {group.size - members} more with group {group.number}, or declare a smaller size",
            )
    declared = {group.number for group in groups}
    for store in stores:
        if groups and store.group not in declared:
            raise ConfigError(
                f"source options: store {store} is in group {store.group}, which ume_store_group does not declare",
                hint=f"add {store.group}:SIZE to ume_store_group, or put it into another group",
            )


def _settle_flight(found: dict[str, Any]) -> list[str]:
    """Say what is unusual (docs/semantics.md D.6), and take UM's dropped round-robin behaviour for what UM
    takes it for."""
    warnings = []
    if found["ume_flight_size"] > FLIGHT_SIZE_LARGE:
        warnings.append(f"ume_flight_size = {found['ume_flight_size']}: more than {FLIGHT_SIZE_LARGE} is rarely meant")
    if found["ume_store_behavior"] == "rr":
        found["ume_store_behavior"] = "qc"
        warnings.append("ume_store_behavior = rr is taken as qc: round-robin does not exist any more")
    return warnings


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
