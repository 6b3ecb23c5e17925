"""A store's desk for sources: registration, BEGIN, deregistration (docs/semantics.md A.2 to A.4, B.1, F.7;
docs/design.md 12 to 14)."""

from __future__ import annotations

import dataclasses
import logging
import time
from typing import TYPE_CHECKING

from ..control import wire
from ..control.grants import peer_log
from ..errors import CorruptionError
from ..events.source import RegistrationSuccessFlags
from ..log.end import WALK_S, Walk
from ..log.info_file import never_held, read_info
from ..log.stale_rings import living_ring
from ..memory.mapping import UnpublishedError, attach_stream
from ..options.receiver_paced import agree, changed
from ..rules.expiry import Timers
from ..rules.proxy_source import proxy_refusal
from ..rules.reconcile import BEGINS_MAX, after_begin
from ..rules.registration import Refusal
from ..rules.reports import Seen, farthest
from .clients import Client, Hold, Key
from .registry import called

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ..log.info_file import Lives
    from ..log.state_file import SourceState
    from .clients import Clients
    from .holdings import Holdings
    from .repository import Repository

__all__ = ["SourceDesk", "refused"]

_log = logging.getLogger("holdfast.store")

OTHERS_MAX = 32
"""Stores of earlier lists that are remembered: those with the latest messages."""
LEAST_MAX = 2**32
"""How far the incarnation that a claimant asks for is at most from all that this store has seen: it stays far
below 63 bits."""


def refused(request_id: int, refusal: Refusal) -> wire.Refused:
    """A refusal as an answer."""
    return wire.Refused(request_id, *dataclasses.astuple(refusal))


class SourceDesk:
    """See the module; the store's control thread. ``save_acks`` takes the acks from the boards into the
    state."""

    def __init__(self, holdings: Holdings, clients: Clients, save_acks: Callable[[], None]) -> None:
        self._holdings = holdings
        self._clients = clients
        self._save_acks = save_acks
        self.waiting: list[tuple[Client, wire.RegisterSource]] = []
        """Registrations that are answered when an old ring is drained, and the peers' logs are walked to
        their ends."""
        self._walks: dict[bytes, tuple[frozenset[Path], Walk]] = {}
        """By source: the logs, and their walk."""

    def register(self, client: Client, request: wire.RegisterSource) -> wire.Answer | None:
        """Answers when the previous owner is dead or gone and its ring is drained; None: not yet, it
        waits."""
        holdings = self._holdings
        holdings.save_owed()
        rules = holdings.topics.of(request.topic)
        if rules is None:
            return refused(request.id, holdings.topics.refusal(request.topic))
        if request.paced is not None:
            terms = agree(request.paced, request.topic, rules.type, rules)
            if isinstance(terms, Refusal):
                return refused(request.id, terms)
        timers = Timers(request.activity_timeout, request.state_lifetime)
        claimed = holdings.registry.claim_source(
            request.topic, request.registration_id, request.session_id, request.uuid, timers
        )
        if isinstance(claimed, Refusal):
            return refused(request.id, claimed)
        source, old = claimed
        if not old:
            source.paced, source.proxy = request.paced, request.proxy
        wrong = changed(source.paced, request.paced) or proxy_refusal(source.proxy, request.proxy)
        if wrong is not None:
            return refused(request.id, wrong)
        if not old:  # its RegID must never be granted twice, not even after a power cut; and no log is of nobody
            holdings.save()
        repository = holdings.ensure_repository(source)
        holder = self.holder(source, client if request.incarnation else None)
        if holder is not None:
            return self._in_use(request.id, source, *holder)
        if request.incarnation and source.incarnation and source.uuid != request.uuid:
            if not self._came_to_nothing(source, repository):
                return self._another(request.id, source)
            name = called(source.registration_id, source.session_id)
            _log.info("%s: who began here sent nothing; forgotten for the one that has begun elsewhere", name)
            self.forget(source, names=True)
            return self.register(client, request)
        others = {store: life for store, (life, _) in request.elsewhere.get(source.uuid, {}).items()}
        walked = request.incarnation or self._walked(repository, others)
        if not walked or not (request.incarnation or holdings.drain_thread(repository.settled)):
            self.waiting.append((client, request))
            return None
        self._walks.pop(source.uuid, None)
        source.gone_ns = 0
        if not source.learner and (self._was_wiped(source, request) or holdings.drain_thread(repository.has_lost)):
            source.learner, repository.caught_up = True, False
            holdings.save()
        # A new source object will be numbered by this; one that registers again is not.
        known = holdings.drain_thread(repository.view if request.incarnation else repository.bound)
        seen: list[Seen] = []
        if not request.incarnation:
            seen = repository.seen(known, others)
            known = farthest(seen)
            most = max(known.incarnation, source.promised) + LEAST_MAX
            if request.least > most:
                text = f"incarnation {request.least} is to be promised, and {most} is the greatest that can be meant"
                return wire.Refused(request.id, "usage", text)
            if source.promise(request.claimant, known.incarnation, request.least):
                holdings.save()
        old = old and source.incarnation > 0
        # Last: a store that could not save has granted nothing, and must not hold it against the same source.
        hold = client.holds.get(_key(source), Hold(time.time_ns(), request.uuid))
        client.holds[_key(source)] = dataclasses.replace(hold, incarnation=request.incarnation)
        return wire.SourceGranted(
            request.id, source.registration_id, source.uuid, known.incarnation, known.end, old, list(known.begins),
            votes=not source.learner, empty_votes=holdings.state.adopts_empty and not source.incarnation,
            opened=holdings.state.opened, peers=source.peers, flags=_flags(source), lives=holdings.state.lives_for(source),
            promised=source.promised, logs=list(map(peer_log, seen)), stores=source.stores, sizes=source.sizes,
            groups=source.groups, intragroup=source.intragroup, intergroup=source.intergroup,
            excluded=source.excluded(holdings.state.excluded), exclusions=holdings.state.excluded, served=source.served,
        )  # fmt: skip

    def _was_wiped(self, source: SourceState, request: wire.RegisterSource) -> bool:
        """This store took part, as the source's register has it, and its directory is another one. BEGIN in a
        stream that is open says nothing of what the store acknowledged since the start: so it has no say
        before it has that again."""
        life, _ = request.elsewhere.get(source.uuid, {}).get(self._holdings.name, (-1, 0))
        begins = not source.incarnation and request.incarnation > 0
        return begins and life >= 0 and life not in self._holdings.state.lives_for(source)

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

    def _in_use(self, request_id: int, source: SourceState, pid: int, since_ns: int) -> wire.Refused:
        name = called(source.registration_id, source.session_id)
        text = f"{name} is in use by a different source at store {self._holdings.name} (pid {pid})"
        return wire.Refused(request_id, "reg_id_in_use", text, pid, since_ns, source.registration_id, source.session_id)

    def holder(self, source: SourceState, but: Client | None = None) -> tuple[int, int] | None:
        """pid, and CLOCK_REALTIME of registration, of who holds a source: a connection, or a living owner of
        an open stream.

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
            return owner.pid, min(since, stream.since_ns) if same and stream is not None else since
        return (stream.pid, stream.since_ns) if stream is not None else None

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
            return self._another(request.id, other)
        if source is None or repository is None:
            return wire.Refused(request.id, "unknown_source", "BEGIN from a source that never registered here")
        if request.incarnation < source.incarnation:
            return wire.Refused(
                request.id, "busy", f"incarnation {request.incarnation} is over: {source.incarnation} has begun"
            )
        claims = (
            client.holds.get(_key(source), Hold(0, b"")).incarnation != request.incarnation
        )  # its stream is not open yet
        another = request.incarnation == source.promised and request.claimant != source.promised_to
        if claims and request.claimant and (request.incarnation < source.promised or another):
            text = f"incarnation {request.incarnation} was not promised: a later claimant was told {source.promised}"
            return wire.Refused(request.id, "busy", text)
        table = after_begin(source.begins, request.begins, request.incarnation, request.start_sqn)
        holder = self.holder(source, client)
        if holder is not None:  # two claimants have opened, on grants of different times: both start over
            name = called(source.registration_id, source.session_id)
            return wire.Refused(request.id, "busy", f"{name} is in use by a different source (pid {holder[0]})")
        # A claimant that slept on its grants while another one began and sent: a quorum has that, and refuses
        # this.
        missed = source.incarnation not in {request.incarnation, *(begin[0] for begin in request.begins)}
        if missed and holdings.drain_thread(lambda: repository.next_sqn) > source.start_sqn:
            if len(request.begins) == BEGINS_MAX and request.begins[0][0] > source.incarnation:
                return self._too_old(request.id, source, repository)
            text = f"incarnation {request.incarnation} was built without {source.incarnation}, which has messages"
            return wire.Refused(request.id, "busy", text)
        wrong = self._contradicts_its_stream(request)
        if wrong is not None:
            return wrong
        others = _others(source, request, holdings.drain_thread(lambda: repository.oldest_sqn))
        infos = {name: read_info(holdings.domain, name) for name in [*request.stores, *others]}
        found = {name: info.directory for name, info in infos.items() if info is not None}
        learns = source.learn(request.learns)
        repository.caught_up &= not learns  # what it had before is not what it is to learn
        readmits = request.incarnation > source.incarnation and source.readmit(holdings.state.excluded)
        if _declare(source, request, {**source.directories, **found}, others) or learns or readmits:
            holdings.save()  # before anything is drained: after a crash, the peers are who fills in what it misses
        news = source.begins != list(table)
        if news:
            self._save_acks()
            holdings.owe()  # where it fails half way it is in the log, and repeated it is no news
        held, catching_up = holdings.drain_thread(lambda: repository.begin(table, request.stream))
        late_join = holdings.drain_thread(lambda: repository.late_join)
        news |= late_join != source.late_join
        source.late_join = late_join
        life = request.opened.get(holdings.name, holdings.state.opened)
        missed = life not in holdings.state.lives_for(source)
        if missed:
            source.take_over(life)
        if news or missed:
            holdings.save()
        holdings.drainer.want_spares()
        return wire.Begun(request.id, held, catching_up)

    def _too_old(self, request_id: int, source: SourceState, repository: Repository) -> wire.Refused:
        """It was away for more starts than anybody remembers. The others go on without it."""
        name = called(source.registration_id, source.session_id)
        return wire.Refused(
            request_id, "unusable_log",
            f"store {self._holdings.name} has missed more than {BEGINS_MAX} starts of {name} on topic {source.topic!r}: what its "
            f"log has from number {source.start_sqn} on may be void; move {repository.path} away: the store begins anew, from "
            f"its peers' logs; or deregister the source there",
        )  # fmt: skip

    def _contradicts_its_stream(self, request: wire.Begin) -> wire.Refused | None:
        """A BEGIN that is taken in stays, and voids what is older: so not one whose source has gone, or has
        started over, since it asked; nor one that is not what its stream says."""
        domain = self._holdings.domain
        begun = request.uuid, request.incarnation, request.start_sqn
        try:
            if request.stream != domain.stream_name(request.uuid, request.incarnation):
                raise CorruptionError(request.stream)
            with attach_stream(request.stream, populate=False) as stream:
                if begun != (stream.uuid, int(stream.preamble.incarnation), int(stream.stream.start_sqn)):
                    raise CorruptionError(request.stream)
        except (FileNotFoundError, UnpublishedError):
            text = f"the stream of incarnation {request.incarnation} is gone: /dev/shm has no {request.stream}"
            return wire.Refused(request.id, "busy", f"{text}; if its source lives, close it and make it again")
        except CorruptionError:
            text = f"BEGIN names {request.stream!r}, which is not the stream of incarnation {request.incarnation}"
            return wire.Refused(request.id, "usage", f"{text} from {request.start_sqn} on")
        numbers = [incarnation for incarnation, _ in request.begins]
        if numbers != sorted(set(numbers)) or len(numbers) > BEGINS_MAX:
            text = f"BEGIN is built on {len(numbers)} others: expected {BEGINS_MAX} at most, oldest first"
            return wire.Refused(request.id, "usage", text)
        return None

    def _another(self, request_id: int, kept: SourceState) -> wire.Refused:
        """What the RegID or session stands for here has begun under another identity than at the other
        stores."""
        name = called(kept.registration_id, kept.session_id)
        return wire.Refused(
            request_id, "other_source",
            f"{name} on topic {kept.topic!r} is at store {self._holdings.name} another source than at the other stores, and has "
            f"messages of its own; this store takes no part until that one is deregistered: make a source with the same topic "
            f"and ID whose ume_store_name is this store alone, and call its deregister()",
            registration_id=kept.registration_id, session_id=kept.session_id,
        )  # fmt: skip

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
            return self._in_use(request.id, source, *(holder or (0, 0)))
        stored = holdings.held(source)
        self.forget(source, names=False)  # the source removes them when all of its stores have answered
        return wire.Deregistered(request.id, stored)

    def forget(self, source: SourceState, *, names: bool) -> None:
        """Deletes everything of a source; its names in shared memory, if it is to and nobody uses them."""
        self._holdings.forget(source, names=names)
        self._clients.release(source.uuid)

    def listed(self, request: wire.ListSources) -> wire.Sources:
        """For receivers that ask which sources there are."""
        kept = self._holdings.registry.sources(request.topic)
        kept = [each for each in kept if each.uuid > request.after and request.source in {b"", each.uuid}]
        kept.sort(key=lambda source: source.uuid)
        page = [self._info(source) for source in kept[: wire.PAGE_MAX]]
        return wire.Sources(request.id, page, len(kept) > wire.PAGE_MAX)

    def _info(self, source: SourceState) -> wire.SourceInfo:
        begins = dict(source.begins)
        declared = source.declared or source.incarnation  # 0: an older version did not write it down
        return wire.SourceInfo(
            source.uuid, source.topic, source.registration_id, source.session_id, declared,
            source.stores, str(self._holdings.logs / source.uuid.hex()), source.late_join,
            begins.get(declared, 0), source.sizes, source.groups,
        )  # fmt: skip


def _others(source: SourceState, request: wire.Begin, oldest: int) -> dict[str, int]:
    """Stores that are declared no more: as the source knows, and as this store remembers. Below the number
    from which on this incarnation is, they may have messages that nobody else has. ``oldest``: below it this
    store keeps nothing anyway."""
    found = dict(source.others)
    for store, below in [*request.others.items(), *((store, request.start_sqn) for store in source.stores)]:
        found[store] = max(below, found.get(store, 0))
    kept = {store: below for store, below in found.items() if store not in request.stores and below > oldest}
    return dict(sorted(kept.items(), key=lambda each: each[1])[-OTHERS_MAX:])


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
