"""The judge of the power cuts sees each kind of wrong, and nothing wrong in what is right."""

from __future__ import annotations

import pytest
from cuts.content import digest, fragments, message
from cuts.journal import Journal, Receiver
from cuts.shapes import SHAPES, Shape
from support.oracle import Finding

SEED = 3
SINGLE = [number for number in range(200) if fragments(message(SEED, 1, number)) == 1]
"""Numbers whose message takes no other."""


def told(first: int, life: int = 1) -> str:
    data = message(SEED, life, first)
    return f"got {first} {first + fragments(data) - 1} {life} {digest(data)}"


def sent(journal: Journal, life: int, start: int, count: int) -> int:
    """Lets a life begin, and send this many messages; returns the number behind them."""
    journal.source_said(life, f"start {start}")
    for _ in range(count):
        last = start + fragments(message(SEED, life, start)) - 1
        journal.source_said(life, f"sends {start} {last}")
        start = last + 1
    return start


def test_lives_that_go_on_behind_what_was_stable_are_right() -> None:
    journal, receiver = Journal(SEED), Receiver("r")
    end = sent(journal, 1, 0, 20)
    journal.source_said(1, "stable 0 9")
    journal.receiver_said(receiver, told(15))  # it is not stable yet, and its number is given to another message
    end = sent(journal, 2, 12, 20)
    journal.source_said(2, f"all {end - 1}")
    assert journal.missing(receiver)
    number = 0
    while number < end:
        life = journal.stable[number][0]
        journal.receiver_said(receiver, told(number, life))
        number = receiver.following
    assert not journal.missing(receiver)
    assert {life for life, _ in journal.stable.values()} == {1, 2}


def test_a_life_that_begins_at_a_stable_number_is_found() -> None:
    journal = Journal(SEED)
    sent(journal, 1, 0, 20)
    journal.source_said(1, "stable 0 9")
    with pytest.raises(Finding, match="called 9 stable, its life 2 begins at 9"):
        journal.source_said(2, "start 9")


def test_a_life_that_begins_behind_all_that_was_sent_is_found() -> None:
    journal = Journal(SEED)
    end = sent(journal, 1, 0, 20)
    with pytest.raises(Finding, match="was ever sent"):
        journal.source_said(2, f"start {end + 1}")


def test_two_lives_that_are_one_incarnation_are_found() -> None:
    journal = Journal(SEED)
    for life, incarnation in ((1, 4), (2, 5)):
        sent(journal, life, 0, 1)
        journal.source_said(life, f"incarnation 0a {incarnation}")
    journal.source_said(3, "incarnation 0b 5")
    with pytest.raises(Finding, match="lives 2 and 4 of the source are both incarnation 5 of 0a"):
        journal.source_said(4, "incarnation 0a 5")


def test_a_stable_number_that_nobody_sent_is_found() -> None:
    journal = Journal(SEED)
    end = sent(journal, 1, 0, 20)
    with pytest.raises(Finding, match="never sent it"):
        journal.source_said(1, f"stable 0 {end}")


def test_other_bytes_under_a_stable_number_are_found() -> None:
    journal, receiver = Journal(SEED), Receiver("r")
    sent(journal, 1, 0, 20)
    sent(journal, 2, 5, 20)
    journal.source_said(2, "all 9")
    number = next(number for number in SINGLE if number >= 5)
    with pytest.raises(Finding, match=r"called .* stable with the bytes of life 2"):
        journal.receiver_said(receiver, told(number))


def test_bytes_that_nobody_sent_are_found() -> None:
    journal, receiver = Journal(SEED), Receiver("r")
    line = told(SINGLE[0])
    with pytest.raises(Finding, match="bytes that nobody sent"):
        journal.receiver_said(receiver, line[:-1] + ("0" if line[-1] != "0" else "1"))


@pytest.mark.parametrize("line", ["lost 9 9", "lost 4 12", "lost -1 3"])
def test_a_stable_number_that_is_told_as_lost_is_found(line: str) -> None:
    journal, receiver = Journal(SEED), Receiver("r")
    sent(journal, 1, 0, 20)
    journal.source_said(1, "stable 0 9")
    with pytest.raises(Finding, match="is lost"):
        journal.receiver_said(receiver, line)


def test_a_stable_number_that_never_came_is_missing() -> None:
    journal, receiver = Journal(SEED), Receiver("r")
    end = sent(journal, 1, 0, 20)
    journal.source_said(1, f"all {end - 1}")
    left_out = SINGLE[3]
    number = 0
    while number < end:
        if number == left_out:
            number += 1
        journal.receiver_said(receiver, told(number))
        number = receiver.following
    assert journal.missing(receiver) == [left_out]


def shape(name: str) -> Shape:
    return next(each for each in SHAPES if each.name == name)


@pytest.mark.parametrize(
    ("name", "stores", "required"),
    [
        ("one", "a", True),
        ("one and a backup", "a", False),  # b may have had its seat
        ("one and a backup", "ab", True),
        ("three", "ab", True),
        ("three", "a", False),
        ("three and a backup", "ab", False),  # c and d may have been a quorum
        ("three and a backup", "abc", True),
        ("two groups, any", "a", False),
        ("two groups, all", "a", False),
        ("two groups and a backup, all", "acd", True),  # e alone makes nothing stable in its group
        ("two groups and a backup, majority", "abcd", True),
    ],
)
def test_who_must_be_back(name: str, stores: str, *, required: bool) -> None:
    assert shape(name).required(stores) is required
