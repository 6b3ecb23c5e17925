"""What C finds stable by the lines of a board, against the rules in Python that see the same lines
(docs/semantics.md E.2): for every behaviour, and boards of all kinds."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest

from holdfast.engine.native.core import CData, ffi, lib
from holdfast.engine.rules.quorum import INTERGROUP, INTRAGROUP, Agreement, Groups, Intergroup, Intragroup, StoreSpans
from holdfast.engine.source.tally import tally_of

if TYPE_CHECKING:
    from collections.abc import Iterator

INCARNATION = 3
NUMBERS = 12
BOARDS = 150
FAR = 2**63


@pytest.fixture
def board() -> Iterator[CData]:
    out = ffi.new("struct hf_map **")
    descriptor = os.memfd_create("board")
    size = ffi.sizeof("struct hf_board")
    assert lib.hf_map_create(descriptor, lib.HF_KIND_BOARD, size, 0, bytes(16), 0, out) == lib.HF_OK
    os.close(descriptor)
    lib.hf_map_publish(out[0])
    yield out[0]
    lib.hf_map_detach(out[0])


def say(board: CData, index: int, owner: int, begin: int, ack: int, end: int = FAR, stream: int = INCARNATION) -> None:
    """The line of a store."""
    line = lib.hf_board_line_at(board, index)
    line.state, line.role, line.owner = lib.HF_LINE_ACTIVE, lib.HF_ROLE_STORE, owner
    line.ack_stream, line.from_sqn, line.to_sqn, line.ack = stream, begin, end, ack


class Scene:
    """Groups of stores of which some have a seat, are registered, and have a line."""

    def __init__(self, board: CData, intragroup: Intragroup, intergroup: Intergroup, seed: int) -> None:
        chance = random.Random(f"{intragroup} {intergroup} {seed}")
        sizes = tuple(chance.choice([0, 1, 2, 3, 3]) for _ in range(chance.choice([1, 1, 2, 3])))
        sizes = sizes if any(sizes) else (2,)
        of = [group for group, size in enumerate(sizes) if size for _ in range(size + chance.choice([0, 0, 1]))]
        chance.shuffle(of)
        groups = Groups(sizes, tuple(of), intragroup, intergroup)
        self.rules = StoreSpans(groups)
        most = range(groups.stores)
        seated = groups.first_seats() if chance.random() < 0.5 else {store for store in most if chance.random() < 0.8}
        self.rules.seat(seated, {store for store in seated if chance.random() < 0.8})
        indices = chance.sample(range(lib.HF_BOARD_LINES), groups.stores)
        self.lines: dict[int, tuple[int, int]] = {}
        for store in most:
            owner = chance.randrange(1, FAR)
            begin, ack = chance.choice([0, 0, 0, chance.randrange(NUMBERS)]), chance.randrange(NUMBERS + 1)
            end = chance.choice([FAR, FAR, chance.randrange(NUMBERS)])
            stream = chance.choice([INCARNATION] * 8 + [INCARNATION - 1])
            say(board, indices[store], owner, begin, ack, end, stream)
            if chance.random() < 0.9:
                self.lines[store] = indices[store], owner
                if stream == INCARNATION:
                    self.rules.stores[store].add(begin, min(ack, end))

    def tally(self) -> CData:
        found = tally_of(INCARNATION, self.rules.agreement, self.lines)
        assert found is not None
        return found


@pytest.mark.parametrize("intergroup", INTERGROUP)
@pytest.mark.parametrize("intragroup", INTRAGROUP)
def test_c_and_the_rules_find_the_same_numbers_stable(
    board: CData, intragroup: Intragroup, intergroup: Intergroup
) -> None:
    stable = 0
    for seed in range(BOARDS):
        scene = Scene(board, intragroup, intergroup, seed)
        tally = scene.tally()
        by_rules = [scene.rules.first_unstable(number) > number for number in range(NUMBERS)]
        by_c = [lib.hf_tally_soon(tally, board, number, number) == 1 for number in range(NUMBERS)]
        assert by_c == by_rules, f"seed {seed}: {scene.rules.agreement}"
        stable += sum(by_rules)
    assert 0 < stable < BOARDS * NUMBERS, "both answers were given"


@pytest.mark.parametrize("intragroup", INTRAGROUP)
def test_a_range_that_c_finds_stable_is_so_number_by_number(board: CData, intragroup: Intragroup) -> None:
    """Not the other way round: for C, the same stores have all of it."""
    found = 0
    for seed in range(BOARDS):
        scene = Scene(board, intragroup, "any", seed)
        tally = scene.tally()
        for first in range(NUMBERS):
            for last in range(first + 1, NUMBERS):
                if lib.hf_tally_soon(tally, board, first, last) == 1:
                    assert not scene.rules.unstable(first, last + 1)
                    found += 1
    assert found


def test_no_number_is_stable_before_the_line_that_completes_the_quorum(board: CData) -> None:
    rules = StoreSpans(Groups.single(3))
    for index in range(3):
        say(board, index, 7 + index, 0, 5)
    tally = tally_of(INCARNATION, rules.agreement, {index: (index, 7 + index) for index in range(3)})
    assert tally is not None

    def stable() -> bool:
        return lib.hf_tally_soon(tally, board, 5, 5) == 1

    assert not stable()
    say(board, 2, 9, 0, 6)
    assert not stable()
    say(board, 0, 7, 0, 6)
    assert stable()
    say(board, 0, 8, 0, 6)
    assert not stable(), "it is another one's line now"
    say(board, 1, 8, 0, 6)
    assert stable()
    lib.hf_tally_end(tally)
    assert not stable()


def test_more_stores_or_groups_than_fit_have_no_tally() -> None:
    one = [(1, [0])]
    assert tally_of(1, Agreement(1, [one]), dict.fromkeys(range(int(lib.HF_TALLY_LINES)), (0, 1))) is not None
    assert tally_of(1, Agreement(1, [one]), dict.fromkeys(range(int(lib.HF_TALLY_LINES) + 1), (0, 1))) is None
    assert tally_of(1, Agreement(1, [one] * int(lib.HF_TALLY_GROUPS)), {}) is not None
    assert tally_of(1, Agreement(1, [one] * (int(lib.HF_TALLY_GROUPS) + 1)), {}) is None
    assert tally_of(1, Agreement(1, [one * int(lib.HF_TALLY_RULES)]), {}) is not None
    assert tally_of(1, Agreement(1, [one * (int(lib.HF_TALLY_RULES) + 1)]), {}) is None
