"""Lives of sources beside the disk stores a, b and c, which keep censuses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.three_stores import SHORT, SOURCE, send, waits

import holdfast as hf
from holdfast.engine.memory.domain import Domain

if TYPE_CHECKING:
    from collections.abc import Callable

    from process.conftest import ThreadStore

__all__ = ["ALL", "Stores", "begins", "file_of", "forget", "lose_files", "only_c_has_it", "waited"]

Stores = dict[str, "ThreadStore"]
ALL: dict[str, Any] = {"ume_registration_interval": 60_000}
"""It begins when all of its stores have answered, so that each is told of all the others."""


def begins(session: int, at: int = 0, count: int = 3, **options: Any) -> None:
    """A life of a source; its first number is this one."""
    with hf.Context(session_id=session) as ctx, ctx.source("quotes", options={**SOURCE, **options}) as src:
        src.wait_registered(SHORT)
        assert src.next_sequence_number == at
        send(src, count)


def waited(session: int, reason: str, **options: Any) -> None:
    """It does not begin, and says why."""
    with hf.Context(session_id=session) as ctx, ctx.source("quotes", options={**SOURCE, **options}) as src:
        waits(src, reason)


def file_of(name: str, own_domain: str) -> Path:
    domain = Domain(own_domain)
    try:
        return domain.census_path(name)
    finally:
        domain.close()


def forget(name: str, own_domain: str) -> None:
    """As a reboot does."""
    domain = Domain(own_domain)
    try:
        domain.info_path(name).unlink()
        domain.census_path(name).unlink(missing_ok=True)
    finally:
        domain.close()


def lose_files(store: ThreadStore) -> None:
    """Of a store that has stopped: nobody reads its state."""
    path = Path(store.store.directory.path)
    path.rename(path.with_name(f"{path.name}-away"))


def only_c_has_it(stores: Stores, run_store: Callable[..., ThreadStore], stop: str = "cde") -> None:
    """Life 1 was on c, d and e; a and b have not heard of it. Then these go away."""
    for name in "de":
        stores[name] = run_store(name, "disk")
    begins(9, ume_store_name=list("cde"), **ALL)
    for name in stop:
        stores[name].stop()
