"""What goes wrong, and who comes back."""

from __future__ import annotations

import contextlib
import itertools
import os
from typing import TYPE_CHECKING, Any

from simulator import (
    censuses,
    plots,
    plots_more,
    plots_unseen,
    scenes_available,
    scenes_beginners,
    scenes_blind,
    scenes_claims,
    scenes_guests,
    scenes_leaving,
    scenes_lists,
    scenes_receivers,
    scenes_ring,
    system,
)
from simulator.machine import DOMAIN, FIRST_DISK, SHARED
from simulator.native import lib
from simulator.older import HEAD_BYTES, head_v1
from simulator.scenes import SCENES
from simulator.shape import MORE_PLOTS
from simulator.world import world

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from simulator.machine import Machine
    from simulator.world import Process

__all__ = ["Faults"]

SCENERY = (
    scenes_available, scenes_beginners, scenes_blind, scenes_claims, scenes_guests, scenes_leaving, scenes_lists,
    scenes_receivers, scenes_ring,
)  # fmt: skip
SOURCES = (plots, plots_unseen, plots_more, *SCENERY)
PLOTS = {plot.__name__: plot for each in SOURCES for plot in each.ALL}
EIO = 5
CHANCES = (0, 40, 128, 220, 256)
"""Of 256: how much of what was not synced a power cut leaves."""


class Faults(censuses.CensusFaults):
    """See the module."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.shape = machine, machine.shape
        self.anchor = int(world.random() * self.shape.stores)
        """A store that never loses its files: else nobody remembers the source."""
        self.saved: dict[int, int] = {}
        self.suspect: set[int] = set()
        """Stores whose disk has failed once: a poisoned log goes on when its store is started again."""
        self.plots = 0
        self.long = False
        """The plot that goes on takes as many steps as it needs: a source sends much in it."""
        self.staged = False
        """A scene goes on: nothing else happens."""
        self._plot: Generator[int, None, None] | None = None
        self._due = 0

    def pick(self, items: Sequence[Any]) -> Any:
        """One of these."""
        return items[int(world.random() * len(items))]

    def boot(self) -> None:
        """Everything starts, in any order."""
        for index in range(self.shape.stores):
            if world.random() < 0.85:
                self.machine.start_store(index)
        self.machine.start_source()
        for session in range(1, self.shape.receivers + 1):
            if world.random() < 0.7:
                self.machine.start_receiver(session)

    def missing(self) -> list[tuple[str, int]]:
        """Who could come back."""
        machine = self.machine
        found = [("store", index) for index in range(self.shape.stores) if index not in machine.stores]
        found += [("receiver", each) for each in range(1, self.shape.receivers + 1) if each not in machine.receivers]
        found += [("source", 0)] if not machine.sources else []
        found += [("stopped", index) for index, each in enumerate(world.processes) if each.stopped and each.alive]
        found += [("disk", index) for index in range(self.shape.stores) if self.is_bad(index)]
        return found

    def is_bad(self, index: int) -> bool:
        """Something is wrong with a store's disk."""
        on = lib.sim_devices[FIRST_DISK + index]
        hidden = any(
            lib.sim_processes[each.index].hidden >> FIRST_DISK + index & 1 for each in world.processes if each.alive
        )
        return bool(on.error or on.read_error or on.sync_errors or on.write_errors or on.read_only or hidden)

    def bring_back(self, kind: str, index: int) -> None:
        """One of :meth:`missing`."""
        match kind:
            case "store":
                self.machine.start_store(index)
            case "receiver":
                self.machine.start_receiver(index)
            case "source":
                self.machine.start_source()
            case "stopped":
                world.processes[index].go_on()
            case "disk":
                self.mend_disk(index)

    def mend_disk(self, index: int) -> None:
        """It works again."""
        on = lib.sim_devices[FIRST_DISK + index]
        on.error = on.read_error = on.sync_errors = on.write_errors = on.read_only = 0
        for each in world.processes:
            lib.sim_processes[each.index].hidden &= ~(1 << FIRST_DISK + index)

    def strike(self) -> None:
        """Something happens: mostly that somebody comes back."""
        missing = self.missing()
        if self.shape.plots and self._plot is None and (not self.plots or world.random() < 0.15):
            self.plots += 1
            name = self.pick(self.shape.plots)
            world.note("plot", name)
            self.staged = name in SCENES
            self._plot, self.long = PLOTS[name](self), name in MORE_PLOTS or self.staged
            self._due = int(lib.sim_now_ns)
        elif missing and world.random() < 0.65:
            self.bring_back(*self.pick(missing))
        elif self.shape.faults:
            name = self.pick(self.shape.faults)
            world.note("fault", name)
            getattr(self, name)()

    @property
    def plotting(self) -> bool:
        """A plot goes on."""
        return self._plot is not None

    def turn(self) -> None:
        """A plot goes on."""
        if self._plot is not None and int(lib.sim_now_ns) >= self._due:
            wait = next(self._plot, 0)
            self._due = int(lib.sim_now_ns) + wait
            if not wait:
                self._plot, self.long, self.staged = None, False, False

    # Faults -------------------------------------------------------------------------------------------------

    def kill(self, process: Process) -> None:
        """kill -9."""
        self.machine.ended(process)

    def kill_store(self) -> None:
        if self.machine.stores:
            self.kill(self.machine.stores[self.pick(sorted(self.machine.stores))])

    def kill_source(self) -> None:
        if self.machine.sources:
            self.kill(self.pick(self.machine.sources))

    def kill_receiver(self) -> None:
        if self.machine.receivers:
            self.kill(self.machine.receivers[self.pick(sorted(self.machine.receivers))])

    def kill_all(self) -> None:
        for process in [each for each in world.processes if each.alive]:
            self.kill(process)

    def stop(self) -> None:
        """SIGSTOP."""
        going = [each for each in world.processes if each.alive and not each.stopped]
        if going:
            self.pick(going).stop()

    def close_program(self) -> None:
        """A source or a receiver closes, or is deregistered, and its program ends."""
        machine = self.machine
        going = [*machine.sources, *(machine.receivers[each] for each in sorted(machine.receivers))]
        if going:
            machine.closing.add(self.pick(going))

    def close_store(self) -> None:
        """As SIGTERM."""
        stops = [each.values["stop"] for each in self.machine.stores.values() if "stop" in each.values]
        if stops:
            lib.sim_held += 1
            self.pick(stops)()
            lib.sim_held -= 1

    def cut_link(self) -> None:
        """The connections of a process break, while it lives or is stopped: that proves nothing."""
        going = [each for each in world.processes if each.alive]
        if going:
            process = self.pick(going)
            if world.random() < 0.5 and not process.stopped:
                process.stop()
            for sock in list(process.sockets):
                sock.cut()

    def rival(self) -> None:
        """Another claimant of the same session."""
        if len(self.machine.sources) < 2:
            self.machine.start_source()

    def usurp(self) -> None:
        """Another receiver of a session that has one."""
        machine = self.machine
        alone = [session for session in sorted(machine.receivers) if session not in machine.rivals]
        if alone:
            machine.start_rival(self.pick(alone))

    def power_cut(self) -> None:
        """Processes, shared memory and what was not synced are gone."""
        self.kill_all()
        self.machine.judge.before_loss()
        lib.sim_power_cut(self.pick(CHANCES))
        lib.sim_reboot()
        self.machine.judge.power_cut()
        self.machine.judge.told.power_cut()

    def write_back(self) -> None:
        """The kernel writes some pages by itself."""
        for device in (DOMAIN, *(FIRST_DISK + index for index in range(self.shape.stores))):
            lib.sim_write_back(device, self.pick(CHANCES))

    def _other(self) -> int | None:
        others = [index for index in range(self.shape.stores) if index != self.anchor]
        return self.pick(others) if others else None

    def wipe(self) -> None:
        """A store's directory is gone."""
        index = self._other()
        if index is not None:
            self.replace(index, "")

    def restore(self) -> None:
        """A store's directory is saved while it does not run, or what was saved comes back."""
        index = self._other()
        if index is None:
            return
        saved = f"/saved{index}"
        if index in self.saved:
            self.replace(index, saved)
        elif index not in self.machine.stores and lib.sim_mount(saved.encode(), 0, 0o755) == 0:
            lib.sim_copy(f"/disk{index}".encode(), saved.encode())
            self.saved[index] = 1

    def replace(self, index: int, by: str) -> None:
        """What is at ``by`` comes in the place of a store's files; nothing, where that is empty."""
        if index in self.machine.stores:
            self.kill(self.machine.stores[index])
        self.machine.judge.before_loss(index)
        lib.sim_copy(by.encode(), f"/disk{index}".encode())
        self.machine.judge.told.restored(index)
        self.machine.judge.lose(quorum=False)

    def swap(self) -> None:
        """Two stores are started each on the other one's directory: nothing is lost by that."""
        shape = self.shape
        alike = [
            pair
            for pair in itertools.combinations(shape.lists[0], 2)
            if all(len({of[index] for index in pair}) == 1 for of in (shape.groups, shape.levels))
        ]
        if not alike or shape.lists[1:] or self.saved:  # a life that does not declare one has no say in what it had
            return
        both = self.pick(alike)
        if any(map(self.is_bad, both)):
            return
        for index in both:
            if index in self.machine.stores:
                self.kill(self.machine.stores[index])
        self.machine.judge.before_loss()
        lib.sim_mount(b"/between", 0, 0o755)
        one, other = (self.machine.disk(index).encode() for index in both)
        for source, target in ((one, b"/between"), (other, one), (b"/between", other), (b"", b"/between")):
            assert lib.sim_copy(source, target) == 0, target
        self.anchor = sum(both) - self.anchor if self.anchor in both else self.anchor
        for message in self.machine.judge.messages.values():
            message.swapped(*both)
        self.machine.judge.told.swapped(*both)

    def forget_state(self, index: int) -> None:
        """A store that does not run loses its state, and keeps its logs."""
        if index in self.machine.stores:
            self.kill(self.machine.stores[index])
        self.machine.judge.loses_state(index)
        self.machine.judge.told.restored(index)
        for name in ("state.0", "state.1"):
            with contextlib.suppress(OSError):
                system.os.unlink(f"{self.machine.path(index)}/{name}")

    def disk_errors(self) -> None:
        """Some syncs fail, and drop what they were to write; or reads do, for a while."""
        index = self._other()
        if index is not None:
            self.suspect.add(index)
            on = lib.sim_devices[FIRST_DISK + index]
            if world.random() < 0.6:
                on.sync_errors = 1 + int(world.random() * 3)
            else:
                on.read_error = EIO

    def disk_away(self) -> None:
        """Every call on a disk fails, or it is read-only."""
        index = self._other()
        if index is not None:
            self.suspect.add(index)
            on = lib.sim_devices[FIRST_DISK + index]
            if world.random() < 0.5:
                on.error = EIO
            else:
                on.read_only = 1
                self.machine.judge.told.records_nothing(index)

    def full(self) -> None:
        """ENOSPC."""
        index = int(world.random() * self.shape.stores)
        self.suspect.add(index)
        lib.sim_devices[FIRST_DISK + index].write_errors = 1 + int(world.random() * 5)

    def hide(self) -> None:
        """A process does not find a store's directory: it runs in another mount namespace."""
        stores = [each for index, each in self.machine.stores.items()]
        index = int(world.random() * self.shape.stores)
        others = [each for each in stores if each is not self.machine.stores.get(index)]
        if others:
            lib.sim_processes[self.pick(others).index].hidden |= 1 << FIRST_DISK + index

    def step_clock(self) -> None:
        """CLOCK_REALTIME is set, forward or back."""
        lib.sim_real_ns += int((world.random() - 0.5) * 20e9)

    def upgrade(self) -> None:
        """A store was one of the release before, until now: its heads are in that one's layout."""
        index = int(world.random() * self.shape.stores)
        if index in self.machine.stores:
            self.kill(self.machine.stores[index])
        logs = f"{self.machine.path(index)}/logs"
        with contextlib.suppress(OSError):  # there are none, or the disk does not work
            for log in sorted(system.os.listdir(logs)):
                self._age(f"{logs}/{log}/head")
        lib.sim_write_back(FIRST_DISK + index, CHANCES[-1])

    def _age(self, path: str) -> None:
        """Another file: readers have the one that was there open."""
        with system.File(system.os.open(path, os.O_RDONLY)) as file:
            older = head_v1(system.os.pread(file.fileno(), HEAD_BYTES, 0))
        if older is not None:
            with system.File(system.os.open(f"{path}-old", os.O_RDWR | os.O_CREAT, 0o600)) as file:
                file.write(older)
            system.os.replace(f"{path}-old", path)

    # Healing ------------------------------------------------------------------------------------------------

    def heal(self) -> None:
        """The operator mends all that is broken, and leaves one source; who is missing comes back, some later
        than others."""
        self.machine.eager, self.machine.asking = self.machine.usual, True
        for each in [*self.machine.sources[1:], *self.machine.rivals.values(), *self.machine.beginners]:
            self.kill(each)
        for process in world.processes:
            if process.alive and process.stopped:
                process.go_on()
        for index in range(self.shape.stores):
            self.mend_disk(index)
            if index in self.suspect and index in self.machine.stores:
                self.kill(self.machine.stores[index])
        if self.machine.in_doubt:
            self.power_cut()
        self.late = {each: int(world.random() * 5e8) if world.random() < 0.3 else 0 for each in self.missing()}
        self.healed_ns = int(lib.sim_now_ns)

    def tend(self) -> None:
        """Who is due, or has ended since, comes."""
        now = int(lib.sim_now_ns) - self.healed_ns
        for who in self.missing():
            if self.late.get(who, 0) <= now:
                self.bring_back(*who)


assert SHARED
