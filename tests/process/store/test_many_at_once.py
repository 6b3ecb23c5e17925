"""Many sources that register at once at a store near its limit of descriptors: none is granted what another
one will need (engine/store/limits.py)."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from support.limited_store import MOST, OPTIONS, LimitedStore, named
from support.receiving import SHORT
from support.shelved_logs import shelve_at_once
from support.three_stores import SOURCE
from support.workers import until

import holdfast as hf
from holdfast.engine.control import wire
from holdfast.engine.native.core import lib
from holdfast.engine.store.limits import FILES_LAST
from holdfast.engine.store.sources import SourceDesk
from holdfast.events import source as events

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest
    from process.conftest import ThreadStore


def test_sources_that_register_at_once_take_no_more_than_there_is(limited: Callable[..., LimitedStore]) -> None:
    store = limited()
    with contextlib.ExitStack() as stack:
        ctx = stack.enter_context(hf.Context())
        seen: list[list[object]] = [[] for _ in range(60)]
        sources = [
            stack.enter_context(ctx.source(f"live-{number}", options=OPTIONS, on_event=said.append))
            for number, said in enumerate(seen)
        ]

        def told(said: list[object]) -> bool:
            return any(isinstance(event, events.RegistrationComplete | events.RegistrationError) for event in said)

        until("each is taken or refused", lambda: all(map(told, seen)))
        refused = [event for said in seen for event in said if isinstance(event, events.RegistrationError)]
        for event in refused:
            named(event.text, store.pid)
            assert "no new log is opened" in event.text
        ready = [any(isinstance(event, events.RegistrationComplete) for event in said) for said in seen]
        taken = [src for src, is_ready in zip(sources, ready, strict=True) if is_ready]
        assert 30 < len(taken) < 60, "those that fit, and no more"
        for src in taken:
            src.wait_stable(src.send(b"one"), SHORT)
        for src in taken:  # the next segment of each is there by now, or is being made
            src.wait_stable(src.send(b"two"), SHORT)
        assert store.descriptors() <= MOST - FILES_LAST
    text = store.log.read_text()
    assert text.index("is close to a limit") < text.index("failed to do this"), "before it is reached"
    assert store.lines("Traceback") == []


def test_what_an_open_log_will_still_need_counts_as_used(run_store: Callable[..., ThreadStore]) -> None:
    store = run_store("a", "disk")
    limits, drainer = store.store.holdings.limits, store.store.drainer
    with hf.Context() as ctx, ctx.source("quotes", options={**SOURCE, "ume_store_name": ["a"]}) as src:
        src.wait_registered(SHORT)
        (repository,) = drainer.repositories.values()
        until("it has a spare", lambda: limits._ask().files == 1)  # the segment comes with the first message
        assert drainer.call(lambda: lib.hf_log_files(repository.log)) == lib.HF_LOG_FILES - 1
        src.wait_stable(src.send(b"one"), SHORT)
        until("it has all", lambda: limits._ask().files == 0)
        until("its first look through the log is over", lambda: _opened(repository.path) == lib.HF_LOG_FILES)


def _opened(path: object) -> int:
    return sum(_leads_to(each, path) for each in os.listdir("/proc/self/fd"))


def _leads_to(descriptor: str, path: object) -> bool:
    with contextlib.suppress(FileNotFoundError):  # of the listing itself
        return os.readlink(f"/proc/self/fd/{descriptor}").startswith(str(path))
    return False


def test_a_log_of_a_claimant_that_has_died_before_it_began_owes_nothing_for_long(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    shelve_at_once(monkeypatch)
    store = run_store("a", "disk")
    limits, granted = store.store.holdings.limits, []

    def refused(_: SourceDesk, client: object, request: wire.Begin) -> wire.Refused:
        granted.append(limits._ask())
        return wire.Refused(request.id, "failed", "it begins never")

    monkeypatch.setattr(SourceDesk, "begin", refused)
    with hf.Context() as ctx:
        src = ctx.source("quotes", options={**SOURCE, "ume_store_name": ["a"]})
        until("it was granted", lambda: bool(granted))
        assert granted[0].files >= 1
        assert granted[0].mappings > 0
        src.close()
    until("nothing is owed", lambda: limits._ask() == (0, 0))
