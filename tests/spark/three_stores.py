"""Three memory stores in this process; and what the stores of the domain, these or others, have of every
topic."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from process.conftest import ThreadStore

from holdfast.engine.log.catalog import TopicSource, topic_sources
from holdfast.engine.log.column_reader import Gap, Records
from holdfast.engine.store.store import StoreConfig

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["NAMES", "House", "published"]

NAMES = ("a", "b", "c")


class House:
    """Three memory stores in this process."""

    def __init__(self, where: Path) -> None:
        self.where = where
        self.stores = {name: self.start(name) for name in NAMES}

    def start(self, name: str) -> ThreadStore:
        config = StoreConfig(name, self.where / name, type="memory")
        return ThreadStore(config)

    def stop(self) -> None:
        for store in self.stores.values():
            store.stop()


def published() -> dict[str, list[bytes]]:
    """Topic -> payloads, in order, as every store has them. The slowest store is waited for."""
    deadline = time.monotonic() + 90
    while not all(log.next == source.any_next for source in topic_sources(None) for log in source.logs):
        assert time.monotonic() < deadline, topic_sources(None)
        time.sleep(0.02)
    found: dict[str, list[bytes]] = {}
    for source in topic_sources(None):
        copies = [_payloads(source, log.store) for log in source.logs]
        assert copies.count(copies[0]) == len(NAMES)
        found.setdefault(source.topic, []).extend(copies[0])
    return found


def _payloads(source: TopicSource, store: str) -> list[bytes]:
    records = Records(source.logs, source.oldest, source.any_next, stores=[store])
    found: list[bytes] = []
    while part := records.read():
        assert not isinstance(part, Gap), part
        data = part.values.tobytes()
        found += [data[part.offsets[i] : part.offsets[i + 1]] for i in range(part.count)]
    records.close()
    return found
