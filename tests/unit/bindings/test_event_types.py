"""What a type checker knows of events: a handler gets one of a source's, or of a receiver's, and a name that
is misspelt is found.

Each ``type: ignore`` here is a mistake that ``make types`` has to find: where it does not, the comment is
unused, which is an error itself.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, get_args

import pytest

import holdfast as hf
from holdfast import events

if TYPE_CHECKING:
    from types import ModuleType


def of_source(event: events.SourceEvent) -> None:
    match event:
        case events.MessageStable(sequence_number=number):
            assert number >= 0
            event.sequenze_number  # type: ignore[attr-defined]  # noqa: B018
        case events.source.Skipped():
            event.topic  # type: ignore[attr-defined]  # noqa: B018


def of_receiver(event: events.ReceiverEvent) -> None:
    if isinstance(event, events.UnrecoverableLoss):
        event.number  # type: ignore[attr-defined]  # noqa: B018


def any_object(event: object) -> None:
    assert event


def handlers(ctx: hf.Context) -> None:
    """Never called."""
    ctx.source("quotes", on_event=of_source)
    ctx.source("quotes", on_event=any_object)
    ctx.source("quotes", on_event=of_receiver)  # type: ignore[arg-type]
    ctx.smart_source("quotes", on_event=of_receiver)  # type: ignore[arg-type]
    ctx.receiver("quotes", on_event=of_receiver)
    ctx.receiver("quotes", on_event=of_source)  # type: ignore[arg-type]
    events.MessageStabel  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize(
    ("module", "union"), [(events.source, events.SourceEvent), (events.receiver, events.ReceiverEvent)]
)
def test_a_union_has_all_events_of_its_side(module: ModuleType, union: object) -> None:
    told = {
        one
        for one in vars(module).values()
        if inspect.isclass(one) and one.__module__ == module.__name__ and hasattr(one, "__dataclass_fields__")
    }
    assert set(get_args(union)) == told


def test_public_names_are_there_and_sorted() -> None:
    assert sorted(events.__all__) == events.__all__
    assert all(hasattr(events, name) for name in events.__all__)
