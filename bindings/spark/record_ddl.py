"""Fixed-size records, described as Spark describes columns: ``price DOUBLE, quantity BIGINT, venue CHAR(4)``.

Fields lie one behind the other without padding, little-endian. Pure: no numpy, no Arrow.
"""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["Field", "record_fields", "record_size"]

WIDTHS = {
    "boolean": 1, "tinyint": 1, "smallint": 2, "int": 4, "bigint": 8, "float": 4, "double": 8, "date": 4, "timestamp": 8,
}  # fmt: skip
"""Bytes of each type that has one width. date: days since 1970-01-01; timestamp: microseconds since then,
UTC."""
SAME = {"bool": "boolean", "byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint", "real": "float"}
"""Spark's other words for them."""
SIZED = ("char", "binary")
"""Types that say their width: text padded with NUL or blanks, and bytes as they are."""
RECORD_MAX = 1 << 20

# No two parts next to each other take blanks: how to share a long run of them would be tried in all ways.
_FIELD = re.compile(r"\s*(?:`([^`]+)`|(\w+))(?:\s*:\s*|\s+)(\w+)\s*(?:\(\s*(\d+)\s*\)\s*)?")


class Field(NamedTuple):
    """A field of a record: ``kind`` is Spark's type in lower case, ``offset`` and ``width`` are in bytes."""

    name: str
    kind: str
    offset: int
    width: int


def record_fields(text: str) -> tuple[Field, ...]:
    """The fields of ``text``.

    Raises:
        ValueError: what is wrong in it.
    """
    found: list[Field] = []
    offset = 0
    for part in text.split(","):
        match = _FIELD.fullmatch(part)
        if match is None:
            raise ValueError(f"{part.strip()!r} is no field: a name and a type, as in 'price DOUBLE, venue CHAR(4)'")
        name = match[1] or match[2]
        kind = SAME.get(match[3].lower(), match[3].lower())
        width = _width(name, kind, match[4])
        if name.lower() in {field.name.lower() for field in found}:
            raise ValueError(f"{name!r} is there twice")
        found.append(Field(name, kind, offset, width))
        offset += width
    if offset > RECORD_MAX:
        raise ValueError(f"a record of {offset} bytes, at most {RECORD_MAX} are taken")
    return tuple(found)


def _width(name: str, kind: str, given: str | None) -> int:
    if kind in SIZED:
        if given is None or int(given) < 1:
            raise ValueError(f"{name!r} needs a width, as in {kind.upper()}(8)")
        return int(given)
    if kind not in WIDTHS or given is not None:
        known = ", ".join([*(word.upper() for word in WIDTHS), *(f"{word.upper()}(n)" for word in SIZED)])
        raise ValueError(f"{name!r} has a type that no fixed-size record has; the types are {known}")
    return WIDTHS[kind]


def record_size(fields: tuple[Field, ...]) -> int:
    """Bytes of a record."""
    return fields[-1].offset + fields[-1].width
