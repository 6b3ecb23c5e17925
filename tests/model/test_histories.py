"""Nothing that was stable is numbered again or made void: all short histories of a source, and long ones
(histories.py)."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from model import histories, readers
from model.choices import Choices, every, some, subsets
from model.conftest import LONG
from model.declared import Declared
from model.histories import World
from model.readers import judge_readers
from model.verdicts import LostError, OnlyWrittenError

from holdfast.engine.log.state_file import SourceState
from holdfast.engine.rules import election
from holdfast.engine.rules.quorum import Groups
from holdfast.engine.rules.reconcile import FOR_EVER, BeginOf, newest_table, void_from
from holdfast.engine.rules.registration import Grant
from holdfast.engine.rules.reports import least_impossible

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

THREE = Declared("abc", (3,), (0, 0, 0))
SEAT = Declared("ab", (1,), (0, 0))
OTHERS = Declared("cde", (3,), (0, 0, 0))
BACKUP = Declared("abcd", (3,), (0, 0, 0, 0))


SEATS = [SEAT, Declared("bc", (1,), (0, 0))]
APART = [Declared("a", (1,), (0,)), Declared("b", (1,), (0,)), Declared("ab", (2,), (0, 0))]


def names(lists: list[Declared]) -> str:
    return "".join(sorted({store for each in lists for store in each.stores}))


SHORT = [
    [Declared("a", (1,), (0,))],
    [Declared("ab", (2,), (0, 0))],
    [SEAT],
    [THREE],
    [Declared("ab", (1, 1), (0, 1), "quorum", "any")],
    [Declared("ab", (1, 1), (0, 1), "quorum", "all")],
    [Declared("ab", (1, 1), (0, 1), "quorum", "all-active")],
    [Declared("abc", (1, 1), (0, 1, 1), "quorum", "any")],
    [Declared("ab", (2,), (0, 0)), Declared("bc", (2,), (0, 0))],
]
FEW = [each for each in SHORT if len(names(each)) < 3]
MANY = [
    *SHORT,
    [BACKUP],
    [Declared("abcde", (5,), (0,) * 5)],
    [Declared("abcde", (3,), (0,) * 5)],
    [Declared("abc", (3,), (0, 0, 0), "all")],
    [Declared("abc", (3,), (0, 0, 0), "all-active")],
    [Declared("abcde", (3, 2), (0, 0, 0, 1, 1), "quorum", "any")],
    [Declared("abcde", (3, 2), (0, 0, 0, 1, 1), "quorum", "all")],
    [Declared("abcde", (3, 1), (0, 0, 0, 1, 1), "quorum", "all-active")],
    [Declared("abcde", (1, 1, 1), (0, 1, 2, 0, 1), "quorum", "majority")],
    [Declared("abcde", (3, 2), (0, 0, 0, 1, 1), "all-active", "any")],
    [THREE, OTHERS],
    SEATS,
    APART,
    [THREE, BACKUP, Declared("bcd", (3,), (0, 0, 0))],
    [THREE, Declared("abc", (1,), (0, 0, 0)), Declared("abc", (2, 1), (0, 0, 1), "quorum", "all")],
]


OPERATED = 40_000 if LONG else 250
STORES = ("wipe", "save", "restore", "forget")
REGISTER = ("lose_register", "save_register", "restore_register")
OPERATOR = (*STORES, "exclude", "exclude_at_one")
FATES = {
    "stores": STORES,
    "stores and register": (*STORES, *REGISTER),
    "one backup of both": ("wipe", "save_both", "restore_both"),
}
ONCE = ("wipe", "forget", "lose_register")
"""What counts where nothing has befallen before."""


def lives(
    lists: list[Declared], count: int, choices: Choices, fates: Sequence[str] = STORES, *, eventful: bool = False,
    reads: bool = False, until: int = 0,
) -> World:  # fmt: skip
    """Each life on one of the lists; before each but the first (unless another source has lived before),
    something befalls a store or the register;
    ``eventful``: and in the middle of it something happens; ``reads``: behind it somebody reads. Who reads a
    store that was restored, and no other one, cannot know better: so then nothing is to befall them.
    ``until`` this life the last one of the lists is declared, and after that the others."""
    world = World(names(lists))
    if world.ran_before:
        world.start_all()
    with contextlib.suppress(OnlyWrittenError):
        for life in range(count):
            if life or world.ran_before:
                befall(world, choices, fates)
            declared = choices.pick(lists if not until else lists[-1:] if life < until else lists[:-1])
            up = choices.pick(
                [each for each in subsets(declared.stores) if declared.enough(declared.seats(each) & set(each))]
            )
            hidden = choices.pick(["", "".join(store for store in world.disks if store not in up)])
            blind = choices.pick([False, True])
            world.live(declared, up, choices, hidden=hidden, blind=blind, eventful=eventful)
            if reads:
                judge_readers(world)
        world.judge_end(declared)
    return world


def befall(world: World, choices: Choices, fates: Sequence[str]) -> None:
    """One of these, or nothing."""
    what = choices.pick(["", *fates])
    if what in REGISTER:
        getattr(world, what)()
    elif what:
        getattr(world, what)(choices.pick(list(world.disks)))


def name_of(lists: list[Declared]) -> str:
    return " then ".join(f"{each.stores}-{each.sizes}-{each.intra}-{each.inter}" for each in lists)


@pytest.mark.parametrize("lists", SHORT if LONG else FEW, ids=name_of)
def test_every_short_history(lists: list[Declared], record_property: Callable[[str, object], None]) -> None:
    count = every(lambda choices: lives(lists, 2, choices, ONCE))
    assert count > 1000
    record_property("histories", count)


@pytest.mark.parametrize("fates", FATES)
@pytest.mark.parametrize("lists", MANY, ids=name_of)
def test_long_histories(lists: list[Declared], fates: str, record_property: Callable[[str, object], None]) -> None:
    decided = 0
    seeds = range(40_000 if LONG else 120)

    def run(choices: Choices) -> None:
        nonlocal decided
        decided += lives(lists, 7, choices, FATES[fates], eventful=True).decided

    some(run, seeds)
    assert decided > len(seeds) / 2, "the histories say something"
    record_property("histories", len(seeds))


@pytest.mark.parametrize("lists", [each for each in MANY if len(each) == 1 and min(each[0].sizes) > 1], ids=name_of)
def test_histories_with_an_operator_who_excludes(lists: list[Declared]) -> None:
    """Where no store may begin alone: one that comes back alone hears of no exclusion, and those that have
    excluded it do not hear of what it has had since."""
    some(lambda choices: lives(lists, 7, choices, OPERATOR, eventful=True), range(OPERATED))


@pytest.mark.parametrize("lists", [[THREE], [BACKUP], [THREE, OTHERS]], ids=name_of)
def test_the_word_of_an_operator_ends_the_wait(lists: list[Declared]) -> None:
    """Where nothing else befalls anybody; of whom the word was for, what it alone has is given up, once."""
    fates = ("exclude", "exclude", "exclude_at_one")
    some(lambda choices: lives(lists, 7, choices, fates, eventful=True), range(OPERATED))


def test_what_only_the_register_knew_is_lost_with_it_and_is_counted() -> None:
    """Of {a}, then {b}, then {a, b} no store knows that the other one was there: more is not promised, and
    not less."""
    worlds: list[World] = []
    some(lambda choices: worlds.append(lives(APART, 7, choices, (*STORES, *REGISTER), eventful=True)), range(600))
    assert any(world.only_written for world in worlds)
    assert not any(world.only_written for world in worlds if not world.damaged)
    some(lambda choices: worlds.append(lives([BACKUP], 7, choices, REGISTER, eventful=True)), range(300))
    assert not any(world.only_written for world in worlds[600:]), (
        "one list, and nothing befalls a store: all of them know"
    )


def test_a_store_that_has_forgotten_is_known_until_it_has_begun_again() -> None:
    world = World("abc")
    first, others = Declared("ab", (2,), (0, 0)), Declared("bc", (2,), (0, 0))
    world.live(first, "ab", Choices())
    world.save("b")
    world.live(first, "ab", Choices())
    assert set(world.stable) == {0, 1}
    world.restore("b")
    world.live(first, "ab", Choices([1]))  # BEGIN reaches a alone, and its claimant dies
    world.live(others, "bc", Choices(), blind=True)
    assert set(world.stable) == {0, 1}


# Planted ----------------------------------------------------------------------------------------------------


def backups_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    def members(groups: Groups, number: int) -> list[int]:
        return [store for store, group in enumerate(groups.of) if group == number][: groups.sizes[number]]

    stable_number = Groups.stable_number

    def seats_only(groups: Groups, positions: dict[int, int]) -> int:
        seats = {store for number in groups.numbers for store in members(groups, number)}
        return stable_number(groups, {store: at for store, at in positions.items() if store in seats})

    monkeypatch.setattr(Groups, "stable_number", seats_only)


def unknown_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(election, "FOR_EVER", 0)
    monkeypatch.setattr("holdfast.engine.rules.reports.FOR_EVER", 0)


def forgetful_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    def least(logs: Any) -> tuple[int, dict[str, int]]:
        numbers = {**logs.numbers, **dict.fromkeys(logs.forgot, 0)}
        return least_impossible(logs.configurations, numbers), numbers

    monkeypatch.setattr(election, "_least", least)


def old_lists_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(World, "writes", False)
    monkeypatch.setattr("model.answers.Grant", lambda *args, configuration, **more: Grant(*args, **more))


def there_is_no_register(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(World, "writes", False)


def promises_are_not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    only_the_newest_table(monkeypatch)
    monkeypatch.setattr(World, "lazy_promises", True)


def promises_are_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    only_the_newest_table(monkeypatch)
    monkeypatch.setattr(histories, "keeps_promise", lambda *_: True)


def only_the_newest_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """An orphan BEGIN holds: what promises keep from happening, and what right_table sees where it happened
    all the same."""
    monkeypatch.setattr(
        election, "right_table", lambda views, *_: newest_table(view.begins for view in views.values() if view)
    )


def nothing_is_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    """As before version 0.2.0: orphans become the newest."""
    monkeypatch.setattr(histories, "keeps_promise", lambda *_: True)


def readers_take_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing_is_promised(monkeypatch)
    monkeypatch.setattr(
        readers, "tables_by_states", lambda views, *_: [newest_table(view.begins for view in views.values() if view)]
    )


def restored_is_not_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(election, "_missed", lambda *_: None)


def a_seat_change_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(World, "writes_events", False)


def a_restored_register_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it has the source, what the stores remember of it counts no more."""
    answers = World.answers

    def believing(world: World, *args: Any) -> dict[int, Grant]:
        grants = answers(world, *args)
        if not world.register.lists:
            return grants
        return {store: replace(grant, configuration=None, peers={}) for store, grant in grants.items()}

    monkeypatch.setattr(World, "answers", believing)


def void_is(monkeypatch: pytest.MonkeyPatch, counts: Callable[[int, int, int], bool]) -> None:
    """For all of the product; the judge has its own rule. ``counts``: whether a BEGIN makes records void, by
    its number, by theirs, and by that of the newest one."""

    def void_by(table: Sequence[BeginOf], own: int) -> int:
        return min((start for number, start in table if counts(number, own, table[-1][0])), default=FOR_EVER)

    for name, module in list(sys.modules.items()):
        if name.startswith(("holdfast.engine.", "model.")) and vars(module).get("void_from") is void_from:
            monkeypatch.setattr(module, "void_from", void_by)


def the_newest_begin_alone_makes_void(monkeypatch: pytest.MonkeyPatch) -> None:
    void_is(monkeypatch, lambda number, own, newest: own < number == newest)


def the_next_begin_makes_nothing_void(monkeypatch: pytest.MonkeyPatch) -> None:
    void_is(monkeypatch, lambda number, own, _: number > own + 1)


def a_begin_makes_its_own_void(monkeypatch: pytest.MonkeyPatch) -> None:
    void_is(monkeypatch, lambda number, own, _: number >= own)


@pytest.mark.parametrize(
    ("plant", "lists", "first"),
    [
        (backups_are_ignored, [BACKUP], 0),
        (unknown_is_empty, [THREE], 0),
        (forgetful_is_empty, [THREE], 0),
        (old_lists_are_ignored, [THREE, OTHERS], 0),
        (there_is_no_register, [THREE, OTHERS], 0),
        (promises_are_not_synced, [THREE], 3600),
        (promises_are_not_checked, [THREE], 10_800),
        (restored_is_not_noticed, [THREE], 0),
        (the_newest_begin_alone_makes_void, [THREE], 90),
        (the_next_begin_makes_nothing_void, [THREE], 90),
        (a_begin_makes_its_own_void, [THREE], 0),
    ],
)
def test_the_histories_find_a_planted_bug(
    monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None], lists: list[Declared], first: int
) -> None:
    """``first``: a seed from which on it is soon found."""
    plant(monkeypatch)
    with pytest.raises(LostError):
        some(lambda choices: lives(lists, 7, choices), range(first, first + 20_000))


def who_missed_a_begin_still_excludes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(election, "_excluded", lambda grants, *_: {name for grant in grants for name in grant.excluded})


def nobody_hears_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(election, "_excluded", lambda *_: set())


def an_exclusion_is_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SourceState, "readmit", lambda *_: False)
    monkeypatch.setattr(election, "over", lambda *_: ())


def only_who_has_recorded_it_knows_that_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(election, "all_over", lambda *_: [])


@pytest.mark.parametrize(
    ("plant", "lists", "fates"),
    [
        (who_missed_a_begin_still_excludes, [THREE], OPERATOR),
        (an_exclusion_is_for_ever, [THREE], ("exclude",)),
        (nobody_hears_the_operator, [THREE], ("exclude",)),
        (only_who_has_recorded_it_knows_that_it_is_over, [THREE], ("exclude_at_one",)),
        (a_seat_change_is_not_written, [SEAT], ("save", "restore")),
        (a_restored_register_is_believed, APART, FATES["one backup of both"]),
    ],
)
def test_the_histories_find_a_planted_bug_of_register_and_operator(
    monkeypatch: pytest.MonkeyPatch,
    plant: Callable[[pytest.MonkeyPatch], None],
    lists: list[Declared],
    fates: Sequence[str],
) -> None:
    plant(monkeypatch)
    with pytest.raises(LostError):
        some(lambda choices: lives(lists, 7, choices, fates, eventful=True), range(20_000))


@pytest.mark.parametrize("lists", [[THREE], [BACKUP], [THREE, OTHERS]], ids=name_of)
def test_an_orphan_hides_nothing_from_readers(monkeypatch: pytest.MonkeyPatch, lists: list[Declared]) -> None:
    """Where nothing is promised it can be the newest BEGIN, beside what became stable without it."""
    nothing_is_promised(monkeypatch)
    some(lambda choices: lives(lists, 7, choices, (), reads=True), range(500))


def beside_an_orphan() -> World:
    """a has BEGINs 2 and 3, of claimants that died; b and c have decided 2 without it, and number 1 is stable
    there."""
    world = World("abc")
    world.live(THREE, "abc", Choices())
    for _ in range(2):
        world.live(THREE, "abc", Choices([1]))
    for disk in world.disks.values():
        if disk.state is not None:
            disk.state.promised = 0
    world.live(THREE, "bc", Choices(), hidden="a")
    assert [disk.view().incarnation for disk in world.disks.values()] == [3, 2, 2]
    assert 1 in world.stable
    return world


def test_readers_see_what_is_stable_beside_an_orphan(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing_is_promised(monkeypatch)
    judge_readers(beside_an_orphan())
    readers_take_the_newest(monkeypatch)
    with pytest.raises(LostError, match="hidden by"):
        judge_readers(beside_an_orphan())


def test_promises_alone_keep_an_orphan_from_being_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    only_the_newest_table(monkeypatch)
    some(lambda choices: lives([THREE], 7, choices), range(2000))
