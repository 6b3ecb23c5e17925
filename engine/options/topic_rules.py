"""What a store does with each topic: which options hold for it. Rules without I/O (docs/semantics.md A.1, I.1
to I.4).

A store's options hold for every topic. With topic patterns (`StoreConfig.topics`) the first one that matches
a topic adds its own options, which go before the store's; a topic that none of them matches is not kept. A
direct pattern is the topic itself. A PCRE pattern is a regular expression that is found anywhere in the
topic, as UM's "." for every topic; it is Python's `re`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..errors import ConfigError
from ..rules.refusal import Refusal
from .resolve import find, resolve
from .table import STORE, WHOLE_STORE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .resolve import Options

__all__ = ["TopicOptions", "TopicRules", "Topics"]

RESTORE_HOURS_MAX = 336
TYPES = ("disk", "memory", "no-cache")
DISK_SHARE = 0.9
"""So much of the disk limit may the memory limit be at most (docs/semantics.md I.3)."""


@dataclass(frozen=True, slots=True)
class TopicOptions:
    """One topic pattern of a store. What is wrong with it, :class:`Topics` says."""

    pattern: str
    type: str = "direct"
    """``direct`` or ``PCRE``; ``regexp``, UM's old word, is taken for PCRE."""
    options: Mapping[str, object] = field(default_factory=dict)
    """Those of one topic, by UM's names."""
    restore_last: int | None = 0
    """When the store starts, it offers what is at most this many hours older than the newest message; 0 =
    all, None = nothing."""


@dataclass(frozen=True, slots=True)
class TopicRules:
    """What holds for one topic."""

    options: Options
    type: str
    """Of a repository that is made now: ``disk``, ``memory`` or ``no-cache``."""
    acknowledge: str
    """``disk`` or ``memory``: what its stability means. A no-cache repository acknowledges nothing."""
    restore_last: int | None = 0

    def retain_bytes(self, kind: str) -> int:
        """What a repository of this type keeps."""
        return int(
            self.options.repository_disk_file_size_limit if kind == "disk" else self.options.repository_size_threshold
        )


class Topics:
    """A store's rules, by topic. The arguments are StoreConfig's.

    Raises:
        ConfigError: an option or a pattern is wrong, or values contradict each other; of a pattern, the text
            names it.
    """

    def __init__(
        self, kind: str, acknowledge: str | None, options: Mapping[str, object], patterns: Sequence[TopicOptions] = ()
    ) -> None:
        if kind not in TYPES:
            raise ConfigError(f"store type {kind!r}: expected one of {', '.join(TYPES)}")
        given = dict(options)
        if acknowledge is not None:
            given.setdefault("holdfast-acknowledge", acknowledge)
        self.store = _rules(kind, given, {} if patterns else given)
        self._patterns: list[tuple[Callable[[str], object], TopicRules]] = []
        self._names = [pattern.pattern for pattern in patterns]
        for pattern in patterns:
            try:
                self._patterns.append((_matcher(pattern), _of_pattern(kind, given, pattern)))
            except ConfigError as wrong:
                raise ConfigError(f"topic pattern {pattern.pattern!r}: {wrong.args[0]}", hint=wrong.hint) from None

    def of(self, topic: str) -> TopicRules | None:
        """The rules of a topic that is registered; None: this store does not keep it."""
        if not self._patterns:
            return self.store
        return next((rules for matches, rules in self._patterns if matches(topic)), None)

    def kept(self, topic: str) -> TopicRules:
        """The rules of a topic that is kept already: the store's own, if no pattern matches it any more."""
        return self.of(topic) or self.store

    def all(self) -> list[TopicRules]:
        """Every set of rules that may hold for a topic."""
        return [self.store, *(rules for _, rules in self._patterns)]

    @property
    def disk_limit(self) -> int:
        """What a source of one of its topics keeps on disk at most; 0 where none is kept there."""
        return max((rules.retain_bytes("disk") for rules in self.all() if rules.type == "disk"), default=0)

    @property
    def type(self) -> str:
        """Of the repositories that are made now; ``mixed`` when they differ from topic to topic."""
        types = {rules.type for _, rules in self._patterns} or {self.store.type}
        return types.pop() if len(types) == 1 else "mixed"

    def refusal(self, topic: str) -> Refusal:
        """Why this store does not keep a topic."""
        shown = ", ".join(repr(name) for name in self._names[:5]) + (", ..." if len(self._names) > 5 else "")
        return Refusal(
            "topic_not_kept",
            f"this store does not keep topic {topic!r}: none of its topic patterns matches ({shown}); add one to its "
            f"configuration, or take the store out of the source's list",
        )


def kept_type(configured: str, kept: str, called: str) -> tuple[str, str]:
    """The type of a repository that exists, and what to warn of: a changed configuration does not change it
    (docs/semantics.md I.4).

    ``kept``: the type that it was made with, "" if nobody wrote it down.
    """
    if not kept or kept == configured:
        return configured, ""
    return kept, f"{called} stays a {kept} repository until it is deregistered; the configuration says {configured}"


def _of_pattern(kind: str, options: Mapping[str, object], pattern: TopicOptions) -> TopicRules:
    whole = [name for name in pattern.options if find(STORE, name).name in WHOLE_STORE]
    if whole:
        raise ConfigError(f"{whole[0]} is an option of the whole store", hint="give it to the store, not to a topic")
    hours = pattern.restore_last
    if hours is not None and not 0 <= hours <= RESTORE_HOURS_MAX:
        raise ConfigError(
            f"restore-last of {hours} hours: expected 0 (all) to {RESTORE_HOURS_MAX}, or None for nothing"
        )
    own = {find(STORE, name).name: value for name, value in pattern.options.items()}
    inherited = {find(STORE, name).name: value for name, value in options.items()}
    return _rules(kind, {**inherited, **own}, own, hours)


def _matcher(pattern: TopicOptions) -> Callable[[str], object]:
    if not pattern.pattern:
        raise ConfigError("it is empty", hint='a PCRE pattern "." matches every topic')
    if pattern.type == "direct":
        return pattern.pattern.__eq__
    if pattern.type not in ("PCRE", "regexp"):
        raise ConfigError(f"type {pattern.type!r}: expected direct or PCRE")
    try:
        return re.compile(pattern.pattern).search
    except re.error as wrong:
        raise ConfigError(f"not a regular expression: {wrong}") from None


def _rules(
    kind: str, given: Mapping[str, object], own: Mapping[str, object], restore_last: int | None = 0
) -> TopicRules:
    """``own``: those of ``given`` that were given for these topics alone."""
    options = resolve(STORE, given)
    kind = str(options.repository_type or kind)
    level = str(options.holdfast_acknowledge or ("disk" if kind == "disk" else "memory"))
    if kind == "memory" and level == "disk":
        raise ConfigError(
            "a memory repository cannot acknowledge 'disk'", hint="leave holdfast-acknowledge out, or say memory"
        )
    _check_sizes(kind, options, own)
    _check_timers(options)
    return TopicRules(options, kind, level, restore_last)


def _check_sizes(kind: str, options: Options, own: Mapping[str, object]) -> None:
    """docs/semantics.md I.3. A limit that was not given follows the one that was."""
    disk, limit = options.repository_disk_file_size_limit, options.repository_size_limit
    buffer = options.repository_disk_async_buffer_length
    if kind != "disk":
        if "repository-disk-file-size-limit" in own:
            raise ConfigError(
                f"repository-disk-file-size-limit = {disk} on a {kind} repository: it has no disk file",
                hint="use repository-size-limit, or repository-type disk",
            )
        return
    if options.given("repository-size-limit") and limit > disk * DISK_SHARE:
        raise ConfigError(
            f"repository-size-limit = {limit} is more than 90 % of repository-disk-file-size-limit = {disk}",
            hint="lower the one or raise the other",
        )
    if options.given("repository-disk-async-buffer-length") and buffer >= disk:
        raise ConfigError(
            f"repository-disk-async-buffer-length = {buffer}: repository-disk-file-size-limit is {disk}",
            hint="lower the one or raise the other",
        )


def _check_timers(options: Options) -> None:
    """Keepalives have no effect here, so only one that was given is compared."""
    if not options.given("keepalive-interval"):
        return
    keepalive = options.keepalive_interval
    for side in ("source", "receiver"):
        timeout = getattr(options, f"{side}_activity_timeout")
        if 0 < timeout < 2 * keepalive:
            raise ConfigError(
                f"{side}-activity-timeout = {timeout} is less than twice keepalive-interval = {keepalive}",
                hint="raise the timeout, or lower the interval",
            )
