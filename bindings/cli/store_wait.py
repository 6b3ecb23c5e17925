"""``holdfast store wait``: returns when a store runs, or when it has its say again. Read from shared memory
and files; nobody is asked."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from ..engine.errors import ConfigError, RegistrationTimeout
from ..engine.log.info_file import read_info
from ..engine.memory.domain import Domain
from ..engine.tools import snapshot
from ..engine.tools.readiness import WANTED, missing
from .lines import say

if TYPE_CHECKING:
    from ..engine.tools.readiness import Wanted
    from ..engine.tools.snapshot import Snapshot

__all__ = ["wait"]

LOOK_S = 0.1
"""Between two looks."""
SAID_MAX = 5
"""Lines of what is missing."""


def wait(store: str, state: str, timeout: float, name: str | None) -> int:
    """Raises ConfigError: no such store ever ran, or no such state. RegistrationTimeout: not in time, and
    what is missing."""
    wanted = next((each for each in WANTED if each == state), None)
    if wanted is None:
        raise ConfigError(f"state {state!r} is none that can be waited for", hint=" or ".join(WANTED))
    with contextlib.closing(Domain(name, join=False, make=name is None)) as domain:
        own = _own_name(domain, store)
        end = time.monotonic() + timeout
        while lacks := missing(seen := snapshot.take(domain), own, _names(domain, own, seen), wanted):
            left = end - time.monotonic()
            if left <= 0:
                raise _late(store, wanted, timeout, lacks)
            time.sleep(min(LOOK_S, left))
    say(f"store {store} is {wanted}")
    return 0


def _own_name(domain: Domain, store: str) -> str:
    """A store has further names: a port, and the one of its XML."""
    info = read_info(domain, store)
    if info is not None:
        return info.name
    known = ", ".join(domain.store_names()) or "none"
    raise ConfigError(f"no store named {store} ever ran in domain {domain.name}", hint=f"stores there: {known}")


def _names(domain: Domain, own: str, seen: Snapshot) -> set[str]:
    """What sources call this store."""
    declared = {at.name for source in seen.sources for at in source.stores}
    return {each for each in declared if (info := read_info(domain, each)) is not None and info.name == own}


def _late(store: str, wanted: Wanted, timeout: float, lacks: list[str]) -> RegistrationTimeout:
    more = f"; and {len(lacks) - SAID_MAX} more" if len(lacks) > SAID_MAX else ""
    text = f"store {store} is not {wanted} after {timeout:g} s: {'; '.join(lacks[:SAID_MAX])}{more}"
    return RegistrationTimeout(text, hint="holdfast stat shows the others; or wait longer (--timeout)")
