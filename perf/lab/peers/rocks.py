"""RocksDB through rocksdict: one write batch per commit, messages under growing keys."""

from __future__ import annotations

import itertools
import struct
from typing import TYPE_CHECKING, Any

from ..peer import Peer, Receiver, Sender

if TYPE_CHECKING:
    from ..data import Check, Messages

KEY = struct.Struct(">Q")


class RocksDB(Peer):
    """Its write-ahead log is always on; "disk" syncs it. The reader is a secondary that catches up."""

    name = "RocksDB"
    needs = (("rocksdict", "rocksdict on PyPI"),)

    def _open(self, **how: Any) -> Any:
        import rocksdict

        return rocksdict.Rdict(str(self.place.folder / "rocks"), rocksdict.Options(raw_mode=True), **how)

    def sender(self) -> Sender:
        import rocksdict

        table, numbers, options = self._open(), itertools.count(), rocksdict.WriteOptions()
        options.sync = self.place.level == "disk"
        table.set_write_options(options)

        def send_many(messages: Messages) -> None:
            batch = rocksdict.WriteBatch(raw_mode=True)
            for payload in messages.payloads:
                batch.put(KEY.pack(next(numbers)), payload)
            table.write(batch, options)

        return Sender(lambda payload: table.put(KEY.pack(next(numbers)), payload), send_many, close=table.close)

    def receiver(self, index: int) -> Receiver:
        import rocksdict

        second = str(self.place.folder / f"second-{index}")
        tables: list[Any] = []
        at = 0

        def take(check: Check) -> int:
            nonlocal at
            if not tables:  # a secondary wants a primary that exists
                tables.append(self._open(access_type=rocksdict.AccessType.secondary(second)))
            found = list(itertools.islice(tables[0].values(from_key=KEY.pack(at)), 1000))
            if not found:
                tables[0].try_catch_up_with_primary()
            at += len(found)
            return check.payloads(found)

        return Receiver(take=take, close=lambda: [table.close() for table in tables])
