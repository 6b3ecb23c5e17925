"""The machine of a seed: its disks, its stores, and the programs that send and receive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator import programs, records
from simulator.judge import Judge
from simulator.native import lib
from simulator.shape import Shape, draw
from simulator.world import Process, world

if TYPE_CHECKING:
    from collections.abc import Callable

    from simulator.world import Thread

__all__ = ["DOMAIN", "SHARED", "STATE", "Machine"]

DOMAIN, SHARED, FIRST_DISK, RUN = 1, 2, 3, 14
"""Devices: of what the host keeps of domains, of shared memory, of the first store, and of the domain's
directory where a reboot empties that."""
STATE = "/var/lib/holdfast"
"""Where the host keeps the register of sources."""


class Machine:
    """See the module. ``shape``: instead of the seed's."""

    def __init__(self, seed: int, *, story: list[str] | None = None, shape: Shape | None = None) -> None:
        world.begin(seed, story=story)
        self.seed = seed
        self.shape = shape or draw(seed)
        self.judge = Judge(self)
        records.heard[:] = [self.judge.recorded_lost]
        self.stores: dict[int, Process] = {}
        self.receivers: dict[int, Process] = {}
        self.rivals: dict[int, Process] = {}
        """Of a session that has a receiver: another one, to be refused while the first one lives."""
        self.sources: list[Process] = []
        self.eager = self.usual = 0.02
        """Seconds between two messages of a source, on average; 0: it sends nothing. And what is usual."""
        self.declares: tuple[int, ...] | None = None
        """The stores that a source which starts now declares; None: it chooses."""
        self.asking = True
        """Receivers that take batches ask for the next one."""
        self.calm = False
        self.in_doubt = False
        """A store cannot start before the machine does: the sync of a name has failed."""
        self.closing: set[Process] = set()
        """Programs that are to close what they have, and end."""
        self.beginners: list[Process] = []
        """Programs with sources of their own (beginners.py)."""
        self._lives = self._guests = 0
        places = [("/var", DOMAIN, 0o755), ("/dev", 0, 0o755), ("/dev/shm", SHARED, 0o1777)]
        places += [(f"/disk{index}", FIRST_DISK + index, 0o755) for index in range(self.shape.stores)]
        places += [("/run", RUN, 0o755)] if self.shape.volatile else []
        for path, device, mode in places:
            assert lib.sim_mount(path.encode(), device, mode) == 0, path
        lib.sim_devices[SHARED].memory = lib.sim_devices[RUN].memory = 1

    def _begin(self, name: str, run: Callable[[Process], object]) -> Process:
        self._lives += 1
        process = Process(f"{name}.{self._lives}")
        process.start(lambda: run(process))
        return process

    def start_store(self, index: int) -> None:
        """A store's process begins."""
        self.judge.told.starts(index)
        self.stores[index] = self._begin(self.shape.names[index], lambda process: programs.store(self, index, process))

    def start_source(self) -> None:
        """A program that sends."""
        self.sources.append(self._begin("source", lambda process: programs.source(self, process)))

    def start_receiver(self, session: int) -> None:
        """A program that receives."""
        run = programs.receiver
        self.receivers[session] = self._begin(f"receiver{session}", lambda process: run(self, session, process))

    def start_rival(self, session: int) -> None:
        """Another program of a session."""
        run = programs.receiver
        self.rivals[session] = self._begin(f"receiver{session}", lambda process: run(self, session, process))

    def start_guest(self, run: Callable[[Process, int], object]) -> Process:
        """A program that nobody remembers (guests.py); it is told its number."""
        self._guests += 1
        number = self._guests
        return self._begin("guest", lambda process: run(process, number))

    def start_beginner(self, run: Callable[[Process], object]) -> Process:
        """A program with a source of its own."""
        process = self._begin("beginner", run)
        self.beginners.append(process)
        return process

    def start_receivers(self) -> None:
        """All that do not run."""
        for session in range(1, self.shape.receivers + 1):
            if session not in self.receivers:
                self.start_receiver(session)

    def ended(self, process: Process) -> None:
        """A program has come to its end by itself, or is killed."""
        process.kill()
        self.judge.ended(process)
        self.stores = {index: each for index, each in self.stores.items() if each is not process}
        self.rivals = {session: each for session, each in self.rivals.items() if each is not process}
        for session, each in list(self.receivers.items()):
            if each is process:
                del self.receivers[session]
                if session in self.rivals:  # who is left is its receiver
                    self.receivers[session] = self.rivals.pop(session)
        self.sources = [each for each in self.sources if each is not process]
        self.beginners = [each for each in self.beginners if each is not process]
        self.closing.discard(process)

    def failed(self, thread: Thread, error: BaseException) -> None:
        """A thread of a program has ended with an error: the process ends, as an interpreter would end it."""
        world.note("fails", thread.process.name, thread.name, repr(error))
        self.judge.ends_with(thread.process, error)
        self.in_doubt |= "start the machine again" in getattr(error, "hint", "")
        self.ended(thread.process)

    def disk(self, index: int) -> str:
        """Of a store."""
        return f"/disk{index}"

    def path(self, index: int) -> str:
        """Where a store keeps what it has."""
        return f"{self.disk(index)}/store"
