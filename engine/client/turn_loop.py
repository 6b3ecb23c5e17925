"""Does a context's work, turn after turn: on a thread of its own, or on the thread of a program that polls.

Between two turns it sleeps on the process's bell: whoever has news rings it, and what comes without ringing
waits for the next turn.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ..native.core import lib
from ..native.runtime import threading, time
from ..native.threads import start_thread
from ..native.waiting import deadline_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..memory.mapping import Bells
    from .callback_errors import CallbackErrors

__all__ = ["TurnLoop"]

_log = logging.getLogger("holdfast")

SLEEP_NS = 200_000_000
"""Longest time between two turns: what comes without ringing (a broken socket) is noticed then."""
QUIET_NS = 500_000_000
"""The same after QUIET_TURNS turns in a row without anything to do: a turn costs 6 us, but 300 when the
caches are cold."""
QUIET_TURNS = 5


class TurnLoop:
    """See the module.

    Args:
        work: does what is due, and returns the number of things done. Called under ``lock``.
        prepare_sleep: sets the flags that make others ring, then looks once more (csrc/board/wait.h). Returns
            the longest sleep in ns, and what takes the flags back. Called under ``lock``.
        callbacks: what callbacks of the program have raised.
        name: of the context.
        threaded: it has a thread, which :meth:`start` starts.
    """

    def __init__(
        self, work: Callable[[], int], prepare_sleep: Callable[[], tuple[int, Callable[[], None]]],
        callbacks: CallbackErrors, bells: Bells, name: str, *, threaded: bool,
    ) -> None:  # fmt: skip
        self._work, self._prepare_sleep = work, prepare_sleep
        self._callbacks, self._bells, self._name = callbacks, bells, name
        self.lock = threading.RLock()
        """Held while the work is done: by the thread, by :meth:`poll`, or by a close."""
        self._turner = 0
        """The thread that is inside a turn."""
        self._idle_turns = 0
        """Turns since there was something to do, or somebody rang."""
        self.closing = False
        """Set under the lock; no turn begins after that."""
        self._thread = threading.Thread(target=self._run, name=f"holdfast-{name}", daemon=True) if threaded else None

    def start(self) -> None:
        """Starts the thread, if there is one. Raises as :func:`start_thread`."""
        if self._thread is not None:
            start_thread(self._thread)

    def join(self) -> None:
        """Waits for the thread's end, from any other one."""
        if self._thread is not None and not self.is_own():
            self._thread.join()

    def is_own(self) -> bool:
        """The calling thread is the loop's."""
        return threading.current_thread() is self._thread

    @property
    def in_turn(self) -> bool:
        """The calling thread does the work now: it is in a callback, and nothing else goes on meanwhile."""
        return self._turner == threading.get_ident()

    @property
    def sequential(self) -> bool:
        """There is no thread: whoever waits does the work."""
        return self._thread is None

    def poll(self, timeout: float | None) -> int:
        """Does the work on the caller's thread: returns after the first turn that found some, or after
        ``timeout`` seconds."""
        deadline = deadline_of(timeout)
        while True:
            work = self._turn()
            self._callbacks.raise_kept()
            left = SLEEP_NS if deadline is None else deadline - time.monotonic_ns()
            if work or left <= 0 or self.closing:
                return work
            self._sleep(left)

    def _run(self) -> None:
        while not self.closing:
            try:
                if self._turn():
                    self._idle_turns = 0
                else:
                    self._sleep(QUIET_NS if self._idle_turns > QUIET_TURNS else SLEEP_NS)
            except Exception:
                if self.closing:
                    return
                _log.exception("the thread of %s failed in a turn; it goes on", self._name)
                time.sleep(0.05)
            except BaseException as asked:  # of a callback, as SystemExit: it ends no thread that others wait for
                self._callbacks.failed(asked)

    def _turn(self) -> int:
        with self.lock:
            if self.closing:
                return 0
            before, self._turner = self._turner, threading.get_ident()  # a callback of a turn may poll
            try:
                return self._work()
            finally:
                self._turner = before

    def _sleep(self, limit_ns: int) -> None:
        bells = self._bells
        seen = lib.hf_bell_read(bells.handle, bells.index)
        with self.lock:
            nap, awake = self._prepare_sleep()
        if not self.closing:
            rung = lib.hf_bell_wait(bells.handle, bells.index, seen, min(limit_ns, nap))
            self._idle_turns = 0 if rung else self._idle_turns + 1
        awake()
