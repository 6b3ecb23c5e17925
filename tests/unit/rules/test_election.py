"""Who has a say in where a restarted source begins (docs/semantics.md E.5; docs/design.md 13 to 15)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast.engine.rules.election import (
    LEAST_MAX,
    NOTHING,
    Decision,
    Found,
    Register,
    Written,
    decide,
    learners,
    lives,
    obstacle,
    unheard,
)
from holdfast.engine.rules.quorum import Groups
from holdfast.engine.rules.reconcile import FOR_EVER, LogView
from holdfast.engine.rules.registration import Grant
from holdfast.engine.rules.reports import Configuration, Seen

OURS, THEIRS, OTHER = b"o" * 16, b"t" * 16, b"x" * 16
NAMES = "abcde"


def grant(next_sqn: int = 0, incarnation: int = 0, *, uuid: bytes = THEIRS, **more: Any) -> Grant:
    return Grant(7, uuid, next_sqn, bool(incarnation), incarnation, **more)


def decided(*grants: Grant | None, size: int = 3) -> Decision | None:
    """None: that store has not answered."""
    given = {store: each for store, each in enumerate(grants) if each is not None}
    groups = Groups.single(size)
    return decide(groups, range(size), given, "majority", OURS)


WIPED, DOWN = grant(uuid=b"n" * 16), None
LOST = grant(50, 4, votes=False)
ADOPTED = grant(empty_votes=True)


@pytest.mark.parametrize(
    ("answers", "start"),
    [
        ([grant(50, 4), grant(50, 4), DOWN], 50),
        ([grant(40, 4), grant(50, 4), DOWN], 50),  # the one that is down may have 40..49, too: then they are stable
        ([grant(50, 4), WIPED, DOWN], None),  # the one that is down may know more
        ([WIPED, WIPED, DOWN], None),  # the two wiped stores
        ([WIPED, WIPED, grant(50, 4)], 50),  # all have answered
        ([WIPED, WIPED, WIPED], 0),
        ([LOST, grant(60, 4), DOWN], None),
        ([LOST, grant(60, 4), grant(60, 4)], 60),
        ([LOST, LOST, grant(45, 4)], 50),  # what they still have may be stable
        ([WIPED, WIPED, grant(45, 4)], 45),
        ([LOST, LOST, LOST], 50),  # nobody knows all: the most that anybody does
        ([ADOPTED, grant(50, 4), DOWN], 50),  # the operator said so: nothing is waited for, and nothing is lost
        ([ADOPTED, ADOPTED, DOWN], 0),
        ([ADOPTED, WIPED, DOWN], None),
    ],
)
def test_stores_without_state_decide_nothing_before_all_have_answered(
    answers: list[Grant | None], start: int | None
) -> None:
    found = decided(*answers)
    assert (found.start_sqn if found else None) == start
    if start:
        assert found is not None
        assert (found.uuid, found.incarnation) == (THEIRS, 5)


def test_a_directory_that_was_restored_from_a_backup_has_no_say() -> None:
    """It was opened less often than another store remembers."""
    peers = {"a": 9, "b": 4}
    answers = {
        0: grant(20, 2, opened=7, name="a"),
        1: grant(50, 4, opened=4, name="b", peers=peers),
        2: grant(50, 4, opened=1, name="c", peers={"a": 9}),
    }
    assert learners(answers) == {0}
    assert decided(*answers.values()) == Decision(THEIRS, 5, 50, ())
    assert learners({0: grant(20, 2, opened=9, name="a", peers=peers)}) == set()


@pytest.mark.parametrize(
    ("had", "told", "learns"),
    [
        ([3, 9], 9, False),  # it was not opened since
        ([3, 9, 20], 9, False),
        ([3, 9, 20], 3, False),
        ([3, 9, 20], 14, True),  # a copy from before 14, opened as often as what it replaces
        ([3, 9], 14, True),
        ([3, 9], 2, False),  # older than what it remembers
        ([], 14, False),  # it tells no list: all up to 20
        ([], 21, True),
    ],
)
def test_a_directory_that_has_not_had_the_life_that_another_store_remembers_has_no_say(
    had: list[int], told: int, learns: bool
) -> None:
    answers = {
        0: grant(20, 2, opened=had[-1] if had else 20, lives=had, name="a"),
        1: grant(50, 4, opened=4, name="b", peers={"a": told, "c": 7}),
    }
    assert learners(answers) == ({0} if learns else set())


def test_begin_tells_of_a_restored_store_the_life_that_it_has_missed_and_of_another_its_own() -> None:
    """Else nobody would know any more, after a BEGIN that did not reach it, that it has forgotten."""
    answers = {0: grant(20, 2, opened=7, name="a"), 1: grant(50, 4, opened=4, name="b", peers={"a": 9})}
    assert lives(answers, NOTHING, THEIRS) == {"a": 9, "b": 4}
    answers[2] = grant(50, 4, opened=3, name="c", peers={"a": 8})
    assert lives(answers, NOTHING, THEIRS) == {"a": 9, "b": 4, "c": 3}, "the last one of those that it has missed"


def test_another_source_under_the_same_reg_id_has_no_say() -> None:
    found = decided(grant(900, 1, uuid=OTHER), grant(50, 4), grant(50, 4))
    assert found == Decision(THEIRS, 5, 50, ())
    assert decided(grant(900, 1, uuid=OTHER), grant(50, 4), DOWN) is None


def test_of_two_that_have_begun_as_often_the_one_that_more_stores_know_holds() -> None:
    """A claimant got its first BEGIN to one store, while the other one had a quorum, and sent."""
    alone, first, second = grant(0, 1, uuid=b"x" * 16), grant(5, 1), grant(5, 1)
    for grants in ((alone, first, second), (first, alone, second)):
        decision = decided(*grants)
        assert decision is not None
        assert decision[:3] == (THEIRS, 2, 5)


def test_the_begins_of_the_newest_are_handed_on_as_a_whole() -> None:
    found = decided(
        grant(30, 2, begins=((1, 0), (2, 10))),
        grant(60, 4, begins=((2, 10), (3, 40), (4, 50))),
        grant(20, 2, uuid=OTHER, begins=((1, 7), (2, 20))),
    )
    assert found is not None
    assert found.begins == ((2, 10), (3, 40), (4, 50))


def test_where_nothing_has_begun_the_proposal_holds_unless_all_have_given_another_identity() -> None:
    assert decided(WIPED, grant(uuid=OURS), grant(uuid=OTHER)) == Decision(OURS, 1, 0, ())
    assert decided(WIPED, WIPED, WIPED) == Decision(WIPED.uuid, 1, 0, ())


def test_what_a_group_that_has_forgotten_may_have_had_stable_is_not_numbered_again() -> None:
    """40 is what the group with a say agrees on; 89 may have been stable in the other one."""
    groups = Groups((3, 3), (0, 0, 0, 1, 1, 1), "quorum", "any")
    given = {0: grant(40, 4), 1: grant(45, 4), 2: WIPED, 3: grant(90, 4), 4: WIPED, 5: WIPED}
    found = decide(groups, range(6), given, "majority", OURS)
    assert found is not None
    assert (found.start_sqn, found.forgot) == (90, ("2", "4", "5"))


def test_an_exclusion_is_over_where_one_that_answers_has_begun_since() -> None:
    """The first one came back, and took 10 to 19 with the second. The third has missed that BEGIN, and still
    excludes it."""
    b = replace(grant(20, 4), exclusions={"0": 5}, over=[5])
    c = replace(grant(10, 4), exclusions={"0": 5}, excluded={"0": 5})
    assert start_of(b, c) == 20, "the first one may have 10 to 19: they are stable"
    assert start_of(replace(b, excluded={"0": 5}, over=[]), c) == 10
    assert start_of(b, replace(c, exclusions={"0": 6}, excluded={"0": 6})) == 10, "the second has not heard of this one"


def test_of_an_identity_that_is_new_the_exclusions_of_all_others_are_over() -> None:
    """A session that went on with other stores: the word was for what it was then."""
    told: dict[str, Any] = {"excluded": {"0": 5}, "exclusions": {"0": 5}}
    grants = {1: grant(**told), 2: grant(**told)}
    found = decide(Groups.single(3), range(3), grants, "lowest", OURS, names="012")
    assert found is not None
    register = {THEIRS: Written((Configuration(("0", "1", "2"), Groups.single(3)),), over=[5])}
    assert decide(Groups.single(3), range(3), grants, "lowest", OURS, names="012", register=register) is None


def start_of(second: Grant, third: Grant) -> int:
    found = decide(Groups.single(3), range(3), {1: second, 2: third}, "lowest", OURS)
    assert found is not None
    return found.start_sqn


@pytest.mark.parametrize(
    ("answers", "empty", "start"),
    [
        ([WIPED, WIPED, DOWN], {2}, 0),  # it is dead, and its state says that it has never heard of the source
        ([WIPED, WIPED, DOWN], {0}, None),
        ([WIPED, DOWN, grant(50, 4)], {1}, 50),
        ([WIPED, DOWN, DOWN], {1}, None),
        ([WIPED, WIPED, DOWN], {0, 1, 2}, 0),  # a source without RegID and session ID
    ],
)
def test_who_is_known_to_know_nothing_need_not_answer(
    answers: list[Grant | None], empty: set[int], start: int | None
) -> None:
    given = {store: each for store, each in enumerate(answers) if each is not None}
    found = decide(Groups.single(3), range(3), given, "majority", OURS, empty)
    assert (found.start_sqn if found else None) == start


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        (
            [WIPED, WIPED, DOWN],
            "a, b have no state of it, or not all; c, which may have, is not there: start it, "
            "run `holdfast store adopt-empty a`, or give up what only it has: `holdfast store exclude c`",
        ),
        ([grant(5, 1), WIPED, WIPED], None),
        (
            [grant(5, 1), DOWN, WIPED],
            "c has no state of it, or not all; b, which may have, is not there: start it, "
            "run `holdfast store adopt-empty c`, or give up what only it has: `holdfast store exclude b`",
        ),
        ([WIPED, DOWN, DOWN], None),  # not enough answers, whatever they say
        ([grant(5, 1), grant(5, 1), DOWN], None),
    ],
)
def test_it_says_whom_it_waits_for_and_what_to_do(answers: list[Grant | None], text: str | None) -> None:
    given = {store: each for store, each in enumerate(answers) if each is not None}
    assert obstacle(Groups.single(3), range(3), given, NAMES) == text


# What is not known (engine/rules/reports.py) ----------------------------------------------------------------

ONE = ((1, 0),)


def answer(name: str, number: int, others: str, **more: Any) -> Grant:
    """``others``: ``b9 c?``, what it has read of the other stores."""
    seen = [Seen(name, name, LogView(ONE, number))]
    for part in others.split():
        view = LogView(ONE, int(part[1:])) if part[1:] != "?" else None
        seen.append(Seen(part[0], part[0], view, "" if view else "no such directory"))
    return grant(number, 1, begins=ONE, name=name, seen=tuple(seen), **more)


def by_name(*grants: Grant | None, size: int = 3, behavior: Any = "majority") -> Decision | None:
    given = {store: each for store, each in enumerate(grants) if each is not None}
    return decide(Groups((size,), (0,) * len(grants)), range(size), given, behavior, OURS, names=NAMES[: len(grants)])


@pytest.mark.parametrize(
    ("answers", "start"),
    [
        ([DOWN, answer("b", 100, "a? c?"), answer("c", 80, "a? b?")], 100),  # a container per store
        ([DOWN, answer("b", 100, "a80 c?"), answer("c", 80, "a? b?")], 80),  # b has read a's log
        ([answer("a", 7, "b? c9"), answer("b", 9, "a? c?"), DOWN], 9),
    ],
)
def test_a_peer_that_cannot_be_read_is_not_empty(answers: list[Grant | None], start: int) -> None:
    found = by_name(*answers)
    assert found is not None
    assert found.start_sqn == start


def test_a_backup_that_cannot_be_read_is_waited_for_by_name() -> None:
    first = answer("a", 5, "b?")
    assert by_name(first, DOWN, size=1) is None
    assert obstacle(Groups((1,), (0, 0)), {0}, {0: first}, "ab") == (
        "b (no such directory) may hold stable messages that no other store has: start it, make its log readable, or give up "
        "what only it has: `holdfast store exclude b`"
    )
    assert by_name(answer("a", 5, "b9"), DOWN, size=1) == Decision(THEIRS, 2, 9, ONE)


def test_no_more_stores_are_named_than_must_be_read() -> None:
    """0:3 with two backups: of the three that nobody can read, one alone makes nothing stable."""
    grants = {0: answer("a", 5, "b5 c? d? e?"), 1: answer("b", 5, "a5 c? d? e?")}
    said = obstacle(Groups((3,), (0,) * 5), {0, 1, 2}, grants, "abcde")
    assert said is not None
    assert said.startswith("c (no such directory), d (no such directory) may hold stable messages")


def test_what_an_answering_store_has_read_counts_as_its_report() -> None:
    """b is down. Who starts at the highest number starts behind what a has read of its log."""
    found = by_name(answer("a", 5, "b9 c5"), DOWN, answer("c", 5, "a5 b?"), behavior="highest")
    assert found == Decision(THEIRS, 2, 9, ONE)


def test_a_list_that_a_store_remembers_counts_for_the_identity_under_which_it_does() -> None:
    """x was the only store before: nobody can read what it has."""
    before = Configuration(("x",), Groups.single(1))
    assert by_name(answer("a", 5, "x?", configuration=before), size=1) is None
    stranger = grant(3, 1, uuid=OTHER, name="c", configuration=before)
    found = by_name(answer("a", 5, "b5 c?"), answer("b", 5, "a5 c?"), stranger)
    assert found == Decision(THEIRS, 2, 5, ONE), "that was the list of another source"


def test_who_is_excluded_is_not_waited_for_and_learns_when_it_answers() -> None:
    told = {"excluded": {"b": 4711}, "exclusions": {"b": 4711}}
    assert by_name(answer("a", 5, "b?", **told), DOWN, size=1) == Decision(THEIRS, 2, 5, ONE)
    grants = {0: answer("a", 5, "b9", **told), 1: answer("b", 9, "a5")}
    assert learners(grants) == {1}
    assert learners({**grants, 1: answer("b", 9, "a5", served=[4711])}) == set()


@pytest.mark.parametrize("name", ["127.0.0.1:3", "c"])
def test_who_is_excluded_by_any_of_its_names_is_not_waited_for(name: str) -> None:
    """b was wiped, and c has answered nobody; a knows how it calls itself."""
    told: dict[str, Any] = {"excluded": {name: 4711}, "exclusions": {name: 4711}}
    seen = (Seen("127.0.0.1:1", "a", LogView(ONE, 5)), Seen("127.0.0.1:3", "c", None))
    grants = {0: grant(5, 1, begins=ONE, name="a", seen=seen, **told), 1: replace(WIPED, name="b")}
    names = ("127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3")
    found = decide(Groups.single(3), range(3), grants, "majority", OURS, (), names)
    assert found is not None
    assert found.start_sqn == 5
    assert obstacle(Groups.single(3), range(3), grants, names) is None


@pytest.mark.parametrize("name", ["b", ""], ids=["it has told its name", "nobody knows its name"])
def test_a_store_that_is_declared_by_its_address_is_named_with_the_reason(name: str) -> None:
    names = ("127.0.0.1:1", "127.0.0.1:2")
    seen = (Seen(names[0], "a", LogView(ONE, 5)), Seen(names[1], name, None, "no such directory"))
    first = grant(5, 1, begins=ONE, name="a", seen=seen)
    said = obstacle(Groups((1,), (0, 0)), {0}, {0: first}, names)
    assert said is not None
    assert said.startswith(f"{name or names[1]} (no such directory) may hold stable messages")


def test_what_may_be_gone_with_a_store_that_has_forgotten_is_said() -> None:
    lost = answer("b", 3, "a5 c5", votes=False)
    found = by_name(answer("a", 5, "b3 c5"), lost, answer("c", 5, "a5 b3"))
    assert found == Decision(THEIRS, 2, 5, ONE), "a quorum never forgot"
    found = by_name(answer("a", 5, "b3 c5"), lost, answer("c", 2, "a5 b3", votes=False))
    assert found == Decision(THEIRS, 2, 5, ONE, ("b", "c"))


def test_an_orphan_begin_does_not_void_what_a_store_that_has_forgotten_may_have_made_stable() -> None:
    """100..199 were stable at b and c; BEGIN(7, 100) reached a alone, and c was wiped."""
    six, orphan = ((6, 0),), ((6, 0), (7, 100))
    logs = (Seen("a", "a", LogView(orphan, 100)), Seen("b", "b", LogView(six, 200)), Seen("c", "c", LogView((), 0)))
    a = grant(100, 7, begins=orphan, name="a", seen=logs)
    b = grant(200, 6, begins=six, name="b", seen=logs)
    answers = {0: a, 1: b, 2: grant(name="c", uuid=b"n" * 16, seen=logs)}
    decision = decide(Groups.single(3), range(3), answers, "majority", OURS, (), "abc")
    assert decision is not None
    assert (decision.start_sqn, decision.begins, decision.incarnation) == (200, six, 8)


def test_the_greatest_promise_is_opened() -> None:
    grants = [answer("a", 5, "b5 c5", promised=21), answer("b", 5, "a5 c5", promised=8), DOWN]
    found = by_name(*grants)
    assert found is not None
    assert found.incarnation == 21


@pytest.mark.parametrize(
    ("written", "opened"),
    [(0, 8), (7, 8), (8, 9), (30, 31), (5 + LEAST_MAX - 1, 5 + LEAST_MAX), (5 + LEAST_MAX, 8), (2**63, 8)],
)
def test_an_incarnation_that_the_register_has_is_not_opened_nor_any_below_it(written: int, opened: int) -> None:
    """It may have begun at the store that is away. What no store would promise was never begun."""
    b, c = (answer(name, 5, "b5 c5", promised=promised) for name, promised in (("b", 5), ("c", 8)))
    for register in ({THEIRS: Written((), incarnation=written)}, {OTHER: Written((), incarnation=30)}):
        found = decide(Groups.single(3), range(3), {1: b, 2: c}, "majority", OURS, (), tuple("abc"), register)
        assert found is not None
        assert found.incarnation == (opened if THEIRS in register else 8), "of another identity it says nothing"


@pytest.mark.parametrize(("written", "opened"), [(0, 2), (1, 2), (4, 5)])
def test_nor_one_of_a_source_that_nobody_who_answers_has_begun(written: int, opened: int) -> None:
    grants = {store: grant(uuid=OTHER, promised=2) for store in range(3)}
    register = {OTHER: Written((), incarnation=written)}
    found = decide(Groups.single(3), range(3), grants, "majority", OURS, register=register)
    assert found == Decision(OTHER, opened, 0, ())


def test_who_is_to_learn_gives_no_identity_either() -> None:
    """a had begun twice when it was excluded; the others went on under another identity."""
    old = grant(
        8, 2, uuid=OTHER, begins=((1, 0), (2, 4)), name="a", seen=(Seen("a", "a", LogView(((1, 0), (2, 4)), 8)),)
    )
    told = {"exclusions": {"a": 4711}}
    found = by_name(old, answer("b", 100, "c100", **told), answer("c", 100, "b100", **told))
    assert found is not None
    assert found[:3] == (THEIRS, 3, 100), "and no incarnation that a has had is opened again"


def test_a_store_is_known_as_excluded_by_the_name_that_the_source_declares() -> None:
    told = {"excluded": {"127.0.0.1:2": 4711}, "exclusions": {"127.0.0.1:2": 4711}}
    grants = {0: answer("a", 5, "b9", **told), 1: answer("b", 9, "a5")}
    assert learners(grants, ("127.0.0.1:1", "127.0.0.1:2")) == {1}
    assert learners(grants, ("127.0.0.1:1", "127.0.0.1:3")) == set()


def test_what_somebody_has_read_counts_also_of_a_store_that_is_excluded() -> None:
    told = {"excluded": {"b": 4711}, "exclusions": {"b": 4711}}
    found = by_name(answer("a", 5, "b9", **told), DOWN, size=1)
    assert found is not None
    assert found.start_sqn == 9


@pytest.mark.parametrize(("b", "c"), ["bc", "BC"])
def test_a_store_of_an_older_version_does_not_speak_for_a_log_that_another_one_has_read(b: str, c: str) -> None:
    """It tells the farthest that it has read as its own: here the orphan of a store that is away. A store is
    known by its own name, whatever the source calls it."""
    orphan = grant(100, 8, begins=((6, 0), (7, 100), (8, 100)), name=b)
    again = ((6, 0), (7, 100))
    seen = (Seen("c", c, LogView(again, 200)), Seen("b", b, LogView(again, 200)), Seen("a", "a", None, "away"))
    found = by_name(DOWN, orphan, grant(200, 7, begins=again, name=c, seen=seen))
    assert found is not None
    assert (found.incarnation, found.start_sqn, found.begins) == (9, 200, again)


# What the host's register adds (engine/log/register.py) -----------------------------------------------------


def registered(*lists: tuple[str, int], grants: dict[int, Grant], names: str) -> Decision | None:
    """``lists``: stores, and the number from which on another list was in force."""
    configurations = [Configuration(tuple(stores), Groups.single(len(stores)), below) for stores, below in lists]
    register = {THEIRS: Written(tuple(configurations))}
    groups = Groups.single(len(names))
    return decide(groups, range(len(names)), grants, "majority", OURS, names=tuple(names), register=register)


def test_a_list_that_is_over_counts_up_to_its_end_also_for_a_store_that_has_forgotten() -> None:
    """x is retired. a has forgotten: it may have had what x may have, and that is below 5."""
    forgot = answer("a", 3, "", votes=False)
    over = registered(("ax", 5), grants={0: forgot}, names="a")
    assert over is not None
    assert over.start_sqn == 5
    assert registered(("ax", FOR_EVER), grants={0: forgot}, names="a") is None, "x may have had anything"


def test_a_store_that_is_on_no_list_of_the_source_is_not_waited_for() -> None:
    """It kept another source of the topic, and nobody can read it."""
    told = answer("a", 3, "x?", votes=False)
    found = registered(("a", FOR_EVER), grants={0: told}, names="a")
    assert found is not None
    assert found.start_sqn == 3


def test_a_backup_that_the_register_knows_and_that_was_wiped_is_not_taken_for_one_without_messages() -> None:
    """0:1 with a backup: b took the seat in the middle of a life, so a was never told that. b was wiped, and
    ran once since."""
    groups = Groups((1,), (0, 0))
    seen = (Seen("a", "a", LogView(((1, 0),), 0)), Seen("b", "b", None, "not that life"))
    alone = {0: grant(0, 1, begins=((1, 0),), name="a", peers={"a": 1}, seen=seen)}

    def start(last: dict[str, int]) -> int | None:
        register = {THEIRS: Written((Configuration(("a", "b"), groups),), last)}
        found = decide(groups, {0}, alone, "majority", OURS, {1}, ("a", "b"), register)
        return found.start_sqn if found is not None else None

    assert start({"a": 1, "b": 1}) is None
    assert start({"a": 1}) == 0, "it never took part"


def test_a_store_that_was_wiped_while_its_source_lived_decides_nothing_before_it_has_caught_up() -> None:
    """a and b had number 0; b was wiped and began anew in the same life, which starts at 0. Nobody can read
    a."""
    late = answer("c", 0, "a? b0")
    assert by_name(DOWN, answer("b", 0, "a? c0", votes=False), late) is None
    found = by_name(DOWN, answer("b", 0, "a? c0"), late)
    assert found is not None
    assert found.start_sqn == 0, "with a say it gives number 0 to another message"


def test_who_was_told_that_a_wiped_store_took_part_is_not_overruled_by_who_was_not() -> None:
    """0:3 with a backup, no register. b and c had number 0; a began before b came, d took a seat after that.
    b was wiped."""
    knows: dict[str, Any] = {"incarnation": 1, "begins": ONE, "lives": (1,), "opened": 1}
    read = LogView(ONE, 0)

    def start(of_b: LogView | None) -> int | None:
        a = grant(name="a", peers={"a": 1}, seen=(Seen("a", "a", read), Seen("b", "b", of_b)), **knows)
        d = grant(name="d", peers={"a": 1, "b": 1, "c": 1}, seen=(Seen("d", "d", read), Seen("b", "b", None)), **knows)
        found = decide(Groups((3,), (0,) * 4), {0, 2, 3}, {0: a, 3: d}, "majority", OURS, names=tuple("abcd"))
        return found.start_sqn if found is not None else None

    assert start(LogView((), 0)) is None, "a takes it for one that never took part"
    assert start(read) == 0, "its log can be read"


# What censuses add (engine/log/census.py) -------------------------------------------------------------------


def test_of_a_store_whose_census_proves_it_nothing_is_waited_for() -> None:
    """Unless the register says that it was declared once, also where its life is nowhere."""
    answered = {store: replace(grant(), name="ab"[store]) for store in range(2)}
    groups, names = Groups.single(3), tuple("abc")

    def by(register: Register = NOTHING, why: str = "") -> Decision | None:
        found = {2: Found("c", why)}
        return decide(groups, range(3), answered, "majority", OURS, names=names, register=register, found=found)

    assert unheard(groups, answered, ()) == [2]
    assert unheard(groups, answered, {2}) == []
    assert unheard(groups, {**answered, 0: replace(answered[0], incarnation=1)}, ()) == [], "somebody knows it"
    assert by() is not None
    assert by(why="it is gone") is None
    assert by({OTHER: Written((Configuration(tuple("cde"), Groups.single(3)),))}) is None
