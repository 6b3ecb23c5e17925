"""Events: frozen, without a dictionary, all there, and with UM's flag values (docs/semantics.md B.5, D.3,
D.4, D.5, L)."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, get_args

import pytest

from holdfast.engine import events

if TYPE_CHECKING:
    import enum
    from types import ModuleType

SOURCE = {
    "RegistrationError", "RegistrationSuccess", "RegistrationComplete", "StoreUnresponsive", "MessageStable",
    "MessageNotStable", "DeliveryConfirmation", "MessageReclaimed", "SequenceNumberInfo", "FlightSizeNotification",
    "Wakeup", "Skipped", "DeregistrationSuccess", "DeregistrationComplete",
}  # fmt: skip
RECEIVER = {
    "RegistrationError", "RegistrationSuccess", "RegistrationComplete", "RegistrationChange", "UnrecoverableLoss",
    "UnrecoverableLossBurst", "BeginOfStream", "EndOfStream", "DeregistrationSuccess", "DeregistrationComplete",
    "NoSource", "Skipped",
}  # fmt: skip


@pytest.mark.parametrize(("module", "union", "names"), [
    (events.source, events.SourceEvent, SOURCE),
    (events.receiver, events.ReceiverEvent, RECEIVER),
])  # fmt: skip
def test_every_event_is_a_frozen_value_without_a_dictionary(module: ModuleType, union: object, names: set[str]) -> None:
    defined = {name: kind for name, kind in vars(module).items() if dataclasses.is_dataclass(kind)}
    assert set(defined) == names == {kind.__name__ for kind in get_args(union)}
    for kind in defined.values():
        assert isinstance(kind, type)
        assert "__dict__" not in dir(kind)
        assert kind.__dataclass_params__.frozen  # type: ignore[attr-defined]


def test_names_that_only_one_side_has_need_no_prefix() -> None:
    for name in SOURCE ^ RECEIVER:
        module = events.source if name in SOURCE else events.receiver
        assert getattr(events, name) is getattr(module, name)
    assert not any(hasattr(events, name) for name in SOURCE & RECEIVER)


def test_an_event_cannot_be_changed() -> None:
    event = events.UnrecoverableLoss("topic", "source", 7)
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.sequence_number = 8  # type: ignore[misc]


@pytest.mark.parametrize(
    ("flags", "values"),
    [
        (events.source.RegistrationSuccessFlags, {"OLD": 1, "NOACKS": 2, "RPP": 4}),
        (events.source.RegistrationCompleteFlags, {"QUORUM": 1}),
        (
            events.source.StableFlags,
            {"INTRAGROUP_STABLE": 1, "INTERGROUP_STABLE": 2, "STABLE": 4, "STORE": 8, "WHOLE_MESSAGE_STABLE": 16,
             "USER": 32},
        ),
        (events.source.NotStableFlags, {"STORE": 8, "LOSS": 0x40, "TIMEOUT": 0x80}),
        (
            events.source.ConfirmationFlags,
            {"UNIQUEACKS": 1, "UREGID": 2, "OOD": 4, "EXACK": 8, "WHOLE_MESSAGE_CONFIRMED": 16},
        ),
        (events.source.ReclaimedFlags, {"FORCED": 1}),
        (
            events.receiver.RegistrationSuccessFlags,
            {"OLD": 1, "NOCACHE": 2, "RPP": 4, "SRC_SID": 8, "RPP_IS_NON_BLOCKING": 16, "PROACTIVE_KEEPALIVE": 32,
             "RANGED_RXREQ": 64},
        ),
        (events.receiver.RegistrationCompleteFlags, {"QUORUM": 1, "RXREQMAX": 2, "SRC_SID": 4}),
        (events.receiver.DeregistrationFlags, {"RPP": 1}),
        (events.FlightSizeType, {"UME": 1}),
        (events.FlightSizeState, {"OVER": 1, "UNDER": 2}),
    ],
)  # fmt: skip
def test_flags_have_the_values_of_um(flags: type[enum.IntFlag], values: dict[str, int]) -> None:
    assert {flag.name: flag.value for flag in flags} == values


def test_recovery_starts_where_the_callback_says() -> None:
    info = events.RecoverySequenceNumberInfo(
        flags=events.info.RecoveryInfoFlags(0), low_sequence_number=5, low_rxreq_max_sequence_number=5,
        high_sequence_number=9, source="quotes",
    )  # fmt: skip
    info.low_sequence_number = 7
    assert info.low_sequence_number == 7
    with pytest.raises(AttributeError):
        info.low_sequence_nr = 8  # type: ignore[attr-defined]
