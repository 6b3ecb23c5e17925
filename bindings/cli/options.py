"""What several verbs do with their arguments."""

from __future__ import annotations

from ..engine.errors import ConfigError

__all__ = ["pairs"]


def pairs(given: list[str]) -> dict[str, object]:
    """``NAME=VALUE`` of every -o. Raises ConfigError."""
    found: dict[str, object] = {}
    for entry in given:
        name, equals, value = entry.partition("=")
        if not equals or not name:
            raise ConfigError(f"option {entry!r} is not NAME=VALUE", hint="-o ume_flight_size=5000")
        found[name] = value
    return found
