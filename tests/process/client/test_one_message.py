"""Which files one message enters, and one registration (engine/README.md): the lists there are compared with
what a profiler sees."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.three_stores import SHORT
from support.workers import until

import holdfast as hf
from holdfast.engine.store.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    import pytest
    from process.conftest import ThreadStore

    from holdfast.engine.control import wire

ROOT = Path(hf.__file__).resolve().parent.parent
FILES_MAX = 18
"""That a stranger opens to follow one message."""
ROOM_MAX = 8
"""That he opens in the store's room to follow one registration."""
ACKS = "engine/store/acks.py"
"""A BEGIN has the acks saved first."""


def part(title: str) -> str:
    """A section of engine/README.md."""
    return (ROOT / "engine" / "README.md").read_text().partition(f"## {title}")[2].partition("\n## ")[0]


def listed() -> dict[str, tuple[set[str], set[str]]]:
    """Step -> files that it always enters, and those that it enters at times."""
    rows = re.findall(r"^\| ([a-z]+) \| (`.*?|none) \| (.*?)\|$", part("Which files one message enters"), re.MULTILINE)
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
        src.wait_stable(timeout=SHORT)
        assert src.in_flight == (0, 0), "no limit of the flight is near"
        drainer = store.store.drainer
        monkeypatch.setattr(drainer, "_tend", nobody)  # what is done now and then, message or no message
        noted: list[Any] = [entered("drain")]
        run_calls = drainer._run_calls

        def unnoted() -> None:
            """What other threads ask for now and then is no part of a message's way."""
            sys.setprofile(None)
            run_calls()
            sys.setprofile(noted[0])

        monkeypatch.setattr(drainer, "_run_calls", unnoted)
        for _ in range(200):
            exchange(src, rcv, entered)
        src.wait_stable(timeout=SHORT)
        # One round may have taken all of them.
        until("the drain thread goes round", lambda: bool(entered.files["drain"]))
        noted[0] = None
        drainer.call(lambda: None)
        until("the store has all", lambda: src.stable_sequence_number == 1199)
    rows = listed()
    assert rows.keys() == entered.files.keys()
    for step, (always, at_times) in rows.items():
        assert always <= entered.files[step] <= always | at_times, step
    every = set[str]().union(*(always | at_times for always, at_times in rows.values()))
    assert len(every) <= FILES_MAX
    assert all((ROOT / name).exists() for name in every)


class Calls:
    """The calls of one request, from file to file, as the store's control thread makes them."""

    def __init__(self) -> None:
        self.edges: list[tuple[str, str]] = []

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        caller = frame.f_back
        while caller is not None and not Path(caller.f_code.co_filename).is_relative_to(ROOT):
            caller = caller.f_back
        if event == "call" and caller is not None:
            ends = [Path(each.f_code.co_filename) for each in (caller, frame)]
            if all(end.is_relative_to(ROOT) for end in ends):
                self.edges.append((str(ends[0].relative_to(ROOT)), str(ends[1].relative_to(ROOT))))

    def files(self) -> set[str]:
        """Those that were entered."""
        return {file for edge in self.edges for file in edge if file.startswith("engine/")}


def test_a_registration_enters_the_files_that_the_readme_lists_and_calls_none_back(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source and a receiver that are known: each registers with what the store has of it."""
    told: dict[str, Calls] = {}
    handle = Store._handle

    def noted(store: Store, client: Any, request: wire.Request) -> None:
        sys.setprofile(told.setdefault(type(request).__name__, Calls()))
        try:
            handle(store, client, request)
        finally:
            sys.setprofile(None)

    run_store("a", "disk")
    for known in (False, True):
        if known:
            monkeypatch.setattr(Store, "_handle", noted)
        with hf.Context(session_id=3) as ctx:
            src = ctx.source("quotes", options={"ume_store_name": ["a"]})
            src.wait_registered(SHORT)
            rcv = ctx.receiver("quotes")
            src.send(b"x")
            message = rcv.receive(timeout=SHORT)
            assert message is not None
            message.release()
    order = re.findall(r"`(engine/store/\w+\.py)`", part("Which files a registration enters"))
    seen = set[str]()
    for kind in ("RegisterSource", "Begin", "RegisterReceiver"):
        calls = told[kind]
        room = {file for file in calls.files() if file.startswith("engine/store/")}
        seen |= room
        assert len(room - {ACKS}) <= ROOM_MAX, kind
        assert room <= set(order), kind
        placed = {file: order.index(file) for file in room}
        back = {edge for edge in calls.edges if placed.get(edge[0], 0) > placed.get(edge[1], len(order))}
        below = {edge for edge in calls.edges if edge[1] in room and edge[0] in calls.files() - room}
        assert not back, kind
        assert not below, f"{kind}: called from below the room"
    assert seen == set(order)
