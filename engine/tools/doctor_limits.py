"""What each running store has of its limits. Those of the process that looks say nothing of a store's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..native.limits import file_size_limit, uses_of
from ..rules.nearness import NEAR, is_near
from .finding import Finding
from .snapshot import store_files

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..memory.domain import Domain

__all__ = ["store_limits"]


def store_limits(domain: Domain) -> Iterator[Finding]:
    """Descriptors, mappings and address space of each running store, and the size of files that it may
    write."""
    running = [store for store in store_files(domain) if store.state == "running" and store.info is not None]
    if not running:
        yield Finding("limits", ok=True, found="no store runs: there are no limits to look at")
    for store in running:
        assert store.info is not None
        pid = store.info.pid
        uses = uses_of(pid) if store.is_seen else []
        if not uses:
            said = f"store {store.name}: limits and use of process {pid} cannot be read"
            yield Finding("limits", ok=False, found=said, remedy="run this as the store's user, in its pid namespace")
        for use in uses:
            near = is_near(use.used, use.most)
            said = f"store {store.name}: {use}"
            remedy = f"from {NEAR} % on, new sources may soon be refused: {use.remedy}" if near else ""
            yield Finding("limits", ok=not near, found=said, remedy=remedy)
        size = file_size_limit(pid) if uses else None
        if size is not None:
            said = f"store {store.name}: RLIMIT_FSIZE of process {pid} is {size:,} bytes"
            remedy = "ulimit -f unlimited, and start it again: logs are files, and a write beyond the limit fails"
            yield Finding("limits", ok=False, found=said, remedy=remedy)
