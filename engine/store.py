"""A store: keeps every message of the sources that register with it, and remembers who acknowledged what.

This file is its life and its connections. What is asked over them is answered by engine/store_sources.py and
engine/store_receivers.py, over what the store keeps (engine/store_holdings.py); engine/store_expiry.py forgets.

Two threads of its own: the control loop here (registration over a Unix SEQPACKET socket; never on the data path) and the
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
from .core import lib
from .domain import Domain
from .errors import ConfigError, CorruptionError, DirectoryInUseError, Error, ForeignOwnerError
from .options import resolve
from .segments import Bells
from .store_clients import Client, Clients
from .store_expiry import Expiry
from .store_holdings import Holdings
from .store_info import StoreInfo, write_info
from .store_receivers import ReceiverDesk
from .store_sources import SourceDesk
from .store_state import State, StateFile, StoreDirectory

__all__ = ["Store", "StoreConfig"]

_log = logging.getLogger("holdfast.store")

TURN_S = 0.2
"""Longest wait of the control loop."""
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
            stack.callback(path.unlink, missing_ok=True)
            self._file = StateFile(self.directory.path)
            self.state = self._load()
            self.bells = Bells.of(self.domain)
            retain = self.options.repository_size_limit
            if config.type == "disk":
                retain = self.options.repository_disk_file_size_limit
            self.holdings = Holdings(
                config.name, self.domain, self.bells, self.options, self.state, self._file, self.logs,
                lib.HF_LEVEL_DISK if level == "disk" else lib.HF_LEVEL_MEMORY, retain,
            )  # fmt: skip
            self.holdings.open()
            stack.pop_all()
        self.drainer = self.holdings.drainer
        self._path = path
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._clients = Clients(self.domain.fd, self._drop)
        self.receivers = ReceiverDesk(self.holdings, self._clients)
        self.sources = SourceDesk(self.holdings, self._clients, self.receivers.save_acks)
        self._expiry = Expiry(self.holdings, self.sources, self.receivers)
        self._stop = threading.Event()
        self.drainer.on_crash = self._stop.set
        self._saved_at = 0.0

    def _listen(self, path: Path) -> socket.socket:
        """The control socket. A name that a living store holds is refused; a dead one's is replaced."""
        with self.domain.exclusive(), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
            probe.setblocking(False)
            try:
                probe.connect(os.fspath(path))
            except (FileNotFoundError, ConnectionRefusedError):
                path.unlink(missing_ok=True)
            except BlockingIOError:  # it lives, and does not look at those who come
                raise self._name_in_use(0, path) from None
            else:
                raise self._name_in_use(wire.check_peer(probe), path)
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            listener.setblocking(False)
            listener.bind(os.fspath(path))
            os.chmod(path, 0o600)
            listener.listen(128)
        return listener

    def _name_in_use(self, pid: int, path: Path) -> DirectoryInUseError:
        error = DirectoryInUseError(pid, str(path))
        error.hint = (
            f"a store named {self.config.name} runs in domain {self.domain.name}: stop it, or choose another name"
        )
        return error

    def _load(self) -> State:
        state = self._file.load()
        if state is None:
            state = State(self.config.name, secrets.token_bytes(16), 0, secrets.randbelow(2**31) + 1)
        state.opened += 1
        self._file.save(state)
        return state

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
        write_info(self.domain, info)
        lib.hf_bell_ring_all(self.bells.handle)  # whoever waits for this store tries to connect now

    def run(self) -> None:
        """Serves until :meth:`stop`. Any thread."""
        longest = min(TURN_S, self._expiry.interval_s)
        while not self._stop.is_set():
            for key, _ in self._selector.select(RETRY_S if self.sources.waiting else longest):
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    self._serve(key.fd)
            for client, request in self.sources.retry():
                self._handle(client, request)
            if time.monotonic() - self._saved_at >= SAVE_ACKS_S:
                self._save_acks()
            self._expiry.turn()

    def _save_acks(self) -> None:
        self._saved_at = time.monotonic()
        self.receivers.save_acks()

    def stop(self) -> None:
        """Makes :meth:`run` return. Any thread, also a signal handler; any number of times."""
        self._stop.set()

    def close(self) -> None:
        """Syncs and closes everything. After it, another store may use the directory."""
        self._path.unlink(missing_ok=True)
        self._save_acks()
        self.drainer.stop()
        for client in self._clients:
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
        self._clients.add(Client(sock, pid))
        self._selector.register(sock, selectors.EVENT_READ)

    def _drop(self, client: Client) -> None:
        self._selector.unregister(client.sock)
        self._clients.remove(client)
        client.sock.close()

    def _serve(self, fd: int) -> None:
        client = self._clients.get(fd)
        if client is None:  # dropped in this very turn: another one's claim found its process dead
            return
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

    def _answer(self, client: Client, answer: wire.Answer) -> None:
        try:
            client.sock.send(wire.encode(answer))
        except OSError:  # gone, or it does not read its answers: it must connect again
            if not client.closed:
                self._drop(client)
            return
        if client.hello:
            lib.hf_bell_ring(self.bells.handle, client.hello.bell)

    def _handle(self, client: Client, request: wire.Request) -> None:
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
            wire.PROTOCOL, self.config.name, self.state.uuid, str(self.logs), self.holdings.level, os.getpid(),
            lib.hf_process_token(),
        )  # fmt: skip

    def _dispatch(self, client: Client, request: wire.Request) -> wire.Answer | None:
        sources, receivers = self.sources, self.receivers
        match request:
            case wire.RegisterSource():
                return self._named(sources.register(client, request))
            case wire.Begin():
                return sources.begin(client, request)
            case wire.RegisterReceiver():
                return self._named(receivers.register(client, request))
            case wire.ListSources():
                return sources.listed(request)
            case wire.Leave():
                desk = sources if request.role == "source" else receivers
                return desk.leave(client, request)
            case wire.Deregister():
                desk = sources if request.role == "source" else receivers
                return self._named(desk.deregister(client, request))
            case wire.Hello():
                raise AssertionError("handled before")

    def _named(self, answer: wire.Answer | None) -> wire.Answer | None:
        """A refused RegID that the other role holds: with the process that does."""
        if not isinstance(answer, wire.Refused) or answer.code != "reg_id_in_use" or answer.pid:
            return answer
        for source, receiver in self.holdings.registry.holders(answer.registration_id):
            holder = self.sources.holder(source) if receiver is None else self.receivers.holder_of(source, receiver)
            if holder is not None:
                pid, since_ns = holder
                return msgspec.structs.replace(answer, text=f"{answer.text} (pid {pid})", pid=pid, since_ns=since_ns)
        return answer
