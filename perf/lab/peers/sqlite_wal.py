"""SQLite with a write-ahead log: one transaction per commit, a row per message."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from ..peer import Peer, Receiver, Sender

if TYPE_CHECKING:
    from ..data import Check, Messages
    from ..peer import Place

INSERT = "INSERT INTO lab (d) VALUES (?)"
SELECT = "SELECT id, d FROM lab WHERE id > ? ORDER BY id LIMIT 1000"
SYNC = {"memory": "OFF", "disk": "FULL"}


class SqliteWal(Peer):
    """The module of Python's standard library."""

    name = "SQLite WAL"

    def start(self, place: Place) -> None:
        super().start(place)
        connection = self._open()
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE lab (id INTEGER PRIMARY KEY, d BLOB)")
        connection.close()

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.place.folder / "lab.sqlite", isolation_level=None)
        connection.execute(f"PRAGMA synchronous={SYNC[self.place.level]}")
        return connection

    def sender(self) -> Sender:
        connection = self._open()

        def send_many(messages: Messages) -> None:
            connection.execute("BEGIN")
            connection.executemany(INSERT, [(payload,) for payload in messages.payloads])
            connection.execute("COMMIT")

        return Sender(lambda payload: connection.execute(INSERT, (payload,)), send_many, close=connection.close)

    def receiver(self, index: int) -> Receiver:
        connection = self._open()
        last = 0

        def take(check: Check) -> int:
            nonlocal last
            rows = connection.execute(SELECT, (last,)).fetchall()
            last = rows[-1][0] if rows else last
            return check.payloads([payload for _, payload in rows])

        return Receiver(take=take, close=connection.close)
