"""Refusals of registration: how often they are told, and how often a refused source asks again."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from holdfast.engine.rules.quorum import Groups
from holdfast.engine.rules.receiver_registration import ReceiverRegistration
from holdfast.engine.rules.registration import REFUSED_RETRY_NS, Action, Ask, Grant, Granted, Refusal, RefusedBy
from holdfast.engine.rules.source_registration import SourceRegistration

if TYPE_CHECKING:
    from collections.abc import Callable

INTERVAL = 3_000_000_000
UUID = b"o" * 16


def grant(next_sqn: int, *, incarnation: int = 0, old: bool = False) -> Grant:
    return Grant(7, UUID, next_sqn, old, incarnation)


def source() -> SourceRegistration:
    return SourceRegistration(Groups.single(1), INTERVAL, "majority", UUID)


def refused_after_grants(machine: SourceRegistration, refusal: Refusal, until_ns: int) -> list[tuple[int, Action]]:
    """An open source whose store grants each time, and refuses BEGIN after it: what is done, with the
    time."""
    done: list[tuple[int, Action]] = []
    for now in range(10, until_ns, REFUSED_RETRY_NS // 4):
        for action in machine.tick(now):
            done.append((now, action))
            if isinstance(action, Ask):
                done += [(now, each) for each in machine.granted(0, grant(5, incarnation=1, old=True), now)]
                done += [(now, each) for each in machine.refused(0, refusal)]
    return done


def test_the_same_refusal_is_told_rarely_and_asked_for_less_and_less_often() -> None:
    machine = source()
    machine.connected(0, 0)
    machine.granted(0, grant(0), 1)
    machine.opened(1, 0, 2)
    machine.begun(0, 0, 3)
    machine.disconnected(0, 4)
    machine.connected(0, 5)
    machine.granted(0, grant(5, incarnation=1, old=True), 6)
    gone = Refusal("busy", "the stream of incarnation 1 is gone")
    assert machine.refused(0, gone) == [RefusedBy(0, gone)]
    done = refused_after_grants(machine, gone, 60 * INTERVAL)
    asked = [now for now, action in done if isinstance(action, Ask)]
    assert not any(isinstance(action, Granted) for _, action in done), "a grant that comes to nothing is no news"
    assert len([action for _, action in done if isinstance(action, RefusedBy)]) == 5, "every 10 intervals"
    pauses = [after - before for before, after in itertools.pairwise(asked)]
    assert all(after >= before for before, after in itertools.pairwise(pauses[:4]))
    assert INTERVAL <= pauses[-1] < 2 * INTERVAL
    other = Refusal("failed", "the store failed to do this: no space")
    assert refused_after_grants(machine, other, 60 * INTERVAL + 3 * INTERVAL)[0:1]
    machine.tick(70 * INTERVAL)
    machine.granted(0, grant(5, incarnation=1, old=True), 70 * INTERVAL)
    machine.begun(0, 5, 70 * INTERVAL)
    assert machine.may_send


@pytest.mark.parametrize(("asked_ns", "told"), [(10 * INTERVAL - 1, False), (10 * INTERVAL, True)])
def test_the_same_refusal_is_told_again_after_ten_intervals(asked_ns: int, told: bool) -> None:
    machine = source()
    machine.connected(0, 0)
    held = Refusal("reg_id_in_use", "RegID 7 is in use", pid=12)
    assert machine.refused(0, held) == [RefusedBy(0, held)]
    assert machine.tick(asked_ns) == [Ask(0)]
    assert machine.refused(0, held) == ([RefusedBy(0, held)] if told else [])


@pytest.mark.parametrize("make", [source, lambda: ReceiverRegistration(Groups.single(1), INTERVAL, "majority")])
def test_the_pauses_grow_with_each_refusal_and_begin_anew_with_the_link(
    make: Callable[[], SourceRegistration | ReceiverRegistration],
) -> None:
    machine, now = make(), 0
    full = Refusal("failed", "the store failed to do this: no space")
    for life, pauses in enumerate([(1, 2, 4), (2, 4)]):  # the reason is known then
        machine.connected(0, now)
        machine.refused(0, full)
        for times in pauses:
            assert Ask(0) not in machine.tick(now + times * REFUSED_RETRY_NS - 1)
            now += times * REFUSED_RETRY_NS
            assert Ask(0) in machine.tick(now), (life, times)
            machine.refused(0, full)
        if isinstance(machine, SourceRegistration):
            machine.disconnected(0, now)
        else:
            machine.disconnected(0)


def test_however_long_the_interval_is_a_refusal_is_asked_about_again_within_two_hours() -> None:
    """The pause is doubled 16 times: 0.1 s becomes 109 minutes."""
    machine = SourceRegistration(Groups.single(1), 24 * 3600 * 10**9, "majority", UUID)
    full = Refusal("failed", "the store failed to do this: no space")
    machine.connected(0, 0)
    machine.refused(0, full)
    now = 0
    for times in range(20):
        pause = REFUSED_RETRY_NS * 2 ** min(times, 16)
        assert Ask(0) not in machine.tick(now + pause - 1)
        now += pause
        assert Ask(0) in machine.tick(now)
        machine.refused(0, full)


def test_who_waits_for_a_proof_of_death_asks_as_often_as_before() -> None:
    machine = source()
    machine.connected(0, 0)
    held = Refusal("reg_id_in_use", "RegID 7 is in use", pid=12)
    machine.refused(0, held)
    for now in range(1, 50):
        assert machine.tick(now * REFUSED_RETRY_NS) == [Ask(0)]
        machine.refused(0, held)
