"""What is measured of every product, case by case. Each function yields the rows of its tables."""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ..peers import FRAME_BYTES
from ..report import quantity
from .data import Messages
from .link import BATCH, Link
from .peer import Peer
from .peers.aeron import Aeron
from .peers.fifo import FasterFifo
from .peers.holdfast_line import Holdfast
from .peers.holdfast_log import HoldfastEach, HoldfastLog
from .peers.holdfast_spinning import InPlace, Spinning
from .peers.iceoryx import Iceoryx
from .peers.lmdb_table import Lmdb
from .peers.mp_queue import Queue
from .peers.nats_jetstream import NatsJetStream
from .peers.pipe import Pipe
from .peers.plain_file import PlainFile
from .peers.redis_streams import RedisStreams
from .peers.rocks import RocksDB
from .peers.sqlite_wal import SqliteWal
from .peers.zeromq import ZeroMQ
from .programs import RINGS, BareRing, HoldfastC, HoldfastDeep, HoldfastRows, Program
from .turns import Metric, in_turns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from ..harness import Bench
    from .peer import Level
    from .turns import Row

Kind = TypeVar("Kind", bound=Peer)
Open = TypeVar("Open")

LINES: tuple[type[Peer], ...] = (Holdfast, Spinning, InPlace, ZeroMQ, Queue, FasterFifo, Iceoryx, Pipe)
LOGS: tuple[type[Peer], ...] = (
    HoldfastLog, HoldfastEach, RedisStreams, NatsJetStream, Lmdb, SqliteWal, RocksDB, PlainFile,
)  # fmt: skip
PROGRAMS: tuple[type[Program], ...] = (HoldfastC, HoldfastRows, HoldfastDeep, BareRing, Aeron)

KIB, MIB = 1 << 10, 1 << 20
BYTES_MAX, MESSAGES_MAX = 96 * MIB, 1_000_000
ECHO_BYTES = 200 * MIB
"""Of a reading of round trips: 200 of 1 MiB, whose 99th percentile is then the third slowest."""
LEAST = {16: 5000, 128: 5000, KIB: 5000, 64 * KIB: 200, 4 * MIB: 6}
"""Messages of a first reading, which tells how many the others take."""
SYNCED_LEAST = 20
LIVE_TIMES = 4
"""So much longer is a reading in which two wait for each other: how they begin must not be all of it."""
LEVELS: dict[Level, str] = {"memory": "no sync per commit", "disk": "synced"}


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of everything is measured. Sizes in bytes, times in s."""

    runs: int
    reading_s: float
    line_bytes: int
    sizes: tuple[int, ...]
    batch_sizes: tuple[int, ...]
    fan_outs: tuple[int, ...]
    echo_sizes: tuple[int, ...]
    echoes: int
    log_sizes: tuple[int, ...]
    log_bytes: int
    replayed: int
    fill_s: float
    rest_s: float
    more: int
    lines: tuple[type[Peer], ...] = LINES
    logs: tuple[type[Peer], ...] = LOGS
    programs: tuple[type[Program], ...] = PROGRAMS


FULL = Plan(
    5, 0.15, BYTES_MAX, (16, 128, KIB, 64 * KIB, 4 * MIB), (16, 128, KIB), (2, 4), (16, 128, 64 * KIB, MIB), 2000,
    (128, 700, 4 * KIB), 64 * MIB, 500_000, 4, 2, 8,
)  # fmt: skip
QUICK = Plan(2, 0.05, BYTES_MAX, (16, 64 * KIB), (16,), (2,), (16,), 500, (128,), 16 * MIB, 50_000, 0.5, 0.5, 2)


def all_rows(bench: Bench, plan: Plan) -> Iterator[Row]:
    """Every table of the lab."""
    for workload in (one_way, fan_out, round_trips, programs, persistent, replay, at_rest):
        yield from workload(bench, plan)


def one_way(bench: Bench, plan: Plan) -> Iterator[Row]:
    """Messages per second from one process to another, one by one and by calls for many."""
    for size in plan.sizes:
        yield from _messages(bench, plan, plan.lines, "One way, message by message", quantity(size, "B"), size)
    some = [kind for kind in plan.lines if kind.batches]
    for size in plan.batch_sizes:
        yield from _messages(
            bench, plan, some, "One way, 1,000 messages per call", quantity(size, "B"), size, batch=BATCH
        )


def fan_out(bench: Bench, plan: Plan) -> Iterator[Row]:
    """Messages per second that each of several receivers gets."""
    for receivers in plan.fan_outs:
        case = f"128 B to {receivers} receivers"
        yield from _messages(bench, plan, plan.lines, "Fan-out, message by message", case, 128, receivers=receivers)


def _messages(
    bench: Bench,
    plan: Plan,
    kinds: Sequence[type[Peer]],
    table: str,
    case: str,
    size: int,
    *,
    batch: int = 1,
    receivers: int = 1,
) -> Iterator[Row]:
    # a reading of a line fits into holdfast's ring
    count = min(MESSAGES_MAX, plan.line_bytes // (size + FRAME_BYTES))
    messages = Messages.numbered(count, size)
    links = partial(Link, bench=bench, size=size, receivers=receivers, reading_s=plan.reading_s)
    kinds = _made_for(size, kinds)
    yield from _turns(bench, case, _rate(table), kinds, links, lambda link: link.one_way(messages, batch, LEAST[size]))


def round_trips(bench: Bench, plan: Plan) -> Iterator[Row]:
    """A message there and the same one back."""
    metrics = Metric("p50", "Round trip, median", "ns"), Metric("p99", "Round trip, 99th percentile", "ns")
    for size in plan.echo_sizes:
        measure = partial(Link.round_trips, messages=Messages.numbered(min(plan.echoes, ECHO_BYTES // size), size))
        links = partial(Link, bench=bench, size=size, roomy=False, others=1)
        yield from _turns(bench, quantity(size, "B"), metrics, _made_for(size, plan.lines), links, measure)


def persistent(bench: Bench, plan: Plan) -> Iterator[Row]:
    """Messages per second that are acknowledged at a level; message by message at the smallest size; and
    while one reads.

    What writes to memory does so a second time, in memory that was touched right before.
    """
    for level in LEVELS:
        for size in plan.log_sizes:
            yield from _commits(bench, plan, level, size, BATCH)
        yield from _commits(bench, plan, level, plan.log_sizes[0], 1)
        yield from _commits(bench, plan, level, plan.log_sizes[0], BATCH, live=True)
    for size in plan.log_sizes:
        yield from _commits(bench, plan, "memory", size, BATCH, touched=True)
    yield from _commits(bench, plan, "memory", plan.log_sizes[0], BATCH, live=True, touched=True)


def _commits(
    bench: Bench, plan: Plan, level: Level, size: int, batch: int, *, live: bool = False, touched: bool = False
) -> Iterator[Row]:
    messages = Messages.numbered(plan.log_bytes // size, size)
    table = f"Persistent, {LEVELS[level]}{', memory touched before' if touched else ''}"
    each = "1,000 messages per commit" if batch > 1 else "a message per commit"
    case = f"{quantity(size, 'B')}, {each}{', read meanwhile' if live else ''}"
    least = 5 * batch if batch > 1 else SYNCED_LEAST if level == "disk" else LEAST[128]
    reading_s = plan.reading_s * (LIVE_TIMES if live else 1)
    links = partial(Link, bench=bench, size=size, level=level, reading_s=reading_s)
    kinds = [kind for kind in plan.logs if level in kind.levels]

    def measure(link: Link) -> Mapping[str, float]:
        return link.commits(messages, batch, least, live=live, touched=touched)

    for row in _turns(bench, case, _rate(table), kinds, links, measure):
        row.in_flight = [kind.name for kind in kinds if kind.in_flight]
        yield row


def replay(bench: Bench, plan: Plan) -> Iterator[Row]:
    """A new process reads what a log has; the files are in the page cache."""
    messages = Messages.numbered(plan.replayed, 128)
    written: dict[Link, int] = {}

    def read(link: Link) -> Mapping[str, float]:
        if link not in written:
            written[link] = link.fill(messages, plan.fill_s)
        return link.replay(written[link])

    metric = Metric("rate", "Replay by a new process", "msg/s", more_is_better=True)
    kinds = [kind for kind in plan.logs if kind is not HoldfastEach]
    yield from _turns(bench, "128 B", (metric,), kinds, partial(Link, bench=bench, size=128), read)


def at_rest(bench: Bench, plan: Plan) -> Iterator[Row]:
    """What it costs to be there: a receiver that waits, and memory."""
    metrics = (
        Metric("idle", "At rest: CPU while a receiver waits, of one core", "%"),
        Metric("memory", "At rest: memory of a sender and its receiver", "MiB"),
    )
    message = Messages.numbered(1, 128)

    def link(kind: type[Peer]) -> AbstractContextManager[Callable[[], Link]]:
        return nullcontext(partial(Link, kind, bench=bench, size=128, roomy=False, others=plan.more))

    def measure(fresh: Callable[[], Link]) -> Mapping[str, float]:
        with fresh() as opened:  # in each turn new ends: what a process has grown to, it keeps
            return opened.at_rest(message, plan.rest_s)

    yield from _turns(bench, "128 B", metrics, _made_for(128, plan.lines), link, measure)


def programs(bench: Bench, plan: Plan) -> Iterator[Row]:
    """C against C: the products' own programs."""
    rate = (Metric("rate", "In C: one way", "msg/s", more_is_better=True),)
    for size in [size for size in plan.sizes if size in RINGS]:
        yield from _programs(bench, plan, quantity(size, "B"), rate, methodcaller("one_way", size))
    p50 = (Metric("p50", "In C: round trip, median", "ns"),)
    yield from _programs(bench, plan, "16 B", p50, methodcaller("round_trip"))


def _programs(
    bench: Bench, plan: Plan, case: str, metrics: tuple[Metric, ...], measure: Callable[[Program], Mapping[str, float]]
) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="c", dir=bench.memory) as folder:

        def running(kind: type[Program]) -> AbstractContextManager[Program]:
            return kind(bench, Path(folder)).running()

        return _turns(bench, case, metrics, plan.programs, running, measure)


def _made_for(size: int, kinds: Sequence[type[Peer]]) -> list[type[Peer]]:
    return [kind for kind in kinds if size >= kind.least_bytes]


def _rate(table: str) -> tuple[Metric, ...]:
    return Metric("rate", table, "msg/s", more_is_better=True), Metric("cpu", f"CPU per message: {table}", "ns")


def _turns(
    bench: Bench,
    case: str,
    metrics: tuple[Metric, ...],
    kinds: Sequence[type[Kind]],
    link: Callable[[type[Kind]], AbstractContextManager[Open]],
    measure: Callable[[Open], Mapping[str, float]],
) -> list[Row]:
    if not kinds:
        return []
    missing = {kind: why for kind in kinds if (why := kind.available())}
    present = {kind: link(kind) for kind in kinds if kind not in missing}
    return in_turns(bench, case, metrics, present, measure, missing=missing)
