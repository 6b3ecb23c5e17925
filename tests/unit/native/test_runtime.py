"""What a process has for itself."""

from __future__ import annotations

import os

from holdfast.engine.native.runtime import OfProcess


def in_a_child(ask: object) -> bool:
    """What ``ask()`` says in a forked child."""
    assert callable(ask)
    child = os.fork()
    if child == 0:
        os._exit(0 if ask() else 1)
    _, status = os.waitpid(child, 0)
    return status == 0


def test_a_child_begins_anew_and_the_parent_goes_on() -> None:
    values: OfProcess[list[int]] = OfProcess(list)
    values.value.append(1)
    assert in_a_child(lambda: values.value == [])
    assert values.value == [1]


def test_a_child_leaves_what_its_parent_had() -> None:
    left: list[set[int]] = []
    values: OfProcess[set[int]] = OfProcess(set, left.append)
    values.value.add(7)
    assert in_a_child(lambda: left == [{7}] and values.value == set())
    assert left == []
