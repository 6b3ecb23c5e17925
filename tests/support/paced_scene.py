"""A group as in group_scene.py whose source is receiver-paced (docs/semantics.md J.1), and what may be seen
of its stores then.

Both receivers block, and every store knows them before the first message is sent. So at any moment:

 - a store has let go only what both have processed;
 - what a store has acknowledged and not both have processed fits into its room, the limit less one flight
   size;

and in the end, when all is acknowledged, no store keeps anything. What they keep meanwhile cannot be
compared: a store that has let go is not wrong. That nothing else was lost is what the receivers show, who get
everything, and nothing that they had acknowledged again.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.group_scene import GroupScene
from support.oracle import Content, Finding
from support.worker import LIMIT

from holdfast.engine.errors import CorruptionError
from holdfast.engine.log.state_file import StateFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from support.workers import Worker

CAPACITY, FLIGHT = 200_000, 150_000
"""Bytes. The room is about as much as the source may send while it waits for a receiver that is dead."""
ROOM = CAPACITY - FLIGHT
SIZE_OPTION = {"disk": "repository-disk-file-size-limit", "memory": "repository-size-limit"}
PACED = {"ume_receiver_paced_persistence": 1}
CHUNK = 4096


class _Sizes:
    """Bytes of payload below a number where a message begins. Which those are, the content alone says,
    whichever life sends."""

    def __init__(self, content: Content) -> None:
        self._content = content
        self._bytes = {0: 0}
        self._next = 0

    def between(self, first: int, stop: int) -> int:
        """Of the whole messages from ``first`` on that end at ``stop`` or before."""
        while self._next <= stop:
            numbers = range(self._next, self._next + CHUNK)
            lengths = self._content.lengths(numbers)
            steps = self._content.fragments(lengths).tolist()
            at, lengths = self._next, lengths.tolist()
            while at in numbers:
                size, step = lengths[at - numbers.start], steps[at - numbers.start]
                self._bytes[at + step] = self._bytes[at] + size
                at += step
            self._next = at
        return self._bytes[stop] - self._bytes[first]


class PacedGroupScene(GroupScene):
    """See the module. `kinds`: disk or memory."""

    def __init__(
        self, where: Path, domain: str, seed: int, *, kinds: Sequence[str] = ("disk",) * 3, forked: bool = False
    ) -> None:
        super().__init__(
            where, domain, seed, kinds=kinds, forked=forked, source_options={**PACED, "ume_flight_size_bytes": FLIGHT}
        )
        for store in self.stores:
            limit: dict[str, Any] = {"repository-allow-receiver-paced-persistence": 1}
            limit[SIZE_OPTION[store.settings.kind]] = CAPACITY
            store.settings = replace(store.settings, options=limit)
        for receiver in self.receivers:
            receiver.settings = replace(receiver.settings, options={**receiver.settings.options, **PACED})
        self.lets_go = True
        self._sizes = _Sizes(self.content)
        self._unknown = list(self.stores)
        """Stores that have not shown yet that they know both receivers."""
        self.source.words[LIMIT] = 0

    def look(self) -> None:
        """As its base. Sees when every store knows both receivers."""
        if self._unknown and self.receivers_known(self._unknown[-1]):
            self._unknown.pop()
        super().look()

    def limit(self) -> int:
        """Nothing before that, not for a moment: a receiver that comes later begins later."""
        return 0 if self._unknown else super().limit()

    def receivers_known(self, store: Worker) -> bool:
        """By its state on disk, which no death takes back."""
        try:
            state = StateFile(Path(store.settings.directory)).load()
        except (OSError, CorruptionError):
            return False
        return state is not None and any(len(source.receivers) == len(self.receivers) for source in state.sources)

    def judge(self, worker: Worker) -> None:
        """As its base, and of every store."""
        super().judge(worker)
        seen = [(store, log.range()[0], self.traces.ack_of(store.settings.name)) for store, log in self.logs()]
        for rows in self.rows:  # after what the stores have: they judged by what was acknowledged before
            rows.look()
        for store, oldest, stable in seen:
            processed = self.processed
            if oldest > processed:
                raise Finding(
                    f"store {store.settings.name} keeps from {oldest} on, but {processed} is not processed by all"
                )
            waits = self._sizes.between(processed, stable) if stable > processed else 0
            if waits > ROOM:
                raise Finding(
                    f"store {store.settings.name} has acknowledged {stable}; {waits} bytes from {processed} on are not processed"
                    f" by all, and its room is {ROOM}"
                )

    def _whole(self, store: Worker, end: int) -> bool:
        log = self._log(store)
        return log is not None and log.range() == (end, end)

    def _kept_rows(self, end: int) -> list[NDArray[Any]]:
        for store, log in self.logs():
            if log.verify_all() != end:
                raise Finding(f"the log of store {store.settings.name} ends at {log.verified}, the source at {end}")
        return []
