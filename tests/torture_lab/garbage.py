"""A peer that writes garbage into every page that it may write: whoever is not hit goes on, and whoever is
dies of no signal.

First each page of the object is hit once, then random places of it, for as long as the others work. A source,
its receiver and a store have the object open; a source and a receiver beside them share the store and the
domain. Preambles are another trouble: who has checked one goes on, who comes now may be refused, with a type.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
from support.oracle import Finding
from support.workers import Worker, until

import holdfast as hf
from holdfast.engine.memory.domain import SHM_DIR, Domain
from holdfast.engine.memory.mapping import Bells
from torture_lab.load import OPTIONS, in_steps, objects, store_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import FileIO

    from torture_lab.lab import Lab, Outcome

__all__ = ["KINDS", "plant", "preambles", "spoilt"]

KINDS = ("stream", "board", "bells")
PREAMBLE = 128
SPOIL_BYTES = 64
PAUSE_S = 0.0002


def _opened(name: str) -> FileIO:
    """The object, kept for as long as it is spoiled: once its creator is dead, a store may take the name away
    at any moment."""
    return (SHM_DIR / name).open("r+b", buffering=0)


class _Spoiler:
    """Random bytes into an object, everywhere but in its preamble, from now to the end of ``with``."""

    def __init__(self, file: FileIO, seed: int) -> None:
        self.pages: set[int] = set()
        self.times = 0
        self._file, self._size = file, os.fstat(file.fileno()).st_size
        self._pick, self._stop = np.random.default_rng(seed), threading.Event()
        self._thread = threading.Thread(target=self._spoil)

    def __enter__(self) -> _Spoiler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def all_pages(self) -> set[int]:
        """Of the object."""
        return set(range(-(-self._size // mmap.PAGESIZE)))

    def _spoil(self) -> None:
        for start in range(0, self._size, mmap.PAGESIZE):
            self._write(max(start, PREAMBLE), min(start + mmap.PAGESIZE, self._size))
            self._stop.wait(PAUSE_S)
        while not self._stop.wait(PAUSE_S):
            self._write(PREAMBLE, self._size)

    def _write(self, low: int, high: int) -> None:
        """Somewhere in [low, high)."""
        bytes_ = min(SPOIL_BYTES, high - low)
        at = int(self._pick.integers(low, high - bytes_ + 1))
        self._file.seek(at)
        self._file.write(self._pick.integers(0, 256, bytes_, np.uint8).tobytes())
        self.pages.update({at // mmap.PAGESIZE, (at + bytes_ - 1) // mmap.PAGESIZE})
        self.times += 1


@contextlib.contextmanager
def _scene(lab: Lab, domain: str) -> Iterator[None]:
    """A store, and a source and its receiver that will be spoiled, at work. What the two make of it is their
    affair."""
    where = lab.root / domain
    common: dict[str, Any] = {"domain": domain, "topic": "spoiled", "seed": 1}
    with store_in(lab, domain) as store:
        source = Worker("source", where, session=1, options=OPTIONS, **common)
        receiver = Worker("receiver", where, session=2, rows=str(where / "rows"), **common)
        try:
            source.start().wait_ready()
            receiver.start()
            until("it is received", (where / "rows").exists)
            yield
            store.check_alive()
            for worker in (source, receiver):
                assert worker.process is not None
                status = worker.process.poll()
                if status is not None and status < 0:
                    raise Finding(f"the {worker.role} died of signal {-status}")
        finally:
            source.discard()
            receiver.discard()


def spoilt(lab: Lab, outcome: Outcome, domain: str, kind: str) -> None:
    """Garbage in one object of theirs."""
    with _scene(lab, domain):
        (name,) = objects(domain, kind)
        with _opened(name) as file, _Spoiler(file, lab.seed) as spoiler:
            outcome.count("messages", in_steps(domain, "others", lab.figure(200, 1000, 3000)))
            until("each page is hit", lambda: spoiler.pages == spoiler.all_pages)
        outcome.count("times spoiled", spoiler.times)
        outcome.count(f"pages of the {kind} spoiled", len(spoiler.pages))
        in_steps(domain, "after", 1)


def preambles(lab: Lab, outcome: Outcome, domain: str, kind: str) -> None:
    """Garbage in the preamble of one object of theirs: a bit, a word at a time, all of it. The magic comes
    last: without it, a newcomer takes an object for one that its creator left unfinished, and puts another in
    its place."""
    pick = np.random.default_rng(lab.seed)
    with _scene(lab, domain):
        (name,) = objects(domain, kind)
        spots = [*range(8, PREAMBLE, 8), 0]
        with _opened(name) as file:
            for at, size in [(at, size) for at in spots for size in (2, 8)] + [(0, PREAMBLE)]:
                file.seek(0)
                good = file.read(PREAMBLE)
                wrong = pick.integers(0, 256, size, np.uint8).tobytes()
                if size == 2:  # near what is right: such a size might fit, and nothing lie there
                    wrong = bytes([good[at], good[at + 1] ^ 1 << int(pick.integers(8))])
                file.seek(at)
                file.write(wrong)
                outcome.count("newcomers refused", _newcomer(domain))
                if kind != "bells":  # those are everybody's
                    in_steps(domain, f"others-{at}-{size}", 3)
                file.seek(0)
                file.write(good)
                outcome.count("preambles spoiled")
        in_steps(domain, "after", 1)


def _newcomer(domain: str) -> bool:
    """Whether one was told that it cannot join; else it was served, or had nothing to receive. There is no
    other end."""
    place = Domain(domain)
    try:
        Bells(place)  # a context has those that this process has known before
        with hf.Context(domain=domain) as ctx, ctx.receiver("spoiled") as receiver:
            message = receiver.receive(timeout=0.05)
            if message is not None:
                message.release()
    except hf.Error:
        return True
    finally:
        place.close()
    return False


def plant(lab: Lab, outcome: Outcome) -> None:
    """The control: a byte of what one who must not notice has sent becomes another, before it is received."""
    domain, hit = "given", 150

    def spoil(number: int) -> None:
        if number == hit:
            (name,) = objects(domain, "stream")
            with _opened(name) as file:
                file.seek(file.read().rindex(b"%d" % hit))
                file.write(b"x")

    with outcome.catches(f"b'x50' was received, {hit} was sent"), store_in(lab, domain):
        in_steps(domain, "others", hit + 1, spoil)
