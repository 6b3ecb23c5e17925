"""The parameters that programs may name (bindings/README.md): a positional one may be given by its name,
too."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import pytest

import holdfast as hf
from holdfast.message import Ack

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    ("call", "parameters"),
    [
        (hf.Context, "domain session_id * name application config options"),
        (hf.Context.source, "topic * options on_event"),
        (hf.Context.smart_source, "topic * options on_event"),
        (hf.Context.receiver, "topic * pattern options on_message on_event start reset"),
        (hf.Context.poll, "timeout"),
        (hf.Context.close, "timeout"),
        (hf.Source.wait_registered, "timeout"),
        (hf.Source.send, "data * client_data sequence_info timeout"),
        (hf.Source.send_stable, "data timeout"),
        (hf.Source.send_batch, "rows * client_data timeout"),
        (hf.Source.claim, "n * client_data timeout"),
        (hf.Source.wait_stable, "sqn timeout"),
        (hf.Source.mark_stable, "sqn"),
        (hf.Source.close, "timeout"),
        (hf.Receiver.receive, "timeout"),
        (hf.Receiver.receive_batch, "max_messages timeout"),
        (hf.Receiver.close, "timeout"),
        (Ack.send, "sqn"),
        (hf.StabilityTimeout, "sqn stable * reclaimed"),
        (hf.read, "topic start end domain"),
        (hf.spawn_store, "config timeout"),
        (hf.store_main, "argv"),
    ],
)
def test_parameters_are_called_as_the_contract_says(call: Callable[..., object], parameters: str) -> None:
    found, named_only = [], False
    for name, parameter in inspect.signature(call).parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY and not named_only:
            named_only = True
            found.append("*")
        found.append(name)
    assert " ".join(name for name in found if name != "self") == parameters
