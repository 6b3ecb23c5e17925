"""Protocol bugs that the simulation must find, each within 4,000 seeds: a simulator that has not failed is no
evidence.

These are of the ring, the board, death, incarnations, reconciliation, files and counting; planted_features.py
has more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simulation import receiver, repository, settlement, source, store
from simulation.disk import Directory
from simulation.memory import Board, Line, Ring
from simulation.planting import Patch, bug
from simulation.world import MS, World

from holdfast.engine.log.state_file import SourceState
from holdfast.engine.native import kernels
from holdfast.engine.rules import (
    election,
    intervals,
    quorum,
    reconcile,
    registration,
    retention,
    source_registration,
    start_and_gap,
)
from holdfast.engine.store.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Generator


# The ring ---------------------------------------------------------------------------------------------------


@bug(4)
def a_word_without_its_position() -> Any:
    """Any word that is not 0 is a frame, and the next one is not zeroed: what an earlier lap left looks like
    a message."""

    def write(self: Ring, position: int, message: Any) -> None:
        for at in range(position, position + message.last - message.first + 1):
            self.data[at % self.slots] = message

    return (
        Patch(Ring, "write", write),
        Patch(Ring, "word_fits", lambda self, position: self.words[position % self.slots] != 0),
    )


@bug(4)
def no_room_for_the_next_word() -> Any:
    """A message is admitted that ends where the oldest one begins: its zero goes over that one's word."""
    return Patch(source.Source, "room", staticmethod(lambda ring, fragments: ring.tail + fragments))


@bug(16)
def the_first_fragment_is_committed_first() -> Any:
    """A message is visible while its later fragments are still to be written."""

    def write(self: Ring, position: int, message: Any) -> None:
        self.words[(position + message.last - message.first + 1) % self.slots] = 0
        self.data[position % self.slots] = message
        self.words[position % self.slots] = position + 1

    def commit(self: Ring, position: int) -> None:
        message = self.data[position % self.slots]
        assert message is not None
        for at in range(position, position + message.last - message.first + 1):
            self.data[at % self.slots] = message

    return Patch(Ring, "write", write), Patch(Ring, "commit", commit)


@bug(5)
def a_ring_mapped_once() -> Any:
    """A message whose fragments wrap is read on behind the end."""

    def slot(self: Ring, position: int, fragment: int) -> int:
        at = position % self.slots + fragment
        return at if at < self.slots else self.slots // 2

    return Patch(Ring, "slot", slot)


@bug(6)
def pins_are_looked_at_before_the_trail_is_stored() -> Any:
    """A reader pins in between, finds the old trail, and is overwritten."""

    def raise_trail(self: source.Source, need: int) -> Generator[None, None, bool]:
        ring, settled = self.ring, self.settlement
        assert ring is not None
        assert settled is not None
        least = need - ring.slots
        if least > settled.released:
            return False
        trail = min(settled.released, least + ring.slots // 8)
        if self.pinned(ring, self._admitted - ring.slots, trail):
            return False
        yield
        ring.trail = trail
        self._admitted = trail + ring.slots
        return True

    return Patch(source.Source, "raise_trail", raise_trail)


@bug(6)
def a_reader_pins_and_does_not_look() -> Any:
    """It takes its pin for granted, although the trail has passed it already."""
    return Patch(receiver.DeliveryController, "pinned", lambda _self, _ring, _position: True)


@bug(6)
def a_view_is_not_verified_at_its_end() -> Any:
    """It was evicted, and nobody looks."""
    return Patch(receiver.DeliveryController, "intact", lambda _self, _ring, _position: True)


@bug(6)
def the_trail_passes_what_is_not_released() -> Any:
    """A grant of an eighth of the ring, whatever is released."""

    def raise_trail(self: source.Source, need: int) -> Generator[None, None, bool]:
        ring = self.ring
        assert ring is not None
        ring.trail = need - ring.slots + ring.slots // 8
        self._admitted = ring.trail + ring.slots
        yield
        return True

    return Patch(source.Source, "raise_trail", raise_trail)


@bug(7)
def a_store_copies_and_does_not_look_at_the_trail() -> Any:
    """What the ring went over while it was copied enters the log."""
    return Patch(repository.Repository, "overrun", lambda _self, _ring, _position: False)


@bug(7)
def a_receiver_copies_and_does_not_look_at_the_trail() -> Any:
    """What the ring went over while it was copied is delivered."""
    return Patch(receiver.DeliveryController, "overrun", lambda _self, _ring, _position: False)


# The board --------------------------------------------------------------------------------------------------


@bug(8)
def a_line_counts_from_the_beginning() -> Any:
    """A store that came late, or has lost some, claims what it never had."""

    def cover(self: Line, _since: int) -> None:
        self.from_, self.to = 0, 2**62

    return Patch(Line, "cover", cover)


@bug(8)
def what_is_lost_is_a_silent_jump() -> Any:
    """A store goes on behind a hole and does not say that it has one."""

    def lack(self: repository.Repository, gap: reconcile.Lost | reconcile.Hole) -> None:
        self.log.appended = gap.last + 1

    return Patch(repository.Repository, "_lack", lack)


@bug(30)
def ignorance_becomes_lost() -> Any:
    """What a store that could not be read, or is behind, may have is recorded as had by nobody."""
    missing = reconcile.CatchUpRule.missing

    def impatient(self: reconcile.CatchUpRule, *args: Any) -> Any:
        found = missing(self, *args)
        return reconcile.Lost(found.first, found.last) if isinstance(found, reconcile.Hole) else found

    return Patch(reconcile.CatchUpRule, "missing", impatient)


@bug(9)
def a_board_for_each_incarnation() -> Any:
    """Acks go to the board that their participant has mapped, and that is unlinked."""

    def board_of(self: source.Source, uuid: bytes) -> Board:
        self.world.boards.pop(uuid, None)
        for each in self.machine.stores.values():
            if uuid in each.repositories:
                each.repositories[uuid].line = None
        return self.world.board(uuid)

    return Patch(source.Source, "board_of", board_of)


# Death ------------------------------------------------------------------------------------------------------


@bug(12)
def a_broken_connection_is_death() -> Any:
    """Whoever has no connection is gone, also while its ring is open and it lives."""

    def held(self: store.Store, kept: SourceState, client: Any, *, again: bool) -> bool:
        owner = self.owner(("source", kept.uuid, kept.uuid))
        return owner is not None and not (again and owner is client)

    def gone(self: repository.Repository, ring: Ring) -> bool:
        return ring.closed or not any(each.open for each in self.store.clients if each.client is ring.owner)

    return Patch(store.Store, "held_by_another", held), Patch(repository.Repository, "_gone", gone)


@bug(12)
def silence_is_death() -> Any:
    """A process that is stopped for a while is taken for dead, and goes on later."""

    def dead(self: World, process: Any) -> bool:
        return not process.alive or (process.stopped and self.now - process.stopped_ns > 10 * MS)

    return Patch(World, "dead", dead)


@bug(12)
def a_dead_process_looks_alive() -> Any:
    """As a zombie does for kill(pid, 0)."""
    return Patch(World, "dead", lambda _self, _process: False)


# Incarnations -----------------------------------------------------------------------------------------------


@bug(13)
def it_sends_before_begin_is_durable() -> Any:
    """A store counts as soon as BEGIN was sent to it."""

    def active(self: source_registration.SourceRegistration) -> set[int]:
        return self._in_phase(registration.Phase.ACTIVE, registration.Phase.ANNOUNCED)

    def opened(self: source_registration.SourceRegistration, incarnation: int, start: int, now_ns: int) -> Any:
        said = real(self, incarnation, start, now_ns)
        return said + self._complete(start, now_ns)

    real = source_registration.SourceRegistration.opened
    where = source_registration.SourceRegistration
    return Patch(where, "active", active), Patch(where, "opened", opened)


@bug(23)
def the_state_is_not_synced() -> Any:
    """What a store granted is forgotten by a power cut."""

    def save(self: Directory, state: bytes, *, sync: bool = True) -> None:
        self.saved = state
        self.synced = self.synced or (state if sync else None)

    return Patch(Directory, "save", save)


@bug(13)
def an_ack_is_not_clamped() -> Any:
    """An ack counts whatever incarnation it was made in."""

    def rebase(self: Line, incarnation: int, _start: int) -> None:
        self.ack_stream = max(self.ack_stream, incarnation)

    return (
        Patch(SourceState, "clamp", lambda _self, ack, _incarnation: ack),
        Patch(Line, "rebase", rebase),
    )


@bug(13)
def an_ack_of_another_incarnation_counts() -> Any:
    """The source takes whatever stands on a line."""
    return Patch(settlement.Settlement, "counts", lambda _self, _line: True)


@bug(13)
def records_are_never_void() -> Any:
    """What a dead incarnation wrote is read under the numbers of a later one."""
    return Patch(reconcile, "void_from", lambda _table, _incarnation: reconcile.FOR_EVER)


@bug(13)
def an_incarnation_is_used_twice() -> Any:
    """It is counted from what the first store says, and nobody looks who has used it."""
    real = election.decide

    def decide(groups: Any, seated: Any, grants: Any, *rest: Any) -> Any:
        decision = real(groups, seated, grants, *rest)
        first = next(iter(grants.values())).incarnation
        return decision._replace(incarnation=first + 1) if decision is not None else None

    return Patch(election, "decide", decide), Patch(
        source.Source, "unused", lambda _self, _uuid, incarnation: incarnation
    )


# Reconciliation ---------------------------------------------------------------------------------------------


@bug(14)
def it_answers_before_the_ring_is_drained() -> Any:
    """The next incarnation begins in the middle of what the last one has sent."""
    return Patch(repository.Repository, "drained", lambda _self: True)


@bug(14)
def it_answers_while_the_owner_lives() -> Any:
    """Two write under one RegID."""
    return Patch(store.Store, "held_by_another", lambda _self, _source, _client, *, again: False)


@bug(14)
def a_dead_ring_is_unlinked_too_soon() -> Any:
    """The first store that has its end takes the name away."""
    return Patch(quorum.Groups, "stable_number", lambda _self, positions: max(positions.values(), default=0))


@bug(15)
def who_has_forgotten_votes() -> Any:
    """Wiped and restored stores outvote the one that remembers."""
    return Patch(election, "learners", lambda _grants: set())


# Files ------------------------------------------------------------------------------------------------------


@bug(20)
def acknowledged_before_the_sync() -> Any:
    """The line moves when the data is written, not when it is on disk."""

    def commit(self: repository.Repository, ring: Ring) -> Generator[None, None, bool]:
        assert self.line is not None
        self.line.acknowledge(self.log.appended)
        return (yield from real(self, ring))

    real = repository.Repository._commit
    return Patch(repository.Repository, "_commit", commit)


@bug(20)
def a_failed_sync_is_tried_again() -> Any:
    """The second one says that all is well."""

    def sync(self: Directory, log: Any) -> bool:
        log.published, log.next = len(log.records), log.appended
        if not self.failing:
            log.sync()
        return True

    return Patch(Directory, "sync", sync)


# Counting ---------------------------------------------------------------------------------------------------


@bug(0)
def half_is_a_quorum() -> Any:
    """Of two stores one, of four two."""
    return Patch(quorum, "quorum", lambda size: (size + 1) // 2)


@bug(0)
def one_store_is_enough() -> Any:
    """Stable is what the first store has."""
    real = intervals.first_missing
    return Patch(quorum, "first_missing", lambda floor, _needed, members: real(floor, 1, members))


@bug(0)
def released_before_it_is_confirmed() -> Any:
    """Nobody waits for receivers."""
    return Patch(retention, "first_missing", lambda _floor, _needed, _members: 2**40)


@bug(0)
def a_receiver_starts_at_the_highest_ack() -> Any:
    """One store that knows more than a receiver has had decides; here, by one too many."""
    real = start_and_gap.start_number

    def start(low: int, high: int, maximum: int, chosen: int) -> start_and_gap.Start:
        found = real(low, high, maximum, chosen)
        return start_and_gap.Start(min(found.sequence_number + 1, high + 1), found.limited, found.clamped)

    return Patch(receiver, "start_number", start)


@bug(0)
def an_ack_goes_beyond_a_gap() -> Any:
    """What is behind a message that is still held acknowledges it, too."""

    def prefix(records: Any, head: int, tail: int) -> tuple[int, int]:
        mask, last = len(records) - 1, 0
        for slot in range(head, tail):
            if records["tag"][slot & mask] == 2 * slot + 1:
                head, last = slot + 1, int(records["last"][slot & mask])
        return head, last

    return Patch(kernels, "contiguous_prefix", prefix)


@bug(0)
def a_registration_id_is_given_twice() -> Any:
    """The store gives a number out and does not move on."""
    return Patch(Registry, "_next", lambda self: self.state.next_registration_id)
