"""What a process is: contexts or a callable store, never both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import pytest

from holdfast.engine import occupancy
from holdfast.engine.errors import CallableStoreError

if TYPE_CHECKING:
    from holdfast.engine.context import Context


@dataclass(eq=False)
class Named:
    """All of a Context that counts here."""

    name: str = "prices"


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has just begun."""
    monkeypatch.setattr(occupancy, "_process", occupancy._Occupancy())


def context() -> Context:
    return cast("Context", Named())


def test_a_context_keeps_a_store_out_until_it_is_closed() -> None:
    one = context()
    occupancy.admit(one)
    with pytest.raises(CallableStoreError, match=r"store_main\(\) in a process that has a context \(prices\)"):
        occupancy.become_store()
    assert not occupancy.is_store()
    occupancy.dismiss(one)
    occupancy.become_store()
    assert occupancy.is_store()


def test_a_context_that_nobody_has_any_more_keeps_no_store_out() -> None:
    occupancy.admit(context())
    occupancy.become_store()
    assert occupancy.is_store()


def test_a_store_keeps_contexts_and_a_second_store_out() -> None:
    occupancy.become_store()
    with pytest.raises(CallableStoreError, match="a context in the process of a callable store"):
        occupancy.admit(context())
    with pytest.raises(CallableStoreError, match="runs in this process already"):
        occupancy.become_store()
    assert occupancy.is_store()


def test_a_store_runs_once_and_contexts_may_follow() -> None:
    occupancy.become_store()
    occupancy.end_store(ran=True)
    assert not occupancy.is_store()
    with pytest.raises(CallableStoreError, match=r"store_main\(\) runs once in a process"):
        occupancy.become_store()
    occupancy.admit(context())


def test_a_start_that_failed_is_no_run() -> None:
    occupancy.become_store()
    occupancy.end_store(ran=False)
    occupancy.become_store()
    assert occupancy.is_store()


def test_a_context_is_dismissed_once_more_without_harm() -> None:
    one, two = context(), context()
    occupancy.admit(one)
    occupancy.admit(two)
    occupancy.dismiss(one)
    occupancy.dismiss(one)
    with pytest.raises(CallableStoreError, match="has a context"):
        occupancy.become_store()
