"""What a census proves of a store that does not answer (engine/rules/census.py)."""

from __future__ import annotations

import pytest

from holdfast.engine.rules.census import (
    BEFORE_MAX,
    CENSUSES_MAX,
    TROUBLE,
    Found,
    Identity,
    Mark,
    Remembered,
    Told,
    doubt,
    goes_on,
    remember,
)

HERE: Identity = (1, 2, 3)
ONE, OTHER = b"1" * 16, b"2" * 16
WHOLE = Found("c", HERE, mark=Mark(ONE, 5))
GONE = Found("c", HERE)
NEW = Told(Mark(OTHER, 3), HERE, {}, forgot=False)


def of(found: Found, *told: Told | None, took_part: tuple[str, ...] = ()) -> str:
    return doubt(found, dict(zip("ab", told or (NEW, NEW), strict=False)), took_part)


def knowing(mark: Mark, name: str = "c") -> Told:
    return NEW._replace(others={name: mark})


def test_a_whole_census_without_the_source_proves_it() -> None:
    assert of(WHOLE) == ""
    assert of(WHOLE, knowing(Mark(ONE, 5)), knowing(Mark(ONE, 2))) == ""
    assert of(WHOLE, NEW._replace(lost=True)) == ""
    assert of(WHOLE._replace(info=Mark(ONE, 5)), knowing(Mark(OTHER, 9), "d")) == ""


def test_where_there_is_no_file_and_nothing_of_the_store_it_never_ran() -> None:
    assert of(GONE) == ""
    assert of(GONE, knowing(Mark(OTHER, 9), "d"), NEW) == ""


@pytest.mark.parametrize(
    ("found", "told", "reason"),
    [
        (WHOLE, None, "a keeps no census"),
        (WHOLE, NEW._replace(mark=TROUBLE), "a keeps no census"),
        (WHOLE, NEW._replace(directory=(9, 2, 3)), "a keeps its census in another directory"),
        (WHOLE, NEW._replace(directory=(1, 2, 4)), "a keeps its census in another directory"),
        (WHOLE, NEW._replace(forgot=True), "a has had this source"),
        (GONE, NEW._replace(forgot=True), "a has had this source"),
        (GONE, NEW._replace(lost=True), "its census is gone, or another one was"),
        (WHOLE._replace(why="it is torn"), NEW, "it is torn"),
        (GONE._replace(why="it hangs"), NEW, "it hangs"),
        (WHOLE._replace(lists=True), NEW, "has granted this source"),
        (WHOLE, knowing(Mark(ONE, 6)), "set back"),
        (WHOLE, knowing(Mark(OTHER, 1)), "another one"),
        (WHOLE, knowing(TROUBLE), "could not write"),
        (WHOLE, knowing(TROUBLE, ""), "could not write"),
        (WHOLE._replace(info=Mark(ONE, 6)), NEW, "set back"),
        (WHOLE._replace(info=Mark(OTHER, 5)), NEW, "another one"),
        (WHOLE._replace(info=TROUBLE), NEW, "could not write"),
        (GONE, knowing(Mark(ONE, 1)), "is gone"),
        (GONE, knowing(TROUBLE), "could not write"),
        (GONE, knowing(TROUBLE, ""), "could not write"),
        (GONE._replace(info=Mark(ONE, 1)), NEW, "is gone"),
        (GONE._replace(info=TROUBLE), NEW, "could not write"),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_what_proves_nothing(found: Found, told: Told | None, reason: str, first: bool) -> None:
    """Whichever store says it."""
    said = of(found, told, NEW) if first else of(found, NEW, told)
    assert reason in said.replace("b keeps", "a keeps").replace("b has", "a has")


def test_who_took_part_by_the_register_is_not_proved() -> None:
    for found in (WHOLE, GONE):
        assert "as the register of sources says" in of(found, took_part=("b", "c"))
        assert of(found, took_part=("b",)) == ""


def test_a_census_only_grows() -> None:
    assert goes_on(Mark(ONE, 5), Mark(ONE, 5))
    assert goes_on(Mark(ONE, 6), Mark(ONE, 5))
    assert not goes_on(Mark(ONE, 4), Mark(ONE, 5))
    assert not goes_on(Mark(OTHER, 9), Mark(ONE, 5))


def test_a_begin_that_comes_late_takes_nothing_back() -> None:
    known = remember({}, {"c": Mark(ONE, 5)})
    assert known == {"c": Remembered(ONE, 5)}
    assert remember(known, {"c": Mark(ONE, 4)}) == known
    assert remember(known, {"c": Mark(ONE, 6)})["c"].lines == 6
    later = remember(known, {"c": Mark(OTHER, 2)})
    assert later == {"c": Remembered(OTHER, 2, (ONE,))}
    assert remember(later, {"c": Mark(ONE, 9)}) == later


def test_a_trouble_is_remembered_until_another_census_is_begun() -> None:
    known = remember(remember({}, {"c": Mark(ONE, 5)}), {"c": TROUBLE})
    assert known["c"][:2] == TROUBLE
    assert remember(known, {"c": Mark(ONE, 6)}) == known, "it is the one that could not be written"
    healed = remember(known, {"c": Mark(OTHER, 2)})
    assert healed["c"][:2] == Mark(OTHER, 2)
    assert remember(healed, {"c": TROUBLE})["c"][:2] == TROUBLE, "and may be once more"


def test_of_more_stores_than_are_remembered_nothing_is_taken_for_known() -> None:
    known = remember({}, {f"s{number}": Mark(ONE, 1) for number in range(CENSUSES_MAX + 3)})
    assert len(known) == CENSUSES_MAX + 1
    told = NEW._replace(others={name: Mark(*each[:2]) for name, each in known.items()})
    assert of(GONE, told)
    assert of(Found("s0", HERE, mark=Mark(ONE, 1)), told) == ""
    for number in range(3 * BEFORE_MAX):
        known = remember(known, {"s0": Mark(b"%016d" % number, 1)})
    assert len(known["s0"].before) == BEFORE_MAX
