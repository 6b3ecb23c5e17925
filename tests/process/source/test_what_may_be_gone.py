"""Stores have forgotten what they had: the source goes on where the others are, and its program is told by an
event what may be gone (docs/design.md 14, docs/semantics.md B.1). Its log says so, too."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
from support.kept_messages import kept
from support.leftovers import remove_objects
from support.recorded_events import Events
from support.three_stores import SHORT, SOURCE, everywhere, send
from support.workers import until

import holdfast as hf

if TYPE_CHECKING:
    from collections.abc import Callable

    from process.conftest import ThreadStore

PATIENT = {**SOURCE, "ume_registration_interval": 60_000}
"""It decides when all three have answered."""


@pytest.mark.parametrize("wiped", ["ab", "a"])
def test_what_was_stable_with_wiped_stores_alone_is_told(
    run_store: Callable[..., ThreadStore], wipe: Callable[[str], None], own_domain: str, wiped: str,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """5..9 were stable at a and b. Where b is left it has them, and there is nothing to tell."""
    stores = {name: run_store(name, "disk") for name in "abc"}
    with hf.Context(session_id=7) as ctx:
        with ctx.source("quotes", options=SOURCE) as src:
            everywhere(src)
            sent = send(src, 5)
            until("c has them", lambda: kept(stores["c"]) == sent)
        stores.pop("c").stop()
        with ctx.source("quotes", options=SOURCE) as src:
            src.wait_registered(SHORT)
            sent += send(src, 5)
            until("both have it all", lambda: all(kept(store) == sent for store in stores.values()))
    for store in stores.values():
        store.stop()
    for name in wiped:
        wipe(name)
    remove_objects(own_domain)
    stores = {name: run_store(name, "disk") for name in "abc"}
    events = Events()
    with hf.Context(session_id=7) as ctx, ctx.source("quotes", options=PATIENT, on_event=events) as src:
        src.wait_registered(SHORT)
        assert src.next_sequence_number == (5 if wiped == "ab" else 10)
        kinds = [type(event).__name__ for event in events]
        told = [(event.text, event.store) for event in events.of("RegistrationError")]
        text = (
            "numbering goes on at 5; a, b may have had more and cannot know it any more: messages from 5 on that were stable "
            "only there are gone"
        )
        assert told == ([(text, "a")] if wiped == "ab" else [])
        warned = [
            line for name, level, line in caplog.record_tuples if (name, level) == ("holdfast.source", logging.WARNING)
        ]
        assert warned == ([f"topic 'quotes' (session ID 0x7): {text}"] if wiped == "ab" else [])
        assert not told or kinds.index("RegistrationError") < kinds.index("RegistrationComplete")
        sent = sent[: src.next_sequence_number] + send(src, 5)
        until("all have it all", lambda: all(kept(store) == sent for store in stores.values()))
