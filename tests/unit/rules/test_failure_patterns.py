"""All patterns of store failures for groups of up to five stores: a source may send exactly when
docs/semantics.md E says so.

The real machine goes through them one store at a time (a Gray code), so that each pattern is reached by a
loss or by a return; the reference below is E.2 and nothing else.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from holdfast.engine.rules import registration as reg
from holdfast.engine.rules.quorum import INTERGROUP, INTRAGROUP, Groups, StoreSpans
from holdfast.engine.rules.source_registration import SourceRegistration

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast.engine.rules.quorum import Intergroup, Intragroup

INTERVAL_NS = 1000
SIZES = range(1, 6)


def agree(counts: Sequence[int], sizes: Sequence[int], intragroup: Intragroup, intergroup: Intergroup) -> bool:
    """docs/semantics.md E.2. ``counts``: stores that are there, by group."""
    quorate = [count > size // 2 for count, size in zip(counts, sizes, strict=True)]
    enough = [count == size for count, size in zip(counts, sizes, strict=True)] if intragroup == "all" else quorate
    return across(enough, quorate, intergroup)


def across(enough: Sequence[bool], active: Sequence[bool], intergroup: Intergroup) -> bool:
    """docs/semantics.md E.2. ``enough``: groups that agree within; ``active``: those that have a quorum of
    their stores."""
    if intergroup == "any":
        return any(enough)
    if intergroup == "majority":
        return sum(enough) * 2 > len(enough)
    if intergroup == "all":
        return all(enough)
    return any(active) and all(there for there, counts in zip(enough, active, strict=True) if counts)


def gray(stores: int) -> Iterator[int]:
    """Which store changes next; every pattern is met."""
    return ((step & -step).bit_length() - 1 for step in range(1, 2**stores))


def registered(groups: Groups) -> SourceRegistration:
    """A source that is registered with all of its stores."""
    machine = SourceRegistration(groups, INTERVAL_NS, "majority", b"u" * 16)
    actions = [each for store in range(groups.stores) for each in join(machine, store)]
    opened = [action for action in actions if isinstance(action, reg.Open)]
    assert opened == [reg.Open(1, 0)]
    machine.opened(1, 0, 0)
    for store in range(groups.stores):
        machine.begun(store, 0, 0)
    assert machine.may_send
    return machine


def join(machine: SourceRegistration, store: int) -> list[reg.Action]:
    """A store's link comes up, and it grants."""
    incarnation = machine.incarnation
    grant = reg.Grant(store + 1, b"u" * 16, 0, incarnation > 0, incarnation, name=f"s{store}", opened=1)
    return machine.connected(store, 0) + machine.granted(store, grant, 0)


def check(sizes: tuple[int, ...], intragroup: Intragroup, intergroup: Intergroup) -> int:
    """Every pattern of one configuration."""
    of = tuple(group for group, size in enumerate(sizes) for _ in range(size))
    machine = registered(Groups(sizes, of, intragroup, intergroup))
    there, counts = [True] * len(of), list(sizes)
    for store in gray(len(of)):
        there[store] = not there[store]
        counts[of[store]] += 1 if there[store] else -1
        if there[store]:
            join(machine, store)
            machine.begun(store, 0, 0)
        else:
            machine.disconnected(store, 0)
            machine.tick(0)  # one less may be what the others need: a group that is not active is not waited for
        assert machine.may_send == agree(counts, sizes, intragroup, intergroup), (sizes, intragroup, intergroup, there)
    return 1 << len(of)


@pytest.mark.parametrize("intragroup", INTRAGROUP)
@pytest.mark.parametrize("intergroup", INTERGROUP)
def test_a_source_may_send_exactly_when_its_groups_are_complete(intragroup: Intragroup, intergroup: Intergroup) -> None:
    patterns = sum(check((size,), intragroup, intergroup) for size in SIZES)
    patterns += sum(check(sizes, intragroup, intergroup) for sizes in itertools.product(SIZES, SIZES))
    patterns += sum(check(sizes, intragroup, intergroup) for sizes in itertools.product((1, 2, 3), repeat=3))
    assert patterns == 62 + 62**2 + 14**3


@pytest.mark.parametrize("intragroup", INTRAGROUP)
@pytest.mark.parametrize("intergroup", INTERGROUP)
def test_the_three_groups_of_the_specification(intragroup: Intragroup, intergroup: Intergroup) -> None:
    assert check((5, 3, 5), intragroup, intergroup) == 2**13


@pytest.mark.parametrize("intragroup", INTRAGROUP)
@pytest.mark.parametrize("intergroup", INTERGROUP)
def test_a_message_is_stable_exactly_when_enough_stores_have_it(intragroup: Intragroup, intergroup: Intergroup) -> None:
    for sizes in [*((size,) for size in SIZES), (1, 2), (3, 1), (2, 2), (1, 1, 1), (2, 1, 3)]:
        of = tuple(group for group, size in enumerate(sizes) for _ in range(size))
        groups = Groups(sizes, of, intragroup, intergroup)
        for up, has in itertools.product(itertools.product((0, 1), repeat=len(of)), repeat=2):
            holdings = StoreSpans(groups)
            holdings.seat(range(len(of)), {store for store, one in enumerate(up) if one})
            for store, one in enumerate(has):
                holdings.stores[store].add(0, one)
            assert (holdings.first_unstable(0) == 1) == stable(sizes, of, has, up, intragroup, intergroup)


def stable(
    sizes: Sequence[int], of: Sequence[int], has: Sequence[int], up: Sequence[int], intragroup: Intragroup,
    intergroup: Intergroup,
) -> bool:  # fmt: skip
    """docs/semantics.md E.2. ``has``: which stores have acknowledged; ``up``: which are registered."""
    acked, active, late = ([0] * len(sizes) for _ in range(3))
    for group, acks, one in zip(of, has, up, strict=True):
        acked[group] += acks
        active[group] += one
        late[group] += one and not acks
    quorate = [count > size // 2 for count, size in zip(active, sizes, strict=True)]
    there = [n == size if intragroup == "all" else n > size // 2 for n, size in zip(acked, sizes, strict=True)]
    if intragroup == "all-active":
        there = [enough and not waits for enough, waits in zip(there, late, strict=True)]
    return across(there, quorate, intergroup)
