"""What several verbs do with their arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..engine.errors import ConfigError

if TYPE_CHECKING:
    from ..context import Context

__all__ = ["Membership", "pairs"]


@dataclass(frozen=True, slots=True)
class Membership:
    """As whom a verb takes part in a domain."""

    domain: str | None
    session: str | None
    config: str | None
    application: str | None

    def context(self) -> Context:
        """The context; raises ConfigError."""
        from ..context import Context

        return Context(self.domain, self.session, application=self.application, config=self.config)


def pairs(given: list[str]) -> dict[str, object]:
    """``NAME=VALUE`` of every -o. Raises ConfigError."""
    found: dict[str, object] = {}
    for entry in given:
        name, equals, value = entry.partition("=")
        if not equals or not name:
            raise ConfigError(f"option {entry!r} is not NAME=VALUE", hint="-o ume_flight_size=5000")
        found[name] = value
    return found
