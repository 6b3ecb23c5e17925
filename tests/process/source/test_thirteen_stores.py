"""The specification's own configuration: 13 stores in 3 groups, by ports, from a flat file (docs/semantics.md
E.1, E.2). The stores run in five processes; which of them are there changes, one by one and by kill -9. And a
store that stands still."""

from __future__ import annotations

import random
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest
from support.recorded_events import Events
from support.silent_store import NEVER, may_fall_silent
from support.stores_process import House
from support.workers import until

import holdfast as hf
from holdfast.engine.log.compare import compare_stores
from holdfast.engine.tools import snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SHORT = 90.0
GROUPS = {
    0: {10313: 101000, 11313: 110000, 12313: 120000, 13313: 130000, 14313: 140000},
    1: {15313: 150000, 16313: 160000, 17313: 170000},
    2: {18313: 180000, 19313: 190000, 29313: 290000, 39313: 390000, 49313: 490000},
}
"""Group -> port -> RegID."""
QUORUM = {0: 3, 1: 2, 2: 3}
PORTS = {port: group for group, ports in GROUPS.items() for port in ports}
CONFIG = "\n".join(
    [
        *(f"source ume_store 127.0.0.1:{port}:{GROUPS[group][port]}:{group}" for port, group in PORTS.items()),
        "source ume_store_behavior qc",
        "source ume_store_group 0:5",
        "source ume_store_group 1:3",
        "source ume_store_group 2:5",
        "source ume_message_stability_notification 1",
        "source ume_retention_intragroup_stability_behavior quorum",
        "source ume_retention_intergroup_stability_behavior all-active",
        "",
    ]
)


class Town:
    """The 13 stores: house i has the i-th store of each group."""

    def __init__(self, where: Path) -> None:
        self.rows = [[port for ports in GROUPS.values() for port in list(ports)[i : i + 1]] for i in range(5)]
        self.houses = [
            House(where, {f"s{port}": {"port": port, "type": "memory"} for port in row}) for row in self.rows
        ]
        self.up: set[int] = set()

    def open(self, *numbers: int) -> None:
        for number in numbers:
            self.houses[number].open()
            self.up |= set(self.rows[number])

    def kill(self, number: int) -> None:
        self.houses[number].kill()
        self.up -= set(self.rows[number])

    def become(self, wanted: set[int]) -> None:
        """Starts and stops stores until just these run."""
        for house, row in zip(self.houses, self.rows, strict=True):
            house.tell("stop", *(f"s{port}" for port in row if port in self.up - wanted))
            house.tell("start", *(f"s{port}" for port in row if port in wanted - self.up))
        self.up = set(wanted)

    def may_send(self) -> bool:
        """By E.2, written down once more: intragroup quorum, intergroup all-active."""
        return any(len(self.up & set(ports)) >= QUORUM[group] for group, ports in GROUPS.items())


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    made = Town(tmp_path)
    try:
        made.open(*range(5))
        yield made
    finally:
        for house in made.houses:
            house.kill()


def in_state(src: hf.Source, state: str) -> set[int]:
    stores = src.stats().stores
    return {int(name.partition(":")[2]) for name, store in stores.items() if store.state == state}


def check(src: hf.Source, town: Town) -> None:
    """With these stores it may send, and what it sends becomes stable; or it is refused."""
    if town.may_send():
        src.wait_registered(SHORT)
        until(f"{len(town.up)} stores take part", lambda: in_state(src, "active") == town.up)
        src.wait_stable(src.send(b"x"), timeout=SHORT)
        return
    until("the others are missed", lambda: in_state(src, "down") >= set(PORTS) - town.up)
    before = src.next_sequence_number
    with pytest.raises(hf.QuorumLostError):
        src.send(b"x", timeout=0)
    assert src.next_sequence_number == before


def test_the_specifications_three_groups_survive_what_e2_allows_and_refuse_to_send_in_the_rest(
    town: Town, tmp_path: Path
) -> None:
    file = tmp_path / "um.cfg"
    file.write_text(CONFIG)
    events = Events()
    with hf.Context(config=str(file)) as ctx:
        src = ctx.source("quotes", on_event=events)
        check(src, town)
        assert src.registration_ids == {f"127.0.0.1:{p}": GROUPS[g][p] for p, g in PORTS.items()}
        (row,) = snapshot.take(ctx.domain).sources
        assert (row.stable, [at.group for at in row.stores]) == (0, list(PORTS.values()))

        # Whole houses, by kill -9: one store of each group; then two; then three, which is too much for each.
        for victim, allowed in ((0, True), (1, True), (2, False)):
            town.kill(victim)
            assert town.may_send() is allowed
            check(src, town)
        town.open(0, 1, 2)
        check(src, town)

        # Store by store: what the rule is about, then patterns at random.
        g0, g1, g2 = (set(ports) for ports in GROUPS.values())
        edges = [g0 | g2, g1, set(list(g1)[:2]), set(list(g0)[:2]) | set(list(g1)[:1]) | set(list(g2)[:2])]
        pick = random.Random(13)
        samples = [set(pick.sample(sorted(PORTS), pick.randint(2, 10))) for _ in range(8)]
        verdicts = set()
        for pattern in [*edges, *samples]:
            town.become(pattern)
            verdicts.add(town.may_send())
            check(src, town)
        assert verdicts == {True, False}
        town.become(set(PORTS))
        check(src, town)
        sent = src.next_sequence_number
        assert any("quorum lost" in event.text for event in events.of("StoreUnresponsive"))
        assert len(events.of("RegistrationComplete")) > 1, "a new one whenever a quorum is back"
        assert len(events.of("MessageStable")) >= sent, "one per fragment and store, at least"

    with hf.Context() as ctx:
        rcv = ctx.receiver("quotes")
        for number in range(sent):
            message = rcv.receive(timeout=SHORT)
            assert message is not None
            assert message.sequence_number == number
            message.release()


# A store that stands still ----------------------------------------------------------------------------------


STILL_S = 5.0


def states(src: hf.Source) -> dict[str, str]:
    return {name: store.state for name, store in src.stats().stores.items()}


THREE: dict[str, Any] = {
    "ume_store_name": ["a", "b", "c"],
    "ring_size": 1 << 17,
    "fragment_size": 4096,
    **NEVER,
}


def test_a_store_that_stands_still_for_5_s_never_blocks_a_quorum_and_is_caught_up_and_counted_again(
    tmp_path: Path,
) -> None:
    """The 5 s are what is promised: longer than the timeout of 3 s, so that the store is suspended, and comes
    back from there."""
    houses = {name: House(tmp_path, {name: {"type": "disk"}}) for name in "abc"}
    try:
        for house in houses.values():
            house.open()
        with hf.Context() as ctx:
            src = ctx.source("quotes", options=THREE)
            src.wait_registered(SHORT)
            until("all take part", lambda: states(src) == {"a": "active", "b": "active", "c": "active"})
            may_fall_silent(src, 2, 3000)
            houses["c"].signal(signal.SIGSTOP)
            still = time.monotonic() + STILL_S
            # No message waits for the store that stands still: it still does. And the ring overtakes it.
            while time.monotonic() < still or src.next_sequence_number <= (1 << 17) / 1000:
                src.wait_stable(src.send(bytes(1000)), timeout=SHORT)
            until("c is not counted", lambda: states(src) == {"a": "active", "b": "active", "c": "suspended"})
            sent = src.next_sequence_number
            houses["c"].signal(signal.SIGCONT)
            until("c is counted again", lambda: src.stats().stores["c"].state == "active")
            until("c has everything", lambda: src.stats().stores["c"].stable_sequence_number == sent - 1)
            may_fall_silent(src, 2, NEVER["ume_store_activity_timeout"])
            houses["a"].kill()  # now it takes c for a quorum
            until("a is missed", lambda: src.stats().stores["a"].state == "down")
            src.wait_stable(src.send(b"with b and c"), timeout=SHORT)
        (same,) = compare_stores([tmp_path / "b", tmp_path / "c"])
        assert (same.first, same.difference) == (0, None)
        assert same.next >= sent
    finally:
        for house in houses.values():
            house.kill()
