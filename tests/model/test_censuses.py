"""A new source that a quorum begins, because censuses prove that the others never had it: all that is stable
stays, whatever befalls the files (censuses.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from model.choices import Choices, some
from model.conftest import LONG
from model.declared import Declared
from model.histories import World
from model.test_histories import BACKUP, OTHERS, STORES, THREE, lives, name_of
from model.verdicts import LostError

from holdfast.engine.rules import census, election

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PLANTED = 20_000
SEEDS = 20_000 if LONG else 400
FILES = ("lose_census", "save_census", "set_census_back", "fill_census_disk")
MOVED = [THREE, OTHERS]
LISTS = [[THREE], [BACKUP], MOVED, [Declared("bcd", (3,), (0, 0, 0)), BACKUP]]


def play(lists: list[Declared], choices: Choices, fates: Sequence[str]) -> World:
    """Seven lives. Of lists that change, the last one is declared until it is left for good: who goes back to
    an older one needs a register of sources."""
    until = choices.pick([1, 2, 3, 4]) if len(lists) > 1 else 0
    return lives(lists, 7, choices, fates, eventful=True, until=until)


def proofs(
    monkeypatch: pytest.MonkeyPatch, lists: list[Declared], fates: Sequence[str], *, register: bool, meets: bool = False
) -> int:
    monkeypatch.setattr(World, "writes", register)
    monkeypatch.setattr(World, "meets", meets)
    monkeypatch.setattr(World, "lived_before", True)
    found = 0

    def run(choices: Choices) -> None:
        nonlocal found
        found += play(lists, choices, fates).proved

    some(run, range(SEEDS))
    return found


@pytest.mark.parametrize("lists", LISTS, ids=name_of)
def test_by_what_the_info_files_say(monkeypatch: pytest.MonkeyPatch, lists: list[Declared]) -> None:
    """There is no register of sources. Where lists change, nothing befalls the stores themselves: only the
    register would know of what a wiped one knew."""
    befalls = ("another_source", *FILES, *(STORES if len(lists) == 1 else ()))
    assert proofs(monkeypatch, lists, befalls, register=False) > SEEDS / 20


@pytest.mark.parametrize("lists", LISTS, ids=name_of)
def test_by_what_the_register_of_sources_says(monkeypatch: pytest.MonkeyPatch, lists: list[Declared]) -> None:
    """After reboots, which take the info files."""
    befalls = ("another_source", "reboot", *FILES, *STORES)
    assert proofs(monkeypatch, lists, befalls, register=True) > SEEDS / 20


def by_memory_alone(monkeypatch: pytest.MonkeyPatch, lists: list[Declared]) -> int:
    return proofs(monkeypatch, lists, ("reboot", "another_source", *FILES), register=False, meets=True)


@pytest.mark.parametrize("lists", [[THREE], MOVED], ids=name_of)
def test_by_what_stores_remember_of_each_other(monkeypatch: pytest.MonkeyPatch, lists: list[Declared]) -> None:
    """After reboots, and without a register: another source has lived on all of them since."""
    assert by_memory_alone(monkeypatch, lists) > SEEDS / 20


# Planted ----------------------------------------------------------------------------------------------------


def not_synced_before_the_grant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(World, "writes_census", False)


def a_census_that_was_set_back_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(census, "goes_on", lambda *_: True)


def no_file_is_believed_although_one_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    believed = census.doubt

    def doubt(found: census.Found, answers: dict[str, census.Told | None], took_part: set[str]) -> str:
        if found.mark is None:
            found, answers = census.Found(found.name, found.directory), {}
        return believed(found, answers, took_part)

    monkeypatch.setattr(election, "doubt", doubt)


def a_trouble_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """By who reads: a store that answers is believed to be whole, and so is one that was in trouble."""
    believed = census.doubt

    def doubt(found: census.Found, answers: dict[str, census.Told | None], took_part: set[str]) -> str:
        if found.info == census.TROUBLE:
            found = found._replace(info=None)
        said = {
            name: told._replace(others={other: mark for other, mark in told.others.items() if mark != census.TROUBLE})
            for name, told in answers.items()
            if told is not None and told.mark != census.TROUBLE
        }
        return believed(found, said, took_part)

    monkeypatch.setattr(election, "doubt", doubt)


def the_source_in_it_is_overlooked(monkeypatch: pytest.MonkeyPatch) -> None:
    believed = census.doubt
    monkeypatch.setattr(election, "doubt", lambda found, *more: believed(found._replace(lists=False), *more))


@pytest.mark.parametrize(
    ("plant", "by_memory"),
    [
        (not_synced_before_the_grant, False),
        (a_census_that_was_set_back_is_believed, False),
        (a_census_that_was_set_back_is_believed, True),
        (no_file_is_believed_although_one_is_remembered, False),
        (no_file_is_believed_although_one_is_remembered, True),
        (a_trouble_is_ignored, False),
        (a_trouble_is_ignored, True),
        (the_source_in_it_is_overlooked, False),
    ],
)
def test_the_histories_find_a_planted_bug_of_censuses(
    monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None], by_memory: bool
) -> None:
    plant(monkeypatch)
    for name, value in (("writes", False), ("meets", by_memory), ("lived_before", True)):
        monkeypatch.setattr(World, name, value)
    befalls = ("reboot", "another_source", *FILES) if by_memory else ("another_source", *FILES)
    with pytest.raises(LostError) as lost:
        some(lambda choices: play(MOVED, choices, befalls), range(PLANTED))
    assert "another identity begins" in str(lost.value)
