"""What really happened, and what must therefore hold: the invariants, said without the code that decides.

Everybody tells the truth what they do; it decides nothing. A message is known by its content, a number that
is never given twice. What a source counts as stable is *kept* from then on: it may not be renumbered,
skipped, replaced or told lost, until faults of the disks have taken this many copies of it that nothing was
promised any more.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from simulation.memory import LOST, Message, Ring
from simulation.world import InvariantError

from holdfast.engine.options.receiver_paced import BLOCKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from simulation.config import Config
    from simulation.disk import Directory
    from simulation.world import Process, World

    from holdfast.engine.log.state_file import SourceState


class Sent(NamedTuple):
    """A message as its source sent it."""

    uuid: bytes
    first: int
    last: int
    incarnation: int
    at_ns: int


class View(NamedTuple):
    """A zero-copy view that its reader has pinned and checked."""

    ring: Ring
    position: int
    end: int
    owner: Process


class Truth:
    """See the module."""

    def __init__(self, world: World, config: Config, directories: Sequence[Directory], known: set[str]) -> None:
        self.world, self.config, self.directories, self.known = world, config, directories, known
        self.sent: dict[int, Sent] = {}
        self.had: dict[int, set[int]] = defaultdict(set)
        """Content -> stores that ever held it for good at their level."""
        self.copies: dict[int, set[int]] = defaultdict(set)
        """Of these, the stores whose disks still have it, as far as faults are concerned."""
        self.gone: dict[int, set[int]] = defaultdict(set)
        """Content -> stores that let it go: it was of their oldest messages."""
        self.kept: dict[bytes, dict[int, int]] = defaultdict(dict)
        """Source -> number -> content, of what is stable and must not be lost."""
        self.rings: dict[bytes, list[Ring]] = defaultdict(list)
        """Source -> its rings, since the machine was booted: no incarnation begins in the middle of one
        (docs/design.md 14)."""
        self.consumed: dict[tuple[bytes, int], dict[int, int]] = defaultdict(dict)
        """(source, session) -> number -> content that the program consumed last."""
        self.acked: dict[tuple[bytes, bytes], tuple[int, int]] = {}
        """(source, receiver's uuid) -> the ack that stands on a board, and the incarnation that it was made
        in."""
        self.opened: dict[bytes, list[tuple[int, int]]] = defaultdict(list)
        """Source -> (incarnation, start) of all that were ever opened."""
        self.told_lost: dict[tuple[bytes, int], set[int]] = defaultdict(set)
        """(source, session) -> numbers that its program was told lost, or that it was not there for."""
        self.skipped: dict[tuple[bytes, int], tuple[int, int]] = {}
        """(source, session) -> [first, start) that its present life has skipped, and not covered by an
        acknowledgement."""
        self.covered: dict[tuple[bytes, int], dict[int, int]] = defaultdict(dict)
        """(source, session) -> number that was skipped -> incarnation under which an acknowledgement has
        covered it."""
        self.due: dict[tuple[bytes, int], int] = {}
        """(source, session) -> the number that comes next."""
        self.began: dict[tuple[bytes, int], int] = {}
        """(source, session) -> where its present life began."""
        self.left: dict[bytes, int] = {}
        """Source -> the incarnation that has deregistered: nothing of it and of older ones is kept from then
        on."""
        self.forgotten: dict[tuple[int, int, bytes], int] = {}
        """(store, generation of its directory, source) -> the incarnation that it has forgotten."""
        self.awaited: dict[tuple[int, bytes, int], int] = {}
        """(store, source, session) -> the number since which a receiver is waited for."""
        self.holders: dict[tuple[int, int, int], object] = {}
        """(store, generation of its directory, RegID) -> who got it."""
        self.sources: list[Any] = []
        """Source objects whose processes live."""
        self.views: list[View] = []
        self.forced = False
        """Something was reclaimed by force: what was not stable may be lost."""

    def fail(self, what: str) -> NoReturn:
        """An invariant does not hold."""
        raise InvariantError(what)

    # Sources ------------------------------------------------------------------------------------------------

    def opens(self, uuid: bytes, incarnation: int, start: int) -> None:
        """A source makes the ring of a new incarnation. It may come to nothing."""
        self.world.note("open", uuid[-1], incarnation, start)
        self.opened[uuid].append((incarnation, start))

    def may_send(self, source: Any) -> None:
        """It may send from now on: nobody else who lives may, and it begins behind all that was stable, or is
        in a ring."""
        self.world.note("complete", source.process.name)
        others = [other for other in self.sources if other is not source and other.process.alive and other.may_send]
        if others:
            self.fail("two live sources may send")
        ring = source.ring
        if ring.tail:
            return  # again, after it had lost its quorum
        kept = [number for number in self.kept[ring.uuid] if number >= ring.start]
        if kept:
            self.fail(f"renumbered: incarnation {ring.incarnation} begins at {ring.start}, and {kept} are stable")
        for older in self.rings[ring.uuid]:
            end = older.end_number()
            if older is not ring and ring.start < end:
                self.fail(f"incarnation {ring.incarnation} begins at {ring.start}, and a ring ends at {end}")

    def evicts(self, ring: Ring, trail: int) -> None:
        """A source has waited for pins below ``trail`` as long as it has to."""
        self.views = [view for view in self.views if view.ring is not ring or view.position >= trail]

    def view(self, ring: Ring, position: int, end: int, owner: Process) -> View:
        """A reader has pinned, and found the trail below."""
        view = View(ring, position, end, owner)
        self.views.append(view)
        return view

    def unview(self, view: View, message: Message, *, good: bool) -> None:
        """It is released. ``good``: its reader takes what it saw for true."""
        if view in self.views:
            self.views.remove(view)
        ring = view.ring
        if good and any(ring.data[at % ring.slots] is not message for at in range(view.position, view.end)):
            self.fail("a view was released as good, and was overwritten")

    def writes(self, ring: Ring, message: Message, released: int) -> None:
        """A source writes a message to its ring, and a zero behind it. ``released``: position below which it
        may."""
        low = ring.tail - ring.slots
        high = low + message.last - message.first + 2
        if high > released:
            self.fail(f"position {high - 1} is overwritten, and released is {released}")
        for view in self.views:
            if view.ring is ring and view.position < high and low < view.end:
                self.fail("a pinned view was overwritten before the timeout")

    def sends(self, uuid: bytes, message: Message) -> None:
        """A message was committed."""
        self.sent[message.content] = Sent(uuid, message.first, message.last, message.incarnation, self.world.now)
        self.world.note("send", message.first, message.last, message.content)

    def stable(self, uuid: bytes, messages: Iterable[Message]) -> None:
        """A source counts these as stable: enough stores have really held them, and nothing that was stable
        is replaced."""
        kept = self.kept[uuid]
        for message in messages:
            content = message.content
            self.held(message)
            if self.copies[content] and message.incarnation > self.left.get(uuid, 0):
                for number in range(message.first, message.last + 1):
                    if kept.setdefault(number, content) != content:
                        self.fail(f"two messages were stable under number {number}")

    def held(self, message: Message) -> None:
        """Enough stores have really held it."""
        if not self._enough(self.had[message.content]):
            self.fail(f"called stable: {message}, and only {sorted(self.had[message.content])} have it")

    def _enough(self, stores: set[int], *, quorums: bool = False) -> bool:
        """The predicate of docs/semantics.md E.2 over stores that hold a message; all-active counts as the
        least that it can mean. ``quorums``: a quorum of one group will do."""
        config = self.config
        complete = 0
        for group, size in enumerate(config.sizes):
            there = sum(config.groups[store] == group for store in stores)
            complete += there >= (size if config.intragroup == "all" and not quorums else size // 2 + 1)
        count = len(config.sizes)
        needed = {"any": 1, "all-active": 1, "majority": count // 2 + 1, "all": count}[config.intergroup]
        return complete >= (1 if quorums else needed)

    def releases(self, uuid: bytes, messages: Iterable[Message], below: int, stable: int) -> None:
        """Numbers up to ``below`` are let go, not by force."""
        if below > stable:
            self.fail(f"released below {below}, and stable is {stable}")
        for message in messages:
            if self.config.unique and len(self.consumers(uuid, message)) < self.config.unique:
                self.fail(f"released {message} before it was confirmed")
            self.older(message, self.config.age_ns)

    def consumers(self, uuid: bytes, message: Message) -> set[int]:
        """Sessions whose programs are done with it, or were told that it is lost."""
        return {
            session for (source, session), got in self.consumed.items()
            if source == uuid
            and (got.get(message.last) == message.content or message.last in self.told_lost[uuid, session]
                 or self._is_covered(uuid, session, message.last))
        }  # fmt: skip

    def leaves(self, uuid: bytes, incarnation: int) -> None:
        """A source deregisters."""
        self.left[uuid] = incarnation
        self.kept[uuid].clear()
        self.rings[uuid].clear()
        self.opened[uuid].clear()

    def outlived(self, messages: Iterable[Message]) -> None:
        """These are given up because they are not stable within their lifetime."""
        for message in messages:
            self.older(message, self.config.lifetime_ns)

    def older(self, message: Message, age_ns: int) -> None:
        """It is at least so old."""
        age = self.world.now - self.sent[message.content].at_ns
        if age < age_ns:
            self.fail(f"{message} goes after {age} ns")

    # Stores -------------------------------------------------------------------------------------------------

    def gives_up(self, store: str, source: SourceState, number: int) -> None:
        """A store records that nobody has this number: it has read the log of every other one, and each goes
        on behind; or it has not begun with the incarnation that the number is of, and no ring has that number
        any more."""
        own = self.directories[self.config.names.index(store)].logs[source.uuid].begins[-1]
        rings = [ring for (uuid, made), ring in self.world.rings.items() if uuid == source.uuid and made >= own[0]]
        over = number >= own[1] and all(ring.oldest_number() > number for ring in rings)
        for name in source.stores:
            log = self.directories[self.config.names.index(name)].logs.get(source.uuid)
            begun = log is not None and bool(log.begins)
            found = name in self.known or (name in source.directories and begun)
            may = log is not None and begun and log.next <= number and not (over and log.begins[-1][0] < own[0])
            if name != store and (not found or may):
                self.fail(
                    f"store {store} records that nobody has {number}: it has not read {name}, or {name} may still get it"
                )

    def holds(self, store: int, records: Iterable[Message]) -> None:
        """A store has published these."""
        for record in records:
            if record.content != LOST:
                self.had[record.content].add(store)
                self.copies[record.content].add(store)

    def lets_go(self, store: int, records: Iterable[Message]) -> None:
        """A store has these no longer: they are its oldest."""
        for record in records:
            self.copies[record.content].discard(store)
            self.gone[record.content].add(store)

    def forgets(self, store: int, generation: int, uuid: bytes, incarnation: int) -> None:
        """A store forgets a source up to this incarnation."""
        if incarnation > self.left.get(uuid, 0):  # 0: nothing had begun
            self.fail(f"store {store} forgets incarnation {incarnation}, and {self.left.get(uuid)} has deregistered")
        self.forgotten[store, generation, uuid] = incarnation

    def drops(self, store: int, uuid: bytes) -> None:
        """A store forgets an identity for one that has begun elsewhere: nobody has anything of it."""
        copies = [content for content, sent in self.sent.items() if sent.uuid == uuid and self.copies[content]]
        if copies or self.kept[uuid]:
            self.fail(f"store {store} forgets a source of which there are messages: {copies}")

    def remembers(self, store: int, generation: int, uuid: bytes, incarnation: int) -> None:
        """A store starts, and finds this in its state. 0: it was only asked, perhaps since."""
        if 0 < incarnation <= self.forgotten.get((store, generation, uuid), -1):
            self.fail(f"store {store} finds incarnation {incarnation} again, which it had forgotten")

    def awaits(self, store: int, uuid: bytes, session: int, since: int) -> None:
        """A receiver is new at a receiver-paced repository: from this number on it is waited for."""
        self.awaited[store, uuid, session] = since

    def frees(self, store: int, source: SourceState, records: Iterable[Message]) -> None:
        """A receiver-paced repository lets these go: all blocking receivers that were there have had them
        (docs/semantics.md J.1)."""
        uuid = source.uuid
        waits = [receiver for receiver in source.receivers if receiver.paced == BLOCKING]
        for record in records:
            void = any(new > record.incarnation and start <= record.first for new, start in self.opened[uuid])
            for receiver in waits if record.content in self.sent and not void else ():
                session = receiver.session_id
                since = max(self.awaited.get((store, uuid, session), 0), self.began.get((uuid, session), 0))
                if record.first >= since and session not in self.consumers(uuid, record):
                    self.fail(f"store {store} lets {record} go, and receiver {session} has never had it")

    def fills(self, store: int, size: int, incarnations: int) -> None:
        """So much is kept at a store for blocking receivers: what it withholds stops the source, if that
        needs this store. A new incarnation may send a flight beyond."""
        paced = self.config.paced
        room = paced.capacity + paced.flight_bytes * (incarnations - 1) if paced is not None else 0
        if size > room and self.config.stores == 1:
            self.fail(f"store {store} keeps {size} for blocking receivers, and has room for {room}")

    def registers(self, store: int, generation: int, registration_id: int, who: object) -> None:
        """A RegID has one holder for as long as its store remembers anything."""
        holder = self.holders.setdefault((store, generation, registration_id), who)
        if holder != who:
            self.fail(f"RegID {registration_id} of store {store} was given to two: {holder} and {who}")

    def destroyed(self, store: int, left: Iterable[int] = ()) -> None:
        """A fault took this store's files, except for these contents."""
        left = set(left)
        for content, copies in self.copies.items():
            if store in copies and content not in left:
                copies.discard(store)
        self._give_up(lambda copies: bool(copies))
        for uuid, rings in self.rings.items():
            logs = [directory.logs[uuid] for directory in self.directories if uuid in directory.logs]
            known = {begin[0] for log in logs for begin in log.begins}
            there = [ring for ring in rings if (uuid, ring.incarnation) in self.world.rings]
            self.rings[uuid] = [ring for ring in there if ring.incarnation in known]  # else nobody can know that it was

    def power_cut(self, left: dict[int, set[int]]) -> None:
        """``left``: what is certainly on the disk of each store.

        A store whose process was not started yet cannot be found by the others, so a quorum of copies is
        asked for. Where one group of several is enough, two quorums need not meet, and nothing is.
        """
        for content, copies in self.copies.items():
            copies &= {store for store, contents in left.items() if content in contents}
        apart = len(self.config.sizes) > 1 and self.config.intergroup in {"any", "all-active"}
        self._give_up(lambda copies: not apart and self._enough(copies, quorums=True))
        self.rings.clear()
        self.views.clear()
        self.acked.clear()

    def _give_up(self, kept: Any) -> None:
        for numbers in self.kept.values():
            for number in [number for number, content in numbers.items() if not kept(self.copies[content])]:
                del numbers[number]

    def unlinks(self, ring: Ring) -> None:
        """A dead ring's name is taken away: enough stores have held all of it (docs/design.md 14), except for
        what one has let go since."""
        if ring.incarnation <= self.left.get(ring.uuid, 0):
            return
        newer = [start for incarnation, start in self.opened[ring.uuid] if incarnation > ring.incarnation]
        for content, sent in self.sent.items() if not self.forced else ():
            of_it = sent.uuid == ring.uuid and sent.incarnation == ring.incarnation and not self.gone[content]
            if of_it and sent.last < min(newer, default=sent.last + 1) and not self._enough(self.had[content]):
                self.fail(f"a ring is unlinked, and only {sorted(self.had[content])} have {sent}")

    # Receivers ----------------------------------------------------------------------------------------------

    def joins(self, uuid: bytes, session: int, start: int, identity: bytes, *, known: bool) -> None:
        """A receiver starts at ``start``. ``known``: all stores that answered knew it by this uuid.

        Where it was before, it goes on, whatever is gone by now: then it is told so. For a new one the stores
        begin with their oldest, and so they do for one that most of them have forgotten.
        """
        self.world.note("join", session, start)
        first = (uuid, session) not in self.due
        consumed = self.consumed[uuid, session]
        lost = self.told_lost[uuid, session]
        for number, content in self.kept[uuid].items():
            had = number in lost or self._is_covered(uuid, session, number)
            if number < start and consumed.get(number) != content and not had:
                without = set(range(self.config.stores)) - self.copies[content]
                some = self.config.paced is not None or self._enough(without, quorums=True)
                late = first or (not known and some)
                if not (self.gone[content] or self.config.paced) or not late:
                    self.fail(f"receiver {session} starts at {start}, and has never had {number}")
                lost.add(number)
        if first or (self.config.paced is not None and not known):
            lost.update(range(start))
        elif not known:  # what was let go before it was stable
            lost.update(set(range(start)) - self.kept[uuid].keys())
        self.due[uuid, session] = self.began[uuid, session] = start
        self.skipped.pop((uuid, session), None)
        ack, made_in = self.acked.get((uuid, identity), (0, 0))
        acked = min([ack, *(begin for incarnation, begin in self.opened[uuid] if incarnation > made_in)])
        if known and start < acked:
            self.fail(f"receiver {session} starts at {start}, and had acknowledged everything below {acked}")

    def beginnings(self, uuid: bytes, low: int, end: int) -> list[int]:
        """Where a start may skip to: where something stable begins, or behind everything."""
        kept = self.kept[uuid].items()
        return [number for number, content in kept if low < number < end and self.sent[content].first == number] + [end]

    def skips(self, uuid: bytes, session: int, position: int, start: int) -> None:
        """It starts behind its position, which that does not move."""
        self.world.note("skips", session, position, start)
        self.skipped[uuid, session] = position, start
        self.due[uuid, session] = start

    def covers_skipped(self, uuid: bytes, session: int, first: int, start: int, incarnation: int) -> None:
        """The program's first acknowledgement covers what it skipped, or the program says so itself."""
        self.covered[uuid, session].update(dict.fromkeys(range(first, start), incarnation))
        self.skipped.pop((uuid, session), None)

    def _is_covered(self, uuid: bytes, session: int, number: int) -> bool:
        """It was skipped and then acknowledged, and is no other message since."""
        under = self.covered[uuid, session].get(number)
        return under is not None and all(number < begin for made, begin in self.opened[uuid] if made > under)

    def acknowledges(self, uuid: bytes, identity: bytes, ack: int, incarnation: int) -> None:
        """On the board: it outlives the receiver."""
        self.acked[uuid, identity] = ack, incarnation

    def covers(self, uuid: bytes, session: int, low: int, high: int) -> None:
        """A receiver's line says that [low, high) is acknowledged, and its present life knows nothing of
        that."""
        kept, consumed, lost = self.kept[uuid], self.consumed[uuid, session], self.told_lost[uuid, session]
        for number in range(low, high):
            had = number in lost or self._is_covered(uuid, session, number)
            if number in kept and consumed.get(number) != kept[number] and not had:
                self.fail(f"{number} is acknowledged, and receiver {session} has never had {kept[number]}")

    def rewinds(self, uuid: bytes, session: int, start: int) -> None:
        """A new incarnation begins at ``start``."""
        self.due[uuid, session] = min(self.due[uuid, session], start)

    def delivers(self, uuid: bytes, session: int, message: Message) -> None:
        """In order, nothing left out, as it was sent."""
        due = self.due[uuid, session]
        if message.first != due:
            self.fail(f"receiver {session} got {message.first} where {due} was due")
        self.due[uuid, session] = message.last + 1
        sent = self.sent.get(message.content)
        if sent is None or (sent.uuid, sent.first, sent.last) != (uuid, message.first, message.last):
            self.fail(f"receiver {session} got {message}, which was sent as {sent}")
        self.world.note("deliver", session, message.first, message.content)

    def consumes(self, uuid: bytes, session: int, message: Message) -> None:
        """The program is done with it."""
        consumed = self.consumed[uuid, session]
        for number in range(message.first, message.last + 1):
            consumed[number] = message.content

    def loses(self, uuid: bytes, session: int, first: int, last: int) -> None:
        """The program is told that nobody has these."""
        self.world.note("lost", session, first, last)
        kept = self.kept[uuid]
        there = [number for number in range(first, last + 1) if number in kept and self._readable(kept[number])]
        if there:
            self.fail(f"receiver {session} is told that nobody has {there}, and they are stable")
        if first != self.due[uuid, session]:
            self.fail(f"receiver {session} is told that {first} is lost where {self.due[uuid, session]} was due")
        self.due[uuid, session] = last + 1
        self.told_lost[uuid, session] |= set(range(first, last + 1))

    def _readable(self, content: int) -> bool:
        """As far as retention goes: who has not let it go can be found."""
        return not self.gone[content] or any(self.config.names[store] in self.known for store in self.copies[content])

    def got_everything(self, uuid: bytes, session: int) -> None:
        """At the end: each stable message was consumed, as it is."""
        consumed = self.consumed[uuid, session]
        first, start = self.skipped.get((uuid, session), (0, 0))
        for number, content in self.kept[uuid].items():
            if first <= number < start or self._is_covered(uuid, session, number):
                continue
            lost = (self.forced or self.gone[content] or self.config.paced) and number in self.told_lost[uuid, session]
            if consumed.get(number) != content and not lost:
                self.fail(f"receiver {session} has never had {content} as {number}, but {consumed.get(number)}")

    def died(self, process: Process) -> None:
        """A process is gone."""
        self.sources = [source for source in self.sources if source.process is not process]
        self.views = [view for view in self.views if view.owner is not process]
