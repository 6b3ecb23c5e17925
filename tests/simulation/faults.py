"""What goes wrong: processes that are killed, stopped and started again, power cuts, disks that fail, vanish
or come back old.

One store, the anchor, never loses its files to a fault: somebody remembers the source's identity. All else is
chance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.config import FAULTS, RARER
from simulation.disk import SEGMENT, Directory
from simulation.leaving import operate
from simulation.receiver import Receiver
from simulation.source import Source
from simulation.store import Store

if TYPE_CHECKING:
    from collections.abc import Generator

    from simulation.machine import Machine
    from simulation.world import Process

SOURCES_MAX = 2
LATE_MAX = 25
"""Rounds of healing after which the last one is back."""


class Faults:
    """See the module."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.world = machine, machine.world
        self.anchor = self.world.below(machine.config.stores)
        self.backups: dict[int, Directory] = {}
        self.late: dict[tuple[str, int], int] = {}
        self.kinds = [fault for fault in (*FAULTS, *RARER) if fault in machine.config.faults]
        self.kinds += ["disaster"] * self.kinds.count("disaster")
        self._plot: Generator[int, None, None] | None = None
        """A fault that takes a while: it yields the steps to wait."""
        self._due = 0

    def boot(self) -> None:
        """Everything starts, in any order."""
        for index in range(self.machine.config.stores):
            if self.world.chance(0.8):
                self.machine.stores[index] = Store(self.machine, index)
        self.start_source()
        for session in range(1, self.machine.config.receivers + 1):
            if self.world.chance(0.7):
                self.machine.receivers[session] = Receiver(self.machine, session)

    def strike(self) -> None:
        """Something happens: mostly that somebody comes back."""
        if self._plot is not None:
            return
        missing = self.missing()
        if missing and self.world.chance(0.6):
            kind, index = self.world.pick(missing)
            self.start(kind, index)
        elif self.kinds:
            getattr(self, self.world.pick(self.kinds))()

    def turn(self) -> None:
        """A plot goes on."""
        if self._plot is not None and self.world.steps >= self._due:
            self._due = self.world.steps + next(self._plot, 0)
            if self._due == self.world.steps:
                self._plot = None

    def missing(self) -> list[tuple[str, int]]:
        """Who could come back."""
        machine = self.machine
        found = [("store", index) for index in range(machine.config.stores) if index not in machine.stores]
        sessions = range(1, machine.config.receivers + 1)
        found += [("receiver", session) for session in sessions if session not in machine.receivers]
        found += [("source", 0)] if not machine.sources else []
        found += [("stopped", i) for i, process in enumerate(self.world.processes) if process.stopped]
        return found + [("full", index) for index, directory in enumerate(machine.directories) if directory.full]

    def start(self, kind: str, index: int) -> None:
        """Brings one back."""
        machine = self.machine
        self.world.note("start", kind, index)
        if kind == "store":
            machine.stores[index] = Store(machine, index)
        elif kind == "receiver":
            machine.receivers[index] = Receiver(machine, index)
        elif kind == "source":
            self.start_source()
        elif kind == "full":
            machine.directories[index].full = False
        else:
            self.world.processes[index].go_on()

    def start_source(self) -> None:
        """A program makes a source."""
        self.machine.sources.append(Source(self.machine))

    # Faults -------------------------------------------------------------------------------------------------

    def kill(self, process: Process) -> None:
        """kill -9 of one process."""
        machine = self.machine
        process.kill()
        machine.truth.died(process)
        machine.stores = {i: store for i, store in machine.stores.items() if store.process is not process}
        machine.receivers = {i: each for i, each in machine.receivers.items() if each.process is not process}
        machine.sources = [source for source in machine.sources if source.process is not process]

    def kill_store(self) -> None:
        if self.machine.stores:
            self.kill(self.machine.stores[self.world.pick(sorted(self.machine.stores))].process)

    def kill_source(self) -> None:
        if self.machine.sources:
            self.kill(self.world.pick(self.machine.sources).process)

    def kill_receiver(self) -> None:
        if self.machine.receivers:
            self.kill(self.machine.receivers[self.world.pick(sorted(self.machine.receivers))].process)

    def kill_all(self) -> None:
        """kill -9 of everything at once."""
        for process in list(self.world.processes):
            self.kill(process)

    def stop(self) -> None:
        """SIGSTOP."""
        going = [process for process in self.world.processes if not process.stopped]
        if going:
            self.world.pick(going).stop()

    def close(self) -> None:
        """A source closes cleanly, and its process ends a while later."""
        idle = [source for source in self.machine.sources if not source.sending]
        if idle:
            self.world.pick(idle).close()

    def cut_link(self) -> None:
        """A process's connections break while it lives, or is stopped: that proves nothing (docs/design.md
        12)."""
        if self.world.processes:
            process = self.world.pick(self.world.processes)
            if self.world.chance(0.5) and not process.stopped:
                process.stop()
            for connection in process.connections:
                connection.open = False

    def deregister(self) -> None:
        """A source deregisters, and sometimes its process ends before all stores have answered."""
        idle = [source for source in self.machine.sources if not source.sending]
        if idle and self._plot is None and self.machine.stores and self.world.chance(0.5):
            self._plot = self._parting(self.world.pick(idle))
        elif idle:
            source = self.world.pick(idle)
            source.deregister()
            if source.leaving is not None and self.world.chance(0.3):
                self.kill(source.process)

    def unregister(self) -> None:
        """A receiver deregisters, and is closed when it has, or is not any more."""
        if self.machine.receivers:
            receiver = self.machine.receivers[self.world.pick(sorted(self.machine.receivers))]
            leaving = [each.leaving for each in receiver.controllers.values() if each.leaving is not None]
            if leaving and all(each.over for each in leaving):
                self.kill(receiver.process)
            for controller in receiver.controllers.values():
                controller.deregister()

    def rival(self) -> None:
        """A second claimant of the RegID."""
        if len(self.machine.sources) < SOURCES_MAX:
            self.start_source()

    def power_cut(self) -> None:
        """Processes, shared memory and what was not synced are gone."""
        machine = self.machine
        self.world.note("power cut")
        machine.truth.power_cut({index: directory.certain() for index, directory in enumerate(machine.directories)})
        for process in list(self.world.processes):
            self.kill(process)
        self.world.reboot()
        machine.known.clear()
        for directory in machine.directories:
            directory.power_cut(self.world)

    def _other(self) -> int | None:
        """A store that may lose its files."""
        others = [index for index in range(self.machine.config.stores) if index != self.anchor]
        return self.world.pick(others) if others else None

    def wipe(self, index: int | None = None) -> None:
        """A store's directory is gone."""
        index = self._other() if index is None else index
        if index is not None:
            self._replace(index, Directory(self.machine.directories[index].generation + 1))

    def restore(self) -> None:
        """A store's directory is saved, or what was saved comes back."""
        index = self._other()
        if index is None:
            return
        saved = self.backups.pop(index, None)
        if saved is None:
            directory = self.machine.directories[index]
            if directory.saved is not None and not directory.failing:
                self.backups[index] = directory.backup()
            return
        saved.generation = self.machine.directories[index].generation + 1
        self._replace(index, saved)

    def _replace(self, index: int, directory: Directory) -> None:
        machine = self.machine
        if index in machine.stores:
            self.kill(machine.stores[index].process)
        self.world.note("replace", index, len(directory.logs))
        machine.directories[index] = directory
        machine.truth.destroyed(index, directory.contents())

    def full(self) -> None:
        """ENOSPC, until somebody makes room."""
        self.world.pick(self.machine.directories).full = True

    def rot(self) -> None:
        """The oldest segment of a log cannot be read any more."""
        index = self._other()
        if index is None:
            return
        directory, truth = self.machine.directories[index], self.machine.truth
        logs = [log for log in directory.logs.values() if log.records]
        if logs:
            self.world.note("rot", index)
            log = self.world.pick(logs)
            truth.lets_go(index, log.let_go(min(SEGMENT, log.published)))
            truth.destroyed(index, directory.contents())

    def fail(self) -> None:
        """EIO: whatever is not on disk yet may never be, whatever the next sync says."""
        index = self._other()
        if index is not None:
            self.machine.directories[index].failing = True

    # Plots --------------------------------------------------------------------------------------------------

    def coup(self) -> None:
        """A source loses its connections and is stopped, and a rival claims its RegID; then it goes on."""
        if self._plot is None and len(self.machine.sources) == 1:
            self._plot = self._coup(self.machine.sources[0].process)

    def _coup(self, process: Process) -> Generator[int, None, None]:
        self.rival()
        yield 20
        for connection in process.connections:
            connection.open = False
        if process.alive:
            process.stop()
        yield 120
        if process.alive:
            process.go_on()

    def _parting(self, source: Source) -> Generator[int, None, None]:
        """It deregisters while a store is down, and is stopped; a successor comes, the store is back, and it
        goes on to ask."""
        index = self.world.pick(sorted(self.machine.stores))
        self.kill(self.machine.stores[index].process)
        yield 4
        if source.process.alive and not source.sending:
            source.deregister()
        self.rival()
        yield 16
        if source.process.alive:
            source.process.stop()
        if ("store", index) in self.missing():
            self.start("store", index)
        yield 150
        if source.process.alive:
            source.process.go_on()

    def absence(self) -> None:
        """A receiver joins while a store is down, which comes to know it late; then the receiver dies, and
        comes back."""
        if self._plot is None and self.machine.stores and self.machine.receivers:
            self._plot = self._absence()

    def _absence(self) -> Generator[int, None, None]:
        machine = self.machine
        index, session = self.world.pick(sorted(machine.stores)), self.world.pick(sorted(machine.receivers))
        self.kill(machine.stores[index].process)
        self.kill(machine.receivers[session].process)
        for who, pause in ((("receiver", session), 60), (("store", index), 70), (("receiver", session), 1)):
            if who in self.missing():
                self.start(*who)
            yield pause
            if who == ("store", index) and session in machine.receivers:
                self.kill(machine.receivers[session].process)

    def disaster(self) -> None:
        """Some stores are down while the others take what is sent; then the source dies, and those lose their
        files, or get them back when others have begun anew without them."""
        if self._plot is None and self.machine.config.stores > 1:
            self._plot = self._disaster()

    def _disaster(self) -> Generator[int, None, None]:
        machine = self.machine
        away = {i for i in range(machine.config.stores) if i == self.anchor or self.world.chance(0.3)}
        yield 30
        for index in sorted(away & set(machine.stores)):
            self.kill(machine.stores[index].process)
        yield 80
        for source in list(machine.sources):
            self.kill(source.process)
        for receiver in list(machine.receivers.values()):
            if self.world.chance(0.5):
                self.kill(receiver.process)
        yield 80
        others = [index for index in range(machine.config.stores) if index not in away]
        if not any(log.begins for log in machine.directories[self.anchor].logs.values()):
            return  # nobody would remember the source
        old = {i: machine.directories[i].backup() for i in others if not machine.directories[i].failing}
        for index in others:
            self.wipe(index)
        for kind, index in self.missing():
            if kind != "receiver":
                self.start(kind, index)
        yield 150
        for index, directory in old.items():
            if self.world.chance(0.5) and not machine.directories[index].failing:
                directory.generation = machine.directories[index].generation + 1
                self._replace(index, directory)

    # Healing ------------------------------------------------------------------------------------------------

    def heal(self) -> None:
        """The operator mends all that is broken, and everybody is there."""
        machine = self.machine
        self.world.calm = True
        self.world.note("heal")
        for process in self.world.processes:
            if process.stopped:
                process.go_on()
        for index, directory in enumerate(machine.directories):
            directory.full = False
            if directory.failing:
                self.wipe(index)
        for receiver in list(machine.receivers.values()):
            if any(controller.leaving is not None for controller in receiver.controllers.values()):
                self.kill(receiver.process)
        self.late = {each: self.world.below(LATE_MAX) if self.world.chance(0.5) else 0 for each in self.missing()}

    def mend(self, rounds: int) -> None:
        """Starts who was missing, some of them later than others."""
        if self.machine.truth.left:
            operate(self.machine)
        for (kind, index), due in self.late.items():
            if due == rounds:
                self.start(kind, index)
