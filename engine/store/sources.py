"""A store's desk for sources: registration, BEGIN, deregistration (docs/semantics.md A.2 to A.4, B.1, F.7;
docs/design.md 12 to 14). It gathers facts and carries out what engine/store/answers.py decides."""

from __future__ import annotations

import dataclasses
import logging
from functools import partial
from typing import TYPE_CHECKING, Literal

import msgspec

from ..control import wire
from ..control.grants import peer_log
from ..errors import CorruptionError, LimitReachedError
from ..events.source import RegistrationSuccessFlags
from ..log.end import WALK_S, Walk
from ..log.info_file import never_held, read_info
from ..log.stale_rings import living_ring
from ..memory.mapping import UnpublishedError, attach_stream
from ..native.runtime import time
from . import acks, answers, news
from .answers import Held
from .clients import Client, Hold, Key, Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from ..log.info_file import Lives
    from ..log.own_census import OwnCensus
    from ..log.state_file import SourceState
    from ..rules.reports import Seen
    from .clients import Clients
    from .holdings import Holdings
    from .repository import Repository

__all__ = ["SourceDesk"]

_log = logging.getLogger("holdfast.store")


class SourceDesk:
    """See the module; the store's control thread."""

    def __init__(self, holdings: Holdings, clients: Clients, census: OwnCensus) -> None:
        self._holdings = holdings
        self._census = census
        self._clients = clients
        self.waiting: list[tuple[Client, wire.RegisterSource]] = []
        """Registrations that are answered when an old ring is drained, and the peers' logs are walked to
        their ends."""
        self._walks: dict[bytes, tuple[frozenset[Path], Walk]] = {}
        """By source: the logs, and their walk."""
        self.left = set[bytes]()
        """Sources that were deregistered here: what they have in shared memory is theirs, or a store's if
        they end before they have removed it."""

    def register(self, client: Client, request: wire.RegisterSource) -> wire.Answer | None:
        """Answers when the previous owner is dead or gone and its ring is drained; None: not yet, it
        waits."""
        holdings = self._holdings
        holdings.save_owed()
        claimed = answers.claim_source(request, holdings.topics, holdings.registry)
        if isinstance(claimed, wire.Refused):
            return claimed
        source, old = claimed
        if not old:
            try:
                holdings.drain_thread(holdings.limits.require_room)
            except LimitReachedError:
                holdings.registry.remove(source)  # first: nothing of it is kept, whatever is saved meanwhile
                if not holdings.has_room():
                    raise
                return self.register(client, request)
            holdings.save()  # its RegID must never be granted twice, not even after a power cut; no log is of nobody
        repository = holdings.ensure_repository(source)
        decision = answers.decide_source(
            request, holdings.state, source, self._facts(client, request, source, repository)
        )
        match decision:
            case wire.Refused():
                return decision
            case answers.Wait():
                self.waiting.append((client, request))
                return None
            case answers.Forget():
                name = news.called(holdings.name, source)
                _log.info("%s: who began here sent nothing; forgotten for the one that has begun elsewhere", name)
                self.forget(source, names=True)
                return self.register(client, request)
            case answers.Accept():
                self._walks.pop(source.uuid, None)
                source.gone_ns = 0
                if decision.learns:
                    source.learner, repository.caught_up = True, False
                    holdings.save()
                return self._number(client, request, source, old and source.incarnation > 0, repository)

    def _facts(
        self, client: Client, request: wire.RegisterSource, source: SourceState, repository: Repository
    ) -> answers.SourceFacts:
        """What :func:`answers.decide_source` is to know, as far as it comes to that."""
        holdings = self._holdings
        facts = partial(answers.SourceFacts, holdings.name)
        holder = self.holder(source, client if request.incarnation else None)
        if holder is not None:
            return facts(holder=holder)
        if request.incarnation and source.incarnation and source.uuid != request.uuid:
            return facts(unused=self._came_to_nothing(source, repository))
        if not request.incarnation:
            drained = self._walked(repository, _elsewhere(request, source)) and holdings.drain_thread(
                repository.settled
            )
            if not drained:
                return facts(drained=False)
        return facts(drained=True, lost=None if source.learner else holdings.drain_thread(repository.has_lost))

    def _number(
        self, client: Client, request: wire.RegisterSource, source: SourceState, old: bool, repository: Repository
    ) -> wire.Answer:
        """Finds out where the source goes on, brings to disk what the grant says, then says it."""
        holdings = self._holdings
        seen: list[Seen] = []
        own = holdings.drain_thread(repository.view if request.incarnation else repository.bound)
        if not request.incarnation:
            seen = repository.seen(own, _elsewhere(request, source))
        granted = answers.decide_number(request, source, own, seen)
        if isinstance(granted, wire.Refused):
            return granted
        known, state = granted.known, holdings.state
        self._census.note(source)
        if granted.promises and source.promise(request.claimant, known.incarnation, request.least):
            holdings.save()
        # Last: a store that could not save has granted nothing, and must not hold it against the same source.
        hold = client.holds.get(_key(source), Hold(time.time_ns(), request.uuid))
        client.holds[_key(source)] = dataclasses.replace(hold, incarnation=request.incarnation)
        return wire.SourceGranted(
            request.id, source.registration_id, source.uuid, known.incarnation, known.end, old,
            list(known.begins), votes=not source.learner, empty_votes=state.adopts_empty and not source.incarnation,
            opened=state.opened, peers=source.peers, flags=_flags(source), lives=state.lives_for(source),
            promised=source.promised, logs=list(map(peer_log, seen)), stores=source.stores, sizes=source.sizes,
            groups=source.groups, intragroup=source.intragroup, intergroup=source.intergroup,
            excluded=source.excluded(state.excluded), exclusions=state.excluded, served=source.served,
            over=source.over,
        )  # fmt: skip

    def _walked(self, repository: Repository, others: Lives) -> bool:
        """The ends of the logs that nobody keeps are found: elsewhere, so that no thread of the store hangs
        with a disk."""
        logs = frozenset(repository.peers(others))
        walked, walk = self._walks.get(repository.source.uuid, (logs, None))
        if walk is not None and logs <= walked:
            return walk.over()
        walk = Walk(logs)
        self._walks[repository.source.uuid] = logs, walk
        return walk.over(WALK_S)

    def holder(self, source: SourceState, but: Client | None = None) -> Held | None:
        """Who holds a source: a connection, or a living owner of an open stream.

        ``but``: a connection that does not count, nor do the streams of its process.
        """
        repository = self._holdings.repository(source.uuid)
        process = but.token if but is not None else None
        if repository is not None:
            stream = self._holdings.drain_thread(lambda: repository.living_stream(process))
        else:  # a log that cannot be opened: its source may live all the same
            stream = living_ring(self._holdings.domain, source.uuid, process)
        owner = self._clients.owner(_key(source))
        if owner is not None and owner is not but:
            since = owner.holds[_key(source)].since_ns
            same = stream is not None and stream.owner >> 16 == owner.token >> 16
            return Held(owner.pid, min(since, stream.since_ns) if same and stream is not None else since)
        return Held(stream.pid, stream.since_ns) if stream is not None else None

    def _came_to_nothing(self, source: SourceState, repository: Repository) -> bool:
        """Two claimed it for the first time, and only the one that lost has begun here. It has left, and its
        ring with it; and no store that it named has ever had a message of it, so nothing of it was stable,
        and no number is lost with it."""
        if len(source.begins) != 1 or self.connected(source) or repository.streams():
            return False
        return all(never_held(log) for log in (repository.path, *repository.peers()))

    def connected(self, source: SourceState) -> bool:
        """A connection holds it."""
        return self._clients.owner(_key(source)) is not None

    def retry(self) -> list[tuple[Client, wire.RegisterSource]]:
        """The registrations that waited, to be handled again."""
        waiting, self.waiting = self.waiting, []
        return [entry for entry in waiting if not entry[0].closed]

    def begin(self, client: Client, request: wire.Begin) -> wire.Answer:
        """BEGIN: durable before it is answered."""
        holdings = self._holdings
        holdings.save_owed()
        if request.granted not in {b"", request.uuid}:
            self._adopt(client, request)
        source = holdings.registry.source(request.uuid)
        repository = holdings.repository(request.uuid)
        other = holdings.registry.source(request.granted)
        if source is None and other is not None:
            client.holds.pop(_key(other), None)
            return answers.another(request.id, holdings.name, other)
        if source is None or repository is None:
            return wire.Refused(request.id, "unknown_source", "BEGIN from a source that never registered here")
        holds = client.holds.get(_key(source), Hold(0, b"")).incarnation
        late = answers.too_late(request, source, holds)
        if late is not None:
            return late
        facts = self._begin_facts(client, request, source, repository)
        decision = answers.decide_begin(request, source, facts)
        if isinstance(decision, wire.Refused):
            return decision
        before = source.incarnation
        answer = self._take_part(request, source, repository, decision)
        self._tell(client, repository, new=source.incarnation > before)
        return answer

    def _begin_facts(
        self, client: Client, request: wire.Begin, source: SourceState, repository: Repository
    ) -> answers.BeginFacts:
        """What :func:`answers.decide_begin` is to know. The holder first: what was acknowledged to one that
        has gone by then is in the log when that is read."""
        holder = self.holder(source, client)
        begins, following, oldest = self._holdings.drain_thread(
            lambda: (repository.table, repository.next_sqn, repository.oldest_sqn)
        )
        return answers.BeginFacts(
            self._holdings.name, holder, begins, following, oldest, str(repository.path), self._stream(request)
        )

    def _stream(self, request: wire.Begin) -> Literal["same", "other", "gone"]:
        """Whether the stream that BEGIN names says what BEGIN says."""
        if request.stream != self._holdings.domain.stream_name(request.uuid, request.incarnation):
            return "other"
        try:
            with attach_stream(request.stream, populate=False) as stream:
                said = stream.uuid, int(stream.preamble.incarnation), int(stream.stream.start_sqn)
        except (FileNotFoundError, UnpublishedError):
            return "gone"
        except CorruptionError:
            return "other"
        return "same" if said == (request.uuid, request.incarnation, request.start_sqn) else "other"

    def _take_part(
        self, request: wire.Begin, source: SourceState, repository: Repository, decision: answers.TakePart
    ) -> wire.Answer:
        """Brings the BEGIN to disk, and reads its stream from now on."""
        holdings = self._holdings
        infos = {name: read_info(holdings.domain, name) for name in [*request.stores, *decision.others]}
        found = {name: info.directory for name, info in infos.items() if info is not None}
        learns = source.learn(request.learns)
        repository.caught_up &= not learns  # what it had before is not what it is to learn
        over = [*request.over, *holdings.state.excluded.values()]
        readmits = request.incarnation > source.incarnation and source.readmit(over)
        declares = _declare(source, request, {**source.directories, **found}, decision.others)
        if declares or learns or readmits:
            holdings.save()  # before anything is drained: after a crash, the peers are who fills in what it misses
        unsaved = source.begins != list(decision.table)
        if unsaved:
            acks.save(holdings)
            holdings.owe()  # where it fails half way it is in the log, and repeated it is no news
        try:
            held, catching_up = holdings.drain_thread(lambda: repository.begin(decision.table, request.stream))
        except (FileNotFoundError, UnpublishedError):  # since it was looked at: its source has died
            refused = answers.stream_gone(request)
            holdings.changes.note(source.uuid)  # the log has the BEGIN, and nothing will ever be sent under it
            _log.warning("%s: BEGIN is kept, and its source has gone: %s", repository.called, refused.text)
            return refused
        late_join = holdings.drain_thread(lambda: repository.late_join)
        unsaved |= late_join != source.late_join
        source.late_join = late_join
        life = request.opened.get(holdings.name, holdings.state.opened)
        missed = life not in holdings.state.lives_for(source)
        if missed:
            source.take_over(life)
        holdings.changes.note(source.uuid)
        if unsaved or missed:
            holdings.save()
        holdings.drainer.want_spares()
        return wire.Begun(request.id, held, catching_up)

    @staticmethod
    def _tell(client: Client, repository: Repository, *, new: bool) -> None:
        """Who has come: once for each BEGIN, however often it is repeated over one connection. ``new``: else
        the source lived on, and this store or the connection was away."""
        source = repository.source
        hold = client.holds.get(_key(source))
        if new or (hold is not None and hold.begun != source.incarnation):
            what = f"{'begins' if new else 'is registered again'} (pid {client.pid})"
            place = source.incarnation, source.start_sqn
            _log.info("%s %s: incarnation %d, from number %d on", repository.called, what, *place)
        if hold is not None:
            client.holds[_key(source)] = dataclasses.replace(hold, begun=source.incarnation)

    def _adopt(self, client: Client, request: wire.Begin) -> None:
        """Another store knew this source already: its identity holds, as long as nothing has begun under the
        one given here."""
        known = self._holdings.registry.source(request.granted)
        if known is None or known.incarnation or self._holdings.registry.source(request.uuid) is not None:
            return
        hold = client.holds.pop(_key(known), None)
        if hold is not None:
            self._holdings.rename(known, request.uuid)
            client.holds[_key(known)] = hold

    def leave(self, client: Client, request: wire.Leave) -> wire.Answer:
        """A clean close."""
        client.leave("source", request.source, request.uuid)
        own = {request.source, request.uuid}
        self.waiting = [entry for entry in self.waiting if entry[0] is not client or entry[1].uuid not in own]
        return wire.Left(request.id)

    def deregister(self, client: Client, request: wire.Deregister) -> wire.Answer:
        """Deletes the source's messages, its state, and the states of its receivers, at once
        (docs/semantics.md F.7)."""
        holdings = self._holdings
        registry = holdings.registry  # a BEGIN that has come since it was granted may have renamed it
        source = registry.source(request.source) or registry.source(request.uuid)
        if source is None:
            return wire.Deregistered(request.id, 0)
        holder = self.holder(source, client)
        if holder is not None:  # begun at other stores: what was granted here to who asks must not be in its way
            client.leave("source", source.uuid, source.uuid)
        if holder is not None or request.incarnation < source.incarnation:
            return answers.in_use(request.id, holdings.name, source, "source", holder or Held(0, 0))
        stored = holdings.held(source)
        self.forget(source, names=False)  # the source removes them when all of its stores have answered
        self.left.add(source.uuid)
        _log.info("%s: deregistered with its messages", news.called(holdings.name, source))
        return wire.Deregistered(request.id, stored)

    def forget(self, source: SourceState, *, names: bool) -> None:
        """Deletes everything of a source; its names in shared memory, if it is to and nobody uses them."""
        self.forget_all([source], names=lambda _: names)

    def forget_all(self, sources: Iterable[SourceState], *, names: Callable[[SourceState], bool]) -> None:
        """The same of several, by one save."""
        going = list(sources)
        self._holdings.forget(*going, names=names)
        for source in going:
            self._clients.release(source.uuid)

    def listed(self, client: Client, request: wire.ListSources) -> wire.Sources:
        """For receivers that ask which sources there are."""
        if request.reader and request.session_id:
            self._clients.note(client, request.reader, Reader(request.topic, request.session_id))
        holdings, page, size, more = self._holdings, list[wire.SourceInfo](), 0, False
        for source in holdings.changes.since(request.since, holdings.state.sources, request.after):
            if request.topic in {"", source.topic} and request.source in {b"", source.uuid}:
                info = self._info(source, request.session_id)
                size += len(msgspec.msgpack.encode(info))
                more = len(page) >= wire.PAGE_MAX and size > wire.PAGE_BYTES
                if more:
                    break
                page.append(info)
                if info.over is not None and not request.session_id and request.topic and not source.met:
                    source.met = True  # who is kept nowhere reads the files
                    holdings.registry.wake(source)
                    holdings.owe()
        return wire.Sources(request.id, page, more, holdings.changes.mark)

    def _info(self, source: SourceState, session_id: int) -> wire.SourceInfo:
        begins = dict(source.begins)
        declared = source.declared or source.incarnation  # 0: an older version did not write it down
        over = self._holdings.is_over(source) and declared == source.incarnation and not source.others
        return wire.SourceInfo(
            source.uuid, source.topic, source.registration_id, source.session_id, declared,
            source.stores, str(self._holdings.logs / source.uuid.hex()), source.late_join,
            begins.get(declared, 0), source.sizes, source.groups, self._over(source, session_id) if over else None,
        )  # fmt: skip

    def _over(self, source: SourceState, session_id: int) -> wire.Over:
        rollback = int(self._holdings.rules(source).options.receiver_new_registration_rollback)
        low = answers.first_position(source, source.shelved_next, source.shelved_oldest, 0, rollback)
        known = [each for each in source.receivers if session_id and each.session_id == session_id]
        who = (known[0].ack, known[0].uuid, known[0].registration_id) if known else (-1, b"", 0)
        return wire.Over(source.shelved_next, source.first_ns, low, *who)


def _elsewhere(request: wire.RegisterSource, source: SourceState) -> Lives:
    """The stores of all lists that the source has declared, with the life that each was in."""
    return {store: life for store, (life, _) in request.elsewhere.get(source.uuid, {}).items()}


def _declare(source: SourceState, request: wire.Begin, directories: dict[str, str], others: dict[str, int]) -> bool:
    """Takes in which stores there are, how they are grouped, and what is known of them. True: something is
    new."""
    told = {
        "others": others, "declared": request.incarnation,
        "stores": request.stores, "sizes": request.sizes, "groups": request.groups, "intragroup": request.intragroup,
        "intergroup": request.intergroup, "peers": request.opened, "directories": directories,
    }  # fmt: skip
    news = {name: value for name, value in told.items() if getattr(source, name) != value}
    for name, value in news.items():
        setattr(source, name, value)
    return bool(news)


def _flags(source: SourceState) -> int:
    """Of RegistrationSuccess (docs/semantics.md B.5)."""
    flags = RegistrationSuccessFlags
    return int(flags.RPP * (source.paced is not None) | flags.NOACKS * (source.repository == "no-cache"))


def _key(source: SourceState) -> Key:
    return Key("source", source.uuid, source.uuid)
