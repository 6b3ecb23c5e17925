"""How a value of each kind is written and checked: what a configuration gives (a str, or the Python value) to
what is kept.

A parser returns the value or raises ValueError with what was expected; resolve.py adds the name and the
scope.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

STORES_MAX = 25
GROUPS_MAX = 5
NAME_MAX = 31  # bytes: HF_NAME_MAX without the NUL
SESSION_MAX = 2**64 - 2

STORE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
DOMAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,63}")


def is_domain(given: str) -> bool:
    """A domain's name, or the absolute path of a directory that is called like one."""
    name = given.rstrip("/").rpartition("/")[2] if given.startswith("/") else given
    return DOMAIN_NAME.fullmatch(name) is not None


class StoreAddress(NamedTuple):
    """A store as a source names it: by name, or (name "") by its port on this host."""

    name: str
    port: int
    registration_id: int
    group: int

    def __str__(self) -> str:
        """Give the form without RegID and group."""
        return self.name or f"127.0.0.1:{self.port}"


class Group(NamedTuple):
    """A declared quorum group."""

    number: int
    size: int


def integer(value: object) -> int:
    """Accept an int, or a str in decimal, 0x hex or leading-0 octal. bool is not a number."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        text = value.strip().lower()
        octal = len(text) > 1 and text.startswith("0") and text[1].isdigit()
        try:
            return int(text, 8 if octal else 16 if text.startswith("0x") else 10)
        except ValueError:
            pass
    raise ValueError("a whole number")


def power_of_two(value: object) -> int:
    """Accept a whole number that is a power of two."""
    number = integer(value)
    if number < 1 or number & (number - 1):
        raise ValueError("a power of two")
    return number


_SAME = {
    "quorum-consensus": "qc",
    "round-robin": "rr",
    "all-stores": "all",
    "all-groups": "all",
    "any-group": "any",
}
"""Words that UM has two forms of."""


def word(value: object) -> str:
    """Accept a str; case and blanks do not matter, as in UM's files. Of UM's two forms of a word the short
    one is kept."""
    if isinstance(value, str):
        text = value.strip().lower()
        return _SAME.get(text, text)
    raise ValueError("a word")


def delivery_order(value: object) -> int:
    """Accept 1 and -1. UM's 0 hands out single fragments, which nothing here does."""
    number = integer(value)
    if number not in (1, -1):
        raise ValueError("1 (in order) or -1 (in order of arrival); 0, fragments one by one, is not in this version")
    return number


def keepalive(value: object) -> int:
    """Accept 0 (off) or at least 1500, as UM does."""
    number = integer(value)
    if 0 < number < 1500:
        raise ValueError("0 or at least 1500 ms")
    return number


def only_zero(value: object) -> int:
    """Accept 0: the default of a feature of UM that is not here yet, so that UM's files pass."""
    if integer(value) != 0:
        raise ValueError("0: the rest of it is not in this version")
    return 0


def name(value: object) -> str:
    """Accept a context's name."""
    if isinstance(value, str) and value.strip() and len(value.strip().encode()) <= 128:
        return value.strip()
    raise ValueError("a name of 1 to 128 bytes")


def flag(value: object) -> bool:
    """Accept 0, 1, False, True, "0", "1"."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int | str) and str(value).strip() in ("0", "1"):
        return int(value) == 1
    raise ValueError("0 or 1")


def session(value: object) -> int:
    """Accept a session id, 0 = none. 2^64 - 1 is refused, as UM does."""
    number = integer(value)
    if not 0 <= number <= SESSION_MAX:
        raise ValueError(f"a session id from 1 to {SESSION_MAX}, or 0 for none")
    return number


def function(value: object) -> Callable[..., object]:
    """Accept anything callable."""
    if callable(value):
        return value
    raise ValueError("a callable that takes one argument")


def function_pair(value: object) -> tuple[Callable[..., object], Callable[..., object]]:
    """Accept (create, delete)."""
    if isinstance(value, Sequence) and len(value) == 2 and all(callable(part) for part in value):
        return value[0], value[1]
    raise ValueError("a pair of callables (create, delete)")


def _entries(value: object) -> list[str]:
    """Accept one str (entries separated by commas) or a sequence of them."""
    if isinstance(value, str):
        parts: Sequence[object] = value.split(",")
    elif isinstance(value, Sequence):
        parts = value
    else:
        raise ValueError("a string or a list of strings")
    if not all(isinstance(part, str) for part in parts):
        raise ValueError("a string or a list of strings")
    return [part.strip() for part in parts if isinstance(part, str) and part.strip()]


def _bounded(text: str, what: str, maximum: int) -> int:
    """Parse a non-negative number of an entry."""
    if not text.isascii() or not text.isdigit() or int(text) > maximum:
        raise ValueError(f"{what} from 0 to {maximum}, not {text!r}")
    return int(text)


def _identity(parts: list[str], entry: str, form: str) -> tuple[int, int]:
    """Parse the optional tail RegID:Group. An empty RegID is 0."""
    if len(parts) > 2:
        raise ValueError(f"{form}, not {entry!r}")
    regid = _bounded(parts[0], "a RegID (0: the store chooses)", 2**32 - 1) if parts and parts[0] else 0
    group = _bounded(parts[1], "a group", GROUPS_MAX - 1) if len(parts) > 1 else 0
    return regid, group


def _distinct(found: list[StoreAddress]) -> tuple[StoreAddress, ...]:
    """Take equal entries for one. A store cannot be two members of the quorum."""
    kept = tuple(dict.fromkeys(found))
    for store in kept:
        if sum((other.name, other.port) == (store.name, store.port) for other in kept) > 1:
            raise ValueError(f"each store once, {store} comes with different RegIDs or groups")
    return kept


def store_names(value: object) -> tuple[StoreAddress, ...]:
    """Accept "name:RegID:Group" entries; RegID and group may be left out. "0.0.0.0:0" clears the list."""
    found: list[StoreAddress] = []
    for entry in _entries(value):
        if entry == "0.0.0.0:0":
            found.clear()
            continue
        name, *rest = entry.split(":")
        if not STORE_NAME.fullmatch(name) or len(name) > NAME_MAX:
            shown = name if len(name) <= NAME_MAX else f"{name[:NAME_MAX]}... ({len(name)} characters)"
            raise ValueError(f"a store name of 1 to {NAME_MAX} characters A-Z a-z 0-9 _ . + -, not {shown!r}")
        found.append(StoreAddress(name, 0, *_identity(rest, entry, "name:RegID:Group")))
    return _distinct(found)


def store_addresses(value: object) -> tuple[StoreAddress, ...]:
    """Accept "127.0.0.1:PORT:RegID:Group" entries, with UM's domain id in front or not. "0.0.0.0:0" clears
    the list."""
    found: list[StoreAddress] = []
    form = "127.0.0.1:PORT:RegID:Group"
    for entry in _entries(value):
        parts = entry.split(":")
        if len(parts) > 2 and parts[0].isdigit():
            parts = parts[1:]
        if len(parts) < 2:
            raise ValueError(f"{form}, not {entry!r}")
        host, port = parts[0], _bounded(parts[1], "a port", 65535)
        if (host, port) == ("0.0.0.0", 0):
            found.clear()
            continue
        _require_loopback(host)
        if port == 0:
            raise ValueError(f"a port from 1 to 65535 in {entry!r}")
        found.append(StoreAddress("", port, *_identity(parts[2:], entry, form)))
    return _distinct(found)


def _require_loopback(host: str) -> None:
    """Refuse any address that is not this host."""
    try:
        local = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = False
    if not local:
        raise ValueError(
            f"a loopback address, not {host!r}: sources and stores share the memory of one host; give 127.0.0.1:PORT"
        )


def store_groups(value: object) -> tuple[Group, ...]:
    """Accept "index:size" entries in ascending order of index. "0:0" clears the list."""
    found: list[Group] = []
    for entry in _entries(value):
        parts = entry.split(":")
        if len(parts) != 2:
            raise ValueError(f"index:size, not {entry!r}")
        index, size = _bounded(parts[0], "a group", GROUPS_MAX - 1), _bounded(parts[1], "a group size", STORES_MAX)
        if (index, size) == (0, 0):
            found.clear()
            continue
        if size == 0:
            raise ValueError(f"a group size from 1 to {STORES_MAX} in {entry!r}")
        if found and index <= found[-1].number:
            raise ValueError(f"groups in ascending order, {entry!r} follows group {found[-1].number}")
        found.append(Group(index, size))
    return tuple(found)
