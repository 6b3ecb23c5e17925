"""A store: keeps every message of the sources that register with it, and remembers who acknowledged what.

This file is its life and its connections. What is asked over them is answered by engine/store/sources.py and
engine/store/receivers.py, over what the store keeps (engine/store/holdings.py); engine/store/expiry.py
forgets.

Two threads of its own: the control loop here (registration over a Unix SEQPACKET socket; never on the data
path) and the drain thread (engine/store/drainer.py). What must be durable before an answer is: the log's
BEGIN and the state (engine/log/state_file.py).
"""

from __future__ import annotations

import contextlib
import errno
import logging
import math
from itertools import chain
from typing import TYPE_CHECKING

import msgspec

from ..control import peer, wire
from ..errors import (
    ConfigError,
    CorruptionError,
    Error,
    ForeignOwnerError,
    LimitReachedError,
    ReadOnlyError,
    TurnHeldError,
    no_room,
)
from ..log.info_file import StoreInfo, write_info
from ..log.own_census import OwnCensus
from ..log.state_file import State, StateFile
from ..log.store_directory import StoreDirectory
from ..memory.domain import Domain
from ..memory.mapping import Bells
from ..memory.nameless import BellsName
from ..native.core import lib
from ..native.limits import named
from ..native.private_directory import is_read_only
from ..native.runtime import Path, os, selectors, socket, threading, time
from ..options.store_config import StoreConfig, check_config
from . import acks, answers
from .admission import Admission
from .clients import Client, Clients
from .expiry import Expiry
from .first_state import begin_in, first_state
from .guard import StoreGuard
from .holdings import Holdings, UnusableLogError
from .listener import StoreListener
from .operator import OperatorDesk
from .receivers import ReceiverDesk
from .shelf import Shelf
from .sources import SourceDesk

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Store", "StoreConfig"]

_log = logging.getLogger("holdfast.store")

SAVE_ACKS_S = 1.0
"""Acks are saved at most this often; until then they stand on the boards."""
RETRY_S = 0.002
"""How soon a registration that waits for a drain is looked at again."""
DEAF_S = 1.0
"""How soon clients are let in again, after one could not be: whoever waits in line would keep the loop busy
meanwhile."""


class Store:
    """One store instance. ``open``, then ``run`` until ``stop``; ``close`` at the end.

    Raises:
        ConfigError, DirectoryInUseError, ReadOnlyError, CorruptionError, SharedMemoryFullError: at
            construction, with nothing left behind.

    On a disk that is read-only it serves receivers what is there, refuses every source, and writes nothing
    until it is started again. ReadOnlyError: no store has ever run there, so there is nothing to serve.
    """

    def __init__(self, config: StoreConfig) -> None:
        topics = check_config(config)
        self.config = config
        self._level = lib.HF_LEVEL_DISK if topics.store.acknowledge == "disk" else lib.HF_LEVEL_MEMORY
        with contextlib.ExitStack() as stack:
            self.domain = Domain(config.domain)
            stack.callback(self.domain.close)
            self.domain.doubts.mkdir(mode=0o700, exist_ok=True)
            self._directories = stack.enter_context(contextlib.ExitStack())
            with _usable(config.directory):
                self.logs = self._take_directories()
            self._guard = StoreGuard(self.domain, self._locked)
            self._listener = StoreListener(self.domain, config)
            stack.callback(self._listener.close)
            sealed = next((each.path for each in self._locked if each.read_only), None)
            self._file = StateFile(self.directory.path, self.domain.doubts, sealed=sealed)
            with _usable(config.directory):
                self.state = self._load()
                self._census = OwnCensus(self.domain, config.name, self.state)
                if sealed is None:
                    self._file.save(self.state)
            self.bells = Bells.of(self.domain)
            self._bells_name = BellsName(self.domain, self.bells)
            self.holdings = Holdings(config.name, self.domain, self.bells, topics, self.state, self._file, self.logs)
            self.holdings.open()
            stack.pop_all()
        self.drainer = self.holdings.drainer
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener.sock, selectors.EVENT_READ)
        self._clients = Clients(self._selector, self.domain.fd, self.bells)
        self.receivers = ReceiverDesk(self.holdings, self._clients)
        self.sources = SourceDesk(self.holdings, self._clients, self._census)
        self.operator = OperatorDesk(self.holdings, self._clients, self.sources, self.receivers)
        self._expiry = Expiry(self.holdings, self._clients, self.sources, self.receivers, self._say)
        self._shelf = Shelf(self.holdings, self._clients)
        self._admission = Admission(self.holdings.has_room, self._shelf.may_change)
        self._stop = threading.Event()
        self._waker, self._waked = socket.socketpair()
        self._selector.register(self._waked, selectors.EVENT_READ, "stop")
        self.drainer.on_crash = self._crash
        self.drainer.guard = self._guard.look
        self.crashed = False
        """The drain thread has failed: nothing is lost, and the next process goes on where this one was."""
        self._saved_at = 0.0
        self._deaf_until = 0.0
        """The listener is not looked at before; 0: it is."""
        self._trouble = ""
        """What was said last of work that failed."""
        self._limits_told: set[str] = set()
        """Limits that were why a request was refused."""
        self._told_read_only = False
        """What its info file says."""

    def _take_directories(self) -> Path:
        """Locks the store's directory, and one for the logs if that is another: ``logs`` leads there then,
        for offline tools too.

        Returns the path of the logs of a disk store.
        """
        path = Path(self.config.directory).absolute()
        cache = Path(self.config.cache).absolute() if self.config.cache is not None else path
        self._locked = [
            self._directories.enter_context(StoreDirectory(each, may_read=True))
            for each in ([cache, path] if cache != path else [path])
        ]
        self.directory = self._locked[-1]
        logs = path / "logs"
        if cache != path and not (logs.is_symlink() and logs.readlink() == cache / "logs"):
            if logs.is_symlink() or any(logs.iterdir()):
                raise ConfigError(
                    f"the logs of {path} lie in {logs.resolve()}, not in {cache}",
                    hint=f"move what is in it to {cache / 'logs'}, then remove {logs}",
                )
            begin_in(cache, self.domain.doubts)
            logs.rmdir()
            logs.symlink_to(cache / "logs")
        return logs

    def _load(self) -> State:
        state = self._file.load()
        if self._file.sealed:
            if state is None:
                raise ReadOnlyError(str(self._file.sealed))
            return state  # it lives on in the state's last life: no source is told of one
        if state is None:
            for each in self._locked:
                begin_in(each.path, self.domain.doubts)
            state = first_state(self.config.name)
        state.live()
        return state

    def open(self) -> None:
        """Starts draining what is there and lets clients in."""
        self.drainer.start()
        self.drainer.want_spares()
        self._say()
        if self.holdings.read_only is not None:
            why, name = self.holdings.read_only, self.config.name
            _log.error("store %s serves receivers what it has, refuses sources and records nothing: %s", name, why)
        lib.hf_bell_ring_all(self.bells.handle)  # whoever waits for this store tries to connect now

    def _say(self) -> None:
        """Says who this store is, and whose proxy, or could be. Others read that, and do not ask."""
        of = self._expiry.proxies
        topics, self._told_read_only = self.holdings.topics, self.holdings.read_only is not None
        proxies = topics.store.options.allow_proxy_source and not self.holdings.sealed
        write_info(
            self.domain,
            StoreInfo(
                self.config.name, self.state.uuid, str(self.directory.path), str(self.logs), topics.type, os.getpid(),
                lib.hf_process_start(os.getpid()), lib.hf_process_token(), proxies, tuple(sorted(of.standing)),
                self._told_read_only, topics.disk_limit, tuple(sorted(of.ready)), self._census.life,
            ),
        )  # fmt: skip

    def run(self) -> None:
        """Serves until :meth:`stop`. Any thread.

        Raises:
            FencedError: this process has lost a lock of the store's; nothing was written since.
        """
        while not self._stop.is_set():
            self._guard.look(time.monotonic_ns())
            for key, _ in self._selector.select(RETRY_S if self.sources.waiting else self._left_s()):
                if key.fileobj is self._listener.sock:
                    self._accept()
                elif key.data is None:
                    self._serve(key.fd)
            admitted = self._admission.due(time.monotonic_ns()) if self._admission.waiting else ()
            for client, request in chain(self.sources.retry(), admitted):
                self._handle(client, request)
            if self._deaf_until and time.monotonic() >= self._deaf_until:
                self._deaf_until = 0.0
                self._selector.register(self._listener.sock, selectors.EVENT_READ)
            self._look_after()

    def _left_s(self) -> float:
        """Until something is due."""
        admission_s = self._admission.due_s if self._admission.waiting else math.inf
        wakes = self._expiry.due_s, self._shelf.due_s, admission_s, self._deaf_until or math.inf
        due_s = min(self._saved_at + SAVE_ACKS_S, *wakes)
        return max(0.0, due_s - time.monotonic())

    def _look_after(self) -> None:
        """What is done now and then. A full disk, for example, ends no store: it is tried again, and requests
        are answered."""
        try:
            if self._told_read_only != (self.holdings.read_only is not None):
                self._say()
            if time.monotonic() - self._saved_at >= SAVE_ACKS_S:
                self._save_acks()
                self._look_for_logs()
                self._bells_name.look(time.monotonic_ns())
                self._census.look()
            self._expiry.turn()
            self._shelf.turn()
        except ReadOnlyError:  # the holdings have told it
            return
        except (Error, OSError) as error:
            if str(error) != self._trouble:
                _log.error("store %s: %s", self.config.name, error)
            self._trouble = str(error)
        else:
            self._trouble = ""

    def _save_acks(self) -> None:
        self._saved_at = time.monotonic()
        acks.save(self.holdings)

    def _look_for_logs(self) -> None:
        """Who holds a source whose log is gone asks again, and gets another one."""
        gone = self.holdings.let_go_removed()
        for client in self._clients:
            if gone & {key.source for key in client.holds}:
                self._clients.drop(client)

    def _crash(self) -> None:
        self.crashed = True
        self.stop()

    def stop(self) -> None:
        """Makes :meth:`run` return. Any thread, also a signal handler; any number of times."""
        self._stop.set()
        self._waker.close()  # the end of the pair is what wakes the loop

    def close(self) -> None:
        """Syncs and closes everything. After it, another store may use the directory, also where something
        could not be written: that is raised at the end. A store that has lost a lock writes nothing: it ends
        as if it had been killed.
        """
        with contextlib.ExitStack() as last:
            last.callback(self.domain.close)
            last.callback(self._bells_name.close)
            last.callback(self._directories.close)
            if self._guard.lost is None:
                last.callback(self.holdings.save_last)
            last.callback(self._selector.close)
            last.callback(self._waked.close)
            last.callback(self._waker.close)
            last.callback(self._drop_all)
            last.callback(self.drainer.stop)
            self._listener.close()
            if self._guard.lost is None:
                self._save_acks()

    # Connections --------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.sock.accept()
        except OSError as error:  # out of descriptors: the client waits in line
            _log.warning("a client could not be accepted: %s", named(error))
            self._selector.unregister(self._listener.sock)
            self._deaf_until = time.monotonic() + DEAF_S
            return
        try:
            pid = peer.check_peer(sock)
        except ForeignOwnerError as error:
            _log.warning("%s: refused", error)
            sock.close()
            return
        shut = self.holdings.limits.door()
        if shut is not None:
            self._turn_away(sock, f"store {self.config.name} lets no client in: {shut}")
            return
        self._clients.add(Client(sock, pid))

    def _turn_away(self, sock: socket.socket, text: str) -> None:
        """Says why, before anything is asked, and hangs up. An older client hears nothing, and tries
        again."""
        if "door" not in self._limits_told:
            self._limits_told.add("door")
            _log.error("%s", text)
        with sock, contextlib.suppress(OSError):
            sock.send(wire.encode(wire.Refused(0, "failed", text)))

    def _drop_all(self) -> None:
        for client in self._clients:
            self._clients.drop(client)

    def _serve(self, fd: int) -> None:
        client = self._clients.get(fd)
        if client is None:  # dropped in this very turn: another one's claim found its process dead
            return
        if client.unsent:
            self._clients.may_send(client)
            return
        try:
            packet = client.sock.recv(wire.PACKET_MAX)
        except BlockingIOError:
            return
        except OSError:
            packet = b""
        if not packet:
            self._clients.drop(client)
            return
        try:
            request = wire.decode_request(packet)
        except CorruptionError as error:
            _log.warning("pid %d: %s; closed", client.pid, error)
            self._clients.drop(client)
            return
        self._handle(client, request)

    def _handle(self, client: Client, request: wire.Request) -> None:
        if isinstance(request, wire.Hello):
            client.hello = request
            self._clients.send(client, self._welcome())
            return
        if client.hello is None or client.hello.protocol != wire.PROTOCOL:
            _log.warning("pid %d speaks another protocol; closed", client.pid)
            self._clients.drop(client)
            return
        try:
            answer = self._dispatch(client, request)
        except UnusableLogError as error:
            answer = wire.Refused(request.id, "unusable_log", f"{error.args[0]}; {error.hint}")
        except TurnHeldError as error:
            text = f"at store {self.config.name} {error.args[0]}; {error.hint}"
            answer = wire.Refused(request.id, _code(request, "failed"), text, error.pid)
        except (Error, OSError, MemoryError) as error:
            limit = named(error)
            if isinstance(limit, LimitReachedError) and self._admission.wait(client, request, time.monotonic_ns()):
                return
            answer = self._failed(request.id, request, error)
        if self._admission.waiting:
            self._admission.answered(client, request)
        if answer is not None:
            self._clients.send(client, answer)

    def _failed(self, request_id: int, request: wire.Request, error: Error | OSError | MemoryError) -> wire.Refused:
        if getattr(error, "errno", 0) == errno.EROFS:
            error = ReadOnlyError(str(self._read_only_directory()))
        if isinstance(error, ReadOnlyError):
            text = f"store {self.config.name} takes nothing in: {error.args[0]}; {error.hint}"
            return wire.Refused(request_id, _code(request, "read_only"), text)
        limit = named(error, where=self.directory.path)
        said = str(limit) or type(limit).__name__
        text = f"store {self.config.name} failed to do this: {said}"
        which = limit.limit if isinstance(limit, LimitReachedError) else "no room" if no_room(limit) else ""
        if isinstance(error, ConfigError):  # it says itself what to do
            which = text
        if not which:
            _log.exception("request %s failed", type(request).__name__)
        elif which not in self._limits_told:
            self._limits_told.add(which)
            _log.error("%s", text)
        return wire.Refused(request_id, _code(request, "failed"), text)

    def _read_only_directory(self) -> Path:
        """Of the state and the logs, the one whose disk is read-only now; the state's if neither is any
        more."""
        return next((each.path for each in self._locked if is_read_only(each.path)), self.directory.path)

    def _welcome(self) -> wire.Welcome:
        return wire.Welcome(
            wire.PROTOCOL, self.config.name, self.state.uuid, str(self.logs), self._level, os.getpid(),
            lib.hf_process_token(),
        )  # fmt: skip

    def _dispatch(self, client: Client, request: wire.Request) -> wire.Answer | None:
        sources, receivers = self.sources, self.receivers
        match request:
            case wire.RegisterSource():
                self.holdings.require_writable()
                return self._expelled(request, request.incarnation) or self._named(sources.register(client, request))
            case wire.Begin():
                self.holdings.require_writable()
                return sources.begin(client, request)
            case wire.RegisterReceiver():
                return self._expelled(request, 0) or self._named(receivers.register(client, request))
            case wire.ListSources():
                return sources.listed(client, request)
            case wire.Leave():
                if self._admission.waiting:
                    self._admission.leave(client, request)
                desk = sources if request.role == "source" else receivers
                return desk.leave(client, request)
            case wire.Deregister():
                desk = sources if request.role == "source" else receivers
                return self._named(desk.deregister(client, request))
            case wire.OperatorDeregister():
                self.holdings.require_writable()
                return self.operator.deregister(request)
            case wire.ForgetFinished():
                self.holdings.require_writable()
                return self.operator.forget_finished(request)
            case wire.Mark():
                self.holdings.require_writable()
                return self.operator.mark(request)
            case wire.Exclude():
                self.holdings.require_writable()
                return self.operator.exclude(request)
            case wire.Hello():
                raise AssertionError("handled before")

    def _expelled(self, request: wire.RegisterSource | wire.RegisterReceiver, incarnation: int) -> wire.Refused | None:
        """Why this object may not register again, if it is one that the operator has deregistered."""
        name = self._clients.expelled((request.uuid, incarnation))
        return answers.deregistered(request.id, self.config.name, name) if name is not None else None

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


def _code(request: wire.Request, code: str) -> str:
    """The code for what this store could not do now. A client of 0.1.0 that deregisters asks again after
    "busy" alone; any other refusal it takes for somebody else's RegID."""
    return "busy" if isinstance(request, wire.Deregister) else code


@contextlib.contextmanager
def _usable(directory: str | os.PathLike[str]) -> Iterator[None]:
    """What the system says of a directory at the start is a mistake in the configuration, or something that
    an operator mends."""
    try:
        yield
    except OSError as error:
        hint = f"choose one that uid {os.geteuid()} may write to"
        why = error.strerror or str(error)
        if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
            hint = "make room there, or choose one on another disk"
            with contextlib.suppress(OSError):
                room = os.statvfs(directory)
                why = f"{why}, {room.f_bavail * room.f_frsize} bytes are free"
        raise ConfigError(f"directory {os.fspath(directory)} cannot be used: {why}", hint=hint) from error
