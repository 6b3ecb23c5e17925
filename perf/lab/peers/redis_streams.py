"""Redis Streams: XADD through a pipeline per commit, append-only file synced every second or always."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..peer import Receiver, Sender
from ..server import Served

if TYPE_CHECKING:
    from ..data import Check, Messages
    from ..peer import Place

STREAM, FIELD = "lab", b"d"
SYNC = {"memory": "everysec", "disk": "always"}
WAIT_MS = 30_000


class RedisStreams(Served):
    """A server of its own on a Unix socket; the reader asks with XREAD."""

    name = "Redis Streams"
    needs = (("redis", "redis[hiredis] on PyPI"), ("redis-server", "Debian package redis-server"))

    def start(self, place: Place) -> None:
        super().start(place)
        self.path = str(place.folder / "redis.sock")
        command = ["redis-server", "--port", "0", "--unixsocket", self.path, "--dir", str(place.folder), "--save", ""]
        command += ["--appendonly", "yes", "--appendfsync", SYNC[place.level], "--auto-aof-rewrite-percentage", "0"]
        self.serve(command, "eady to accept connections")

    def _client(self) -> Any:
        import redis

        return redis.Redis(unix_socket_path=self.path)

    def sender(self) -> Sender:
        client = self._client()

        def send_many(messages: Messages) -> None:
            pipeline = client.pipeline(transaction=False)
            for payload in messages.payloads:
                pipeline.execute_command("XADD", STREAM, "*", FIELD, payload)
            pipeline.execute()

        return Sender(lambda payload: client.xadd(STREAM, {FIELD: payload}), send_many, close=client.close)

    def receiver(self, index: int) -> Receiver:
        client, last = self._client(), b"0"

        def take(check: Check) -> int:
            nonlocal last
            found = client.xread({STREAM: last}, count=1000, block=WAIT_MS)[0][1]
            last = found[-1][0]
            return check.payloads([fields[FIELD] for _, fields in found])

        return Receiver(take=take, close=client.close)
