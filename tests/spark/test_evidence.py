"""What an audit makes of the messages that logs give (pipeline/evidence.py): each log by itself, and one
against the others."""

from __future__ import annotations

from typing import Any

import numpy as np

from holdfast.spark.pipeline.evidence import Divergence, Hole, disagreements, judged


def rows(*messages: tuple[int, int]) -> Any:
    """Messages by first and last number."""
    return np.array([(last, first, 0, 0, 0) for first, last in messages], np.int64).reshape(-1, 5)


def test_a_number_that_comes_twice_is_a_double_and_counts_once() -> None:
    kept, holes, doubles = judged(rows((5, 5), (6, 7), (7, 8), (6, 7), (9, 9)), 5, begun=True)
    assert [int(row[0]) for row in kept] == [5, 7, 8, 9]
    assert (holes, doubles) == ([], [(7, 8), (6, 7)])


def test_a_jump_that_the_log_did_not_tell_is_a_hole() -> None:
    _, holes, doubles = judged(rows((5, 5), (8, 9)), 4, begun=True)
    assert (holes, doubles) == ([Hole(4, 5, "missing"), Hole(6, 8, "missing")], [])


def test_the_first_message_of_a_range_may_begin_before_it() -> None:
    assert judged(rows((3, 6), (7, 7)), 5, begun=False)[1:] == ([], [])
    assert judged(rows((3, 6), (7, 7)), 5, begun=True)[2] == [(3, 6)]
    assert judged(rows((2, 3), (5, 5)), 5, begun=False)[2] == [(2, 3)], "it does not reach the range"


def test_votes() -> None:
    good, bad = rows((0, 0), (1, 1), (2, 2)), rows((0, 0), (1, 1), (2, 2))
    bad[1, 4] = 9
    third = rows((0, 0), (1, 1))
    third[1, 4] = 8
    assert disagreements({"a": good, "b": good.copy()}) == []
    assert disagreements({"a": good, "b": bad, "c": good.copy()}) == [Divergence(["b"], 1, 2, 1, ["payload"])]
    assert disagreements({"a": good, "b": bad, "c": third}) == [Divergence(["a", "b", "c"], 1, 2, 1, ["payload"])]
    assert disagreements({"a": good, "b": rows((2, 2)), "c": rows()}) == [], "who has less does not disagree"
    found = disagreements({"a": good, "b": bad, "c": bad.copy(), "d": good.copy()})
    assert found == [Divergence(["a", "b", "c", "d"], 1, 2, 1, ["payload"])], "two against two"
