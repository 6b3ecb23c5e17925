"""Which files one message enters (engine/README.md): the list there is compared with what a profiler sees."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.three_stores import SHORT
from support.workers import until

import holdfast as hf

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    import pytest
    from process.conftest import ThreadStore

ROOT = Path(hf.__file__).resolve().parent.parent
FILES_MAX = 18
"""That a stranger opens to follow one message."""


def listed() -> dict[str, tuple[set[str], set[str]]]:
    """Step -> files that it always enters, and those that it enters at times."""
    readme = (ROOT / "engine" / "README.md").read_text()
    section = readme.partition("## Which files one message enters")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([a-z]+) \| (`.*?) \| (.*?)\|$", section, re.MULTILINE)
    names = re.compile(r"`([^`]+)`")
    return {step: (set(names.findall(always)), set(names.findall(at_times))) for step, always, at_times in rows}


class Entered:
    """The files of the package that a thread enters, by step."""

    def __init__(self) -> None:
        self.files: dict[str, set[str]] = {}

    def __call__(self, step: str) -> Callable[[FrameType, str, Any], None]:
        seen = self.files.setdefault(step, set())

        def note(frame: FrameType, event: str, _: Any) -> None:
            path = Path(frame.f_code.co_filename)
            if (
                event == "call"
                and path.is_relative_to(ROOT)
                and path.relative_to(ROOT).parts[0] in {"engine", "bindings"}
            ):
                seen.add(str(path.relative_to(ROOT)))

        return note


def exchange(src: hf.Source, rcv: hf.Receiver, note: Callable[[str], Any]) -> None:
    """One message there, and what each call of it enters."""
    sys.setprofile(note("send"))
    src.send(b"x")
    sys.setprofile(note("receive"))
    message = rcv.receive(timeout=SHORT)
    sys.setprofile(None)
    assert message is not None
    sys.setprofile(note("release"))
    message.release()
    sys.setprofile(None)


def nobody(_: object) -> None:
    """Nothing is noted, or done."""


def test_the_files_that_one_message_enters_are_the_ones_that_the_readme_lists(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = run_store("a", "memory")
    entered = Entered()
    with hf.Context(session_id=3) as ctx:
        src = ctx.source("quotes", options={"ume_store_name": ["a"]})
        rcv = ctx.receiver("quotes")
        src.wait_registered(SHORT)
        for _ in range(1000):
            exchange(src, rcv, nobody)
        src.wait_stable(timeout=SHORT)  # no limit of the flight is near
        drainer = store.store.drainer
        monkeypatch.setattr(drainer, "_tend", nobody)  # what is done now and then, message or no message
        drainer.call(lambda: sys.setprofile(entered("drain")))
        for _ in range(200):
            exchange(src, rcv, entered)
        src.wait_stable(timeout=SHORT)
        drainer.call(lambda: sys.setprofile(None))
        until("the store has all", lambda: src.stable_sequence_number == 1199)
    rows = listed()
    assert rows.keys() == entered.files.keys()
    for step, (always, at_times) in rows.items():
        assert always <= entered.files[step] <= always | at_times, step
    every = set[str]().union(*(always | at_times for always, at_times in rows.values()))
    assert len(every) <= FILES_MAX
    assert all((ROOT / name).exists() for name in every)
