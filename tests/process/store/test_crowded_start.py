"""A store that was killed with more logs open than it may open at its next start: it starts, serves, and
opens the others in turn (engine/store/shelf.py)."""

from __future__ import annotations

import contextlib
import errno
from typing import TYPE_CHECKING

from support.limited_store import MOST, OPTIONS, LimitedStore
from support.receiving import SHORT
from support.shelved_logs import kept, over, shelve_at_once, shelved
from support.workers import stand_still, until

import holdfast as hf
from holdfast.engine.log.sight import load_state
from holdfast.engine.store import shelf
from holdfast.engine.store.limits import FILES_KEPT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest
    from process.conftest import ThreadStore

COUNT = 80
"""Their logs need 400 descriptors."""


def test_a_killed_store_opens_in_turn_what_it_may_not_have_open_at_once(
    limited: Callable[..., LimitedStore], tmp_path: Path
) -> None:
    store = limited(4 * MOST, 4 * MOST)
    with contextlib.ExitStack() as stack:
        ctx = stack.enter_context(hf.Context())
        sources = [stack.enter_context(ctx.source(f"old-{number}", options=OPTIONS)) for number in range(COUNT)]
        for src in sources:
            src.wait_registered(SHORT)
            src.wait_stable(src.send(b"old"), SHORT)
        stand_still(store.process.pid)  # while it is not known to be dead, nobody refuses a message
        for src in sources:
            src.send(b"in its ring")
        store.process.kill()
        store.process.wait(SHORT)
    again = limited(MOST // 2, MOST // 2)
    assert again.descriptors() <= MOST // 2 - FILES_KEPT
    (said,) = again.lines("logs are opened later, in turn")
    assert "RLIMIT_NOFILE" in said
    with hf.Context() as ctx:
        with ctx.source("new", options=OPTIONS) as src:
            src.wait_registered(SHORT)
            src.wait_stable(src.send(b"new"), SHORT)
        for number in (0, COUNT - 1):  # whoever asks for one of the others has it opened
            with ctx.receiver(f"old-{number}") as rcv:
                for content in (b"old", b"in its ring"):
                    message = rcv.receive(timeout=SHORT)
                    assert message is not None
                    assert bytes(message) == content

    def at_rest() -> bool:
        state = load_state(tmp_path / "a")
        return state is not None and sum(source.is_shelved for source in state.sources) >= COUNT

    until("all are at rest", at_rest)
    assert again.lines("[ERROR]") == []


def test_a_log_whose_source_has_closed_is_well_again_when_what_failed_is_over(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it is never put to rest."""
    shelve_at_once(monkeypatch)
    store = run_store("a", "disk")
    drainer = store.store.drainer
    with hf.Context() as ctx:
        with monkeypatch.context() as busy:
            busy.setattr(shelf, "_is_whole", lambda *_: False)
            uuid = over(ctx, 1)
            until("its ring is left", lambda: drainer.repositories[uuid].stream is None)
            drainer.call(lambda: drainer.say(kept(store, uuid), OSError(errno.EMFILE, "for a moment")))
        shelved(store, uuid)
    assert drainer.failures == {}
