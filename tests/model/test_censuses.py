"""A new source that a quorum begins, because censuses prove that the others never had it: all that is stable
stays, whatever befalls the files (censuses.py)."""

from __future__ import annotations

import sys
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
STARTS = ("hang_census_disk", "die_before_the_sync", "move_census", "switch_census")
UPGRADES = ("another_source", "reboot", "upgrade", "upgrade_others", "upgrade_all")
MOVED = [THREE, OTHERS]
AT_ONE = [THREE, Declared("c", (1,), (0,))]
"""The source was at c alone."""
LISTS = [[THREE], [BACKUP], MOVED, [Declared("bcd", (3,), (0, 0, 0)), BACKUP]]


def play(lists: list[Declared], choices: Choices, fates: Sequence[str]) -> World:
    """Seven lives. Of lists that change, the last one is declared until it is left for good: who goes back to
    an older one needs a register of sources."""
    until = choices.pick([1, 2, 3, 4]) if len(lists) > 1 else 0
    return lives(lists, 7, choices, fates, eventful=True, until=until)


def proofs(
    monkeypatch: pytest.MonkeyPatch, lists: list[Declared], fates: Sequence[str], *, register: bool, meets: bool = False,
    older: bool = False,
) -> int:  # fmt: skip
    monkeypatch.setattr(World, "writes", register)
    monkeypatch.setattr(World, "meets", meets)
    monkeypatch.setattr(World, "lived_before", True)
    monkeypatch.setattr(World, "older_first", older)
    found = 0

    def run(choices: Choices) -> None:
        nonlocal found
        found += play(lists, choices, fates).proved

    some(run, range(SEEDS))
    return found


@pytest.fixture
def prove(monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None]) -> Callable[..., None]:
    """Plays histories with these lists and fates. Some sources begin by a proof; few where one store has
    all."""

    def play_all(lists: list[Declared], fates: Sequence[str], **more: bool) -> None:
        assert proofs(monkeypatch, lists, fates, **more) > SEEDS / (200 if lists == AT_ONE else 20)
        record_property("histories", SEEDS)

    return play_all


@pytest.mark.parametrize("lists", LISTS, ids=name_of)
def test_by_what_the_info_files_say(prove: Callable[..., None], lists: list[Declared]) -> None:
    """There is no register of sources. Where lists change, nothing befalls the stores themselves: only the
    register would know of what a wiped one knew."""
    prove(lists, ("another_source", *FILES, *STARTS, *(STORES if len(lists) == 1 else ())), register=False)


@pytest.mark.parametrize("lists", LISTS, ids=name_of)
def test_by_what_the_register_of_sources_says(prove: Callable[..., None], lists: list[Declared]) -> None:
    """After reboots, which take the info files."""
    prove(lists, ("another_source", "reboot", "power_cut", *FILES, *STARTS, *STORES), register=True)


@pytest.mark.parametrize("lists", [[THREE], MOVED], ids=name_of)
def test_by_what_stores_remember_of_each_other(prove: Callable[..., None], lists: list[Declared]) -> None:
    """After reboots, and without a register: another source has lived on all of them since."""
    prove(lists, ("another_source", "reboot", "power_cut", *FILES, *STARTS), register=False, meets=True)


@pytest.mark.parametrize("lists", [[THREE], MOVED, AT_ONE], ids=name_of)
def test_by_the_files_alone(prove: Callable[..., None], lists: list[Declared]) -> None:
    """Nobody removes them or sets them back. After reboots, and without a register: a store in trouble, one
    that has left its census behind or keeps none any more has said so in the file, or grants nothing new."""
    prove(lists, ("another_source", "reboot", "power_cut", "fill_census_disk", *STARTS), register=False)


@pytest.mark.parametrize("lists", [[THREE], MOVED, AT_ONE], ids=name_of)
def test_by_what_stores_that_were_upgraded_know(prove: Callable[..., None], lists: list[Declared]) -> None:
    """All are older ones at first, and each knows of another source beside which stores it was."""
    prove(lists, (*UPGRADES, "fill_census_disk"), register=False, older=True)


# Planted ----------------------------------------------------------------------------------------------------


def found(
    monkeypatch: pytest.MonkeyPatch, lists: list[Declared], befalls: Sequence[str], *, meets: bool = False,
    older: bool = False,
) -> None:  # fmt: skip
    """The histories find it."""
    monkeypatch.setattr(sys.modules[__name__], "SEEDS", PLANTED)
    with pytest.raises(LostError) as lost:
        proofs(monkeypatch, lists, befalls, register=False, meets=meets, older=older)
    assert "another identity begins" in str(lost.value)


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
    ("rule", "befalls"),
    [
        ("refuses", ("hang_census_disk", "reboot")), ("spoils_behind", ("move_census", "reboot")),
        ("rewrites", ("die_before_the_sync", "power_cut")), ("spoils_at_the_end", ("switch_census", "reboot")),
    ],
)  # fmt: skip
def test_the_histories_find_a_planted_bug_of_files(
    monkeypatch: pytest.MonkeyPatch, rule: str, befalls: Sequence[str]
) -> None:
    """A store that does not keep one of its rules, by which its census says what it proves."""
    monkeypatch.setattr(World, rule, False)
    found(monkeypatch, MOVED, befalls)


@pytest.mark.parametrize(
    ("rule", "befalls"),
    [
        ("begins_with_state", ("another_source", "upgrade_all")),
        ("distrusts", ("another_source", "reboot", "upgrade_others")),
    ],
)
def test_the_histories_find_a_planted_bug_of_upgrades(
    monkeypatch: pytest.MonkeyPatch, rule: str, befalls: Sequence[str]
) -> None:
    monkeypatch.setattr(World, rule, False)
    found(monkeypatch, AT_ONE, befalls, older=True)


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
    befalls = ("reboot", "another_source", *FILES) if by_memory else ("another_source", *FILES)
    found(monkeypatch, MOVED, befalls, meets=by_memory)
