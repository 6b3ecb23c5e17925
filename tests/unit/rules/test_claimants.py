"""Several claimants of one RegID: they do not block each other, and who cannot complete knows why
(docs/semantics.md A.3, B.3)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from holdfast.engine.rules.election import Found
from holdfast.engine.rules.quorum import Groups
from holdfast.engine.rules.receiver_registration import ReceiverRegistration
from holdfast.engine.rules.reconcile import LogView
from holdfast.engine.rules.registration import (
    REFUSED_RETRY_NS,
    Abandon,
    Announce,
    Ask,
    GiveUp,
    Grant,
    Granted,
    Open,
    Refusal,
    RefusedBy,
)
from holdfast.engine.rules.reports import Seen
from holdfast.engine.rules.source_registration import SourceRegistration

if TYPE_CHECKING:
    from collections.abc import Collection

    from holdfast.engine.rules.registration import Action

INTERVAL = 3_000_000_000
OURS = b"o" * 16
FILES = tuple(Seen(str(store), "", LogView(((1, 0),), 5)) for store in range(6))
"""Every store's log can be read, also where the store is held by somebody else."""
NEW, KNOWN = Grant(7, OURS, 0, old=False), Grant(7, OURS, 5, old=True, incarnation=1, begins=((1, 0),), seen=FILES)
TWO_GROUPS = Groups((3, 3), (0, 0, 0, 1, 1, 1), "quorum", "any")
IN_USE = Refusal("reg_id_in_use", "RegID 7 is in use", pid=12)
Machine = SourceRegistration | ReceiverRegistration


class Shop:
    """Stores that grant one claimant at a time, and those claimants. Answers are there at once; ``now`` goes
    on by hand."""

    def __init__(self, groups: Groups, down: Collection[int] = (), held: Collection[int] = ()) -> None:
        self.groups = groups
        self.down = down
        self.holder: dict[int, object] = dict.fromkeys(held, "somebody")
        self.machines: list[Machine] = []
        self.now = 0
        self.said: list[Action] = []

    def claimant(self, role: str, stagger: float = 0.0) -> Machine:
        if role == "source":
            machine: Machine = SourceRegistration(self.groups, INTERVAL, "majority", OURS, stagger=stagger)
        else:
            machine = ReceiverRegistration(self.groups, INTERVAL, "majority", stagger=stagger)
        self.machines.append(machine)
        return machine

    def connect(self, machine: Machine, stores: Collection[int] | None = None) -> None:
        for store in range(self.groups.stores) if stores is None else stores:
            if store not in self.down:
                self.answer(machine, machine.connected(store, self.now))

    def answer(self, machine: Machine, actions: list[Action]) -> None:
        self.said += actions
        for action in actions:
            match action:
                case Ask(store) if self.holder.setdefault(store, machine) is not machine:
                    self.answer(machine, machine.refused(store, IN_USE))
                case Ask(store):
                    self.answer(machine, machine.granted(store, KNOWN, self.now))
                case GiveUp(store):
                    del self.holder[store]
                case Open(incarnation, start) if isinstance(machine, SourceRegistration):
                    self.answer(machine, machine.opened(incarnation, start, self.now))
                case Announce(store) if isinstance(machine, SourceRegistration):
                    self.answer(machine, machine.begun(store, 5, self.now))
                case _:
                    pass

    def run(self, time_ns: int) -> None:
        for _ in range(0, time_ns, 10_000_000):
            self.now += 10_000_000
            for machine in self.machines:
                self.answer(machine, machine.tick(self.now))


@pytest.mark.parametrize("role", ["source", "receiver"])
@pytest.mark.parametrize(
    ("groups", "down", "first"),
    [
        (TWO_GROUPS, (2, 5), (0, 1)),  # each has a group's quorum, and as many as the other
        (Groups.single(5), (3, 4), (0,)),  # each has a part of what is there
        (Groups.single(3), (), (0,)),
    ],
)
def test_two_claimants_that_come_at_once_do_not_block_each_other(
    role: str, groups: Groups, down: tuple[int, ...], first: tuple[int, ...]
) -> None:
    shop = Shop(groups, down)
    one, two = shop.claimant(role, 0.1), shop.claimant(role, 0.7)
    shop.connect(one, first)
    shop.connect(two)
    shop.connect(one, set(range(groups.stores)) - set(first))
    shop.run(3 * INTERVAL)
    assert [one.complete, two.complete].count(True) == 1
    loser = two if one.complete else one
    assert loser.refusal(shop.now - INTERVAL) == IN_USE


@pytest.mark.parametrize("role", ["source", "receiver"])
@pytest.mark.parametrize(
    ("groups", "down", "held", "reason"),
    [
        (TWO_GROUPS, (2, 3, 4, 5), (0,), True),  # with 0 there would be a quorum
        (TWO_GROUPS, (1, 2, 3, 4, 5), (0,), False),  # without more of those that are down there is none
        (Groups((1, 1), (0, 1)), (0,), (1,), True),
        (Groups.single(3), (2,), (0,), True),
        (Groups.single(3), (), (0,), False),  # it completes
    ],
)
def test_of_stores_that_do_not_answer_nothing_is_expected_when_the_interval_is_over(
    role: str, groups: Groups, down: tuple[int, ...], held: tuple[int, ...], reason: bool
) -> None:
    shop = Shop(groups, down, held)
    machine = shop.claimant(role)
    shop.connect(machine)
    shop.run(INTERVAL // 2)
    assert machine.refusal() is None or groups is not TWO_GROUPS, "they may come yet"
    shop.run(3 * INTERVAL)
    assert (machine.refusal(), machine.complete) == (IN_USE if reason else None, not reason and not down)


def test_a_backup_that_refuses_is_named_where_it_must_have_answered() -> None:
    """Nothing has begun at any store that has a seat: the backup may know more (docs/design.md 15)."""
    machine = SourceRegistration(Groups((3,), (0, 0, 0, 0)), INTERVAL, "majority", OURS)
    for store in range(4):
        machine.connected(store, 0)
    for store in range(3):
        machine.granted(store, NEW, 1)
    assert machine.refusal() is None
    topic = Refusal("topic_not_kept", "this store does not keep topic 'x'")
    machine.refused(3, topic)
    assert machine.refusal() == topic
    assert machine.why("abcd") == "d refuses: this store does not keep topic 'x'"
    machine.tick(REFUSED_RETRY_NS)
    left = [action for action in machine.refused(3, IN_USE) if isinstance(action, GiveUp)]
    assert left == [GiveUp(store, OURS) for store in range(3)]
    assert machine.refusal() == IN_USE


def test_of_two_that_have_a_group_each_one_abandons_what_it_has_opened() -> None:
    """All-active: each could be complete without the group that the other one has, and both would send."""
    machine = SourceRegistration(Groups((3, 1), (0, 0, 0, 1), "quorum", "all-active"), INTERVAL, "majority", OURS)
    for store in range(4):
        machine.connected(store, 0)
    machine.granted(2, KNOWN, 1)
    machine.granted(3, KNOWN, 1)
    assert machine.tick(INTERVAL) == [Open(2, 5)]
    assert machine.opened(2, 5, INTERVAL) == [Announce(2), Announce(3)]
    for store in (0, 1):
        assert machine.refused(store, IN_USE) == [Ask(store)], "that was said before it had opened"
    assert machine.refused(1, IN_USE) == [RefusedBy(1, IN_USE)]
    found = machine.found
    assert Abandon() in machine.refused(0, IN_USE)
    assert machine.found is not found, "what censuses said before proves nothing any more"
    found = machine.found
    machine.connected(0, 1)
    assert machine.found is not found


def test_who_has_the_regid_asks_a_store_that_a_claimant_takes_in_turn_twice_as_often() -> None:
    machine = SourceRegistration(Groups.single(3), INTERVAL, "majority", OURS)
    for store in range(3):
        machine.connected(store, 0)
        machine.granted(store, NEW, 0)
    machine.opened(1, 0, 0)
    for store in (0, 1):
        machine.begun(store, 0, 0)
    machine.tick(INTERVAL)
    assert machine.was_complete
    machine.refused(2, IN_USE)
    assert Ask(2) in machine.tick(REFUSED_RETRY_NS // 2)


def test_a_refusal_that_is_older_than_the_question_is_not_believed() -> None:
    """Who held the RegID may have closed since; the store is asked again soon."""
    machines: list[Machine] = [
        SourceRegistration(Groups.single(1), INTERVAL, "majority", OURS),
        ReceiverRegistration(Groups.single(1), INTERVAL, "majority"),
    ]
    for machine in machines:
        machine.connected(0, 0)
        machine.refused(0, IN_USE)
        assert machine.refusal(0) == IN_USE
        assert machine.refusal(1) is None
        assert machine.tick(REFUSED_RETRY_NS) == [Ask(0)]
        assert machine.refusal(1) is None
        assert machine.refusal(0) == IN_USE, "what it said last, for who does not wait"
        machine.refused(0, IN_USE)
        assert machine.refusal(1) == IN_USE
        assert machine.refusal(REFUSED_RETRY_NS + 1) is None
        later = () if isinstance(machine, ReceiverRegistration) else (2 * REFUSED_RETRY_NS,)
        machine.disconnected(0, *later)
        machine.connected(0, 2 * REFUSED_RETRY_NS)
        assert machine.refusal(0) is None, "it may be another life of the store"


@pytest.mark.parametrize("role", ["source", "receiver"])
def test_what_is_left_as_soon_as_it_is_granted_is_not_told(role: str) -> None:
    shop = Shop(Groups.single(3), held=(1, 2))
    shop.connect(shop.claimant(role))
    assert [action for action in shop.said if isinstance(action, Granted)] == [Granted(0, KNOWN)]
    shop.run(INTERVAL)
    assert shop.holder == dict.fromkeys((1, 2), "somebody")
    assert sum(isinstance(action, Granted) for action in shop.said) == 1


def test_who_refuses_has_answered_whatever_its_census_says() -> None:
    """It may know the source by another name."""
    machine = SourceRegistration(Groups.single(3), INTERVAL, "majority", OURS, names=tuple("abc"))
    for store in range(3):
        machine.connected(store, 0)
    machine.granted(0, replace(NEW, name="a"), 1)
    machine.granted(1, replace(NEW, name="b"), 1)
    assert machine.unheard(INTERVAL) == [2]
    machine.found = {2: Found("c")}
    machine.refused(2, Refusal("session_mismatch", "it has another session"))
    assert machine.unheard(INTERVAL) == []
    assert machine.found == {}
    assert Open(1, 0) not in machine.tick(INTERVAL)
    machine.granted(2, replace(NEW, name="c"), INTERVAL + 1)
    assert machine.unheard(INTERVAL) == []
