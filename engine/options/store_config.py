"""What a store is: its names, its place, its options. Values only; `check_config` says what is wrong with
them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..errors import ConfigError, UsageError
from .store_names import PORT_MAX, check_name, is_port
from .topic_rules import TopicOptions, Topics
from .values import is_domain

if TYPE_CHECKING:
    from _typeshed import StrPath

__all__ = ["StoreConfig", "check_config"]

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """What a store is. ``options``: UM's store and topic options by name; topic options hold for every topic.

    Raises:
        ConfigError: a name, a domain, a port or a path that no store can have.
    """

    name: str
    directory: StrPath
    """Its state, and its logs if they lie on disk; made if missing. One store at a time uses it."""
    domain: str | None = None
    """Default: ``$HOLDFAST_DOMAIN``, else ``default``."""
    type: str = "disk"
    """``disk``, ``memory`` or ``no-cache``: of a topic that option repository-type says nothing about."""
    acknowledge: str | None = None
    """``disk`` or ``memory``: the level that its stability means; None = as the type implies."""
    port: int | None = None
    """It also answers to ``127.0.0.1:PORT``. No port is opened: it is a name, as UM's configurations have it.
    0: none."""
    options: Mapping[str, object] = field(default_factory=dict)
    topics: Sequence[TopicOptions] = ()
    """Options by topic; when there are any, a topic that none describes is refused."""
    aliases: Sequence[str] = ()
    """Other names that it answers to, where they are free."""
    cache: StrPath | None = None
    """Where the logs of a disk store lie; None = below ``directory``."""

    def __post_init__(self) -> None:
        """Raises ConfigError: names and places become paths, so what cannot be one never becomes a
        StoreConfig."""
        check_name(self.name)
        _check_path("directory", self.directory, self.name)
        if self.cache is not None:
            _check_path("cache", self.cache, self.name)
        if self.domain is not None:
            _check_domain(self.domain, self.name)
        if self.port not in (None, 0) and not is_port(self.port):
            raise ConfigError(
                f"port {self.port!r} of store {self.name}", hint=f"1 to {PORT_MAX}, or None or 0 for none"
            )
        if isinstance(self.aliases, str) or not isinstance(self.aliases, Sequence):
            raise ConfigError(f"aliases {self.aliases!r} of store {self.name}", hint="a list of names")
        for alias in self.aliases:
            check_name(alias, f"alias of store {self.name}")


def _check_path(what: str, path: object, name: str) -> None:
    """An empty one would be the working directory, which nobody meant."""
    text = path.__fspath__() if hasattr(path, "__fspath__") else path
    if not isinstance(text, str) or not text or _CONTROL.search(text):
        hint = "one that is this store's alone, without control characters"
        raise ConfigError(f"{what} {path!r} of store {name} is not a path", hint=hint)


def _check_domain(domain: object, name: str) -> None:
    """An empty one is the default."""
    if not isinstance(domain, str) or (domain and not is_domain(domain)) or _CONTROL.search(domain):
        raise ConfigError(
            f"domain {domain!r} of store {name} is not a name",
            hint="letters, digits and _ . + -, 64 at most, or the absolute path of a directory with such a name",
        )


def check_config(config: StoreConfig) -> Topics:
    """The rules of its topics.

    Raises:
        ConfigError: what no store can be.
        UsageError: it is no StoreConfig.
    """
    if not isinstance(config, StoreConfig):
        raise UsageError(f"{config!r} does not describe a store", hint="give a StoreConfig")
    if not isinstance(config.options, Mapping):
        raise ConfigError(f"options {config.options!r} of store {config.name}", hint="a mapping of names to values")
    if isinstance(config.topics, str) or not all(isinstance(each, TopicOptions) for each in config.topics):
        raise ConfigError(f"topics {config.topics!r} of store {config.name}", hint="a list of TopicOptions")
    return Topics(config.type, config.acknowledge, config.options, config.topics)
