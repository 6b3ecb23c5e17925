"""A new source that a quorum begins, because censuses prove that the others never had it: all that is stable
stays, whatever befalls the files (censuses.py)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
from model.choices import Choices, some
from model.conftest import LONG
from model.declared import Declared
from model.histories import World
from model.test_histories import BACKUP, OTHERS, STORES, THREE, lives, name_of
from model.verdicts import LostError

from holdfast.engine.log import census

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.engine.log.census import Census

PLANTED = 20_000
SEEDS = 20_000 if LONG else 400
FILES = ("start", "lose_census", "fill_census_disk", "upgrade")
REBOOTS = ("reboot", "sync", "start_all")
MOVED = [THREE, OTHERS]
AT_ONE = [THREE, Declared("c", (1,), (0,))]
"""The source was at c alone."""
Story = tuple[tuple[str, str], ...]
"""What befalls which store."""
LISTS = [[THREE], [BACKUP], MOVED, AT_ONE, [Declared("bcd", (3,), (0, 0, 0)), BACKUP]]


def play(lists: list[Declared], choices: Choices, fates: Sequence[str]) -> World:
    """Seven lives. Of lists that change, the last one is declared until it is left for good: who goes back to
    an older one needs a register of sources."""
    until = choices.pick([1, 2, 3, 4]) if len(lists) > 1 else 0
    return lives(lists, 7, choices, fates, eventful=True, until=until)


def proofs(
    monkeypatch: pytest.MonkeyPatch, lists: list[Declared], fates: Sequence[str], *, register: bool, disk: bool = False
) -> int:
    monkeypatch.setattr(World, "writes", register)
    monkeypatch.setattr(World, "ran_before", True)
    monkeypatch.setattr(World, "has_disk", disk)
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
        assert proofs(monkeypatch, lists, fates, **more) >= SEEDS / (400 if lists == AT_ONE else 50)
        record_property("histories", SEEDS)

    return play_all


@pytest.mark.parametrize("lists", LISTS, ids=name_of)
def test_within_a_boot(prove: Callable[..., None], lists: list[Declared]) -> None:
    """There is no register of sources. Where lists change no directory is set back: only the register would
    know of what a wiped one knew."""
    prove(lists, (*FILES, "wipe", *(STORES if len(lists) == 1 else ())), register=False)


@pytest.mark.parametrize("disk", [False, True])
@pytest.mark.parametrize("lists", LISTS, ids=name_of)
def test_over_boots(prove: Callable[..., None], lists: list[Declared], disk: bool) -> None:
    """Also where the domain is on a disk, and is what was written back of it."""
    prove(lists, (*FILES, *REBOOTS), register=False, disk=disk)


@pytest.mark.parametrize("lists", LISTS, ids=name_of)
def test_beside_a_register(prove: Callable[..., None], lists: list[Declared]) -> None:
    """Whatever befalls the stores."""
    prove(lists, (*FILES, *REBOOTS, *STORES), register=True)


# Planted ----------------------------------------------------------------------------------------------------


def believes(monkeypatch: pytest.MonkeyPatch, change: Callable[..., tuple[Any, ...]]) -> None:
    """The product is asked about something else than was found."""
    doubt = census.doubt
    monkeypatch.setattr(census, "doubt", lambda *found: doubt(*change(*found)))


def a_missing_census(monkeypatch: pytest.MonkeyPatch) -> None:
    empty = census.Census(b"", b"", True, b"")
    believes(monkeypatch, lambda it, life, keys, boot: (it or empty._replace(boot=boot, life=life), life, keys, boot))


def one_that_has_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    believes(monkeypatch, lambda it, life, _, boot: (it, life, (), boot))


def one_of_an_earlier_boot(monkeypatch: pytest.MonkeyPatch) -> None:
    believes(monkeypatch, lambda it, life, keys, _: (it, life, keys, it.boot if it is not None else b""))


def one_that_is_not_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    def whole(it: Census | None, *more: Any) -> tuple[Any, ...]:
        return it._replace(whole=True) if it is not None else None, *more

    believes(monkeypatch, whole)


def one_beside_an_older_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(World, "names_lives", False)


def written_after_the_grant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(World, "writes_census", False)


def begun_without_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(World, "begins_with_state", False)


def begun_without_the_earlier_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(census, "carried_over", lambda *_, **__: (frozenset(), True))


@pytest.mark.parametrize(
    ("plant", "befalls", "disk"),
    [
        (a_missing_census, ("lose_census",), False),
        (one_that_has_the_source, ("start",), False),
        (one_of_an_earlier_boot, ("sync", "reboot"), True),
        (one_beside_an_older_store, ("upgrade",), False),
        (written_after_the_grant, ("start",), False),
    ],
)
def test_the_histories_find_a_planted_bug_of_censuses(
    monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None], befalls: Sequence[str], disk: bool
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "SEEDS", PLANTED)
    plant(monkeypatch)
    with pytest.raises(LostError) as lost:
        proofs(monkeypatch, AT_ONE, befalls, register=False, disk=disk)
    assert "another identity begins" in str(lost.value)


SET_BACK: Story = (("save", "c"), ("wipe", "c"), ("start", "c"), ("restore", "c"))
"""The directory of c is away while c runs, and is there again."""
LOST: Story = (("save", "c"), ("wipe", "c"), ("lose_census", "c"), ("start", "c"), ("restore", "c"))
"""So it is, and the census as well."""
UPGRADED: Story = (("upgrade", "c"), ("start", "c"))


def tell(story: Story, *, older: bool = False) -> None:
    """The source lives at c, and this befalls it. Nobody reads c while a quorum might begin the source."""

    def run(choices: Choices) -> None:
        world = World("abc")
        world.host.older.update({"c"} if older else ())
        world.start_all()
        world.live(AT_ONE[1], "c", choices)
        for what, name in story:
            getattr(world, what)(name)
        world.live(THREE, "ab", choices, hidden="c")

    some(run, range(100))


@pytest.mark.parametrize("story", [SET_BACK, LOST, UPGRADED])
def test_what_is_known_of_the_boot_stays_known(monkeypatch: pytest.MonkeyPatch, story: Story) -> None:
    monkeypatch.setattr(World, "writes", False)
    tell(story, older=story is UPGRADED)


@pytest.mark.parametrize(
    ("plant", "story"),
    [
        (begun_without_the_earlier_life, SET_BACK),
        (one_that_is_not_whole, LOST),
        (begun_without_the_state, UPGRADED),
    ],
)
def test_the_stories_find_a_planted_bug_of_censuses(
    monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None], story: Story
) -> None:
    monkeypatch.setattr(World, "writes", False)
    plant(monkeypatch)
    with pytest.raises(LostError, match="another identity begins"):
        tell(story, older=story is UPGRADED)
