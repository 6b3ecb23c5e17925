"""Which topics a receiver with a topic or a pattern wants."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["matcher"]


def matcher(topic: str | None, pattern: str | None, kind: str) -> Callable[[str], bool]:
    """UM's wildcard receivers: a regular expression is found anywhere in a topic, a prefix at its start.

    Raises ConfigError: it is no regular expression.
    """
    if pattern is None:
        return lambda other: other == topic
    if kind == "prefix":
        return lambda other: other.startswith(pattern)
    try:
        found = re.compile(pattern).search
    except re.error as error:
        hint = "a regular expression, found anywhere in a topic; or pattern_type=prefix"
        raise ConfigError(f"pattern {pattern!r}: {error}", hint=hint) from error
    return lambda other: found(other) is not None
