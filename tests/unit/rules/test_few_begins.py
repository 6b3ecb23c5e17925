"""BEGINs that reach a few stores, from sources that die at once, between others that are sent under: random
histories.

The machines are the real ones; stores, files and the board are modelled. A message that was stable stays what
it was, by every behaviour of the groups, whoever is away or cannot be read (docs/design.md 13, 14). Three
bugs are planted, each in one of the rules that this takes.
"""

from __future__ import annotations

import random
import sys
from typing import TYPE_CHECKING, NamedTuple

import pytest

from holdfast.engine.log.state_file import SourceState
from holdfast.engine.rules import election
from holdfast.engine.rules.election import Decision, decide
from holdfast.engine.rules.quorum import Groups
from holdfast.engine.rules.reconcile import LogView, Table, after_begin, newest_table, void_from
from holdfast.engine.rules.registration import Grant
from holdfast.engine.rules.reports import Configuration, Seen, farthest, right_table

if TYPE_CHECKING:
    from collections.abc import Callable

OURS = b"o" * 16
NAMES = "abcdef"
THREE_AND_THREE = (3, 3), (0, 0, 0, 1, 1, 1)
STEPS = 16


class Kept(NamedTuple):
    """A message in a log."""

    incarnation: int
    content: int


class Store:
    """Its log, the BEGINs that it knows, and what it has promised."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = SourceState(OURS, "quotes", 7, 0)
        self.table: Table = ()
        self.log: dict[int, Kept] = {}

    def valid(self, number: int, table: Table) -> Kept | None:
        kept = self.log.get(number)
        return kept if kept is not None and number < void_from(table, kept.incarnation) else None

    def view(self) -> LogView:
        number = 0
        while self.valid(number, self.table):
            number += 1
        return LogView(self.table, number)

    def refuses(self, incarnation: int, claimant: bytes) -> bool:
        promised = self.state.promised, self.state.promised_to
        return incarnation < promised[0] or (incarnation == promised[0] and claimant != promised[1])

    def begin(self, told: Table, incarnation: int, start: int, claimant: bytes) -> bool:
        """As a store's desk does; False: refused."""
        if self.refuses(incarnation, claimant):
            return False
        newest_own, own_start = self.table[-1] if self.table else (0, 0)
        missed = newest_own not in {incarnation, *(number for number, _ in told)}
        if newest_own > incarnation or (missed and self.view().next_sqn > own_start):
            return False
        self.table = after_begin(self.table, told, incarnation, start)
        self.log = {number: kept for number in self.log if (kept := self.valid(number, self.table))}
        return True


class History:
    """One source identity. ``stable``: what each number that was stable said."""

    def __init__(self, seed: int, groups: Groups, *, blind: bool = False) -> None:
        self.random = random.Random(seed)
        self.groups = groups
        self.blind = blind
        """A store may be away: neither asked nor read."""
        self.stores = [Store(NAMES[index]) for index in range(groups.stores)]
        self.claimants = 0
        self.newest_on_board = 0
        self.stable: dict[int, int] = {}
        self.sent = 0

    def register(self) -> None:
        """One source object, to whom some stores answer; the others are dead, and their files are there."""
        count = self.groups.stores
        up = self.random.sample(range(count), self.random.choice([self.random.randint(1, count), count // 2 + 1]))
        away = {
            store
            for store in range(self.groups.stores)
            if store not in up and self.blind and self.random.random() < 0.7
        }
        self.claimants += 1
        claimant = b"%d" % self.claimants
        if not self.groups.complete(up):  # it asks all the same, and is promised something
            self.asked(up, away, claimant, 0)
            return
        grants = self.asked(up, away, claimant, 0)
        found = self.decided(grants)
        if found is None:
            return
        incarnation = max(found.incarnation, self.newest_on_board + 1)
        if self.random.random() < 0.2:  # it dies between the first and the second question
            return
        grants = self.asked(up, away, claimant, incarnation)
        found = self.decided(grants)
        if found is None or found.incarnation != incarnation:
            return
        reached = []
        for store in up[: self.random.choice([0, 1, 1, len(up), len(up)])]:
            if not self.stores[store].begin(found.begins, incarnation, found.start_sqn, claimant):
                break
            self.newest_on_board = incarnation
            reached.append(store)
        if self.groups.complete(reached):
            self.send(reached, incarnation, found.start_sqn)

    def asked(self, up: list[int], away: set[int], claimant: bytes, least: int) -> dict[int, Grant]:
        """What the stores that are up answer; each has read the logs of all that are not away."""
        views = [None if store in away else each.view() for store, each in enumerate(self.stores)]
        grants = {}
        for store in up:
            hidden = {
                other for other in range(len(views)) if other != store and self.blind and self.random.random() < 0.4
            }
            seen = [
                Seen(NAMES[index], NAMES[index], None if index in hidden else view) for index, view in enumerate(views)
            ]
            known = farthest([seen[store], *seen])
            state = self.stores[store].state
            state.promise(claimant, known.incarnation, least)
            recorded = Configuration(tuple(NAMES[: len(views)]), self.groups) if self.stores[store].table else None
            grants[store] = Grant(
                7, OURS, known.end, bool(self.stores[store].table), known.incarnation, known.begins, name=NAMES[store],
                promised=state.promised, seen=tuple(seen), configuration=recorded,
            )  # fmt: skip
        return grants

    def decided(self, grants: dict[int, Grant]) -> Decision | None:
        return decide(self.groups, self.groups.first_seats(), grants, "majority", OURS, (), NAMES[: self.groups.stores])

    def send(self, stores: list[int], incarnation: int, start: int) -> None:
        """A few messages, some stores behind; then the source is killed."""
        for store in stores:
            self.fill(self.stores[store], incarnation, start)
        count = self.random.randint(0, 3)
        held = {store: start + self.random.choice([count, count, self.random.randint(0, count)]) for store in stores}
        for number in range(start, start + count):
            self.sent += 1
            for store in stores:
                if number < held[store]:
                    self.stores[store].log[number] = Kept(incarnation, self.sent)
            if number < self.groups.stable_number(held):
                assert number not in self.stable, f"number {number} was stable before"
                self.stable[number] = self.sent

    def fill(self, store: Store, incarnation: int, start: int) -> None:
        """It reads from its peers what it lacks below ``start``."""
        for number in range(store.view().next_sqn, start):
            kept = [each for peer in self.stores if (each := peer.valid(number, store.table))]
            store.log[number] = kept[0] if kept else Kept(incarnation, -1)

    def check(self) -> None:
        every = Configuration(tuple(NAMES[: self.groups.stores]), self.groups)
        table = right_table({store.name: store.view() for store in self.stores}, [every])
        assert table is not None, "every log can be read"
        for number, content in self.stable.items():
            found = {kept.content for store in self.stores if (kept := store.valid(number, table))}
            assert found == {content}, f"number {number}, by {table}"


SHAPES = [
    Groups.single(3),
    Groups((3,), (0, 0, 0, 0)),
    Groups.single(5),
    Groups((1,), (0, 0)),
    Groups((1, 1), (0, 1), "quorum", "any"),
    Groups(*THREE_AND_THREE, "quorum", "any"),
    Groups(*THREE_AND_THREE, "quorum", "all-active"),
    Groups(*THREE_AND_THREE, "quorum", "majority"),
    Groups(*THREE_AND_THREE, "quorum", "all"),
]


def histories(groups: Groups, *, reboots: bool, blind: bool, seeds: int = 60) -> int:
    """How many messages were stable. Raises AssertionError where one of them is not what it was."""
    stable = 0
    for seed in range(seeds):
        history = History(seed, groups, blind=blind)
        for _ in range(STEPS):
            if reboots and history.random.random() < 0.5:
                history.newest_on_board = 0
            history.register()
            history.check()
        stable += len(history.stable)
    return stable


@pytest.mark.parametrize("blind", [False, True])
@pytest.mark.parametrize("reboots", [False, True])
@pytest.mark.parametrize("groups", SHAPES)
def test_what_was_stable_stays_what_it_was(groups: Groups, reboots: bool, blind: bool) -> None:
    """``reboots``: the board, which knows of BEGINs that some stores took, is lost now and then."""
    assert histories(groups, reboots=reboots, blind=blind) > 30, "the histories say something"


def unknown_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.engine.rules.election._least", lambda _: (0, {}))


def only_the_newest_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """An orphan BEGIN holds: what promises keep from happening, and what right_table sees where it happened
    all the same."""
    for module in (election, sys.modules[__name__]):
        monkeypatch.setattr(
            module, "right_table", lambda views, *_: newest_table(view.begins for view in views.values() if view)
        )


def nothing_is_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    only_the_newest_table(monkeypatch)
    monkeypatch.setattr(SourceState, "promise", lambda *_: False)


def promises_are_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each claimant is promised something, and the second question is left out."""
    only_the_newest_table(monkeypatch)
    promise = SourceState.promise
    monkeypatch.setattr(SourceState, "promise", lambda self, claimant, seen, _: promise(self, claimant, seen, 0))
    monkeypatch.setattr(Store, "refuses", lambda *_: False)


@pytest.mark.parametrize("groups", SHAPES)
def test_promises_alone_keep_an_orphan_from_being_the_newest(monkeypatch: pytest.MonkeyPatch, groups: Groups) -> None:
    only_the_newest_table(monkeypatch)
    histories(groups, reboots=True, blind=True)


@pytest.mark.parametrize(
    ("plant", "groups"),
    [
        (unknown_is_empty, Groups.single(3)),
        (unknown_is_empty, Groups((1, 1), (0, 1), "quorum", "any")),
        (unknown_is_empty, Groups((3,), (0, 0, 0, 0))),
        (nothing_is_promised, Groups.single(3)),
        (promises_are_not_checked, Groups.single(3)),
    ],
)
def test_the_histories_find_a_planted_bug(
    monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None], groups: Groups
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError, match="number"):
        histories(groups, reboots=True, blind=True, seeds=3000)
