"""A commit: what the tasks of a batch have staged becomes messages, each row once, however often the commit
is begun.

1. Under the ledger's lock, from sources with the writer's own session IDs: nobody else publishes for it
   meanwhile.
2. The intent is on disk, with the number at which each topic's rows begin, before the first row is published.
   From now on the batch is these files; a repeated batch may have its rows in another order, or other rows,
   and what it staged is not looked at.
3. The rows are published in the order of the partitions, and are stable.
4. The record says that the batch is done; then the files go.

Who comes after a crash between 2 and 4 opens the sources again, at the place where the batch began
(written_place.py). Each goes on behind the last message that is valid, because its stores drain the ring of
the dead one first: rows below that number are published, the rest is published now. The former are read back
before they count (readback.py).
"""

from __future__ import annotations

import contextlib
import functools
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from ..engine.errors import CorruptionError, UsageError
from ..engine.native.sync import sync_directory
from . import staging
from .ledger import Intent, Ledger, LedgerInUseError, Piece, Share, rows_below
from .readback import read_back
from .source_cache import opened
from .written_place import check_place, written_place

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from .options import Options
    from .publishing import Publisher
    from .staging import StagedFile
    from .writing import Written

__all__ = ["abort", "begin", "commit", "go_on"]

_log = logging.getLogger("holdfast")

ABORT_SECONDS = 5.0
"""How long an abort waits for the ledger."""


def commit(options: Options, messages: Sequence[Written | None], batch: int, publish_as: str = "") -> None:
    """Publishes a batch that all tasks have staged; nothing happens if it was published before.

    ``publish_as``: of whom the sources are, if not of the writer itself; they are closed afterwards then.

    Raises:
        LedgerInUseError: another process is committing for this writer.
        PlacementError: a batch that is half published was begun elsewhere.
        UsageError, CorruptionError: staged rows are not there, or not what they were.
        ForeignOwnerError: others may write to the directory or to a file in it.
        ConfigError, NotRegisteredError, RegistrationTimeout, WouldBlockError, StabilityTimeout: as a
            source's. The batch can be committed again.
    """
    written = [message for message in messages if message is not None and message.directory]
    if not written:
        return
    directory, who, keep = Path(written[0].directory), publish_as or written[0].who, not publish_as
    files = sorted((message.file for message in written if message.file), key=lambda file: file.partition)
    with Ledger(directory, options.commit_timeout) as ledger:
        go_on(ledger, options, who, keep=keep)
        if batch > ledger.record.done and files:
            begin(ledger, options, who, batch, files, keep=keep)
        staging.sweep(ledger.rows, max(batch, ledger.record.done))


def begin(
    ledger: Ledger, options: Options, who: str, batch: int, files: list[StagedFile], *, keep: bool,
    staged: staging.Rows | None = None, without: Collection[str] = (),
) -> None:  # fmt: skip
    """Publishes a batch of which nothing is published yet.

    ``staged``: where its files are, if not with the record: those of a batch with an intent belong to the
    record alone. ``without``: topics whose rows are not published.
    """
    rows = ledger.rows
    shares: dict[str, int] = {}
    largest: dict[str, int] = {}
    for file in files:
        staging.check(staged or rows, file)
        for topic, count in file.topics.items():
            if topic not in without:
                shares[topic] = shares.get(topic, 0) + count
                largest[topic] = max(largest.get(topic, 0), file.largest[topic])
    with opened(ledger.directory, options, who, sorted(shares), keep=keep) as publisher:
        for topic, size in largest.items():
            publisher.admit(topic, size)
        begins = {topic: Piece(0, *publisher.position(topic)) for topic in shares}
        told = [Share(topic, count, [begins[topic]]) for topic, count in shares.items()]
        intent = Intent(batch, files, told, written_place(options))
        if staged is not None:
            staging.move(staged, rows, files)
        sync_directory(rows.path)
        ledger.record.intent, ledger.record.checkpoint = intent, options.checkpoint_location
        ledger.save()
        _publish(publisher, rows, intent, dict.fromkeys(shares, 0))
    _done(ledger, intent)


def go_on(ledger: Ledger, options: Options, who: str, *, keep: bool) -> None:
    """Finishes the batch that the record says is under way, if there is one."""
    intent = ledger.record.intent
    if intent is None:
        return
    check_place(intent.place, options, intent.batch, ledger.path)
    rows = ledger.rows
    try:
        for file in intent.files:
            staging.check(rows, file)
    except (UsageError, CorruptionError) as error:
        raise CorruptionError(
            f"batch {intent.batch} is being published, and cannot be finished: {error.args[0]}",
            hint=f"bring that file back, or remove {ledger.path}: the batch is then published from its beginning once more",
        ) from error
    topics = sorted(share.topic for share in intent.shares)
    with opened(ledger.directory, options, who, topics, keep=keep) as publisher:
        there = {}
        for share in intent.shares:
            number, fragment = publisher.position(share.topic)
            row = rows_below(share, number, staging.lengths(rows, intent.files, share.topic))
            if number < share.pieces[0].number:
                _log.warning(
                    "topic %r: batch %d began at %d, and its source goes on at %d: the stores have lost what they had",
                    share.topic, intent.batch, share.pieces[0].number, number,
                )  # fmt: skip
                share.pieces.clear()
            elif row:
                values = (values for topic, values in staging.rows_of(rows, intent.files) if topic == share.topic)
                first, kept = share.pieces[0].number, functools.partial(publisher.kept, share.topic)
                read_back(kept, first, number, values, options.commit_timeout)
            if not share.pieces or share.pieces[-1].fragment != fragment:
                share.pieces.append(Piece(row, number, fragment))
            there[share.topic] = row
        ledger.save()  # from here on, numbers are counted as this source counts them
        _log.info("batch %d goes on: %s rows are published", intent.batch, there)
        _publish(publisher, rows, intent, there)
    _done(ledger, intent)


def _publish(publisher: Publisher, rows: staging.Rows, intent: Intent, there: dict[str, int]) -> None:
    """``there``: the topics of the batch, and of each the rows that are published already."""
    skip = dict(there)
    for topic, values in staging.rows_of(rows, intent.files):
        if topic not in skip:
            continue
        if skip[topic] < len(values):
            publisher.send(topic, values.slice(skip[topic]))
        skip[topic] = max(0, skip[topic] - len(values))
    publisher.wait_stable()


def _done(ledger: Ledger, intent: Intent) -> None:
    record = ledger.record
    record.done, record.intent = max(record.done, intent.batch), None
    if record.topics is not None:
        record.topics |= {share.topic: intent.batch for share in intent.shares}
    ledger.save()


def abort(messages: Sequence[Written | None]) -> None:
    """Removes what the tasks have staged. What an intent names stays: a commit that failed can go on only
    with that.

    Where another process holds the ledger, everything stays: the next commit sweeps it away.
    """
    written = [message for message in messages if message is not None and message.directory]
    if not written:
        return
    directory = Path(written[0].directory)
    with contextlib.suppress(LedgerInUseError), Ledger(directory, ABORT_SECONDS) as ledger:
        intent = ledger.record.intent
        kept = {file.name for file in intent.files} if intent is not None else set()
        staged = {message.file.name for message in written if message.file is not None}
        staging.remove(ledger.rows, staged - kept)
