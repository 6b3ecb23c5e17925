"""BEGINs that reach a few stores, from sources that die at once, between others that are sent under: random histories.

The machines are the real ones; stores, files and the board are modelled. A message that was stable stays what it was, by every
behaviour of the groups, as long as the stores' files can be read (DESIGN 13, 14): then whoever opens the next incarnation
knows each BEGIN that any store took, and its own is newer.
"""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest

from holdfast.engine.quorum import Groups
from holdfast.engine.reconcile import LogView, Table, after_begin, newest, newest_table, void_from
from holdfast.engine.registration import Grant
from holdfast.engine.voting import decide

OURS = b"o" * 16
THREE_AND_THREE = (3, 3), (0, 0, 0, 1, 1, 1)
STEPS = 10


class Kept(NamedTuple):
    """A message in a log."""

    incarnation: int
    content: int


class Store:
    """Its log, and the BEGINs that it knows."""

    def __init__(self) -> None:
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

    def begin(self, told: Table, incarnation: int, start: int) -> bool:
        """As a store's desk does; False: refused."""
        newest_own, own_start = self.table[-1] if self.table else (0, 0)
        missed = newest_own not in {incarnation, *(number for number, _ in told)}
        if newest_own > incarnation or (missed and self.view().next_sqn > own_start):
            return False
        self.table = after_begin(self.table, told, incarnation, start)
        self.log = {number: kept for number in self.log if (kept := self.valid(number, self.table))}
        return True


class History:
    """One source identity. ``stable``: what each number that was stable said."""

    def __init__(self, seed: int, groups: Groups) -> None:
        self.random = random.Random(seed)
        self.groups = groups
        self.stores = [Store() for _ in range(groups.stores)]
        self.newest_on_board = 0
        self.stable: dict[int, int] = {}
        self.sent = 0

    def register(self) -> None:
        """One source object, to whom some stores answer; the others are dead, and their files are there."""
        up = self.random.sample(range(self.groups.stores), self.random.randint(1, self.groups.stores))
        views = [store.view() for store in self.stores]
        grants = {}
        for store in up:
            known = newest(views[store], [view for view in views if view.begins])
            grants[store] = Grant(7, OURS, known.end, bool(views[store].begins), known.incarnation, known.begins)
        found = decide(self.groups, self.groups.first_seats(), grants, "majority", OURS)
        if found is None or not self.groups.complete(up):
            return
        incarnation = max(found.incarnation, self.newest_on_board + 1)
        reached = []
        for store in up[: self.random.choice([0, 1, 1, len(up), len(up)])]:
            if not self.stores[store].begin(found.begins, incarnation, found.start_sqn):
                break
            self.newest_on_board = incarnation
            reached.append(store)
        if self.groups.complete(reached):
            self.send(reached, incarnation, found.start_sqn)

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
        table = newest_table(store.table for store in self.stores)
        for number, content in self.stable.items():
            found = {kept.content for store in self.stores if (kept := store.valid(number, table))}
            assert found == {content}, f"number {number}, by {table}"


@pytest.mark.parametrize("reboots", [False, True])
@pytest.mark.parametrize(
    "groups",
    [
        Groups.single(3),
        Groups((1, 1), (0, 1), "quorum", "any"),
        Groups(*THREE_AND_THREE, "quorum", "any"),
        Groups(*THREE_AND_THREE, "quorum", "all-active"),
        Groups(*THREE_AND_THREE, "quorum", "majority"),
    ],
)
def test_what_was_stable_stays_what_it_was(groups: Groups, reboots: bool) -> None:
    """``reboots``: the board, which knows of BEGINs that some stores took, is lost now and then."""
    stable = 0
    for seed in range(150):
        history = History(seed, groups)
        for _ in range(STEPS):
            if reboots and history.random.random() < 0.3:
                history.newest_on_board = 0
            history.register()
            history.check()
        stable += len(history.stable)
    assert stable > 150, "the histories say something"
