"""What a process has for itself."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING

import pytest

from holdfast.engine.native.runtime import OfProcess

if TYPE_CHECKING:
    from collections.abc import Callable

LIBC = ctypes.PyDLL(None)
FORKS: dict[str, Callable[[], int]] = {"python": os.fork, "bare": lambda: int(LIBC.fork())}
"""The second one runs no handler of Python's."""


def in_a_child(fork: Callable[[], int], ask: Callable[[], object]) -> bool:
    """What ``ask()`` says in a forked child."""
    child = fork()
    if child == 0:
        os._exit(0 if ask() else 1)
    _, status = os.waitpid(child, 0)
    return status == 0


@pytest.mark.parametrize("fork", FORKS)
def test_a_child_begins_anew_and_the_parent_goes_on(fork: str) -> None:
    values: OfProcess[list[int]] = OfProcess(list)
    values.value.append(1)
    assert in_a_child(FORKS[fork], lambda: values.value == [] and values.value is values.value)
    assert values.value == [1]


def test_a_child_leaves_what_its_parent_had() -> None:
    left: list[set[int]] = []
    values: OfProcess[set[int]] = OfProcess(set, left.append)
    values.value.add(7)
    assert in_a_child(os.fork, lambda: left == [{7}] and values.value == set())
    assert left == []


def test_nothing_is_made_before_it_is_asked_for() -> None:
    made: list[int] = []
    values: OfProcess[None] = OfProcess(lambda: made.append(1))
    assert made == []
    assert values.value is None
    assert values.value is None
    assert made == [1]
