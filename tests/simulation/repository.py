"""One source at one store: its log, its line, and the ring that is drained (engine/store/repository.py,
catch_up.py, csrc/store/drain.c).

Everything here runs on the store's drain thread, or in between while that does not run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.config import PATIENCE_NS
from simulation.disk import DISK
from simulation.memory import LOST, STORE, Board, Line, Message, Ring
from simulation.pacing import Pacer

from holdfast.engine.rules import reconcile

if TYPE_CHECKING:
    from collections.abc import Generator

    from simulation.disk import Log
    from simulation.store import Store

    from holdfast.engine.log.state_file import SourceState

BLOCK = 4
"""Messages that are staged at once."""


class Repository:
    """See the module."""

    def __init__(self, store: Store, source: SourceState, log: Log) -> None:
        self.store, self.world, self.source, self.log = store, store.world, source, log
        self.ring: Ring | None = None
        self.line: Line | None = None
        self.filling: reconcile.CatchUpRule | None = None
        """While it is not None, the log is behind the ring, or the peers, and nothing is drained."""
        self.caught_up = False
        self.lost_below = source.lost_below
        self.left: list[Ring] = []
        self.pacer: Pacer | None = None
        self._look_at = 0
        if not log.poisoned and store.directory.sync(log):
            self._published(0)
        if not log.begins:  # a memory store after a reboot, or its logs were removed: the state knows more than the log
            source.learner |= source.incarnation > 0
        elif reconcile.newest_table([source.begins, log.begins]) != self.table:
            source.take(log.begins)  # killed between the log's BEGIN and the state
            self.lost_below = source.lost_below
        terms = store.machine.config.paced
        if terms is not None:
            self.pacer = Pacer(self, terms)

    @property
    def table(self) -> reconcile.Table:
        """The BEGINs that this store knows."""
        return tuple(self.source.begins)

    def view(self) -> reconcile.LogView:
        """What this store's own log says."""
        return reconcile.LogView(self.table, self.log.next)

    def has_lost(self) -> bool:
        """It has not what its own line on the board once acknowledged (docs/design.md 15)."""
        own = self.board().stores().get(self.store.state.uuid)
        return own is not None and reconcile.lost_acknowledged(self.view(), own.ack, own.ack_stream)

    def board(self) -> Board:
        """The source's."""
        return self.world.board(self.source.uuid)

    def close(self) -> None:
        """The line is let go."""
        if self.line is not None:
            self.board().release(self.line)
            self.line = None

    # Streams ------------------------------------------------------------------------------------------------

    def rings(self) -> list[Ring]:
        """Of this source, oldest incarnation first."""
        rings = self.world.rings
        return [rings[key] for key in sorted(rings) if key[0] == self.source.uuid]

    def begin(self, table: reconcile.Table) -> None:
        """BEGIN, the last one of ``table``: durable in the log, then in the state; then the ring is read."""
        if self.ring is not None and self.ring.incarnation == table[-1][0]:
            return
        self.ring = self.filling = None
        self._adopt(table)
        ring = self.world.rings.get((self.source.uuid, table[-1][0]))
        if ring is not None:
            self._attach(ring)

    def _adopt(self, table: reconcile.Table) -> None:
        self.log.begin(table)
        if table != self.table:
            self.lost_below = min(self.lost_below, reconcile.void_from(table, self.source.incarnation))
            self.source.take(table)
            if self.pacer is not None:
                self.pacer.begun()

    def resume(self) -> None:
        """Goes on with the ring of the newest BEGIN, if that is there and not read to its end; else with what
        the peers have."""
        if self._resume():
            return
        peers = self.store.peers(self.source) if self.source.incarnation else []
        if peers:
            self._adopt(self.store.report(self.source, self).begins)
            if not self._resume():
                self._look_for_more()

    def _look_again(self) -> None:
        """Nothing is read here: do the peers have more (engine/rules/resting.py)?"""
        if self.source.incarnation and self.world.now >= self._look_at:
            self._look_at = self.world.now + PATIENCE_NS
            if self.log.next < self.store.report(self.source, self).end:
                self.resume()

    def _resume(self) -> bool:
        for ring in self.rings():
            if ring in self.left or ring.incarnation > self.source.incarnation:
                continue
            if ring.incarnation < self.source.incarnation:
                if self._gone(ring):
                    self.left.append(ring)
                continue
            self._adopt(self.table)
            self._attach(ring)
            return True
        return False

    def _attach(self, ring: Ring) -> None:
        log = self.log
        if self.line is None:
            self.line = self.board().claim(self.store.process, STORE, self.store.state.uuid, log.level)
            if self.line is None:
                return
        line = self.line
        incarnation, start = self.table[-1]
        line.rebase(incarnation, min(start, reconcile.void_from(self.table, line.ack_stream)))
        if line.ack > log.next:  # acknowledged in an earlier life, and lost: it counts for nothing below
            line.cover(line.ack)
        else:
            if line.from_ <= log.next:
                self.lost_below = max(line.from_, self.lost_below)
            line.cover(self.lost_below)
        self._acknowledge()
        self.ring = ring
        self._look_for_more()

    def _look_for_more(self) -> None:
        """Is there a hole before what the ring has?"""
        self.filling = reconcile.CatchUpRule(empty=self.log.empty, patience_ns=PATIENCE_NS)
        if not self.filling.wants(self.log.appended, self._goal()):
            self._filled()
        elif self.line is not None:
            self.line.catching_up = True

    def _goal(self) -> int | None:
        """Where the ring goes on; None: there is no ring."""
        return self.ring.oldest_number() if self.ring is not None else None

    def _gone(self, ring: Ring) -> bool:
        """Its owner has closed it or is proved dead."""
        return ring.closed or self.world.dead(ring.owner)

    def owner_lives(self) -> bool:
        """A ring is read here, and it is open and its owner not proved dead."""
        return self.ring is not None and not self._gone(self.ring)

    def drained(self) -> bool:
        """What is attached is published here up to its committed end."""
        if self.ring is None:
            return True
        return self.filling is None and not self.log.poisoned and self.log.next >= self.ring.end_number()

    def settled(self) -> bool:
        """The next incarnation may be answered: no living owner, no ring that is not drained (docs/design.md
        14)."""
        if self.ring is None:
            self._resume()
        while self.ring is not None:
            if not self._gone(self.ring) or not self.drained():
                return False
            self._leave()
            self.resume()
        return True

    def _leave(self) -> None:
        assert self.ring is not None
        self.left.append(self.ring)
        self.ring = self.filling = None
        self._tidy()

    def _tidy(self) -> None:
        """A dead ring's name goes when enough stores hold its end (docs/design.md 14)."""
        if not self.left:
            return
        lines = self.board().stores()
        for ring in list(self.left):
            sri = ring.sri
            held = {i: lines[uuid].ack for i, uuid in enumerate(sri.uuids) if uuid in lines} if sri is not None else {}
            if sri is None or self.store.machine.groups.stable_number(held) >= ring.end_number():
                self.left.remove(ring)
                if self.world.rings.pop((ring.uuid, ring.incarnation), None) is not None:
                    self.store.machine.truth.unlinks(ring)

    # Draining -----------------------------------------------------------------------------------------------

    def round(self) -> Generator[None, None, None]:
        """One block from the ring, or from a peer."""
        log = self.log
        if self.line is not None:
            self.line.heartbeat = self.world.now
        self._tidy()
        if log.poisoned:
            return
        if self.ring is None and self.filling is None:
            self._look_again()
        if self.filling is not None:
            self._fill(self.filling)
            if log.dirty and self.store.directory.sync(log):
                self._published(0)
                self._acknowledge()
            return
        ring = self.ring
        if ring is None or self.line is None:
            return
        if self._gone(ring) and self.drained():
            self._leave()
            self.resume()
            return
        if log.appended < ring.oldest_number():  # the ring has lapped this store
            self._look_for_more()
            return
        yield from self._copy(ring)
        if log.dirty and self.ring is ring and not (yield from self._commit(ring)):
            return
        if self.ring is ring:
            self._acknowledge()

    def _acknowledge(self) -> None:
        if self.line is not None:
            held = self.log.next
            self.line.acknowledge(self.pacer.allowed(held) if self.pacer is not None else held)

    def _commit(self, ring: Ring) -> Generator[None, None, bool]:
        """Synced and published, before the line says so (docs/design.md 20)."""
        before = self.log.next
        if self.world.cut():
            yield
        if self.ring is not ring or not self.store.directory.sync(self.log):
            return False
        self._published(before)
        if self.world.cut():
            yield
        return True

    def _published(self, since: int) -> None:
        log = self.log
        records = log.records[: log.synced if log.level == DISK else log.published]
        self.store.machine.truth.holds(self.store.index, [record for record in records if record.first >= since])

    def _copy(self, ring: Ring) -> Generator[None, None, None]:
        """Staged, checked, appended (docs/design.md 7, 18)."""
        log = self.log
        at = log.appended - ring.start
        found: list[tuple[int, Message]] = []
        while len(found) < BLOCK and (message := ring.look(at)) is not None:
            found.append((at, message))
            at += message.last - message.first + 1
        if self.world.cut():
            yield
        staged = [(at, ring.copy(at, message)) for at, message in found]
        if self.world.cut():
            yield
        if self.ring is not ring or self.filling is not None:
            return
        for at, message in staged:
            if self.overrun(ring, at) or self.store.directory.full:
                return
            self._append(log.appended, log.appended + message.last - message.first, message.content)
            if self.pacer is not None:
                self.pacer.drained(log.records[-1])

    def _append(self, first: int, last: int, content: int) -> None:
        self.log.append(first, last, content)
        self.store.machine.truth.lets_go(self.store.index, self.log.shorten())

    def release(self, count: int) -> None:
        """This many of the oldest messages go: nobody is waited for any more."""
        truth, index = self.store.machine.truth, self.store.index
        gone = self.log.let_go(count)
        truth.frees(index, self.source, gone)
        truth.lets_go(index, gone)

    def overrun(self, ring: Ring, position: int) -> bool:
        """What was read at a position is void: the ring may have gone over it (docs/design.md 7)."""
        return ring.passed(position)

    # What the ring does not have any more -------------------------------------------------------------------

    def _fill(self, filling: reconcile.CatchUpRule) -> None:
        """A slice, before anything newer is appended (docs/design.md 8)."""
        log = self.log
        peers = self.store.peers(self.source)
        table = reconcile.newest_table([self.table, *(peer.begins for peer in peers)])
        for _ in range(BLOCK):
            held, goal = log.appended, self._goal()
            if self.store.directory.full:
                return
            newer = table[-1:] > self.table[-1:]
            if newer and filling.wants(held, goal) and self.owner_lives():
                return
            if newer or not filling.wants(held, goal):
                self._filled()
                return
            message = next((m for peer in peers if (m := self._valid(peer, held, table)) is not None), None)
            if message is not None:
                self._append(message.first, message.last, message.content)
                if self.pacer is not None:
                    self.pacer.filled(message)
                filling.filled()
                continue
            behind = [found for peer in peers if (found := peer.behind(held)) is not None]
            others = [name for name in self.source.stores if name != self.store.name]
            begun, uuid = self.table[-1], self.source.uuid
            nothing = sum(self.store.machine.lacks(name, uuid, held, begun) for name in others)
            verdict = filling.missing(held, goal, behind, len(others) - len(behind) - nothing, self.world.now)
            if verdict == reconcile.DONE:
                self._filled()
            elif isinstance(verdict, reconcile.StartAt):
                self._lacks_below(verdict.number)
                log.start_at(verdict.number)
            elif isinstance(verdict, reconcile.Lost | reconcile.Hole):
                self._lack(verdict)
            return

    def _filled(self) -> None:
        self.filling = None
        peers = self.store.peers(self.source)
        newer = reconcile.newest_table([self.table, *(peer.begins for peer in peers)])[-1:] > self.table[-1:]
        if newer and not self.owner_lives():
            if self.ring is not None:  # what it had is settled without this store: the peers have all of it
                self._leave()
            self.resume()
            return
        self.caught_up = True
        if self.line is not None:
            self.line.cover(self.lost_below)
            self.line.catching_up = False

    @staticmethod
    def _valid(peer: Log, number: int, table: reconcile.Table) -> Message | None:
        message = peer.at(number)
        if message is None or message.content == LOST or message.first != number:
            return None
        return message if message.last < reconcile.void_from(table, message.incarnation) else None

    def _lacks_below(self, number: int) -> None:
        """Its line counts for nothing below."""
        self.lost_below = number
        if self.line is not None:
            self.line.cover(number)

    def _lack(self, gap: reconcile.Lost | reconcile.Hole) -> None:
        """Nobody has these, or nobody who can be read: said on the line before the ack can pass them, then in
        the log."""
        self.world.note("store", self.store.name, "lacks", gap.first, gap.last)
        if isinstance(gap, reconcile.Lost):
            self.store.machine.truth.gives_up(self.store.name, self.source, gap.first)
        self._lacks_below(gap.last + 1)
        self._append(gap.first, gap.last, LOST)
