"""The world's one machine: who runs next, for how long, and what the time is. A seed decides, and nothing
else.

A simulated thread is a greenlet. It runs until it waits, or until its budget of calls is used up: then the
world's own greenlet, the hub, chooses who goes on. A call of the kernel, a lock, a clock, a queue or a socket
counts, from Python and from inside the core (kernel/process.c, sim_tick).
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import random
from typing import TYPE_CHECKING, Any

import greenlet

from simulator.native import ffi, lib

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

__all__ = ["FOREVER", "Killed", "Process", "Thread", "World", "world"]

FOREVER = 2**62
SPIN = 1
"""sim_switch: a thread that spins gives the others a turn (kernel/calls.c)."""
SHORT, LONG = 25, 400
"""Calls between two switches: half of the steps are short, up to this many, the others long."""
STEP_NS = 15_000
"""At most so long a step takes, beyond its calls."""


class Killed(BaseException):
    """The process of this thread is dead, or the seed is over: nothing that it does counts any more."""


class Thread:
    """One simulated thread: ``run`` is what it does."""

    def __init__(self, process: Process, name: str, run: Callable[[], object]) -> None:
        self.process, self.name = process, name
        self.ident = next(world.idents)
        self.over = False
        self.failure: BaseException | None = None
        self.key: Hashable = None
        """What it waits for."""
        self.woken = False
        self.turn = 0
        """Grows with each wait: an old alarm wakes nobody."""
        self._run = run
        self.greenlet: Any = greenlet.greenlet(self._begin, world.hub)

    def _begin(self) -> None:
        try:
            self._run()
        except Killed:
            pass
        except BaseException as error:
            self.failure = error
            if not world.over:
                world.failures.append((self, error))
        self.over = True
        if not world.over:
            world.wake(self)


class Process:
    """One simulated process. Its number is the kernel's."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.index = int(lib.sim_process_begin())
        self.pid = int(lib.sim_processes[self.index].pid)
        self.alive, self.stopped = True, False
        self.threads: list[Thread] = []
        self.values: dict[object, Any] = {}
        """What its modules have for themselves (runtime.OfProcess)."""
        self.sockets: list[Any] = []
        """Open ones, of simulator.sockets: they are closed at its death."""
        world.processes.append(self)
        world.note("starts", name)

    def start(self, run: Callable[[], object], name: str = "main") -> Thread:
        """A thread of it begins."""
        thread = Thread(self, name, run)
        self.threads.append(thread)
        world.ready.append(thread)
        return thread

    def kill(self) -> None:
        """kill -9. Its threads stand where they were, for good."""
        if not self.alive:
            return
        world.note("kill", self.name)
        if self.stopped:
            self.go_on()
        self.alive = False
        lib.sim_process_end(self.index)
        for sock in list(self.sockets):
            sock.end()
        world.ready = [thread for thread in world.ready if thread.process is not self]

    def stop(self) -> None:
        """SIGSTOP."""
        world.note("stop", self.name)
        self.stopped = True
        world.stopped += 1
        lib.sim_processes[self.index].stopped = 1

    def go_on(self) -> None:
        """SIGCONT."""
        world.note("continue", self.name)
        self.stopped = False
        world.stopped -= 1
        lib.sim_processes[self.index].stopped = 0


class World:
    """See the module. There is one, and each seed begins it anew."""

    def __init__(self) -> None:
        self.hub = greenlet.getcurrent()
        self.idents = itertools.count(1)
        self.over = True
        self.processes: list[Process] = []
        self.begin(0)

    def begin(self, seed: int, *, story: list[str] | None = None) -> None:
        """Nothing is left of what was before."""
        self.end()
        self.seed = seed
        self.rng = random.Random(seed)
        self.random: Callable[[], float] = self.rng.random
        lib.sim_begin(seed)
        self.idents = itertools.count(1)
        self.steps = self.digest = 0
        self.calm = False
        """No thread is interrupted between two calls, unless it has used a long budget."""
        self.processes = []
        self.stopped = 0
        """Processes under SIGSTOP."""
        self.ready: list[Thread] = []
        self.current: Thread | None = None
        self.failures: list[tuple[Thread, BaseException]] = []
        self._waiting: dict[Hashable, list[Thread]] = {}
        self._alarms: list[tuple[int, int, int, Thread]] = []
        self._order = itertools.count()
        self.values: dict[object, Any] = {}
        """As Process.values, of the world itself."""
        self.listeners: dict[tuple[int, int], Any] = {}
        """Sockets that listen, by device and inode of their name."""
        self.story = story
        self.logged = ""
        """The first exception in the product's log that nobody expects (telling.py)."""
        self.over = False

    def end(self) -> None:
        """All threads are unwound: what they still do meets a kernel that refuses everything."""
        if self.over:
            return
        self.over = True
        lib.sim_over = 1
        for process in self.processes:
            for thread in process.threads:
                self.current = thread
                lib.sim_process_enter(process.index)
                if not thread.greenlet and not thread.greenlet.dead:  # it has never run
                    with contextlib.suppress(Killed):
                        thread.greenlet.throw(Killed)
                while not thread.greenlet.dead:
                    thread.greenlet.switch()
            process.threads.clear()
            process.values.clear()
        lib.sim_process_enter(-1)
        self.current = None

    # What happens -------------------------------------------------------------------------------------------

    def note(self, *what: object) -> None:
        """For the story of a seed."""
        if self.story is not None:
            self.story.append(f"{self.steps:6d} {(lib.sim_now_ns - 10**12) / 1e6:10.3f} " + " ".join(map(str, what)))

    # Called by threads --------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raises Killed where nothing counts any more."""
        if self.over:
            raise Killed

    def pause(self) -> None:
        """The others may run. What was switched away from a dead process never comes back."""
        thread = self.current
        if thread is None or lib.sim_held:
            return
        self.ready.append(thread)
        self.hub.switch()

    def block(self, key: Hashable, until_ns: int = FOREVER) -> bool:
        """Waits until somebody wakes ``key``; False: the time is over."""
        if self.over:
            raise Killed
        thread = self.current
        assert thread is not None, "the world itself does not wait"
        assert not lib.sim_held, "a finalizer does not wait"
        thread.key, thread.woken = key, False
        thread.turn += 1
        if key in self._waiting:
            self._waiting[key].append(thread)
        else:
            self._waiting[key] = [thread]
        if until_ns < FOREVER:
            heapq.heappush(self._alarms, (until_ns, next(self._order), thread.turn, thread))
        self.hub.switch()
        if self.over:
            raise Killed
        return thread.woken

    def wake(self, key: Hashable, most: int = FOREVER) -> None:
        """Whoever waits for ``key`` goes on, when its turn comes."""
        waiting = self._waiting.get(key)
        while waiting and most > 0:
            thread = waiting.pop(0)
            if thread.process.alive:
                self._go_on(thread, woken=True)
                most -= 1
        if waiting is not None and not waiting:
            self._waiting.pop(key, None)

    def _go_on(self, thread: Thread, *, woken: bool) -> None:
        thread.key, thread.woken = None, woken
        thread.turn += 1
        self.ready.append(thread)

    # The hub ------------------------------------------------------------------------------------------------

    def _ring(self, now: int) -> None:
        alarms = self._alarms
        while alarms and alarms[0][0] <= now:
            _, _, turn, thread = heapq.heappop(alarms)
            if thread.turn == turn and thread.process.alive:
                waiting = self._waiting[thread.key]
                waiting.remove(thread)
                if not waiting:
                    del self._waiting[thread.key]
                self._go_on(thread, woken=False)

    def step(self) -> bool:
        """One thread runs on. False: there is none, and nobody will be woken by the clock."""
        self.steps += 1
        alarms, ready, random = self._alarms, self.ready, self.random
        if alarms and alarms[0][0] <= lib.sim_now_ns:
            self._ring(lib.sim_now_ns)
        runs = [thread for thread in ready if not thread.process.stopped] if self.stopped else ready
        while not runs:
            while alarms and not alarms[0][3].process.alive:
                heapq.heappop(alarms)
            if not alarms:
                return False
            lib.sim_now_ns = max(lib.sim_now_ns, alarms[0][0])
            self._ring(lib.sim_now_ns)
            runs = [thread for thread in ready if not thread.process.stopped] if self.stopped else ready
        thread = runs.pop(int(random() * len(runs)))
        if runs is not ready:
            ready.remove(thread)
        later, chance = int(random() * STEP_NS), random()
        budget = LONG if self.calm or chance < 0.5 else 1 + int((chance - 0.5) * 2 * SHORT)
        self.current = thread
        self.digest = turn(thread.process.index, thread.ident, later, budget)
        thread.greenlet.switch()
        self.current = None
        enter(-1)
        return True


@ffi.def_extern()  # type: ignore[untyped-decorator]
def sim_switch(why: int) -> int:
    """From the kernel: the running thread has used its budget, or spins."""
    del why
    world.pause()
    return 0


@ffi.def_extern()  # type: ignore[untyped-decorator]
def sim_sleep(word: int, until_ns: int) -> int:
    """From the kernel: the running thread waits on a futex, or sleeps (``word`` is 0)."""
    try:
        return 0 if world.block(word or object(), until_ns) else -1
    except Killed:  # the core goes on to its end, over a kernel that refuses everything
        return -1


@ffi.def_extern()  # type: ignore[untyped-decorator]
def sim_wake(word: int) -> None:
    """From the kernel: who waits on this futex goes on."""
    if word in world._waiting:
        world.wake(word)


turn, enter = lib.sim_turn, lib.sim_process_enter
world = World.__new__(World)
world.over = True
world.processes = []
world.__init__()  # type: ignore[misc]
