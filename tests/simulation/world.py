"""One machine under a simulated scheduler: processes, their locks, connections, a clock, and shared memory
that outlives them.

A thread is a generator; each ``yield`` is a point where another thread may run, or where its process may be
stopped or killed. Everything is chosen by one ``random.Random(seed)``, and nothing else moves anything: a
seed is a schedule. ``note`` keeps a hash of what happened; two runs of a seed have the same one.
"""

from __future__ import annotations

import hashlib
import random
from collections import deque
from typing import TYPE_CHECKING, Any, TypeVar

from simulation.memory import Board

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from simulation.memory import Ring

MS = 1_000_000
T = TypeVar("T")


class InvariantError(AssertionError):
    """An invariant does not hold."""


class Process:
    """A process. Its lock is held from its start to its death (docs/design.md 12): ``alive`` is the lock, and
    the truth."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.alive = True
        self.stopped = False
        self.stopped_ns = 0
        self.threads: list[Generator[None, None, None]] = []
        self.connections: list[Connection] = []
        world.processes.append(self)

    def run(self, *threads: Generator[None, None, None]) -> None:
        """Starts threads."""
        self.threads += threads
        self.world.reschedule()

    def kill(self) -> None:
        """kill -9: its threads are gone wherever they were; the kernel frees its lock and closes its
        sockets."""
        if not self.alive:
            return
        self.alive = self.stopped = False
        self.threads = []
        for connection in self.connections:
            connection.close(self)
        self.connections = []
        self.world.processes.remove(self)
        self.world.note("kill", self.name)
        self.world.reschedule()

    def stop(self) -> None:
        """SIGSTOP."""
        self.stopped, self.stopped_ns = True, self.world.now
        self.world.note("stop", self.name)
        self.world.reschedule()

    def go_on(self) -> None:
        """SIGCONT."""
        self.stopped = False
        self.world.note("continue", self.name)
        self.world.reschedule()


class Connection:
    """A SEQPACKET connection: two queues in order, and what was sent before an end is still read by the other
    side."""

    __slots__ = ("answers", "client", "holds", "open", "requests", "store")

    def __init__(self, client: Process, store: Process) -> None:
        self.client, self.store = client, store
        self.open = True
        self.holds: dict[tuple[str, bytes, bytes], bytes] = {}
        """What the store granted over it, and the uuid that the object came with."""
        self.requests: deque[Any] = deque()
        self.answers: deque[Any] = deque()
        client.connections.append(self)
        store.connections.append(self)

    def close(self, side: Process) -> None:
        """One side closes; it reads nothing any more."""
        self.open = False
        (self.answers if side is self.client else self.requests).clear()


class World:
    """See the module."""

    def __init__(self, seed: int, *, verbose: bool = False) -> None:
        self.seed = seed
        self._random = random.Random(seed)
        self.random: Callable[[], float] = self._random.random
        self.now = 0
        self.steps = 0
        self.calm = False
        """Healing: no thread is interrupted in between any more."""
        self.processes: list[Process] = []
        self.listening: dict[str, Process] = {}
        """Store name -> the process whose socket is bound."""
        self.rings: dict[tuple[bytes, int], Ring] = {}
        self.boards: dict[bytes, Board] = {}
        self._runnable: list[Generator[None, None, None]] = []
        self._stale = True
        self._uuids = 0
        self._hash = hashlib.blake2b(digest_size=16)
        self.story: list[str] | None = [] if verbose else None

    # Chance -------------------------------------------------------------------------------------------------

    def below(self, n: int) -> int:
        """A number from 0 to n - 1."""
        return int(self.random() * n)

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self.random() < probability

    def cut(self) -> bool:
        """Interrupt the running thread here?"""
        return not self.calm and self.random() < 0.25

    def pick(self, items: Sequence[T]) -> T:
        """One of a sequence."""
        return items[int(self.random() * len(items))]

    def uuid(self) -> bytes:
        """A fresh identity."""
        self._uuids += 1
        return self._uuids.to_bytes(16, "big")

    def note(self, *what: object) -> None:
        """Adds to the trace."""
        text = " ".join(map(str, what))
        self._hash.update(text.encode())
        if self.story is not None:
            self.story.append(f"{self.steps:5d} {self.now / MS:9.2f} {text}")

    def trace(self) -> str:
        """Hash of all that happened."""
        self._hash.update(f"{self.steps} {self.now} {self.random()}".encode())
        return self._hash.hexdigest()

    # Scheduling ---------------------------------------------------------------------------------------------

    def reschedule(self) -> None:
        """Who may run has changed."""
        self._stale = True

    def step(self) -> None:
        """One thread runs to its next yield."""
        if self._stale:
            self._stale = False
            self._runnable = [thread for process in self.processes if not process.stopped for thread in process.threads]
        self.steps += 1
        self.now += 1 + int(self.random() * 2 * MS)
        runnable = self._runnable
        if runnable:
            next(runnable[int(self.random() * len(runnable))])

    def round(self) -> None:
        """Every thread runs once, in some order; a little time passes."""
        threads = [thread for process in self.processes for thread in process.threads]
        first = self.below(len(threads))
        for thread in threads[first:] + threads[:first]:
            self.steps += 1
            next(thread)
        self.now += 3 * MS + self.below(4 * MS)

    # The kernel ---------------------------------------------------------------------------------------------

    def dead(self, process: Process) -> bool:
        """Proof of death: its lock is free (docs/design.md 12)."""
        return not process.alive

    def connect(self, client: Process, name: str) -> Connection | None:
        """To the socket of a store; also while that is stopped."""
        process = self.listening.get(name)
        return Connection(client, process) if process is not None and process.alive else None

    def board(self, uuid: bytes) -> Board:
        """Of a source identity, whatever incarnation (docs/design.md 9): made by whoever comes first."""
        found = self.boards.get(uuid)
        if found is None:
            found = self.boards[uuid] = Board(self)
        return found

    def reboot(self) -> None:
        """Every process and all shared memory is gone."""
        for process in list(self.processes):
            process.kill()
        self.rings.clear()
        self.boards.clear()
        self.listening.clear()
