"""What may be gone stands in a source's log: its program may listen to no event."""

from __future__ import annotations

import logging

import pytest

from holdfast.engine.rules.registration import Forgot
from holdfast.engine.source.quorum_news import QuorumNews

TEXT = (
    "numbering goes on at 50; a, b may have had more and cannot know it any more: messages from 50 on that were stable only "
    "there are gone"
)


@pytest.mark.parametrize(
    ("session", "given", "called"),
    [
        (7, (0, 0), "topic 'quotes' (session ID 0x7)"),
        (7, (5, 5), "topic 'quotes' (session ID 0x7)"),
        (0, (5, 5), "topic 'quotes' (RegID 5)"),
        (0, (5, 0), "topic 'quotes' (RegID 5)"),
        (0, (5, 6), "topic 'quotes' (RegIDs 5, 6)"),
        (0, (0, 0), "topic 'quotes'"),
    ],
)
def test_what_stores_have_forgotten_is_a_warning_once(
    caplog: pytest.LogCaptureFixture, session: int, given: tuple[int, ...], called: str
) -> None:
    news = QuorumNews("quotes", session, ["a", "b"], given)
    for stores, start in ((("a", "b"), 50), (("b",), 60), (("a", "b"), 50)):  # it began anew twice
        news.forgot(Forgot(stores, start))
    first, second = caplog.record_tuples
    assert first == ("holdfast.source", logging.WARNING, f"{called}: {TEXT}")
    assert second[2].startswith(f"{called}: numbering goes on at 60; b may have had more")
