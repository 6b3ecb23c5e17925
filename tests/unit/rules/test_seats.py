"""Stores that go, fall silent, return and are replaced, as stories of one source's registration
(docs/semantics.md B.4, E.1, E.2)."""

from __future__ import annotations

import pytest

from holdfast.engine.rules.heartbeat import Heartbeat
from holdfast.engine.rules.quorum import Groups, Intergroup, Intragroup
from holdfast.engine.rules.reconcile import LogView
from holdfast.engine.rules.registration import (
    REFUSED_RETRY_NS,
    Abandon,
    Action,
    Announce,
    Ask,
    Complete,
    GiveUp,
    Grant,
    Granted,
    Open,
    Phase,
    Refusal,
    RefusedBy,
    Seated,
    Unresponsive,
)
from holdfast.engine.rules.reports import Seen
from holdfast.engine.rules.source_registration import SourceRegistration

INTERVAL = 3_000_000_000
SILENCE, LOOK = 1000, 100
OURS = b"o" * 16
GRANT = Grant(7, OURS, 0, old=False)
FILES = tuple(Seen(str(store), "", LogView(((1, 0),), 4)) for store in range(6))
"""Every store's log can be read, also with the store down."""
KNOWN = Grant(7, OURS, 4, old=True, incarnation=1, begins=((1, 0),), seen=FILES)
IN_USE = Refusal("reg_id_in_use", "RegID 7 is in use", pid=12)


class Story:
    """A source whose stores answer as they are told to: with ``grant``. ``now`` goes on by hand."""

    def __init__(
        self, sizes: tuple[int, ...] = (3,), backups: tuple[int, ...] = (), *, intragroup: Intragroup = "quorum",
        intergroup: Intergroup = "any",
    ) -> None:  # fmt: skip
        of = tuple(number for number, size in enumerate(sizes) for _ in range(size)) + backups
        groups = Groups(sizes, of, intragroup, intergroup)
        self.machine = SourceRegistration(groups, INTERVAL, "majority", OURS, silence_ns=SILENCE, look_ns=LOOK)
        self.now = 0
        self.grant = GRANT
        self.catching_up: set[int] = set()

    @property
    def next(self) -> int:
        return 9 if self.machine.was_complete else self.machine.start_sqn

    def answer(self, actions: list[Action]) -> list[Action]:
        """The stores do what is asked; everything that was said."""
        said = list(actions)
        for action in actions:
            match action:
                case Ask(store):
                    said += self.answer(self.machine.granted(store, self.grant, self.now))
                case Open(incarnation, start):
                    said += self.answer(self.machine.opened(incarnation, start, self.now))
                case Announce(store):
                    late = store in self.catching_up
                    said += self.answer(self.machine.begun(store, self.next, self.now, catching_up=late))
                case _:
                    pass
        return said

    def up(self, *stores: int) -> list[Action]:
        return [each for store in stores for each in self.answer(self.machine.connected(store, self.now))]

    def down(self, store: int) -> list[Action]:
        return self.answer(self.machine.disconnected(store, self.now))

    def after(self, time_ns: int) -> list[Action]:
        self.now += time_ns
        return self.answer(self.machine.tick(self.now))


def told(actions: list[Action], *kinds: type) -> list[Action]:
    return [action for action in actions if isinstance(action, kinds)]


# Completion: B.1 row 7, E.2 ---------------------------------------------------------------------------------


def test_the_first_interval_waits_for_every_seat_of_every_group() -> None:
    story = Story((3, 2))
    assert told(story.up(0, 1, 2, 3), Open, Complete) == []
    assert told(story.up(4), Open, Complete) == [Open(1, 0), Complete(0, True)]


def test_afterwards_what_the_groups_need_will_do() -> None:
    story = Story((3, 2), intergroup="all")
    story.grant = KNOWN
    story.up(0, 1, 3)
    assert story.machine.why("abcde") == "waiting for c, e"
    assert told(story.after(INTERVAL), Open) == [], "the second group has no quorum"
    assert told(story.up(4), Open, Complete) == [Open(2, 4), Complete(4, False)]


def test_when_stores_have_state_a_quorum_of_them_decides() -> None:
    story = Story((3,))
    knows = Grant(7, OURS, 50, old=True, incarnation=2, begins=((1, 0), (2, 20)))
    for store in (0, 1):
        story.machine.connected(store, 0)
        story.machine.granted(store, knows, 0)
    assert told(story.after(INTERVAL), Open, Complete) == [Open(3, 50), Complete(50, False)]
    assert story.machine.begins == ((1, 0), (2, 20)), "a store that missed them learns them from BEGIN"


def test_a_store_that_catches_up_counts_when_it_has() -> None:
    story = Story((3,))
    story.catching_up = {2}
    assert told(story.up(0, 1, 2), Complete) == []
    assert story.machine.entries[2].phase is Phase.CATCHING_UP
    assert story.machine.look(2, 1, 4, 5, catching_up=True) == []
    assert told(story.machine.look(2, 2, 4, 6, catching_up=False), Complete) == [Complete(4, True)]


def test_one_that_catches_up_for_long_is_not_waited_for() -> None:
    story = Story((3,))
    story.catching_up = {2}
    story.up(0, 1, 2)
    assert not story.machine.may_send
    assert told(story.after(INTERVAL), Complete) == [Complete(0, False)]


@pytest.mark.parametrize(
    ("intragroup", "intergroup", "lost_at"),
    [("quorum", "any", 6), ("quorum", "all", 2), ("quorum", "majority", 2), ("all", "any", 4), ("all", "all", 1)],
)
def test_the_quorum_is_lost_when_the_groups_are_not_complete_any_more(
    intragroup: Intragroup, intergroup: Intergroup, lost_at: int
) -> None:
    story = Story((3, 3), intragroup=intragroup, intergroup=intergroup)
    story.up(*range(6))
    lost = [i for i, store in enumerate(range(6), 1) if story.down(store)[0].quorum_lost]  # type: ignore[union-attr]
    assert lost == [5 if lost_at == 6 else lost_at], "said once"
    assert not story.machine.may_send


def test_all_active_ends_with_the_last_group_that_has_a_quorum() -> None:
    story = Story((3, 3), intergroup="all-active")
    story.up(*range(6))
    assert [story.down(store) for store in (0, 1, 3, 4)] == [
        [Unresponsive(0, False, 2, 2)],
        [Unresponsive(1, False, 1, 2)],
        [Unresponsive(3, False, 2, 2)],
        [Unresponsive(4, True, 1, 2)],
    ]
    assert told(story.up(0), Complete) == [Complete(9, False)]
    assert story.machine.may_send


def test_a_group_that_becomes_active_and_is_not_whole_stops_a_source_that_asks_for_whole_groups() -> None:
    story = Story((1, 3), intragroup="all", intergroup="all-active")
    story.grant = KNOWN
    story.up(0, 1)
    assert told(story.after(INTERVAL), Complete) == [Complete(4, False)], "the second group has no quorum: not active"
    assert told(story.up(2), Complete) == []
    assert not story.machine.complete
    assert not story.machine.may_send
    assert told(story.up(3), Complete) == [Complete(9, True)]
    assert told(story.down(3), Unresponsive) == [Unresponsive(3, True, 2, 3)]
    story.down(2)
    assert told(story.machine.tick(story.now, 12), Complete) == [Complete(12, False)], "inactive again: not waited for"


def test_a_store_that_does_not_answer_is_told_of_once_per_absence() -> None:
    story = Story((3,))
    story.after(0)
    story.up(0, 1)
    silence = Unresponsive(2, False, 0, 2, answered=False)
    assert told(story.after(INTERVAL), Unresponsive) == [silence]
    assert told(story.after(INTERVAL), Unresponsive) == []


# Silence: B.4 -----------------------------------------------------------------------------------------------


def test_a_store_whose_heartbeat_stands_still_is_suspended_and_counted_again() -> None:
    story = Story((3,), intragroup="all")
    story.up(0, 1, 2)
    at = 0
    said: list[Action] = []
    while not said:
        at += LOOK
        said = story.machine.look(1, 77, 9, at, catching_up=False)
        assert at <= 2 * SILENCE
    assert said == [Unresponsive(1, True, 2, 3)]
    assert story.machine.entries[1].phase is Phase.SUSPENDED
    assert story.machine.look(1, 77, 9, at + LOOK, catching_up=False) == []
    assert story.machine.look(1, 78, 9, at + 2 * LOOK, catching_up=False) == [Complete(9, True)]
    assert story.machine.may_send


def test_a_suspended_store_that_dies_is_not_told_of_again() -> None:
    story = Story((3,))
    story.up(0, 1, 2)
    assert told(story.machine.silent(1, 5), Unresponsive) == [Unresponsive(1, False, 2, 2)]
    assert story.down(1) == []
    assert story.down(0) == [Unresponsive(0, True, 1, 2)]


def test_a_pause_of_everybody_is_nobodys_silence() -> None:
    pulse = Heartbeat(SILENCE, LOOK)
    assert not pulse.look(5, 0)
    assert not pulse.look(5, LOOK)
    assert not pulse.look(5, 10**9), "the looker slept, too"
    assert not pulse.look(6, 10**9 + LOOK)
    looks = [pulse.look(6, 10**9 + LOOK + i * LOOK) for i in range(1, SILENCE // LOOK + 1)]
    assert looks == [False] * (SILENCE // LOOK - 1) + [True]


def test_of_a_pause_two_looks_count_as_silence() -> None:
    pulse = Heartbeat(SILENCE, LOOK)
    assert not pulse.look(5, 0)
    assert not pulse.look(5, 10**9)
    looks = [pulse.look(5, 10**9 + i * LOOK) for i in range(1, SILENCE // LOOK - 1)]
    assert looks == [False] * (SILENCE // LOOK - 3) + [True]


# Seats and backups: E.1 -------------------------------------------------------------------------------------


def test_a_backup_is_asked_what_it_knows_and_idle_from_the_opening_on() -> None:
    story = Story((3,), backups=(0,))
    story.grant = KNOWN
    assert story.up(3) == [Ask(3)]
    said = story.up(0, 1, 2)
    assert told(said, Open, GiveUp, Complete) == [Open(2, 4), GiveUp(3, OURS), Complete(4, True)]
    assert Announce(3) not in said
    assert story.machine.entries[3].phase is Phase.IDLE
    assert story.machine.granted(3, KNOWN, 0) == [GiveUp(3, OURS)], "an answer that was on its way"


def test_where_nobody_knows_anything_a_backup_must_have_answered() -> None:
    """It may have the seat for somebody who lives: then it refuses."""
    story = Story((1, 1), backups=(0, 1), intergroup="majority")
    assert told(story.up(0, 1), Open) == []
    assert told(story.after(INTERVAL), Open) == []
    assert told(story.up(2, 3), Open) == [Open(1, 0)]


def test_the_next_backup_in_the_list_takes_the_seat_and_keeps_it() -> None:
    story = Story((3,), backups=(0, 0))
    story.up(0, 1, 2, 3, 4)
    said = story.down(1)
    assert said == [
        Unresponsive(1, False, 2, 2), Seated(3, 1), Ask(3), Granted(3, GRANT), Announce(3),
    ]  # fmt: skip
    assert story.machine.active() == {0, 2, 3}
    assert story.up(1) == [], "no fail back"
    assert told(story.down(0), Seated) == [Seated(1, 0)], "it is a backup now, the first in the list"


def test_a_backup_of_another_group_does_not_help() -> None:
    story = Story((1, 1), backups=(1,))
    story.up(0, 1, 2)
    assert told(story.down(0), Seated) == []
    assert told(story.down(1), Seated) == [Seated(2, 1)]


def test_a_backup_that_comes_later_takes_a_seat_that_is_free() -> None:
    story = Story((3,), backups=(0,))
    story.grant = KNOWN
    story.up(0, 1, 2)
    assert told(story.down(1), Seated) == []
    assert told(story.up(3), Seated, Ask) == [Seated(3, 1), Ask(3)]


def test_a_store_that_is_back_before_any_backup_keeps_its_seat() -> None:
    story = Story((3,), backups=(0,))
    story.grant = KNOWN
    story.up(0, 1, 2)
    story.down(1)
    story.up(1)
    assert told(story.up(3), Seated) == []
    assert story.machine.active() == {0, 1, 2}


def test_a_backup_takes_the_seat_of_a_store_that_never_came_and_of_one_that_is_suspended() -> None:
    story = Story((3,), backups=(0, 0), intragroup="all")
    story.grant = KNOWN
    story.after(0)
    story.up(0, 1, 3)
    said = story.after(INTERVAL)
    assert told(said, Unresponsive, Seated, Complete) == [
        Unresponsive(2, False, 0, 3, answered=False), Seated(3, 2), Complete(4, True),
    ]  # fmt: skip
    story.up(4)
    assert told(story.machine.silent(1, story.now), Seated, Ask) == [Seated(4, 1), Ask(4)]


def test_a_suspended_store_without_a_seat_is_no_backup_before_it_is_heard_of() -> None:
    story = Story((1,), backups=(0,))
    story.up(0, 1)
    story.answer(story.machine.silent(0, 5))
    assert story.machine.seated == {1}
    assert told(story.down(1), Seated) == []
    assert told(story.answer(story.machine.heard(0, 9, 6)), Seated, Complete) == [Seated(0, 1), Complete(9, True)]


def test_a_grant_that_comes_when_the_seat_is_lost_begins_nothing() -> None:
    story = Story((1,), backups=(0,))
    story.grant = KNOWN
    story.machine.connected(0, 0)
    story.after(0)
    story.up(1)
    assert told(story.after(INTERVAL), Seated, Complete) == [Seated(1, 0), Complete(4, True)]
    assert story.machine.granted(0, KNOWN, story.now) == [GiveUp(0, OURS)]
    assert story.machine.begun(0, 0, story.now) == []
    assert story.machine.entries[0].phase is Phase.IDLE


def test_a_source_that_slept_on_its_grants_starts_over_when_another_has_begun() -> None:
    story = Story((3,))
    story.grant = KNOWN
    for store in range(3):
        story.machine.connected(store, 0)
    said = [each for store in range(3) for each in story.machine.granted(store, KNOWN, 0)]
    assert told(said, Open) == [Open(2, 4)]
    story.machine.opened(2, 4, 0)
    said = story.machine.refused(0, Refusal("busy", "incarnation 2 is over: 3 has begun"))
    assert said == [Abandon(), *[each for store in range(3) for each in (GiveUp(store, OURS), Ask(store))]]
    assert not story.machine.is_open
    newer = Grant(7, OURS, 9, old=True, incarnation=3)
    said = [each for store in range(3) for each in story.machine.granted(store, newer, INTERVAL)]
    assert told(said, Open) == [Open(4, 9)]


def test_but_not_when_a_store_fails_at_its_own_disk() -> None:
    """Nobody else has begun: the other two go on with the incarnation that was opened, and the third joins it
    later."""
    story = Story((3,))
    for store in range(3):
        story.machine.connected(store, 0)
        story.machine.granted(store, KNOWN, 0)
    story.machine.opened(2, 4, 0)
    full = Refusal("failed", "store a failed to do this: No space left on device")
    assert story.machine.refused(0, full) == [RefusedBy(0, full)]
    story.machine.begun(1, 4, 0)
    story.machine.begun(2, 4, 0)
    assert told(story.after(INTERVAL), Complete, Open, Ask) == [Ask(0), Complete(4, False)]
    assert (story.machine.incarnation, story.machine.start_sqn) == (2, 4)
    assert story.machine.active() == {0, 1, 2}


def test_and_so_does_one_whose_links_broke_before_it_could_say_begin() -> None:
    story = Story((3,))
    for store in range(3):
        story.machine.connected(store, 0)
    said = [each for store in range(3) for each in story.machine.granted(store, KNOWN, 0)]
    assert told(said, Open) == [Open(2, 4)]
    story.machine.opened(2, 4, 0)
    for store in range(3):
        story.machine.disconnected(store, 0)
        story.machine.connected(store, 0)
    assert told(story.machine.refused(0, IN_USE), Abandon) == [], "the other two may still answer"
    assert told(story.machine.refused(1, IN_USE), Abandon) == [Abandon()], "its stream is in the way of who lives"
    assert told(story.machine.refused(2, IN_USE), Abandon) == []


def test_and_one_whose_stores_have_begun_for_another_identity_meanwhile() -> None:
    story = Story((3,))
    taken = Refusal("other_source", "RegID 7 is at store a another source than at the other stores")
    for store in range(3):
        story.machine.connected(store, 0)
        story.machine.granted(store, KNOWN if store == 2 else GRANT, 0)
    story.machine.opened(2, 4, 0)
    for store in range(3):
        story.machine.disconnected(store, 0)
        story.machine.connected(store, 0)
    assert told(story.machine.refused(0, taken), Abandon) == [], "the other two may still answer"
    assert told(story.machine.refused(2, taken), Abandon) == [], "that one was another source's when it granted"
    assert told(story.machine.refused(1, taken), Abandon) == [Abandon()]


def test_a_question_from_before_the_opening_is_asked_again_when_its_own_stream_is_in_the_way() -> None:
    story = Story((3,))
    story.grant = KNOWN
    story.machine.connected(2, 0)
    story.up(0, 1)
    assert told(story.after(INTERVAL), Open, Complete) == [Open(2, 4), Complete(4, False)]
    assert story.machine.refused(2, IN_USE) == [Ask(2)], "nobody else holds it"
    assert told(story.machine.refused(2, IN_USE), Ask) == []


def test_a_store_is_asked_one_question_at_a_time() -> None:
    """What the first of two is granted would refuse the second, and nobody would know that it is held."""
    story = Story((3,))
    for store in range(3):
        story.machine.connected(store, 0)
    story.machine.granted(0, KNOWN, 0)
    story.machine.granted(1, KNOWN, 0)
    assert told(story.machine.tick(INTERVAL), Open) == [Open(2, 4)]
    story.machine.opened(2, 4, INTERVAL)
    said = story.machine.refused(0, Refusal("busy", "incarnation 2 is over: 3 has begun"))
    assert said == [Abandon(), GiveUp(0, OURS), Ask(0), GiveUp(1, OURS), Ask(1)], "the third has not answered yet"
    assert told(story.machine.granted(2, KNOWN, INTERVAL), Granted) == [Granted(2, KNOWN)]


def test_what_is_granted_for_an_incarnation_that_was_abandoned_is_left_and_asked_anew() -> None:
    story = Story((3,))
    story.grant = KNOWN
    for store in range(3):
        story.machine.connected(store, 0)
    for store in range(3):
        story.machine.granted(store, KNOWN, 0)
    story.machine.opened(2, 4, 0)
    story.machine.disconnected(2, 0)
    assert story.machine.connected(2, 0) == [Ask(2)]
    said = story.machine.refused(0, Refusal("busy", "incarnation 2 is over: 3 has begun"))
    assert told(said, Abandon, GiveUp) == [Abandon(), GiveUp(0, OURS), GiveUp(1, OURS)], "left is what has answered"
    assert story.machine.granted(2, KNOWN, 0) == [GiveUp(2, OURS), Ask(2)]


# Two claimants of one RegID ---------------------------------------------------------------------------------


def test_two_claimants_do_not_complete_each_with_a_group_of_its_own() -> None:
    """Each group alone would be enough for `any`. Who cannot have more stores than the other leaves what it
    has."""
    story = Story((2, 3))
    actions = []
    for store in range(5):
        story.machine.connected(store, 0)
    for store in (0, 1):
        actions += story.machine.granted(store, GRANT, 0)
    for store in (2, 3, 4):
        actions += story.machine.refused(store, IN_USE)
    assert told(actions, GiveUp) == [GiveUp(0, OURS), GiveUp(1, OURS)]
    assert told(story.machine.tick(INTERVAL), Open) == []


def test_a_claimant_does_not_open_while_as_many_stores_are_in_use() -> None:
    """The last one may still grant the other: that one would have more, and complete with its group."""
    story = Story((2, 3))
    for store in range(5):
        story.machine.connected(store, 0)
    for store in (2, 3):
        story.machine.refused(store, IN_USE)
    for store in (0, 1):
        story.machine.granted(store, KNOWN, 0)
    assert told(story.machine.tick(INTERVAL), Open) == []
    assert told(story.machine.granted(4, KNOWN, INTERVAL), Open) == [Open(2, 4)]


def test_claimants_that_hold_what_the_other_needs_do_not_wait_for_each_other_for_ever() -> None:
    """Either could complete, nobody knows anything, so that all must answer. Who is refused again leaves what
    it has."""
    story = Story((3,))
    for store in range(3):
        story.machine.connected(store, 0)
    actions = [each for store in (0, 1) for each in story.machine.granted(store, GRANT, 0)]
    actions += story.machine.refused(2, IN_USE)
    assert told(actions, GiveUp) == [], "the other one has less, and gives up"
    assert told(story.machine.tick(REFUSED_RETRY_NS), Ask) == [Ask(2)]
    assert told(story.machine.refused(2, IN_USE), GiveUp) == [GiveUp(0, OURS), GiveUp(1, OURS)]
    assert story.machine.tick(2 * REFUSED_RETRY_NS - 1) == [], "a pause, so that the other one can have them"
    assert told(story.machine.tick(2 * REFUSED_RETRY_NS), Ask) == [Ask(0), Ask(1), Ask(2)]


def test_the_claimant_with_more_stores_goes_on() -> None:
    story = Story((2, 3))
    actions = []
    for store in range(5):
        story.machine.connected(store, 0)
    for store in (2, 3, 4):
        actions += story.machine.granted(store, KNOWN, 0)
    for store in (0, 1):
        actions += story.machine.refused(store, IN_USE)
    assert told(actions, GiveUp) == []
    assert told(story.machine.tick(INTERVAL), Open) == [Open(2, 4)]
