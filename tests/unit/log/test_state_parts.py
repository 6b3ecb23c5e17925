"""What a state's file has of sources: always what they say, and those that rest are encoded once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.engine.log import state_parts
from holdfast.engine.log.state_file import SourceState, State, StateFile
from holdfast.engine.log.state_parts import PART_MAX, StateParts

if TYPE_CHECKING:
    from pathlib import Path


def some(count: int) -> list[SourceState]:
    return [SourceState(b"%016d" % n, "t", n + 1, 0) for n in range(count)]


def read(parts: StateParts) -> list[SourceState]:
    return msgspec.msgpack.decode(parts.encoded(), type=list[SourceState])


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_it_has_what_the_sources_say_in_order(data: st.DataObject) -> None:
    kept = some(data.draw(st.integers(0, 3 * PART_MAX)))
    parts, fresh = StateParts(kept), some(4 * PART_MAX)[3 * PART_MAX :]
    for _ in range(data.draw(st.integers(1, 30))):
        does = data.draw(st.sampled_from(["add", "remove", "rest", "rest all", "wake", "change", "save"]))
        one = data.draw(st.sampled_from(kept)) if kept else None
        if does == "add" and fresh:
            parts.add(fresh[-1])
            kept.append(fresh.pop())
        elif does == "rest all":
            for source in kept:
                parts.rest(source)
        elif one is None or does == "save":
            assert read(parts) == kept
        elif does == "remove":
            parts.remove(one)
            kept.remove(one)
        elif does == "rest":
            parts.rest(one)
        elif does == "wake":
            parts.wake(one)
        elif not parts.rests(one.uuid):
            one.start_sqn += 1
    assert read(parts) == kept
    assert parts.awake == [source for source in parts.awake if not parts.rests(source.uuid)]
    assert len(parts.awake) == sum(not parts.rests(source.uuid) for source in kept)


def test_who_rests_is_encoded_once() -> None:
    sources = some(10 * PART_MAX)
    parts = StateParts(sources)
    for source in sources:
        parts.rest(source)
    assert read(parts) == sources
    counted: list[bytes] = []
    encode = parts._encode

    def count(source: object) -> bytes:
        assert isinstance(source, SourceState)
        counted.append(source.uuid)
        return encode(source)

    parts._encode = count
    assert read(parts) == sources
    assert counted == []
    woken = sources[3 * PART_MAX]
    parts.wake(woken)
    woken.start_sqn = 9
    assert read(parts) == sources
    assert set(counted) == {source.uuid for source in sources[3 * PART_MAX : 4 * PART_MAX]}, "its part"
    parts.rest(woken)
    parts.encoded()
    counted.clear()
    parts.encoded()
    assert counted == []


def test_a_file_that_is_saved_by_parts_is_as_one_that_is_not(tmp_path: Path) -> None:
    state = State("a", bytes(16), 7, 1, some(200), lives=[1, 7])
    parts = StateParts(state.sources)
    for source in state.sources[:150]:
        parts.rest(source)
    for _ in range(3):
        StateFile(tmp_path).save(state, sources=parts.encoded())
        assert StateFile(tmp_path).load() == state
    assert len(state.sources) == 200, "the state itself is left alone"


def test_parts_that_are_empty_go() -> None:
    sources = some(3 * state_parts.PART_MAX)
    parts = StateParts(sources)
    for source in sources[:-1]:
        parts.remove(source)
    assert len(parts._parts) == 1
    assert read(parts) == sources[-1:]
