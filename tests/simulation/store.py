"""A store process: the real registry, state, reconciliation and refill, over simulated files, sockets and
memory.

The glue follows engine/store/sources.py and receivers.py. Two threads: control and drain (repository.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from simulation.config import ACTIVITY_NS, CHECK_NS
from simulation.disk import Log
from simulation.leaving import deregister
from simulation.link import Hello, Welcome
from simulation.repository import Repository
from simulation.world import Process

from holdfast.engine.control import wire
from holdfast.engine.control.grants import peer_log
from holdfast.engine.log.state_file import SourceState, State
from holdfast.engine.rules import reconcile
from holdfast.engine.rules.proxy_source import Proxies, elected
from holdfast.engine.rules.registration import Refusal
from holdfast.engine.rules.reports import Seen, farthest
from holdfast.engine.store.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Generator

    from simulation.machine import Machine
    from simulation.memory import Line
    from simulation.world import Connection

    from holdfast.engine.log.state_file import ReceiverState

TOPIC = "t"
Key = tuple[str, bytes, bytes]


class Store:
    """See the module. ``index`` is the store's, in the list of every source."""

    def __init__(self, machine: Machine, index: int) -> None:
        self.machine, self.world, self.index = machine, machine.world, index
        self.name = machine.config.names[index]
        self.directory = machine.directories[index]
        self.process = Process(self.world, f"store {self.name}")
        if self.directory.saved is None:
            self.state = State(self.name, self.world.uuid(), 0, 1)
        else:
            self.state = msgspec.msgpack.decode(self.directory.saved, type=State)
        self.state.opened += 1
        self.save()
        self.registry = Registry(self.state)
        self.repositories: dict[bytes, Repository] = {}
        self.clients: list[Connection] = []
        """Those that said Hello."""
        self.waiting: list[tuple[Connection, wire.RegisterSource]] = []
        self.streams: dict[tuple[Connection, bytes], int] = {}
        """Who asked for which source, and the incarnation that it had open already; 0 = none."""
        self.proxies = Proxies()
        self._looked_ns = 0
        for source in self.state.sources:
            machine.truth.remembers(index, self.directory.generation, source.uuid, source.incarnation)
            self.open(source)
        if any(source.learner for source in self.state.sources):  # on disk before its log can look whole again
            self.save()
        for repository in self.repositories.values():
            repository.resume()
        self.world.listening[self.name] = self.process
        machine.known.add(self.name)
        self.process.run(self.control(), self.drain())

    def save(self, *, sync: bool = True) -> None:
        """The state."""
        self.directory.save(msgspec.msgpack.encode(self.state), sync=sync)

    def open(self, source: SourceState) -> Repository:
        """Its repository; the log is made at the first registration."""
        found = self.repositories.get(source.uuid)
        if found is None:
            log = self.directory.logs.setdefault(
                source.uuid, Log(self.machine.config.levels[self.index], self.machine.config.keeps)
            )
            found = self.repositories[source.uuid] = Repository(self, source, log)
        return found

    # The control thread -------------------------------------------------------------------------------------

    def control(self) -> Generator[None, None, None]:
        """Packets, registrations that wait, acks into the state."""
        saved_ns = 0
        while True:
            for connection in list(self.process.connections):
                if connection.requests and (connection in self.clients or isinstance(connection.requests[0], Hello)):
                    request = connection.requests.popleft()
                    answer = self.handle(connection, request)
                    if self.world.cut():  # what must be durable is: a kill here loses the answer
                        yield
                    if answer is not None:
                        connection.answers.append(answer)
                    yield
                elif not connection.open:
                    self.drop(connection)
            waiting, self.waiting = self.waiting, []
            for connection, request in waiting:
                if connection in self.clients:
                    answer = self.register_source(connection, request)
                    if answer is not None:
                        connection.answers.append(answer)
            if self.world.now - saved_ns > 20_000_000:
                saved_ns = self.world.now
                self.save_acks()
            if self.machine.config.proxy and self.world.now - self._looked_ns > CHECK_NS:
                self._looked_ns = self.world.now
                self.look_at_proxies()
            yield

    def look_at_proxies(self) -> None:
        """Is a source dead, and this store the one that stands in for it (engine/store/expiry.py)?"""
        for source in filter(self.takes_part, self.state.sources):
            held = self.is_held(source)
            due = self.proxies.due(source.uuid, held, ACTIVITY_NS, self.world.now)
            chosen = due and self.has_begun(source) and elected(self.state.uuid, self.candidates(source))
            for change in self.proxies.look(source.uuid, due=due, chosen=chosen):
                self.world.note("proxy", self.name, change.stands_in)
        self.proxies.keep({source.uuid for source in self.state.sources})

    @staticmethod
    def takes_part(source: SourceState) -> bool:
        """It has begun here."""
        return source.incarnation > 0

    def is_held(self, source: SourceState) -> bool:
        """Also when this store takes no part: by any ring whose owner lives."""
        return self.held_by_another(source, None, again=False)

    def has_begun(self, source: SourceState) -> bool:
        """It has something of it: its state may know more than a log that is gone."""
        return bool(self.directory.logs[source.uuid].begins)

    def candidates(self, source: SourceState) -> list[bytes]:
        """The other stores of a source that could stand in for it: they run, and have its messages."""
        others = (store for store in self.machine.stores.values() if store.name in source.stores)
        return [store.state.uuid for store in others if (log := store.directory.logs.get(source.uuid)) and log.begins]

    def handle(self, connection: Connection, request: Any) -> Any:
        """The answer, None if there is none yet."""
        match request:
            case Hello():
                self.clients.append(connection)
                return Welcome(self.state.uuid)
            case wire.RegisterSource():
                return self.register_source(connection, request)
            case wire.Begin():
                return self.begin(connection, request)
            case wire.RegisterReceiver():
                return self.register_receiver(connection, request)
            case wire.Deregister():
                return deregister(self, connection, request)
            case wire.Leave():
                self.leave(connection, request)
                return wire.Left(request.id)

    def owner(self, key: Key) -> Connection | None:
        """The connection that holds a registration; one whose process is dead is dropped."""
        for connection in self.clients:
            if key in connection.holds:
                if not self.world.dead(connection.client):
                    return connection
                self.drop(connection)
                return None
        return None

    def drop(self, connection: Connection) -> None:
        """Closes a connection; what it sent and nobody has read goes with it."""
        connection.close(self.process)
        if connection in self.process.connections:
            self.process.connections.remove(connection)
        if connection in self.clients:
            self.clients.remove(connection)

    def leave(self, connection: Connection, request: wire.Leave) -> None:
        """A clean close, or a claimant that gives up."""
        holds, names = connection.holds, {request.source, request.uuid}
        for key, proposal in list(holds.items()):
            own = not names.isdisjoint({key[2], proposal}) if request.role == "source" else key[2] in names
            if key[0] == request.role and own:
                del holds[key]
        self.waiting = [entry for entry in self.waiting if entry[0] is not connection or entry[1].uuid not in names]

    # Sources ------------------------------------------------------------------------------------------------

    def register_source(self, client: Connection, request: wire.RegisterSource) -> Any:
        """None: the previous owner's ring is not drained yet."""
        claimed = self.registry.claim_source(TOPIC, request.registration_id, request.session_id, request.uuid)
        if isinstance(claimed, Refusal):
            return wire.Refused(request.id, claimed.code, claimed.text)
        source, old = claimed
        repository = self.open(source)
        if self.held_by_another(source, client, again=request.incarnation > 0):
            return wire.Refused(request.id, "reg_id_in_use", "", registration_id=source.registration_id)
        if request.incarnation and source.incarnation and source.uuid != request.uuid:
            if not self.came_to_nothing(source, repository):
                return wire.Refused(request.id, "other_source", "")
            self.machine.truth.drops(self.index, source.uuid)
            self.discard(source)
            return self.register_source(client, request)
        if not request.incarnation and not repository.settled():
            self.waiting.append((client, request))
            return None
        key: Key = ("source", source.uuid, source.uuid)
        client.holds.setdefault(key, request.uuid)
        self.streams[client, source.uuid] = request.incarnation
        if source.incarnation == 0:
            self.save()
        self.machine.truth.registers(self.index, self.directory.generation, source.registration_id, ("source", TOPIC))
        if not source.learner and repository.has_lost():
            source.learner = True
            self.save()
        view, seen = repository.view(), []
        if not request.incarnation:
            seen = self.seen(source, repository)
            view = farthest(seen)
            if source.promise(request.claimant, view.incarnation, request.least):
                self.save()
        known = source.incarnation > 0
        return wire.SourceGranted(
            request.id, source.registration_id, source.uuid, view.incarnation, view.end, old and known, list(view.begins),
            not source.learner, self.state.adopts_empty and not known, self.state.opened, source.peers,
            promised=source.promised, logs=list(map(peer_log, seen)), stores=source.stores, sizes=source.sizes,
            groups=source.groups, intragroup=source.intragroup, intergroup=source.intergroup,
        )  # fmt: skip

    def seen(self, source: SourceState, repository: Repository) -> list[Seen]:
        """How far each declared store's log goes, its own among them (engine/log/info_file.py seen_at)."""
        machine = self.machine
        seen = [Seen(self.name, self.name, repository.view())]
        for name in source.stores:
            if name != self.name:
                log = machine.log_of(name, source.uuid, known=name in source.directories)
                kept_there = self.remembered(name, source.uuid)
                if kept_there is not None and kept_there.learner:
                    log = None
                empty = kept_there is not None and not kept_there.incarnation
                view = log.view() if log is not None else reconcile.LogView((), 0) if empty else None
                seen.append(Seen(name, name, view))
        return seen

    def report(self, source: SourceState, repository: Repository) -> reconcile.LogView:
        """What the newest readable log of the source's stores says (docs/design.md 14)."""
        return reconcile.newest(repository.view(), [log.view() for log in self.peers(source)])

    def peers(self, source: SourceState) -> list[Log]:
        """The readable logs of the other stores that the source declared: found by their info files, or as
        the last BEGIN did."""
        kept = source.directories
        logs = (self.machine.log_of(n, source.uuid, known=n in kept) for n in source.stores if n != self.name)
        return [log for log in logs if log is not None]

    def came_to_nothing(self, source: SourceState, repository: Repository) -> bool:
        """It began for a claimant that has left; none of its stores has ever had a message of it."""
        held = self.owner(("source", source.uuid, source.uuid)) is not None or bool(repository.rings())
        names = [self.name, *(name for name in source.stores if name != self.name)]
        return source.incarnation == 1 and not held and all(self.never_held(name, source.uuid) for name in names)

    def remembered(self, name: str, uuid: bytes) -> SourceState | None:
        """What the state of that store has of a source; without incarnation if it does not know it. None:
        there is no state."""
        saved = self.machine.directories[self.machine.config.names.index(name)].saved
        if name not in self.machine.known or saved is None:
            return None
        sources = msgspec.msgpack.decode(saved, type=State).sources
        return next((each for each in sources if each.uuid == uuid), SourceState(uuid, "", 0, 0))

    def never_held(self, name: str, uuid: bytes) -> bool:
        """By this store's files (engine/log/info_file.py)."""
        kept = self.remembered(name, uuid)
        if kept is None:
            return False
        log = self.machine.directories[self.machine.config.names.index(name)].logs.get(uuid)
        if log is None or not log.begins:
            return kept is None or not kept.incarnation
        return log.next == 0 and not (kept is not None and kept.learner)

    def forget(self, source: SourceState) -> None:
        """Everything of it, for good before anybody is told; it has deregistered."""
        self.machine.truth.forgets(self.index, self.directory.generation, source.uuid, source.incarnation)
        self.discard(source)

    def discard(self, source: SourceState) -> None:
        """Its state, its log, who holds it."""
        self.state.sources.remove(source)
        self.save()
        self.repositories.pop(source.uuid).close()
        self.directory.logs.pop(source.uuid, None)
        for client in self.clients:
            for key in [key for key in client.holds if key[1] == source.uuid]:
                del client.holds[key]

    def held_by_another(self, source: SourceState, client: Connection | None, *, again: bool) -> bool:
        """A connection, or the living owner of an open ring, has this source (docs/design.md 12)."""
        owner = self.owner(("source", source.uuid, source.uuid))
        if owner is not None and not (again and owner is client):
            return True
        living = [ring.owner for (uuid, _), ring in self.world.rings.items()
                  if uuid == source.uuid and not ring.closed and not self.world.dead(ring.owner)]  # fmt: skip
        return any(not (again and client is not None and process is client.client) for process in living)

    def begin(self, client: Connection, request: wire.Begin) -> Any:
        """BEGIN: durable before it is answered."""
        if request.granted not in {b"", request.uuid}:
            self.adopt(client, request)
        source = self.registry.source(request.uuid)
        if source is None:
            return wire.Refused(request.id, "other_source", "")
        if request.incarnation < source.incarnation:
            return wire.Refused(request.id, "busy", "")
        repository = self.open(source)
        if self.held_by_another(source, client, again=True):
            return wire.Refused(request.id, "busy", "")
        unknown = source.incarnation > max((incarnation for incarnation, _ in request.begins), default=0)
        if request.incarnation > source.incarnation and unknown and repository.log.next > source.start_sqn:
            return wire.Refused(request.id, "busy", "")  # something was sent that its source knows nothing of
        claims = self.streams.get((client, source.uuid), 0) != request.incarnation  # its stream is not open yet
        another = request.incarnation == source.promised and request.claimant != source.promised_to
        if claims and (request.incarnation < source.promised or another):
            return wire.Refused(request.id, "busy", "")
        table = reconcile.after_begin(source.begins, request.begins, request.incarnation, request.start_sqn)
        found = {name: name for name in request.stores if name in self.machine.known}
        named = request.stores, request.opened, {**source.directories, **found}
        groups = request.sizes, request.groups, request.intragroup, request.intergroup
        kept = source.sizes, source.groups, source.intragroup, source.intergroup
        if (source.stores, source.peers, source.directories, *kept) != (*named, *groups):
            source.stores, source.peers, source.directories = named
            source.sizes, source.groups, source.intragroup, source.intergroup = groups
            self.save()
        news = source.begins != list(table)
        if news:
            self.save_acks()
        repository.begin(table)
        if news:
            self.save()
        return wire.Begun(request.id, repository.log.next, repository.filling is not None)

    def adopt(self, client: Connection, request: wire.Begin) -> None:
        """Another store knew this source already: its identity holds, as long as nothing has begun under the
        one given here."""
        known = self.registry.source(request.granted)
        if known is None or known.incarnation or self.registry.source(request.uuid) is not None:
            return
        proposal = client.holds.pop(("source", known.uuid, known.uuid), None)
        if proposal is not None:
            self.repositories.pop(known.uuid).close()
            self.directory.logs.pop(known.uuid, None)
            known.uuid = request.uuid
            self.open(known)
            client.holds["source", known.uuid, known.uuid] = proposal

    # Receivers ----------------------------------------------------------------------------------------------

    def register_receiver(self, client: Connection, request: wire.RegisterReceiver) -> Any:
        """Grants unless somebody alive holds the RegID."""
        source = self.registry.source(request.source)
        if source is None or source.incarnation == 0:
            return wire.Refused(request.id, "unknown_source", "")
        repository = self.open(source)
        uuid = request.identity or request.uuid
        claimed = self.registry.claim_receiver(source, TOPIC, 0, request.session_id, uuid)
        if isinstance(claimed, Refusal):
            return wire.Refused(request.id, claimed.code, claimed.text)
        receiver, old = claimed
        lines = repository.board().receivers()
        line = lines.get(receiver.uuid)
        held = self.receiver_held(source, receiver, line, client, request)
        adopts = request.identity not in {b"", receiver.uuid}
        if adopts and not held:
            if line is not None:
                receiver.ack = max(receiver.ack, source.clamp(line.ack, line.ack_stream))
            client.holds.pop(("receiver", source.uuid, receiver.uuid), None)
            receiver.uuid, receiver.joined = request.identity, True
            line = lines.get(receiver.uuid)
            held = self.receiver_held(source, receiver, line, client, request)
        if held:
            if not old:
                source.receivers.remove(receiver)
            return wire.Refused(request.id, "reg_id_in_use", "", registration_id=receiver.registration_id)
        client.holds["receiver", source.uuid, receiver.uuid] = request.uuid
        who = ("receiver", request.session_id)
        self.machine.truth.registers(self.index, self.directory.generation, receiver.registration_id, who)
        if not old:
            ring, log, paced = repository.ring, repository.log, self.machine.config.paced is not None
            live = max(log.next, ring.end_number() if ring is not None else 0)
            receiver.ack = live if paced else log.oldest
            receiver.paced = request.paced
            self.machine.truth.awaits(self.index, source.uuid, request.session_id, receiver.ack)
        under = source.incarnation
        on_board = source.clamp(line.ack, line.ack_stream) if line is not None else -1
        if line is not None and (on_board >= receiver.ack or self.has_joined(line)):
            receiver.ack, under = on_board, max(under, line.ack_stream)
        receiver.joined |= line is not None and self.has_joined(line)
        if not old or adopts:
            self.save()
        return wire.ReceiverGranted(
            request.id, source.registration_id, source.session_id, receiver.registration_id, receiver.uuid, receiver.ack,
            repository.log.oldest, repository.log.next, old and receiver.joined, self.name, source.incarnation, source.start_sqn,
            begins=source.begins, acknowledged_under=under,
        )  # fmt: skip

    @staticmethod
    def has_joined(line: Line) -> bool:
        """It says itself where it goes on: that it was new here once, and got this store's oldest, means
        nothing."""
        return line.to > 0 and line.from_ <= line.ack

    def receiver_held(
        self, source: SourceState, receiver: ReceiverState, line: Line | None, client: Connection,
        request: wire.RegisterReceiver,
    ) -> bool:  # fmt: skip
        """By somebody else who lives."""
        key: Key = ("receiver", source.uuid, receiver.uuid)
        owner = self.owner(key)
        if owner is not None:
            return not (owner is client and owner.holds[key] == request.uuid)
        if line is None or line.state != "active" or line.owner is None:
            return False
        if request.holds_line and line.owner is client.client:
            return False
        return not self.world.dead(line.owner)

    def save_acks(self) -> None:
        """The acks of the boards, into the state: never beyond what is held, backwards only to where a
        receiver has joined."""
        changed = False
        for source in self.state.sources:
            repository = self.repositories[source.uuid]
            changed |= repository.lost_below != source.lost_below or (source.learner and repository.caught_up)
            source.learner = source.learner and not repository.caught_up
            source.lost_below = repository.lost_below
            lines = repository.board().receivers()
            for receiver in source.receivers:
                line = lines.get(receiver.uuid)
                if line is not None:
                    ack = min(source.clamp(line.ack, line.ack_stream), max(receiver.ack, repository.log.next))
                    joined = self.has_joined(line)
                    if ack > receiver.ack or (joined and (ack < receiver.ack or not receiver.joined)):
                        receiver.ack, changed = ack, True
                        receiver.joined |= joined
        if changed:
            self.save(sync=False)

    # The drain thread ---------------------------------------------------------------------------------------

    def drain(self) -> Generator[None, None, None]:
        """One block of each source and round."""
        while True:
            for repository in list(self.repositories.values()):
                yield from repository.round()
                if repository.pacer is not None and not repository.log.poisoned:
                    repository.pacer.turn()
            yield
