"""``--all-domains``: a verb, once for each domain of this user."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ..engine.errors import ConfigError, Error
from ..engine.memory.domain import Domain
from ..engine.tools.orphans import known_domains
from .lines import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["each_domain", "exclude", "heading"]

UNSEEN = 1
_T = TypeVar("_T")


def exclude(name: str | None) -> None:
    """Raises ConfigError where a domain is named as well (``--domain``)."""
    if name is not None:
        raise ConfigError("--all-domains and --domain exclude each other", hint="give one of them")


def each_domain(look: Callable[[Domain], _T]) -> Iterator[tuple[str, _T | None, str, int]]:
    """For each domain its path, and what ``look`` makes of it, or why it cannot be looked at and the exit
    code for that. The others are looked at all the same."""
    for known in known_domains():
        if known.unseen:
            yield known.path, None, known.unseen, UNSEEN
            continue
        try:
            domain = Domain(known.path, join=False, make=False)
            try:
                seen = look(domain)
            finally:
                domain.close()
        except Error as error:
            yield known.path, None, str(error), error.exit_code
        except OSError as error:  # it goes meanwhile
            yield known.path, None, error.strerror or str(error), UNSEEN
        else:
            yield known.path, seen, "", 0


def heading(path: str, why: str) -> None:
    """Before what is said of a domain; and why nothing is."""
    say(f"== {path}")
    if why:
        say(f"domain {path} cannot be looked at: {why}", error=True)
