"""How every example program starts and ends: one line for an error, 128 + 2 after ^C, 0 when nobody reads it;
no traceback."""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
import time
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, ParamSpec

import holdfast as hf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TOPIC = "UME Example"
MESSAGES = 20
"""What the minimal programs send and receive. UM's count them from 1, sequence numbers start at 0."""
CHECKSUM_BYTES = 4
"""In front of a verifiable message."""
_unread = threading.Event()
"""Nobody reads what is printed."""

P = ParamSpec("P")


def program(body: Callable[P, int]) -> Callable[P, int]:
    """Decorates ``main``: what ends a program becomes its exit code, those of the command ``holdfast``."""

    @functools.wraps(body)
    def main(*args: P.args, **kwargs: P.kwargs) -> int:
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(line_buffering=True)  # so that a pipe gets a line when it is printed
        _unread.clear()
        try:
            return body(*args, **kwargs)
        except KeyboardInterrupt:
            return 0 if _unread.is_set() else 128 + signal.SIGINT
        except BrokenPipeError:
            _give_up_output()
            return 0
        except SystemExit as asked:  # --help
            return asked.code if isinstance(asked.code, int) else 0
        except hf.Error as error:
            print(f"error: {error}", file=sys.stderr)
            return error.exit_code

    return main


def say(line: str) -> None:
    """Prints a line in one piece, because events come from another thread than messages; print() makes two.

    When nobody reads any more (``| head -1``) the program ends, whichever thread finds out.
    """
    try:
        sys.stdout.write(line + "\n")
    except BrokenPipeError:
        _give_up_output()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def _give_up_output() -> None:
    """Nothing more goes out, also not at exit."""
    if not _unread.is_set():
        _unread.set()
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def until_the_last(receiver: hf.Receiver) -> Iterator[hf.Message]:
    """Messages until 20 have come, or that with number 19: a receiver that was started again gets only the
    rest."""
    for count, message in enumerate(receiver, 1):
        with message:  # consumed when the caller asks for the next one, or ends
            last = message.sequence_number == MESSAGES - 1
            yield message
        if last or count == MESSAGES:
            return


@contextmanager
def every(period: float, report: Callable[[], object]) -> Iterator[None]:
    """Calls ``report`` each ``period`` seconds, on a thread of its own; 0 = never."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(period):
            report()

    thread = threading.Thread(target=run)
    if period:
        thread.start()
    try:
        yield
    finally:
        over.set()
        if period:
            thread.join()


class Meter:
    """Counts messages and bytes from the first on, and says how fast they were."""

    def __init__(self) -> None:
        self.messages = self.bytes = 0
        self._started = 0.0

    def count(self, size: int) -> None:
        """Takes one message in."""
        if not self.messages:
            self._started = time.monotonic()
        self.messages += 1
        self.bytes += size

    def __str__(self) -> str:
        took = max(time.monotonic() - self._started, 1e-9) if self.messages else 1e-9
        rate, bits = self.messages / took / 1e3, self.bytes * 8 / took / 1e3
        return f"{took:.4g} secs.  {rate:.4g} Kmsgs/sec.  {bits:.4g} Kbps"


def verifiable(text: bytes, length: int) -> bytes:
    """A message of ``length`` bytes that :func:`is_intact` can check: CRC-32, then ``text`` and zeros."""
    body = text.ljust(length - CHECKSUM_BYTES, b"\0")
    return zlib.crc32(body).to_bytes(CHECKSUM_BYTES, "little") + body


def is_intact(data: memoryview) -> bool:
    """The checksum of :func:`verifiable` is right."""
    return zlib.crc32(data[CHECKSUM_BYTES:]) == int.from_bytes(data[:CHECKSUM_BYTES], "little")
