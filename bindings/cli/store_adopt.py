"""``holdfast store adopt-empty``: the operator's word that a store without state has nothing that others wait
for."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from ..engine.errors import ConfigError, DirectoryInUseError, NoDomainError
from ..engine.log.info_file import read_info
from ..engine.memory.domain import Domain
from ..engine.options.store_names import is_store_name
from ..engine.store.first_state import adopt_empty
from .lines import say

__all__ = ["adopt"]

RUNS = "stop it first: a store that runs would not see it"


def adopt(store: str, domain: str | None) -> int:
    """Marks the store that is called so, or whose directory it is."""
    if os.sep in store or os.path.isdir(store):
        path = Path(store).absolute()
        if not path.is_dir():
            raise ConfigError(f"{store} is not a directory", hint="give a store's directory, or its name")
        name = path.name if is_store_name(path.name) else "store"
    else:
        path, name = _place_of(store, domain), store
    try:
        state = adopt_empty(path, name, _doubts(domain))
    except DirectoryInUseError as error:
        error.hint = RUNS
        raise
    say(f"store {state.name} ({path}) votes as one that never had a message, from its next start to its end")
    return 0


def _doubts(name: str | None) -> Path | None:
    """Of the domain, if any store has run in it."""
    with contextlib.suppress(NoDomainError), contextlib.closing(Domain(name, join=False, make=False)) as domain:
        return domain.doubts
    return None


def _place_of(store: str, name: str | None) -> Path:
    domain = Domain(name, join=False, make=name is None)
    try:
        info = read_info(domain, store)
    finally:
        domain.close()
    if info is None:
        hint = "holdfast stat lists the stores; or give its directory"
        raise ConfigError(f"no store named {store} ever ran in domain {domain.name}", hint=hint)
    return Path(info.directory)
