"""Which sources have changed since somebody asked (engine/rules/changes.py)."""

from __future__ import annotations

from holdfast.engine.log.state_file import SourceState
from holdfast.engine.rules.changes import Changes


def sources(names: str) -> list[SourceState]:
    return [SourceState(name.encode() * 16, "quotes", 1, 0) for name in names]


def said(changes: Changes[SourceState], mark: int, kept: list[SourceState], after: bytes = b"") -> str:
    return "".join(chr(source.uuid[0]) for source in changes.since(mark, kept, after))


def test_who_has_not_asked_yet_is_told_of_all_by_their_uuids() -> None:
    changes, kept = Changes[SourceState](), sources("cab")
    assert said(changes, 0, kept) == "abc"
    assert said(changes, 0, kept, b"a" * 16) == "bc"
    assert said(changes, 0, kept, b"b" * 15) == "bc"
    assert said(changes, 0, kept, b"c" * 16) == ""


def test_who_asks_with_a_mark_is_told_of_what_has_changed_since() -> None:
    changes, kept = Changes[SourceState](), sources("abc")
    first = changes.mark
    assert said(changes, first, kept) == ""
    changes.note(b"b" * 16)
    second = changes.mark
    changes.note(b"a" * 16)
    changes.note(b"b" * 16)
    assert said(changes, first, kept) == "ab"
    assert said(changes, second, kept) == "ab"
    assert said(changes, first, kept, b"a" * 16) == "b"
    assert said(changes, changes.mark, kept) == ""


def test_what_is_kept_no_more_is_not_told_of() -> None:
    changes, kept = Changes[SourceState](), sources("abc")
    mark = changes.mark
    assert said(changes, 0, kept) == "abc"
    changes.note(b"b" * 16)
    del kept[1]
    changes.forget(b"b" * 16)
    assert said(changes, mark, kept) == ""
    assert said(changes, 0, kept) == "ac"


def test_one_that_came_since_is_told_of() -> None:
    """Also where nothing was noted of it yet."""
    changes, kept = Changes[SourceState](), sources("ac")
    assert said(changes, 0, kept) == "ac"
    kept += sources("b")
    assert said(changes, 0, kept) == "abc"
