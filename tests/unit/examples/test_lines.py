"""The lines that the example programs print: UM's words, tags and order (docs/semantics.md M, L)."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest

from holdfast import events
from holdfast.examples import common, printing

STORE: dict[str, Any] = {"store_index": 2, "store": "c"}
SOURCE: dict[str, Any] = {"topic": "t", "source": "s"}
LINES = [
    (
        events.source.RegistrationSuccess(events.source.RegistrationSuccessFlags.OLD, 7, 40, 2, "c"),
        "UME store 2: c registration success. RegID 7. Flags 0x1 OLD[SQN 40]",
    ),
    (
        events.source.RegistrationComplete(events.source.RegistrationCompleteFlags.QUORUM, 40),
        "UME registration complete. SQN 40. Flags 0x1 QUORUM",
    ),
    (
        events.MessageStable(events.source.StableFlags(0x1F), 9, 9, "x", **STORE),
        "UME store 2: c message stable. SQN 9 (cd x). Flags 0x1f IA IR STABLE STORE MESSAGE",
    ),
    (
        events.MessageNotStable(events.source.NotStableFlags(0x48), 9, 7, None, **STORE),
        "UME store 2: c message NOT stable!! SQN [7,9] (cd None). Flags 0x48 STORE LOSS",
    ),
    (
        events.MessageReclaimed(events.source.ReclaimedFlags.FORCED, 9, 9, 4),
        "UME message reclaimed. SQN 9 (cd 4). Flags 0x1 FORCED",
    ),
    (events.MessageReclaimed(None, 9, 9, 4), "UME message reclaimed. SQN 9 (cd 4). Flags unknown"),
    (events.SequenceNumberInfo(events.NoFlags.NONE, 7, 9, 4), "SQN [7,9] (cd 4)"),
    (
        events.receiver.RegistrationSuccess(
            **SOURCE, flags=events.receiver.RegistrationSuccessFlags(0x9), source_registration_id=1,
            receiver_registration_id=2, sequence_number=3, **STORE, src_session_id=42,
        ),
        "[t][s] UME store 2: c registration success. SrcRegID 1 RcvRegID 2. Flags 0x9 OLD[SQN 3] SrcSID 42",
    ),
    (
        events.receiver.RegistrationComplete(**SOURCE, flags=events.receiver.RegistrationCompleteFlags(3), sequence_number=3),
        "[t][s] UME registration complete. SQN 3. Flags 0x3 QUORUM RXREQMAX",
    ),
    (events.UnrecoverableLossBurst(**SOURCE, sequence_number=3), "[t][s][3], LOST BURST"),
    (events.NoSource("t"), "[t], no source found yet"),
    (events.receiver.Skipped(**SOURCE, first_sequence_number=1, sequence_number=3), "[t][s][1..3], skipped and not acknowledged"),
    (events.source.Skipped(2, 42, 1, 3), "UME waits for a receiver that skipped. 1..3, RcvRegID 2, Session ID 42"),
]  # fmt: skip


@pytest.mark.parametrize(("event", "line"), LINES)
def test_an_event_is_a_line_as_um_prints_it(event: Any, line: str) -> None:
    of_receiver = isinstance(event, events.ReceiverEvent)
    assert (printing.receiver_line if of_receiver else printing.source_line)(event) == line


def test_a_line_is_one_write_so_that_two_threads_cannot_mix_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    class Recorder(io.StringIO):
        def write(self, text: str) -> int:
            written.append(text)
            return len(text)

    written: list[str] = []
    monkeypatch.setattr(sys, "stdout", Recorder())
    common.say("a line")
    assert written == ["a line\n"]
