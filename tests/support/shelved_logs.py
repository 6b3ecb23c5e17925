"""Sources that are over, and a store of this process that shelves their logs at once."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from support.three_stores import SOURCE, everywhere, send
from support.workers import until

from holdfast.engine.log.sight import load_state
from holdfast.engine.store import rounds, shelf

if TYPE_CHECKING:
    import pytest
    from process.conftest import ThreadStore

    import holdfast as hf
    from holdfast.engine.log.state_file import SourceState

__all__ = ["is_shelved", "kept", "mapped_files", "open_files", "over", "shelve_at_once", "shelved"]


def shelve_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log is shelved as soon as it may be, and a round goes on a hundred times a second. It waits for slow
    disks."""
    monkeypatch.setattr(shelf, "IDLE_NS", 0)
    monkeypatch.setattr(shelf, "LOOK_NS", 10_000_000)
    monkeypatch.setattr(rounds, "LOOK_NS", 10_000_000)
    monkeypatch.setattr(shelf, "BOARD_NS", 0)
    monkeypatch.setattr(rounds, "WALK_S", 90.0)


def over(ctx: hf.Context, session: int, count: int = 3, stores: str = "a") -> bytes:
    """The identity of a source that has sent ``count`` messages, and has ended."""
    with ctx.source("quotes", options={**SOURCE, "ume_session_id": session, "ume_store_name": list(stores)}) as src:
        everywhere(src)
        send(src, count)
        return src.uuid


def kept(store: ThreadStore, uuid: bytes) -> SourceState:
    """What the store knows of a source."""
    return next(source for source in store.store.state.sources if source.uuid == uuid)


def is_shelved(store: ThreadStore, uuid: bytes) -> bool:
    """Its log is closed, and the state says so. False: also where the store does not know it."""
    said = any(source.uuid == uuid and source.is_shelved for source in store.store.state.sources)
    return said and store.store.holdings.repository(uuid) is None


def open_files() -> list[str]:
    """Paths of what this process has open."""
    found: list[str] = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # of the listing itself
            found.append(os.readlink(f"/proc/self/fd/{name}"))
    return found


def mapped_files() -> list[str]:
    """Lines of what this process has mapped, with the paths."""
    return Path("/proc/self/maps").read_text().splitlines()


def shelved(store: ThreadStore, *uuids: bytes) -> None:
    """Waits until these are, and the state in the store's directory says so."""
    until("their logs are shelved", lambda: all(is_shelved(store, uuid) for uuid in uuids))

    def saved() -> bool:
        state = load_state(store.store.directory.path)
        return state is not None and {*uuids} <= {source.uuid for source in state.sources if source.is_shelved}

    until("the state is saved", saved)
