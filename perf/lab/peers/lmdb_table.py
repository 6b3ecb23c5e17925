"""LMDB: one transaction per commit, messages under growing keys."""

from __future__ import annotations

import itertools
import struct
from typing import TYPE_CHECKING, Any

from ..peer import Peer, Receiver, Sender

if TYPE_CHECKING:
    from ..data import Check, Messages

KEY = struct.Struct(">Q")
MAP_BYTES = 8 << 30


class Lmdb(Peer):
    """The level "memory" is sync=False. The reader begins a transaction per 1,000 messages."""

    name = "LMDB"
    needs = (("lmdb", "lmdb on PyPI"),)

    def _open(self, **how: Any) -> Any:
        import lmdb

        return lmdb.open(str(self.place.folder / "lmdb"), map_size=MAP_BYTES, **how)

    def sender(self) -> Sender:
        environment = self._open(sync=self.place.level == "disk")
        numbers = itertools.count()

        def commit(payloads: list[bytes]) -> None:
            with environment.begin(write=True) as transaction:
                keys = map(KEY.pack, itertools.islice(numbers, len(payloads)))
                transaction.cursor().putmulti(zip(keys, payloads, strict=True), append=True)

        def send_many(messages: Messages) -> None:
            commit(messages.payloads)

        return Sender(lambda payload: commit([payload]), send_many, close=environment.close)

    def receiver(self, index: int) -> Receiver:
        environment = self._open(lock=True)
        at = 0

        def take(check: Check) -> int:
            nonlocal at
            with environment.begin() as transaction:
                cursor = transaction.cursor()
                if not cursor.set_range(KEY.pack(at)):
                    return 0
                count = check.payloads(list(itertools.islice(cursor.iternext(keys=False), 1000)))
            at += count
            return count

        return Receiver(take=take, close=environment.close)
