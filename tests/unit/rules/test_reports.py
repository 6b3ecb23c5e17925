"""The least number that nothing stable can have passed, and which BEGINs hold, from what is known of the logs
(docs/design.md 13, 14)."""

from __future__ import annotations

import itertools

import pytest

from holdfast.engine.rules.quorum import INTERGROUP, Groups, Intergroup, Intragroup
from holdfast.engine.rules.reconcile import BEGINS_MAX, FOR_EVER, LogView, Table
from holdfast.engine.rules.reports import (
    Configuration,
    Declared,
    Seen,
    agreed_below,
    contested,
    ends_the_wait,
    known_views,
    least_impossible,
    names_of,
    reached,
    readers_tables,
    right_table,
)

ONE: Table = ((1, 0),)
THREE = Configuration(tuple("abc"), Groups.single(3))
BACKUP = Configuration(tuple("abcd"), Groups((3,), (0, 0, 0, 0)))
SEAT = Configuration(tuple("ab"), Groups((1,), (0, 0)))


def in_groups(inter: Intergroup, intra: Intragroup = "quorum") -> Configuration:
    return Configuration(tuple("abcdef"), Groups((3, 3), (0, 0, 0, 1, 1, 1), intra, inter))


def numbers(text: str) -> dict[str, int]:
    """``a9 b?``: a has come to 9, b may have come anywhere."""
    return {part[0]: FOR_EVER if part[1:] == "?" else int(part[1:]) for part in text.split()}


@pytest.mark.parametrize(
    ("configuration", "said", "least", "missing"),
    [
        (THREE, "a9 b8 c7", 8, ""),
        (THREE, "a9 b8 c?", 9, ""),  # c may have 8, too
        (THREE, "a9 b8", 9, ""),  # nobody has said anything of c
        (THREE, "a9 b? c?", FOR_EVER, "b"),
        (THREE, "a? b? c?", FOR_EVER, "ab"),
        (BACKUP, "a9 b9 c9 d?", 9, ""),
        (BACKUP, "a9 b5 c5 d?", 9, ""),  # d may have had a seat
        (BACKUP, "a9 b9 c? d?", FOR_EVER, "c"),  # both may have had one
        (SEAT, "a5 b?", FOR_EVER, "b"),
        (SEAT, "a5 b9", 9, ""),
        (in_groups("any"), "a9 b9 c9 d5 e5 f5", 9, ""),
        (in_groups("any"), "a9 b9 c9 d? e? f?", FOR_EVER, "de"),
        (in_groups("all"), "a9 b9 c9 d? e? f?", 9, ""),  # the first group says enough
        (in_groups("all"), "a9 b? c? d? e? f?", FOR_EVER, "b"),
        (in_groups("majority"), "a9 b9 c9 d? e? f?", 9, ""),
        (in_groups("all-active"), "a9 b9 c9 d? e? f?", FOR_EVER, "de"),  # the second group may have been active alone
        (in_groups("any", "all"), "a9 b9 c9 d? e? f5", 9, ""),
        (in_groups("any", "all"), "a9 b9 c9 d? e? f?", FOR_EVER, "d"),
        (in_groups("any", "all-active"), "a9 b9 c9 d? e? f5", FOR_EVER, "d"),
    ],
)
def test_the_start_is_behind_everything_that_may_be_stable(
    configuration: Configuration, said: str, least: int, missing: str
) -> None:
    assert least_impossible([configuration], numbers(said)) == least
    assert ends_the_wait([configuration], numbers(said)) == list(missing)


@pytest.mark.parametrize("configuration", [THREE, BACKUP, SEAT, *(in_groups(each) for each in INTERGROUP)])
def test_against_every_way_in_which_unknown_stores_may_have_come_somewhere(configuration: Configuration) -> None:
    """The oracle counts sets of stores one by one: a number was stable if those that hold it are enough in
    enough groups."""
    sizes, of, inter = configuration.groups.sizes, configuration.groups.of, configuration.groups.intergroup
    groups = [number for number, size in enumerate(sizes) if size]
    enough = {"any": 1, "all-active": 1, "majority": len(groups) // 2 + 1, "all": len(groups)}[inter]

    def stable(number: int, at: dict[int, int]) -> bool:
        quorate = [sum(at[i] > number for i in at if of[i] == group) > sizes[group] // 2 for group in groups]
        return sum(quorate) >= enough

    ends = (0, 1, 2, None)
    for said in (
        itertools.product(ends, repeat=len(of)) if len(of) < 5 else itertools.product((0, 2, None), repeat=len(of))
    ):
        known = {name: FOR_EVER if end is None else end for name, end in zip(configuration.stores, said, strict=True)}
        least = least_impossible([configuration], known)
        at = {index: 10 if end is None else end for index, end in enumerate(said)}
        possible = [number for number in range(10) if stable(number, at)]
        assert least == (FOR_EVER if 9 in possible else len(possible)), said
        named = ends_the_wait([configuration], known)
        assert bool(named) == (least == FOR_EVER)
        answered = {**known, **dict.fromkeys(named, 2)}
        assert least_impossible([configuration], answered) < FOR_EVER, f"{named} have answered: {said}"
        for kept in named:
            fewer = {**answered, kept: FOR_EVER}
            assert least_impossible([configuration], fewer) == FOR_EVER, f"{named} is no smallest set: {said}"


def test_a_configuration_that_a_store_remembers_counts_beside_the_declared_one() -> None:
    """Life 1 was on a, b and c; life 2 is on c, d and e, where nobody has anything."""
    declared = Configuration(tuple("cde"), Groups.single(3))
    known = numbers("c5 d0 e0")
    assert least_impossible([declared], known) == 0
    assert least_impossible([declared, THREE], known) == FOR_EVER
    assert ends_the_wait([declared, THREE], known) == ["a"]
    assert least_impossible([declared, THREE], {**known, "a": 9}) == 9


def test_what_an_answering_store_says_of_itself_counts_before_what_others_have_read() -> None:
    view, older, newer = LogView(ONE, 5), LogView(ONE, 3), LogView(((1, 0), (2, 2)), 2)
    seen = [Seen("a", "a", view), Seen("b", "b", older), Seen("b", "b", None, "away"), Seen("b", "b", newer)]
    assert known_views(seen) == {"a": view, "b": newer}
    assert known_views(seen, own={"b": [Seen("b", "b", older)]})["b"] == older
    assert known_views([Seen("127.0.0.1:9", "", None)]) == {"127.0.0.1:9": None}
    assert names_of([Seen("127.0.0.1:9", "b", view), Seen("x", "", None)]) == {"127.0.0.1:9": "b"}


def test_what_a_later_begin_made_void_counts_for_nothing() -> None:
    assert reached(LogView(ONE, 61), ((1, 0), (2, 45))) == 45
    assert reached(LogView(((1, 0), (2, 45)), 61), ((1, 0), (2, 45))) == 61
    assert reached(None, ONE) == FOR_EVER


SIX: Table = ((6, 0),)
AGAIN: Table = ((6, 0), (7, 100))
ORPHANS: Table = ((6, 0), (7, 100), (8, 100))


@pytest.mark.parametrize(
    ("views", "table"),
    [
        ({"a": LogView(ORPHANS, 100), "b": LogView(AGAIN, 200), "c": LogView(AGAIN, 200)}, AGAIN),
        ({"a": LogView(ORPHANS, 100), "b": LogView(AGAIN, 200), "c": None}, None),  # who knows which BEGIN c has
        (
            {"a": LogView(ORPHANS, 100), "b": LogView(AGAIN, 200), "c": LogView(SIX, 100)},
            ORPHANS,
        ),  # 100..199: at b only
        ({"a": LogView(ORPHANS, 100), "b": LogView(ORPHANS, 200), "c": LogView(AGAIN, 200)}, ORPHANS),
        ({"a": LogView(AGAIN, 100), "b": LogView(SIX, 100), "c": LogView(SIX, 100)}, AGAIN),  # it voids nothing
        ({"a": LogView(AGAIN, 100), "b": LogView(SIX, 120), "c": LogView(SIX, 130)}, SIX),
        ({"a": LogView((), 0), "b": None, "c": None}, ()),
    ],
)
def test_a_begin_that_few_stores_have_does_not_void_what_may_be_stable(
    views: dict[str, LogView | None], table: Table | None
) -> None:
    assert right_table(views, [THREE]) == table


@pytest.mark.parametrize(
    ("orphan", "rival", "forgot", "table"),
    [
        (LogView(AGAIN, 100), LogView(SIX, 200), "c", SIX),  # 100..199 were at b and c; 7 sent nothing that a knows
        (
            LogView(AGAIN, 150),
            LogView(SIX, 200),
            "c",
            AGAIN,
        ),  # as well may 7 have sent to a and c: nobody will ever say
        (LogView(AGAIN, 100), LogView(SIX, 100), "c", AGAIN),  # it voids nothing
        (LogView(AGAIN, 100), LogView(SIX, 200), "", AGAIN),  # c never had anything: 100..199 are at b only
    ],
)
def test_who_has_forgotten_may_have_held_what_an_orphan_makes_void(
    orphan: LogView, rival: LogView, forgot: str, table: Table
) -> None:
    assert right_table({"a": orphan, "b": rival, "c": LogView((), 0)}, [THREE], forgot) == table


def test_who_has_forgotten_does_not_answer_for_who_is_unknown() -> None:
    views = {"a": LogView(ORPHANS, 100), "b": LogView(AGAIN, 200), "c": LogView((), 0), "d": None}
    four = Configuration(tuple("abcd"), Groups.single(4))
    assert right_table(views, [four], "c") is None


def test_where_no_configuration_is_on_record_the_newest_begin_holds() -> None:
    assert right_table({"a": LogView(ORPHANS, 100), "b": LogView(AGAIN, 200)}, []) == ORPHANS


def test_by_a_list_that_was_left_before_no_begin_is_complete() -> None:
    """c had the source alone up to 5. d and e have 5..14 under (3, 5); c has an orphan BEGIN (4, 5) of a
    later claimant."""
    alone, three = Configuration(("c",), Groups.single(1), 5), Configuration(("c", "d", "e"), Groups.single(3))
    right: Table = ((1, 0), (3, 5))
    views = {"c": LogView(((1, 0), (4, 5)), 5), "d": LogView(right, 15), "e": LogView(right, 15)}
    assert right_table(views, [three]) == right
    assert right_table(views, [three, alone]) == right


# What readers take ------------------------------------------------------------------------------------------

LISTED: list[Declared] = [(0, THREE)]
OTHER: Table = ((6, 0), (7, 120))


@pytest.mark.parametrize(
    ("views", "tables", "agreed"),
    [
        # The orphan of an earlier version: 8 is at a alone, and 100..199 are stable at b and c.
        ({"a": LogView(ORPHANS, 100), "b": LogView(AGAIN, 200), "c": LogView(AGAIN, 200)}, [AGAIN], FOR_EVER),
        # Before anything was sent under 7: a log that grows changes nothing.
        ({"a": LogView(ORPHANS, 100), "b": LogView(AGAIN, 100), "c": LogView(AGAIN, 100)}, [AGAIN], FOR_EVER),
        # 8 goes round, and holds when it is complete.
        ({"a": LogView(ORPHANS, 100), "b": LogView(ORPHANS, 100), "c": LogView(AGAIN, 120)}, [ORPHANS], FOR_EVER),
        # Unknown is not empty: c may have 7, or 8.
        ({"a": LogView(ORPHANS, 100), "b": LogView(AGAIN, 200), "c": None}, [ORPHANS, AGAIN], 100),
        ({"a": LogView(ORPHANS, 100), "b": LogView(AGAIN, 200)}, [ORPHANS, AGAIN], 100),
        # What was sent under 8 proves it, whatever c has.
        ({"a": LogView(ORPHANS, 101), "b": LogView(AGAIN, 200), "c": None}, [ORPHANS], FOR_EVER),
        # 7 and 8 are at a, which died alone with both.
        ({"a": LogView(ORPHANS, 100), "b": LogView(SIX, 130), "c": LogView(SIX, 130)}, [SIX], FOR_EVER),
        # One that is readable says nothing of the others: any of its BEGINs may be the newest complete one.
        ({"a": LogView(ORPHANS, 100), "b": None, "c": None}, [ORPHANS, AGAIN, SIX], 100),
        # Each store that had 7 has an orphan behind it: 7 is complete, though it is nobody's newest.
        (
            {"a": LogView(SIX, 130), "b": LogView(ORPHANS, 100), "c": LogView((*AGAIN, (9, 100)), 100)},
            [AGAIN],
            FOR_EVER,
        ),
        # The same, with b alone to be read beside a: what was sent under 7 proves it.
        ({"a": LogView(SIX, 130), "b": LogView((*AGAIN, (9, 120)), 120), "c": LogView((), 0)}, [AGAIN], FOR_EVER),
        # Two BEGINs with one number: the one under which something was sent, the one that more stores have.
        ({"a": LogView(AGAIN, 100), "b": LogView(OTHER, 121), "c": None}, [OTHER], FOR_EVER),
        ({"a": LogView(AGAIN, 100), "b": LogView(OTHER, 120), "c": LogView(OTHER, 120)}, [OTHER], FOR_EVER),
        ({"a": LogView(AGAIN, 100), "b": LogView(OTHER, 120), "c": None}, [OTHER, AGAIN, SIX], 100),
        # 7 is at one of three, and nothing was sent under it; 6 is, too, but what was sent under it says that
        # it was complete.
        ({"a": LogView(AGAIN, 100), "b": LogView((), 0), "c": LogView((), 0)}, [SIX], FOR_EVER),
        # The same: a catches up, and has nothing of 6 yet.
        ({"a": LogView(AGAIN, 0), "b": LogView((), 0), "c": LogView((), 0)}, [SIX], FOR_EVER),
        # None is complete: the newest, as where nothing is declared.
        ({"a": LogView(((6, 0), (7, 0)), 0), "b": LogView((), 0), "c": LogView((), 0)}, [((6, 0), (7, 0))], FOR_EVER),
        ({"a": LogView((), 0), "b": None, "c": None}, [()], FOR_EVER),
    ],
)
def test_readers_take_the_newest_begin_that_is_complete(
    views: dict[str, LogView | None], tables: list[Table], agreed: int
) -> None:
    assert readers_tables(views, LISTED) == tables
    assert agreed_below(tables) == agreed


def test_what_a_reader_knows_to_hold_is_followed_by_a_newer_begin_only() -> None:
    views: dict[str, LogView | None] = {"a": LogView(ORPHANS, 100), "b": None, "c": None}
    assert readers_tables(views, LISTED, sure=AGAIN) == [ORPHANS, AGAIN]
    assert readers_tables({"a": LogView(AGAIN, 100)}, LISTED, sure=ORPHANS) == [ORPHANS]
    assert readers_tables({}, LISTED, sure=AGAIN) == [AGAIN]


def test_who_is_given_up_is_not_waited_for() -> None:
    views: dict[str, LogView | None] = {"a": LogView(ORPHANS, 100), "b": LogView(AGAIN, 200), "c": None}
    assert readers_tables(views, LISTED, "c") == [AGAIN]


def test_a_begin_counts_by_the_list_that_it_declared_and_without_any_as_it_stands() -> None:
    views: dict[str, LogView | None] = {"a": LogView(ORPHANS, 100), "b": LogView(AGAIN, 200), "c": LogView(AGAIN, 200)}
    assert readers_tables(views, []) == [ORPHANS]
    alone = Configuration(("a",), Groups.single(1))
    assert readers_tables(views, [(8, alone), (7, THREE)]) == [ORPHANS], "complete by its own list"
    assert readers_tables(views, [(6, alone), (7, THREE), (8, THREE)]) == [AGAIN], "a list that was left says nothing"
    with_d = Configuration(tuple("ad"), Groups.single(2))
    assert readers_tables(views, [(8, with_d), (7, THREE)]) == [ORPHANS, AGAIN], "d may have begun"


def test_what_a_table_has_forgotten_is_no_difference() -> None:
    assert agreed_below([((6, 90), (7, 100)), ((1, 0), (6, 90), (7, 100))]) == FOR_EVER
    assert agreed_below([((6, 0), (8, 100)), ((6, 0), (7, 90))]) == 90
    assert agreed_below([((6, 90), (8, 100)), ((6, 90), (7, 95))]) == 95, "what is older is an incarnation, no number"
    assert agreed_below([(), AGAIN]) == 0


FULL: Table = tuple((number, 5) for number in range(9, 9 + BEGINS_MAX))


@pytest.mark.parametrize(
    ("a", "table", "forgot", "found"),
    [
        (LogView((*ONE, (2, 5)), 9), (*ONE, (3, 5)), "", {"a"}),
        (LogView((*ONE, (2, 5)), 9), (*ONE, (3, 5)), "b", {"a"}),  # the other one's BEGIN is complete all the same
        (LogView((*ONE, (2, 5)), 9), (*ONE, (3, 5)), "a", set()),  # it does not know what it has
        (LogView((*ONE, (2, 5)), 5), (*ONE, (3, 5)), "", set()),  # no message
        (LogView((*ONE, (2, 5)), 9), (*ONE, (3, 9)), "", set()),  # all of them stay
        (LogView(ONE, 9), ((3, 0),), "", set()),  # of a source that was deregistered since
        (LogView((*ONE, (2, 5)), 9), FULL, "", {"a"}),  # what they share may be forgotten
    ],
)
def test_what_may_be_stable_and_another_begin_makes_void(
    a: LogView, table: Table, forgot: str, found: set[str]
) -> None:
    assert contested({"a": a, "b": LogView(table, table[-1][1])}, table, [SEAT], forgot) == found
