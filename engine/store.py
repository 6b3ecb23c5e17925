"""A store: keeps every message of the sources that register with it, and remembers who acknowledged what.

Two threads of its own: this file's control loop (registration over a Unix SEQPACKET socket; never on the data path) and the
drain thread (engine/drainer.py). What must be durable before an answer is: the log's BEGIN and the state (engine/store_state.py).
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import selectors
import socket
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from . import wire
from .core import CData, ffi, lib
from .domain import Domain
from .drainer import Drainer
from .errors import ConfigError, CorruptionError, DirectoryInUseError, Error, ForeignOwnerError
from .options import resolve
from .registration import Refusal
from .repository import Repository
from .segments import Bells
from .store_registry import Registry
from .store_state import SourceState, State, StateFile, StoreDirectory
from .waiting import STRATEGIES

__all__ = ["Store", "StoreConfig"]

_log = logging.getLogger("holdfast.store")

SAVE_ACKS_S = 1.0
"""Acks are saved at most this often; until then they stand on the boards."""
RETRY_S = 0.002
"""How soon a registration that waits for a drain is looked at again."""


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """What a store is. ``options``: UM's store and topic options by name."""

    name: str
    directory: str | os.PathLike[str]
    domain: str | None = None
    type: str = "disk"
    """``disk`` or ``memory``."""
    acknowledge: str | None = None
    """``disk`` or ``memory``: the level that its stability means; None = as the type implies."""
    options: dict[str, object] = field(default_factory=dict)


class StoreInfo(msgspec.Struct, frozen=True):
    """The file ``<domain>/stores/<name>.info``: who a store is, also for those who come after its death."""

    name: str
    uuid: bytes
    directory: str
    logs: str
    type: str
    pid: int
    start: int
    token: int


class _Client:
    """One connection. Owns what was granted over it until it leaves or its process is dead."""

    def __init__(self, sock: socket.socket, pid: int) -> None:
        self.sock = sock
        self.pid = pid
        self.hello: wire.Hello | None = None
        self.owned: set[tuple[str, bytes, bytes]] = set()
        """(role, source uuid, own uuid)"""


class Store:
    """One store instance. ``open``, then ``run`` until ``stop``; ``close`` at the end.

    Raises:
        ConfigError, DirectoryInUseError, CorruptionError, SharedMemoryFullError: at construction, with nothing left behind.
    """

    def __init__(self, config: StoreConfig) -> None:
        if config.type not in {"disk", "memory"}:
            raise ConfigError(f"store type {config.type!r}", hint="disk or memory")
        level = config.acknowledge or config.type
        if level not in {"disk", "memory"} or (config.type == "memory" and level == "disk"):
            raise ConfigError(f"a {config.type} store cannot acknowledge {level!r}", hint="disk or memory")
        self.config = config
        self.options = resolve("store", config.options)
        with contextlib.ExitStack() as stack:
            self.domain = Domain(config.domain)
            stack.callback(self.domain.close)
            path = self.domain.socket_path(config.name)
            self.directory = StoreDirectory(Path(config.directory).absolute())
            stack.callback(self.directory.close)
            self.logs = self.directory.path / "logs"
            if config.type == "memory":
                self.logs = self.domain.memory_logs(config.name)
                self.logs.mkdir(mode=0o700, exist_ok=True)
            self._listener = self._listen(path)
            stack.callback(self._listener.close)
            self._file = StateFile(self.directory.path)
            self.state = self._load()
            self.registry = Registry(self.state)
            self.bells = Bells.of(self.domain)
            self.drainer = Drainer(self.bells, STRATEGIES[self.options.wait_strategy])
            self._log_config = ffi.new("struct hf_log_config *")
            self._log_config.level = lib.HF_LEVEL_DISK if level == "disk" else lib.HF_LEVEL_MEMORY
            disk = config.type == "disk"
            retain = self.options.repository_disk_file_size_limit if disk else self.options.repository_size_limit
            self._log_config.retain_bytes = retain
            for source in self.state.sources:
                self._repository(source)
            stack.pop_all()
        self._path = path
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._clients: dict[int, _Client] = {}
        self._pending: list[tuple[_Client, wire.RegisterSource]] = []
        self._stop = threading.Event()
        self.drainer.on_crash = self._stop.set
        self._saved_at = 0.0

    def _listen(self, path: Path) -> socket.socket:
        """The control socket. A name that a living store holds is refused; a dead one's is replaced."""
        probe = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            probe.connect(os.fspath(path))
        except OSError:
            path.unlink(missing_ok=True)
        else:
            raise DirectoryInUseError(wire.check_peer(probe), str(path))
        finally:
            probe.close()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.setblocking(False)
        listener.bind(os.fspath(path))
        os.chmod(path, 0o600)
        listener.listen(128)
        return listener

    def _load(self) -> State:
        state = self._file.load()
        if state is None:
            state = State(self.config.name, secrets.token_bytes(16), 0, secrets.randbelow(2**31) + 1)
        state.opened += 1
        self._file.save(state)
        return state

    def _repository(self, source: SourceState) -> Repository:
        """Opens the log of a source, once; before the drain thread runs, or on it."""
        repository = Repository(
            self.domain, self.bells, source, self.logs / source.uuid.hex(), self._log_config,
            self.config.name, self.state.uuid,
        )  # fmt: skip
        self.drainer.repositories[source.uuid] = repository
        return repository

    def open(self) -> None:
        """Starts draining what is there and lets clients in."""
        for repository in self.drainer.repositories.values():
            repository.resume()
        self.drainer.start()
        self.drainer.want_spares()
        info = StoreInfo(
            self.config.name, self.state.uuid, str(self.directory.path), str(self.logs), self.config.type, os.getpid(),
            lib.hf_process_start(os.getpid()), lib.hf_process_token(),
        )  # fmt: skip
        path = self.domain.info_path(self.config.name)
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_bytes(msgspec.json.encode(info))
        temporary.rename(path)
        lib.hf_bell_ring_all(self.bells.handle)  # whoever waits for this store tries to connect now

    def run(self) -> None:
        """Serves until :meth:`stop`. Any thread."""
        while not self._stop.is_set():
            timeout = RETRY_S if self._pending else 0.1
            for key, _ in self._selector.select(timeout):
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    self._serve(self._clients[key.fd])
            self._retry()
            if time.monotonic() - self._saved_at >= SAVE_ACKS_S:
                self._save_acks()

    def stop(self) -> None:
        """Makes :meth:`run` return. Any thread, also a signal handler; any number of times."""
        self._stop.set()

    def close(self) -> None:
        """Syncs and closes everything. After it, another store may use the directory."""
        self._path.unlink(missing_ok=True)
        self._save_acks()
        self.drainer.stop()
        for client in list(self._clients.values()):
            self._drop(client)
        self._selector.close()
        self._listener.close()
        self._file.save(self.state)
        self.directory.close()
        self.domain.close()

    # Connections ----------------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError as error:  # out of descriptors: the client tries again
            _log.warning("a client could not be accepted: %s", error)
            return
        try:
            pid = wire.check_peer(sock)
        except ForeignOwnerError as error:
            _log.warning("%s: refused", error)
            sock.close()
            return
        sock.setblocking(False)
        self._clients[sock.fileno()] = _Client(sock, pid)
        self._selector.register(sock, selectors.EVENT_READ)

    def _drop(self, client: _Client) -> None:
        self._selector.unregister(client.sock)
        del self._clients[client.sock.fileno()]
        client.sock.close()
        self._pending = [entry for entry in self._pending if entry[0] is not client]

    def _serve(self, client: _Client) -> None:
        try:
            packet = client.sock.recv(wire.PACKET_MAX)
        except BlockingIOError:
            return
        except OSError:
            packet = b""
        if not packet:
            self._drop(client)
            return
        try:
            request = wire.decode_request(packet)
        except CorruptionError as error:
            _log.warning("pid %d: %s; closed", client.pid, error)
            self._drop(client)
            return
        self._handle(client, request)

    def _answer(self, client: _Client, answer: wire.Answer) -> None:
        try:
            client.sock.send(wire.encode(answer))
        except OSError:  # gone, or it does not read its answers: it must connect again
            if client.sock.fileno() in self._clients:
                self._drop(client)
            return
        if client.hello:
            lib.hf_bell_ring(self.bells.handle, client.hello.bell)

    def _handle(self, client: _Client, request: wire.Request) -> None:
        if isinstance(request, wire.Hello):
            client.hello = request
            self._answer(client, self._welcome())
            return
        if client.hello is None or client.hello.protocol != wire.PROTOCOL:
            _log.warning("pid %d speaks another protocol; closed", client.pid)
            self._drop(client)
            return
        try:
            answer = self._dispatch(client, request)
        except (Error, OSError) as error:
            _log.exception("request %s failed", type(request).__name__)
            answer = wire.Refused(request.id, "busy", f"the store failed to do this: {error}")
        if answer is not None:
            self._answer(client, answer)

    def _welcome(self) -> wire.Welcome:
        return wire.Welcome(
            wire.PROTOCOL, self.config.name, self.state.uuid, str(self.logs), self._log_config.level, os.getpid(),
            lib.hf_process_token(),
        )  # fmt: skip

    def _dispatch(self, client: _Client, request: wire.Request) -> wire.Answer | None:
        match request:
            case wire.RegisterSource():
                return self._register_source(client, request)
            case wire.Begin():
                return self._begin(request)
            case wire.RegisterReceiver():
                return self._register_receiver(client, request)
            case wire.ListSources():
                return wire.Sources(request.id, [self._source_info(s) for s in self.registry.sources(request.topic)])
            case wire.Leave():
                return self._leave(client, request)
            case wire.Hello():
                raise AssertionError("handled before")

    # Sources --------------------------------------------------------------------------------------------------------------

    def _register_source(self, client: _Client, request: wire.RegisterSource) -> wire.Answer | None:
        claimed = self.registry.claim_source(request.topic, request.registration_id, request.session_id, request.uuid)
        if isinstance(claimed, Refusal):
            return _refused(request.id, claimed)
        source, old = claimed
        repository = self.drainer.repositories.get(source.uuid)
        if repository is None:
            repository = self.drainer.call(lambda: self._repository(source))
            self.drainer.want_spares()
        key = ("source", source.uuid, source.uuid)
        other = self._owner(key)
        alive_stream = None if request.incarnation else self._living_stream(repository)
        if other is not None and other is not client:
            assert other.hello is not None
            return self._in_use(request.id, source.registration_id, other.pid, 0)
        if alive_stream is not None:
            return self._in_use(request.id, source.registration_id, *alive_stream)
        if other is client and not request.incarnation:
            return self._in_use(request.id, source.registration_id, client.pid, 0)
        if not request.incarnation and not self.drainer.call(repository.settled):
            self._pending.append((client, request))
            return None
        client.owned.add(key)
        if source.incarnation == 0:  # its RegID must never be granted twice, not even after a power cut
            self._file.save(self.state)
        return wire.SourceGranted(
            request.id, source.registration_id, source.uuid, source.incarnation,
            self.drainer.call(lambda: repository.next_sqn), old and source.incarnation > 0,
        )  # fmt: skip

    @staticmethod
    def _in_use(request_id: int, registration_id: int, pid: int, since_ns: int) -> wire.Refused:
        text = f"RegID {registration_id} is in use by a different source (pid {pid})"
        return wire.Refused(request_id, "reg_id_in_use", text, pid, since_ns, registration_id)

    def _owner(self, key: tuple[str, bytes, bytes]) -> _Client | None:
        """The connection that holds this registration. A fork may keep a dead owner's socket open: the lock decides."""
        client = next((client for client in self._clients.values() if key in client.owned), None)
        if client is not None and client.hello is not None:
            hello = client.hello
            if lib.hf_process_alive(self.domain.fd, hello.token, hello.pid, hello.start) == 0:
                self._drop(client)
                return None
        return client

    def _living_stream(self, repository: Repository) -> tuple[int, int] | None:
        """pid and creation time of a living owner of an open stream of this source, whoever it is."""

        def look() -> tuple[int, int] | None:
            if repository.stream is None or repository.owner_gone():
                return None
            preamble = repository.stream.preamble
            return int(preamble.owner_pid), int(preamble.created_ns)

        return self.drainer.call(look)

    def _retry(self) -> None:
        """Registrations that wait until an old ring is drained."""
        pending, self._pending = self._pending, []
        for client, request in pending:
            self._handle(client, request)

    def _begin(self, request: wire.Begin) -> wire.Answer:
        source = self.registry.source(request.uuid)
        repository = self.drainer.repositories.get(request.uuid)
        if source is None or repository is None:
            return wire.Refused(request.id, "unknown_source", "BEGIN from a source that never registered here")
        if request.incarnation < source.incarnation:
            return wire.Refused(
                request.id, "busy", f"incarnation {request.incarnation} is over: {source.incarnation} has begun"
            )
        held = self.drainer.call(lambda: repository.begin(request.incarnation, request.start_sqn, request.stream))
        if request.incarnation > source.incarnation:
            self._save_acks()
            source.begin(request.incarnation, request.start_sqn)
            source.stores = request.stores
            self._file.save(self.state)
        self.drainer.want_spares()
        return wire.Begun(request.id, held)

    def _source_info(self, source: SourceState) -> wire.SourceInfo:
        return wire.SourceInfo(
            source.uuid, source.topic, source.registration_id, source.session_id, source.incarnation,
            source.stores, str(self.logs / source.uuid.hex()),
        )  # fmt: skip

    # Receivers ------------------------------------------------------------------------------------------------------------

    def _register_receiver(self, client: _Client, request: wire.RegisterReceiver) -> wire.Answer:
        source = self.registry.source(request.source)
        repository = self.drainer.repositories.get(request.source)
        if source is None or repository is None or source.incarnation == 0:
            return wire.Refused(request.id, "unknown_source", "the source has not registered with this store yet")
        claimed = self.registry.claim_receiver(source, request.registration_id, request.session_id, request.uuid)
        if isinstance(claimed, Refusal):
            return _refused(request.id, claimed)
        receiver, old = claimed
        key = ("receiver", source.uuid, receiver.uuid)
        other = self._owner(key)
        line = self.drainer.call(lambda: repository.line_of(receiver.uuid))
        holder = other.pid if other is not None and other is not client else self._living_line(client, line)
        if holder:
            text = f"RegID {receiver.registration_id} is in use by a different receiver (pid {holder})"
            since = int(line.line.since_ns) if line is not None else 0
            return wire.Refused(request.id, "reg_id_in_use", text, holder, since, receiver.registration_id)
        if line is not None:
            receiver.ack = max(receiver.ack, source.clamp(int(line.line.ack), int(line.line.ack_stream)))
        client.owned.add(key)
        high, oldest = self.drainer.call(lambda: (repository.next_sqn, int(repository.info.oldest_sqn)))
        if not old:
            receiver.ack = oldest
            self._file.save(self.state)
        return wire.ReceiverGranted(
            request.id, source.registration_id, source.session_id, receiver.registration_id, receiver.uuid,
            receiver.ack, oldest, high, old, str(repository.path),
        )  # fmt: skip

    def _living_line(self, client: _Client, line: CData | None) -> int:
        """pid of another living process that holds the receiver's line, 0 if none does."""
        if line is None or line.line.state != lib.HF_LINE_ACTIVE:
            return 0
        assert client.hello is not None
        owner = int(line.line.owner)
        if owner >> 16 == client.hello.token >> 16:
            return 0
        alive = lib.hf_process_alive(self.domain.fd, owner, line.line.owner_pid, line.line.owner_start)
        return int(line.line.owner_pid) if alive else 0

    def _leave(self, client: _Client, request: wire.Leave) -> wire.Answer:
        own = request.source if request.role == "source" else request.uuid
        client.owned.discard((request.role, request.source, own))
        if request.role == "receiver":
            self._save_acks()
        return wire.Left(request.id)

    def _save_acks(self) -> None:
        """Takes the acks from the boards into the state: lazily, and never backwards."""
        self._saved_at = time.monotonic()
        changed = False
        for source in self.state.sources:
            repository = self.drainer.repositories.get(source.uuid)
            if repository is None or not source.receivers:
                continue
            acks, end = self.drainer.call(repository.acks)
            for receiver in source.receivers:
                ack = min(acks.get(receiver.uuid, 0), end)
                if ack > receiver.ack:
                    receiver.ack, changed = ack, True
        if changed:
            self._file.save(self.state, sync=False)


def _refused(request_id: int, refusal: Refusal) -> wire.Refused:
    return wire.Refused(request_id, refusal.code, refusal.text, refusal.pid, refusal.since_ns, refusal.registration_id)
