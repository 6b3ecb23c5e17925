"""A source dies between a store's look at what BEGIN says and the attaching of its ring: that is no fault of
the store (engine/store/sources.py)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
from support.changing_stores import SESSION, options, sent
from support.workers import until

import holdfast as hf
from holdfast.engine.memory.domain import unlink_object
from holdfast.engine.memory.mapping import UnpublishedError, attach_stream
from holdfast.engine.store import repository
from holdfast.engine.store.repository import Repository

if TYPE_CHECKING:
    from collections.abc import Callable

    from process.conftest import ThreadStore


@pytest.mark.parametrize("unpublished", [False, True])
def test_a_ring_that_goes_before_it_is_attached_is_one_line_and_the_store_goes_on(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    unpublished: bool,
) -> None:  # fmt: skip
    store = run_store("a", "disk")
    take_part, begun, failed = Repository._take_part, list[int](), list[str]()

    def dies(self: Repository) -> None:
        take_part(self)
        if not begun:
            begun.append(self.source.incarnation)
            if not unpublished:
                unlink_object(self.streams()[-1].name)

    def half_made(name: str) -> Any:
        if unpublished and not failed:
            failed.append(name)
            raise UnpublishedError(name)
        return attach_stream(name)

    monkeypatch.setattr(Repository, "_take_part", dies)
    monkeypatch.setattr(repository, "attach_stream", half_made)
    with caplog.at_level(logging.WARNING, "holdfast.store"):
        with hf.Context(session_id=SESSION) as ctx, ctx.source("quotes", options=options("a")):
            until("BEGIN was kept", lambda: "BEGIN is kept, and its source has gone" in caplog.text)
        found = [record for record in caplog.records if "BEGIN is kept, and its source has gone" in record.getMessage()]
        assert "is gone: /dev/shm has no" in found[0].getMessage()
        assert not [record for record in caplog.records if record.exc_info]
    assert sent("a", 2) == 0
    assert not store.store.crashed
