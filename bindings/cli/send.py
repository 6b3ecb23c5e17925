"""``holdfast send``: one message per line.

Nothing is joined or registered before the first line is there: who waits at an empty pipe holds nothing.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import time
from typing import TYPE_CHECKING

from ..engine.errors import ConfigError, NotRegisteredError
from ..engine.memory.domain import Domain
from ..engine.tools.snapshot import running_stores
from .lines import say
from .options import Membership, pairs
from .send_identity import identity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import BinaryIO

    from ..engine.source.source import Source

__all__ = ["send_lines"]

TELL_NS = 100_000_000
"""How often the progress bar moves."""


def send_lines(
    topic: str,
    file: str | None,
    rate: float,
    stores: list[str],
    timeout: float,
    member: Membership,
    options: list[str],
    exclusive: bool,
) -> int:
    """Sends every line without its newline. A store that goes away is waited for, ``timeout`` seconds at
    most."""
    given = pairs(options)
    defaults = member.defaults()
    settled = member.settled("source", given, topic, defaults)
    named = member.session is not None or "ume_session_id" in given
    who = identity(topic, settled, named=named, exclusive=exclusive)
    with _input(file) as lines:
        first = lines.readline()
        if not first:
            say(f"sent 0 messages, 0 bytes to {topic!r}", error=True)
            return 0
        with member.joined(defaults) as context:
            if stores or not settled.stores:
                given["ume_store_name"] = [f"{name}:0:0" for name in _stores(member.domain, stores)]
            source = who.source(context, given, timeout)
            sender = _Sender(source, rate, timeout)
            with _progress(file) as tell:
                sender.run(itertools.chain([first], lines), tell)
            source.wait_stable(timeout=timeout)
            said = f"sent {sender.count:,} messages, {sender.bytes:,} bytes to {topic!r} in {sender.seconds:.3f} s"
            print(f"{said}; stable, and registered at {', '.join(sorted(source.registration_ids))}", file=sys.stderr)
    return 0


@contextlib.contextmanager
def _input(file: str | None) -> Iterator[BinaryIO]:
    if file is None or file == "-":
        if sys.stdin.isatty():
            print("one message per line; ^D ends", file=sys.stderr)
        yield sys.stdin.buffer
        return
    with contextlib.ExitStack() as stack:
        try:
            lines = stack.enter_context(open(file, "rb", buffering=1 << 20))
        except OSError as error:
            raise ConfigError(f"cannot read {file}: {error.strerror}") from error
        yield lines


def _stores(name: str | None, wanted: list[str]) -> list[str]:
    """The stores to use; raises NotRegisteredError when none of them runs."""
    domain = Domain(name, join=False)
    try:
        running = running_stores(domain)
        for store in wanted:
            domain.socket_path(store)  # a ConfigError for what is no name
    finally:
        domain.close()
    if wanted and set(wanted) & set(running):
        return wanted
    if running and not wanted:
        return running
    missing = f"store {', '.join(wanted)} does not run" if wanted else "no store runs"
    start = f"holdfast store run --name {wanted[0] if wanted else 'a'} --dir DIR"
    raise NotRegisteredError(f"{missing} in domain {domain.name}", hint=f"start one: {start}")


class _Sender:
    """Sends lines at a pace, and keeps count."""

    def __init__(self, source: Source, rate: float, timeout: float) -> None:
        self.count = 0
        self.bytes = 0
        self.seconds = 0.0
        self._source = source
        self._pause = 1 / rate if rate else 0.0
        self._timeout = timeout

    def run(self, lines: Iterable[bytes], tell: Callable[[int, int], None]) -> None:
        """Until the end of input. ``tell`` gets messages and bytes of input so far, now and then."""
        send, pause = self._source.send, self._pause
        started = time.monotonic()
        read = told = 0
        for line in lines:
            if pause:
                self._wait(started + self.count * pause)
            data = line.removesuffix(b"\n")
            try:
                send(data)
            except NotRegisteredError as error:
                self._send_again(data, error)
            self.count += 1
            self.bytes += len(data)
            read += len(line)
            if not self.count & 0xFF or pause:
                now = time.monotonic_ns()
                if now - told >= TELL_NS:
                    told = now
                    tell(self.count, read)
        tell(self.count, read)
        self.seconds = time.monotonic() - started

    def _send_again(self, data: bytes, error: NotRegisteredError) -> None:
        """The store went away. Nothing was published, so the same line is next when it is back."""
        while True:
            print(f"waiting for the store: {error.args[0]}", file=sys.stderr)
            self._source.wait_registered(self._timeout)
            try:
                self._source.send(data)
            except NotRegisteredError as again:
                error = again
            else:
                return

    @staticmethod
    def _wait(due: float) -> None:
        left = due - time.monotonic()
        if left > 0:
            time.sleep(left)


@contextlib.contextmanager
def _progress(file: str | None) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr if that is a terminal and input does not come from one; else nothing."""
    if not sys.stderr.isatty() or (file is None and sys.stdin.isatty()):
        yield lambda _count, _read: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

    total = os.path.getsize(file) if file is not None and os.path.isfile(file) else None
    columns = TextColumn("{task.fields[count]:,} messages"), BarColumn(), DownloadColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("send", total=total, count=0)
        yield lambda count, read: progress.update(task, completed=read, count=count)
