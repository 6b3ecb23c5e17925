"""What several verbs do with their arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..engine.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..config import Configuration
    from ..context import Context
    from ..engine.client.context import Context as Driver
    from ..engine.options.resolve import Options

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

    def defaults(self) -> Configuration:
        """The configuration files; raises ConfigError."""
        from ..config import Configuration

        return Configuration(self.config, self.application, None)

    def settled(self, scope: str, given: Mapping[str, object], topic: str, defaults: Configuration) -> Options:
        """Options that a source or receiver of ``topic`` would have; joins nothing. Raises ConfigError."""
        from ..engine.options.resolve import as_given, resolve

        own = {} if self.session is None else {"ume_session_id": self.session}
        whole = resolve("context", own, layers=defaults.layers("context"))
        return resolve(scope, as_given(scope, given), whole, defaults.layers(scope, topic))

    def joined(self, defaults: Configuration) -> Driver:
        """A context for sources alone, with configuration files that are read already; raises ConfigError."""
        from ..engine.client.context import Context as Driver

        return Driver(self.domain, self.session, defaults=defaults)


def pairs(given: list[str]) -> dict[str, object]:
    """``NAME=VALUE`` of every -o. Raises ConfigError."""
    found: dict[str, object] = {}
    for entry in given:
        name, equals, value = entry.partition("=")
        if not equals or not name:
            raise ConfigError(f"option {entry!r} is not NAME=VALUE", hint="-o ume_flight_size=5000")
        found[name] = value
    return found
