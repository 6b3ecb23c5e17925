"""The processes of a system under power cuts, and how they are started, heard and killed.

Each is forked from this process, which has one thread and never held a Context; a store is what `store_main`
runs. Whatever it says is a line in a pipe that this process reads: a kill loses nothing that was said.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cuts.content import FRAGMENT, digest, fragments, life_of, message

import holdfast as hf
from holdfast.engine.memory.domain import SHM_DIR
from holdfast.engine.native.core import lib

if TYPE_CHECKING:
    from collections.abc import Callable
    from mmap import mmap

__all__ = ["PATIENCE_S", "Actor", "receive", "send", "serve"]

PR_SET_PDEATHSIG = 1
PATIENCE_S = 0.3
"""How long an actor waits before it says that it waits. Nothing is judged by it."""
BURST = 50
TOPIC = "cuts"
SESSION = 5
RING = re.compile(r"hf\.[^.]+\.([0-9a-f]{32})\.s(\d+)")
_libc = ctypes.CDLL(None)


class Actor:
    """One forked process. ``lines``: all that it has said and `hear` has read."""

    def __init__(self, name: str, work: Callable[[], object], failpoints: str = "") -> None:
        self.name = name
        self.lines: list[str] = []
        self.status: int | None = None
        """As os.waitstatus_to_exitcode, when it has ended."""
        self._rest = b""
        parent = os.getpid()
        self._hears, says = os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _child(parent, says, work, failpoints)
        os.close(says)
        os.set_blocking(self._hears, False)

    def hear(self) -> list[str]:
        """What it has said since the last time; of the dead all."""
        told = []
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._hears, 1 << 16):
                *lines, self._rest = (self._rest + data).split(b"\n")
                told += [line.decode(errors="replace") for line in lines]
        self.lines += told
        return told

    def ended(self) -> bool:
        """It is dead."""
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
        return self.status is not None

    def strike(self) -> None:
        """kill -9, without waiting for the end."""
        if not self.ended():
            os.kill(self.pid, signal.SIGKILL)

    def bury(self) -> None:
        """Returns when it is dead."""
        if self.status is None:
            self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def close(self) -> None:
        """It is dead, and heard."""
        os.close(self._hears)


def _child(parent: int, says: int, work: Callable[[], object], failpoints: str) -> None:
    code = 70
    try:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(0)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.dup2(says, 1)
        os.dup2(says, 2)
        lib.hf_failpoint_arm(failpoints.encode())
        work()
        code = 0
    except BaseException:
        say(traceback.format_exc().replace("\n", " | "))
    finally:
        os._exit(code)


def say(*words: object) -> None:
    """One line, whole: shorter than what a pipe takes at once."""
    os.write(1, (" ".join(map(str, words))[:2000] + "\n").encode())


def serve(name: str, directory: str, domain: str) -> None:
    """A store daemon."""
    hf.store_main(hf.StoreConfig(name, directory, domain=domain, type="disk"))


@dataclass(frozen=True)
class Sending:
    """What a source is told."""

    domain: str
    seed: int
    life: int
    options: dict[str, Any]
    limit: mmap
    """Eight bytes that this process writes: a number that the source must not reach."""
    count: int = 0
    """It ends when this many are stable; 0: it goes on until it is killed."""

    def end(self, start: int) -> int:
        """The number that a life from ``start`` on must not reach now."""
        return start + self.count if self.count else int.from_bytes(self.limit[:8], "little")


def send(told: Sending) -> None:
    """A source. Says ``start N``, ``incarnation UUID K``, ``active STORES``; ``sends FIRST LAST`` before each
    message; ``stable FIRST LAST``, ``all N`` (up to there) when the product says so; ``slow ...`` when it has
    waited; ``end N`` when all is sent and stable."""

    def on_event(event: object) -> None:
        if isinstance(event, hf.events.MessageStable):
            say("stable", event.first_sequence_number, event.sequence_number)
        elif isinstance(event, hf.events.source.RegistrationError):
            say("refused", event.store, event.text)

    ctx = hf.Context(domain=told.domain, session_id=SESSION)
    options = {"ring_size": 1 << 18, "fragment_size": FRAGMENT, "ume_store_check_interval": 50, **told.options}
    src = ctx.source(TOPIC, options=options, on_event=on_event)
    start = -1
    while True:
        try:
            src.wait_registered(PATIENCE_S)
            if start < 0:
                start = src.next_sequence_number
                say("start", start)
                say("incarnation", *_newest_ring())
            end = told.end(start)
            _burst(src, told, end)
            say("active", *(name for name, store in src.stats().stores.items() if store.state == "active"))
            with contextlib.suppress(hf.StabilityTimeout):
                src.wait_stable(timeout=PATIENCE_S)
                say("all", src.next_sequence_number - 1)
                if told.count and src.next_sequence_number >= end:
                    say("end", src.next_sequence_number)
                    signal.pause()
            if src.next_sequence_number >= end:
                say("slow: has sent what it may")
                time.sleep(PATIENCE_S)
        except (hf.RegistrationTimeout, hf.RegIdInUseError, hf.NotRegisteredError, hf.WouldBlockError) as why:
            say("slow:", type(why).__name__, str(why).replace("\n", " | "))
            if not isinstance(why, hf.RegistrationTimeout):
                time.sleep(0.02)


def _newest_ring() -> tuple[str, int]:
    """uuid and incarnation of the source, by the name of its ring: it is the newest of the only source."""
    rings = [found for name in os.listdir(SHM_DIR) if (found := RING.fullmatch(name))]
    uuid, incarnation = max(rings, key=lambda ring: int(ring[2])).groups()
    return uuid, int(incarnation)


def _burst(src: hf.Source, told: Sending, end: int) -> None:
    for _ in range(BURST):
        number = src.next_sequence_number
        if number >= end:
            break
        data = message(told.seed, told.life, number)
        say("sends", number, number + fragments(data) - 1)
        src.send(data, timeout=PATIENCE_S)


def receive(domain: str, session: int) -> None:
    """A receiver. Says ``got FIRST LAST LIFE DIGEST`` before it releases a message, ``lost FIRST LAST``,
    ``slow``."""

    def on_event(event: object) -> None:
        if isinstance(event, hf.events.UnrecoverableLoss):
            say("lost", event.sequence_number, event.sequence_number)
        elif isinstance(event, hf.events.UnrecoverableLossBurst):
            say("lost", -1, event.sequence_number)
        elif isinstance(event, hf.events.receiver.RegistrationError):
            say("refused", event.store, event.text)

    ctx = hf.Context(domain=domain, session_id=session)
    rcv = ctx.receiver(TOPIC, options={"ume_registration_interval": 100}, on_event=on_event)
    while True:
        try:
            got = rcv.receive(timeout=PATIENCE_S)
        except hf.RegistrationError as why:
            say("slow:", str(why).replace("\n", " | "))
            time.sleep(0.02)
            continue
        if got is None:
            say("slow")
            continue
        with got:
            say("got", got.first_sequence_number, got.sequence_number, life_of(got.data), digest(got.data))
