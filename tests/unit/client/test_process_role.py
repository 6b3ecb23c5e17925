"""What a process is: contexts or a callable store, never both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import pytest

from holdfast.engine.client import process_role
from holdfast.engine.errors import CallableStoreError
from holdfast.engine.native.runtime import OfProcess

if TYPE_CHECKING:
    from holdfast.engine.client.context import Context


@dataclass(eq=False)
class Named:
    """All of a Context that counts here."""

    name: str = "prices"


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has just begun."""
    monkeypatch.setattr(process_role, "_role", OfProcess(process_role._ProcessRole))


def context() -> Context:
    return cast("Context", Named())


def test_a_context_keeps_a_store_out_until_it_is_closed() -> None:
    one = context()
    process_role.admit(one)
    with pytest.raises(CallableStoreError, match=r"store_main\(\) in a process that has a context \(prices\)"):
        process_role.become_store()
    assert not process_role.is_store()
    process_role.dismiss(one)
    process_role.become_store()
    assert process_role.is_store()


def test_a_context_that_nobody_has_any_more_keeps_no_store_out() -> None:
    process_role.admit(context())
    process_role.become_store()
    assert process_role.is_store()


def test_a_store_keeps_contexts_and_a_second_store_out() -> None:
    process_role.become_store()
    with pytest.raises(CallableStoreError, match="a context in the process of a callable store"):
        process_role.admit(context())
    with pytest.raises(CallableStoreError, match="runs in this process already"):
        process_role.become_store()
    assert process_role.is_store()


def test_a_store_runs_once_and_contexts_may_follow() -> None:
    process_role.become_store()
    process_role.end_store(ran=True)
    assert not process_role.is_store()
    with pytest.raises(CallableStoreError, match=r"store_main\(\) runs once in a process"):
        process_role.become_store()
    process_role.admit(context())


def test_a_start_that_failed_is_no_run() -> None:
    process_role.become_store()
    process_role.end_store(ran=False)
    process_role.become_store()
    assert process_role.is_store()


def test_a_context_is_dismissed_once_more_without_harm() -> None:
    one, two = context(), context()
    process_role.admit(one)
    process_role.admit(two)
    process_role.dismiss(one)
    process_role.dismiss(one)
    with pytest.raises(CallableStoreError, match="has a context"):
        process_role.become_store()
