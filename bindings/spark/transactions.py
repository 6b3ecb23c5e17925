"""Batch writes with ``txnAppId`` and ``txnVersion``: a version is published once in each topic of each
domain.

Delta's pair counts per table; here the table is a topic of a domain. The record of what was published
(ledger.py) is named by the application, the topic that the option names, and, where the directory may serve
several domains, the domain. A write whose rows name their topics has one record for all of them, and in it
the last version of each.

Writes in different topics may run at the same time, with one pair. So rows wait in a directory of each
write's own, and a commit takes into the record's directory what it publishes, under the record's lock.

0.1.0 had one record per application, and dropped the rows of a second topic. Its versions count where its
source has published.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from . import staging
from .committing import begin, go_on
from .ledger import Ledger
from .source_cache import opened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .options import Options
    from .writing import WritePlan, Written

__all__ = ["TRANSACTION", "commit_version", "publisher_of"]

TRANSACTION = "txn-"
"""Directories of their records begin so."""


def commit_version(plan: WritePlan, messages: Sequence[Written | None]) -> None:
    """Publishes what the tasks have staged, except in topics that have this version, or a later one, already.

    Raises:
        LedgerInUseError, PlacementError, UsageError, CorruptionError, ConfigError, NotRegisteredError,
            RegistrationTimeout, WouldBlockError, StabilityTimeout: as ``committing.commit``.
    """
    written = [message for message in messages if message is not None and message.directory]
    if not written:
        return
    files = sorted((message.file for message in written if message.file), key=lambda file: file.partition)
    options, version = plan.options, plan.options.txn_version
    assert version is not None
    who = publisher_of(options)
    with Ledger(_record(plan), options.commit_timeout) as ledger:
        if ledger.record.topics is None:
            ledger.record.topics = {}
        go_on(ledger, options, who, keep=True)
        topics = {options.topic} if options.topic else {topic for file in files for topic in file.topics}
        _take_over(plan, ledger, who, topics, version)
        without = {topic for topic in topics if ledger.record.topics.get(topic, -1) >= version}
        if files := [file for file in files if file.topics.keys() - without]:
            with staging.entered(Path(written[0].directory), make=False) as staged:
                begin(ledger, options, who, version, files, keep=True, staged=staged, without=without)
        staging.sweep(ledger.rows, max(version, ledger.record.done))


def publisher_of(options: Options) -> str:
    """Who the sources belong to: the application, whatever it writes. It was the name of 0.1.0's record,
    too."""
    return f"{TRANSACTION}{_digest(options.txn_app_id)}"


def _record(plan: WritePlan) -> Path:
    """Where the record lies."""
    options = plan.options
    assert options.domain is not None
    domain = os.path.realpath(options.domain) if options.staging_directory else ""
    return plan.staging.directory(f"{TRANSACTION}{_digest(json.dumps([options.txn_app_id, options.topic, domain]))}")


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _take_over(plan: WritePlan, ledger: Ledger, who: str, topics: set[str], version: int) -> None:
    """What 0.1.0's record says of these topics is in ours afterwards.

    It does not name the topics of its versions. But a topic belongs to them if the application's source has a
    number there.
    """
    assert ledger.record.topics is not None
    if not (plan.staging.directory(who) / "ledger").exists():
        return
    with Ledger(plan.staging.directory(who), plan.options.commit_timeout) as old:
        intent = old.record.intent
        if intent is not None and topics & {share.topic for share in intent.shares}:
            go_on(old, plan.options, who, keep=False)
        done = old.record.done
    unknown = {topic for topic in topics if done >= version and topic not in ledger.record.topics}
    if not unknown:
        return
    with opened(ledger.directory, plan.options, who, sorted(unknown), keep=True) as publisher:
        ledger.record.topics |= {topic: done for topic in unknown if publisher.position(topic)[0] > 0}
    ledger.save()
