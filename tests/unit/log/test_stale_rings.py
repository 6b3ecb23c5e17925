"""When the name of a ring that is over goes (docs/design.md 14)."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.engine.errors import Error, LayoutMismatchError, SharedMemoryFullError, SystemCallError
from holdfast.engine.log import stale_rings
from holdfast.engine.log.stale_rings import StaleRings, _Left, living_ring
from holdfast.engine.memory.domain import ObjectName
from holdfast.engine.native.core import ffi, lib
from holdfast.engine.rules.quorum import Groups
from holdfast.engine.store import expiry
from holdfast.engine.store.expiry import Expiry

if TYPE_CHECKING:
    from pathlib import Path

STORES = [bytes([number]) * 16 for number in range(3)]


@pytest.fixture
def gone(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that were removed."""
    names: list[str] = []
    monkeypatch.setattr(stale_rings, "unlink_object", names.append)
    return names


def line(store: int, incarnation: int, ack: int, level: int = lib.HF_LEVEL_DISK) -> Any:
    view = ffi.new("struct hf_line_view *")
    ffi.memmove(view.line.uuid, STORES[store], 16)
    view.line.ack_stream, view.line.ack, view.line.level = incarnation, ack, level
    return view


def left() -> StaleRings:
    """The ring of incarnation 2, up to number 60, at three stores."""
    old: Any = StaleRings(None)  # type: ignore[arg-type]
    old._left["ring"] = _Left(2, 60, Groups.single(3), STORES)
    return old  # type: ignore[no-any-return]


def test_a_ring_goes_when_a_quorum_holds_its_end(gone: list[str]) -> None:
    old = left()
    old.tidy([line(0, 2, 60), line(1, 2, 59)])
    assert not gone
    assert old
    old.tidy([line(0, 2, 60), line(1, 2, 60)])
    assert gone == ["ring"]
    assert not old


def test_what_a_store_acknowledged_of_an_older_incarnation_is_not_this_ring(gone: list[str]) -> None:
    left().tidy([line(0, 2, 60), line(1, 1, 100)])
    assert not gone


def test_a_store_that_a_later_incarnation_has_begun_at_counts_by_what_it_holds_there(gone: list[str]) -> None:
    left().tidy([line(0, 2, 60), line(1, 3, 60)])
    assert gone == ["ring"]


def test_a_store_that_keeps_no_messages_is_not_waited_for(gone: list[str]) -> None:
    left().tidy([line(0, 2, 60), line(1, 0, 0, level=0)])
    assert gone == ["ring"]


NO_DESCRIPTORS = SystemCallError("ring: Too many open files", errno.EMFILE, "EMFILE")


def refusing(error: Exception) -> Any:
    def refuse(*_: Any, **__: Any) -> Any:
        raise error

    return refuse


def test_a_ring_that_cannot_be_looked_at_now_is_not_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is held would be granted to another, and a source that lives forgotten with its messages."""
    ring = ObjectName("ring", STORES[0], 1, "stream")
    domain: Any = SimpleNamespace(objects=lambda _: [ring])
    exhausted: list[Error] = [NO_DESCRIPTORS, SharedMemoryFullError(1 << 20, 0)]
    for error in exhausted:
        monkeypatch.setattr(stale_rings, "attach_stream", refusing(error))
        with pytest.raises(type(error)):
            living_ring(domain, STORES[0])
    for other in (LayoutMismatchError("1", "2"), FileNotFoundError("ring")):
        monkeypatch.setattr(stale_rings, "attach_stream", refusing(other))
        assert living_ring(domain, STORES[0]) is None


def test_no_store_is_elected_by_a_log_that_cannot_be_looked_at_now(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    knows_nobody: Any = SimpleNamespace(_began={})
    monkeypatch.setattr(expiry, "log_view", refusing(NO_DESCRIPTORS))
    with pytest.raises(SystemCallError):
        Expiry._has_begun(knows_nobody, STORES[0], tmp_path)
    assert not Expiry._has_begun(knows_nobody, STORES[0], tmp_path / "gone")
