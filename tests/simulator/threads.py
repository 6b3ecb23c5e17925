"""Threads, locks, queues and pools of simulated processes, under the names that the standard library has."""

from __future__ import annotations

import queue as real_queue
from collections import deque
from typing import TYPE_CHECKING, Any

from simulator.native import lib
from simulator.world import FOREVER, Killed, world
from simulator.world import Thread as Runner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

tick = lib.sim_tick


def until(timeout: float | None) -> int:
    """CLOCK_MONOTONIC in ns when a timeout in seconds is over."""
    return FOREVER if timeout is None or timeout < 0 else int(lib.sim_now_ns) + int(min(timeout, 1e9) * 1e9)


class _State:
    __slots__ = ("count", "holder")

    def __init__(self) -> None:
        self.holder: Runner | None = None
        self.count = 0


class Lock:
    """Of one process each: what a module has of it every process has for itself."""

    reentrant = False

    def _state(self) -> _State:
        thread = world.current
        values = thread.process.values if thread is not None else world.values
        state: _State | None = values.get(self)
        if state is None:
            state = values[self] = _State()
        return state

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """As threading."""
        if world.over:
            raise Killed
        tick()
        state, me = self._state(), world.current
        if state.holder is not None:
            if state.holder is me and self.reentrant:
                state.count += 1
                return True
            end = until(timeout)
            while state.holder is not None:
                if not blocking or not world.block(state, end):
                    return False
        state.holder, state.count = me, 1
        return True

    def release(self) -> None:
        """As threading."""
        if world.over:
            return
        state = self._state()
        state.count -= 1
        if not state.count:
            state.holder = None
            if state in world._waiting:
                world.wake(state, 1)

    def locked(self) -> bool:
        """As threading."""
        return self._state().holder is not None

    __enter__ = acquire

    def __exit__(self, *_: object) -> None:
        self.release()


class RLock(Lock):
    """As threading."""

    reentrant = True


class Condition:
    """As threading."""

    def __init__(self, lock: Lock | None = None) -> None:
        self._lock = lock if lock is not None else RLock()
        self.acquire, self.release = self._lock.acquire, self._lock.release

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        """As threading."""
        state = self._lock._state()
        count, state.count = state.count, 1
        self._lock.release()
        woken = world.block(self, until(timeout) if timeout is None or timeout > 0 else int(lib.sim_now_ns))
        self._lock.acquire()
        state.count = count
        return woken

    def notify(self, n: int = 1) -> None:
        """As threading."""
        world.wake(self, n)

    def notify_all(self) -> None:
        """As threading."""
        world.wake(self)


class Event:
    """As threading."""

    def __init__(self) -> None:
        self._set = False

    def is_set(self) -> bool:
        """As threading."""
        tick()
        return self._set

    def set(self) -> None:
        """As threading."""
        self._set = True
        if not world.over:
            world.wake(self)

    def clear(self) -> None:
        """As threading."""
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        """As threading."""
        world.check()
        if not self._set:
            world.block(self, until(max(0.0, timeout) if timeout is not None else None))
        return self._set


class Thread:
    """As threading."""

    def __init__(
        self, group: None = None, target: Callable[..., object] | None = None, name: str = "", args: Iterable[Any] = (),
        *, daemon: bool | None = None,
    ) -> None:  # fmt: skip
        del group
        self.name, self.daemon = name, bool(daemon)
        self._target, self._args = target, tuple(args)
        self._runner: Runner | None = None

    def run(self) -> None:
        """As threading."""
        if self._target is not None:
            self._target(*self._args)

    def start(self) -> None:
        """As threading."""
        world.check()
        assert world.current is not None
        self._runner = world.current.process.start(self.run, self.name)
        self._runner.process.values.setdefault("threads", {})[self._runner.ident] = self

    @property
    def ident(self) -> int | None:
        """As threading."""
        return self._runner.ident if self._runner is not None else None

    native_id = ident

    def is_alive(self) -> bool:
        """As threading."""
        return self._runner is not None and not self._runner.over

    def join(self, timeout: float | None = None) -> None:
        """As threading."""
        world.check()
        tick()
        end = until(max(0.0, timeout) if timeout is not None else None)
        while self._runner is not None and not self._runner.over:
            if not world.block(self._runner, end):
                return


def current_thread() -> Thread | None:
    """As threading."""
    if world.current is None:
        return None
    threads: dict[int, Thread] = world.current.process.values.setdefault("threads", {})
    if world.current.ident not in threads:  # the program's first one
        threads[world.current.ident] = Thread(name=world.current.name)
        threads[world.current.ident]._runner = world.current
    return threads[world.current.ident]


def get_ident() -> int:
    """As threading."""
    return world.current.ident if world.current is not None else 0


class SimpleQueue:
    """As queue."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()

    def put(self, item: object) -> None:
        """As queue."""
        world.check()
        tick()
        self._items.append(item)
        world.wake(self, 1)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """As queue."""
        world.check()
        tick()
        end = until(timeout)
        while not self._items:
            if not block or not world.block(self, end):
                raise real_queue.Empty
        return self._items.popleft()

    def get_nowait(self) -> Any:
        """As queue."""
        return self.get(block=False)

    def empty(self) -> bool:
        """As queue."""
        return not self._items


class Future:
    """As concurrent.futures, for one who waits."""

    def __init__(self) -> None:
        self._done = False
        self._result: Any = None
        self._error: BaseException | None = None

    def __class_getitem__(cls, _: object) -> type[Future]:
        return cls

    def done(self) -> bool:
        """As concurrent.futures."""
        return self._done

    def set_result(self, result: object) -> None:
        """As concurrent.futures."""
        self._result, self._done = result, True
        if not world.over:
            world.wake(self)

    def set_exception(self, error: BaseException) -> None:
        """As concurrent.futures."""
        self._error, self._done = error, True
        if not world.over:
            world.wake(self)

    def result(self, timeout: float | None = None) -> Any:
        """As concurrent.futures."""
        end = until(timeout)
        while not self._done:
            if not world.block(self, end):
                raise TimeoutError
        if self._error is not None:
            raise self._error
        return self._result


def wait(every: Iterable[Future], timeout: float | None = None) -> None:
    """As concurrent.futures, for all of them."""
    world.check()
    tick()
    end = until(timeout)
    for each in list(every):
        while not each.done():
            if not world.block(each, end):
                return


class ThreadPoolExecutor:
    """As concurrent.futures; each call has a thread."""

    def __init__(self, workers: int = 1, thread_name_prefix: str = "") -> None:
        del workers
        self._name = thread_name_prefix

    def submit(self, function: Callable[..., object], *args: object) -> Future:
        """As concurrent.futures."""
        future = Future()

        def run() -> None:
            try:
                future.set_result(function(*args))
            except Killed:
                raise
            except BaseException as error:
                future.set_exception(error)

        Thread(target=run, name=self._name).start()
        return future

    def map(self, function: Callable[..., object], *every: Iterable[object]) -> Iterator[Any]:
        """As concurrent.futures."""
        futures = [self.submit(function, *each) for each in zip(*every, strict=False)]
        return iter([future.result() for future in futures])

    def shutdown(self, wait: bool = True) -> None:
        """As concurrent.futures."""
