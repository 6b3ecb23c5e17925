"""The sources of a receiver's topic that are over. There may be thousands, and a receiver is registered with
none of them for good.

 - What has nothing for this receiver is left alone: its session has acknowledged all of it.
 - The others are read one after the other, in the order in which their first messages were sent. A receiver
   with a session registers for that, and leaves (leaving.py). One without reads the files
   (finished_source.py), if as many stores say the same as a registration would need.
 - It remembers how far it has come with each one. Where a source goes on, so does the receiver.

A source that waits for stores which are away does not hold up the others. The context's thread.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ..control.deregistration import NOBODY, Forgotten, ReceiverDeregistration, mark_own_lines
from . import finished_source
from .delivery_controller import source_name
from .finished_source import FinishedSource
from .ports import ReceiverPort

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..control import wire
    from ..control.link import StoreLink
    from ..memory.discovery import Found
    from .delivery_controller import DeliveryController

__all__ = ["Finished", "Left"]

AHEAD = 64
"""Sources that lie ready to be read from their files: few descriptors, and seldom a turn of the context's
thread."""
LONG = 10
"""A source of which more is to come, and nothing does, keeps its place for this multiple of that."""
PATIENCE_NS = 500_000_000
"""So long those that stores have told of wait for what is still to be told: the order is that of all. It
begins anew with each that comes: a store tells of thousands page by page."""


class ReaderPort(ReceiverPort, Protocol):
    """A receiver, for this; what its methods do is said at Receiver."""

    ringed: set[bytes]

    def knows(self, uuid: bytes) -> bool:
        """It is registered with this source, or reads it."""

    def new_controller(self, found: Found) -> DeliveryController:
        """What registers with one more source, and reads it."""

    def take(self, controller: DeliveryController) -> None:
        """One more source."""

    def let_go(self, controller: DeliveryController) -> None:
        """The source is over."""


class Left(NamedTuple):
    """How far this receiver has come with a source that it does not read any more."""

    found: Found
    begun: tuple[int, int]
    """The BEGIN under which it was read."""
    next: int
    known: dict[str, Forgotten]
    """Store -> what it knows this receiver by."""


@dataclass(slots=True)
class _Said:
    """What stores say of one source, by its newest incarnation."""

    found: Found
    over: dict[str, wire.Over] = field(default_factory=dict)
    """By store: those where it is over."""
    logs: dict[str, str] = field(default_factory=dict)
    """Store -> the directory of its log."""
    known: dict[str, Forgotten] = field(default_factory=dict)
    """Store -> what it knows the session of this receiver by."""
    queued: bool = False
    tried: bool = False
    """It was read as far as can be; no store has said more since."""

    @property
    def following(self) -> int:
        return max(each.following for each in self.over.values())

    @property
    def low(self) -> int:
        return min(each.low for each in self.over.values())

    @property
    def first_ns(self) -> int:
        return min((each.first_ns for each in self.over.values() if each.first_ns), default=0)

    def acked(self, lowest: bool) -> int:
        """By the session, as its consensus behaviour has it."""
        found = [each.acked for each in self.over.values()]
        return min(found) if lowest else max(found)

    def is_agreed(self) -> bool:
        """With these stores a registration would be complete."""
        found = self.found
        return found.groups.complete([index for index, name in enumerate(found.stores) if name in self.over])


class Finished:
    """See the module."""

    at_once = 1
    """Sources that it is registered with to read them."""

    def __init__(self, receiver: ReaderPort, session_id: int) -> None:
        self._receiver = receiver
        self._session_id = session_id
        options = receiver.options
        callbacks = options.ume_registration_extended_function, options.ume_recovery_sequence_number_info_function
        self._nameless = not session_id and callbacks == (None, None) and receiver.chosen is None
        """It may read without being registered. A start that the program chose is worked out by all logs."""
        self._said: dict[bytes, _Said] = {}
        self._queue: list[tuple[int, bytes]] = []
        self._since_ns = 0
        """When a store has told of one that is over, as the last turn saw it."""
        self._told = self._seen = 0
        """How often one has, and at the last turn."""
        self._open: list[tuple[DeliveryController, int]] = []
        """Those of the queue that are being read, in order, and since when."""
        self.left: dict[bytes, Left] = {}
        self._closed = False
        """It has deregistered: nothing is begun any more."""
        self._begun = 0
        self._deregistrations: list[ReceiverDeregistration] = []
        self._greeted: set[StoreLink] = set()
        """Stores that are linked, and were asked."""

    def __bool__(self) -> bool:
        return bool(self._said)

    def takes(self, store: str, found: Found, info: wire.SourceInfo, known: DeliveryController | None) -> bool:
        """A store tells of a source. True: nothing else is to be done about it. ``known``: who reads it."""
        said, over = self._said.get(found.uuid), info.over
        if over is None:
            if said is not None:
                said.over.pop(store, None)
            left = self.left.get(found.uuid)
            return known is None and left is not None and left.begun[0] >= found.incarnation
        if said is None or found.incarnation > said.found.incarnation:
            said = self._said[found.uuid] = _Said(found)
        self._told += 1
        if found.incarnation == said.found.incarnation:
            said.over[store], said.logs[store], said.tried = over, info.log, False
            if over.receiver:
                said.known[store] = Forgotten(over.receiver, over.registration_id, info.registration_id, 0)
            if isinstance(known, FinishedSource):
                known.goes_to(said.following)
            elif known is None:
                self._consider(said)
        return known is None or isinstance(known, FinishedSource)

    def _consider(self, said: _Said) -> None:
        """It is read, if there is something for this receiver."""
        if self._has_news(said) and not self._closed and not said.queued:
            said.queued = True
            heapq.heappush(self._queue, (said.first_ns, said.found.uuid))

    def _has_news(self, said: _Said) -> bool:
        """There is something for this receiver. Else it is noted how far it has come: when the source comes
        back, it goes on there."""
        found, left = said.found, self.left.get(said.found.uuid)
        if not said.over or said.tried:
            return False
        if left is not None:
            return (left.begun[0], left.next) < (found.incarnation, said.following)
        options, chosen = self._receiver.options, self._receiver.chosen
        lowest = options.ume_consensus_sequence_number_behavior == "lowest"
        if self._session_id:
            nothing = not (chosen is not None and chosen.reset) and said.acked(lowest) >= said.following
        else:
            late_join = bool(options.use_late_join) and found.late_join
            nothing = self._nameless and not (late_join and said.low < said.following)
        if nothing:
            self.left[found.uuid] = Left(found, (found.incarnation, found.start_sqn), said.following, {})
        return not nothing

    def unlinked(self, store: str) -> None:
        """What it has said may not hold any more."""
        for said in self._said.values():
            if said.over.pop(store, None) is not None and said.over:
                controller = self._reading(said.found.uuid)
                if controller is not None:
                    controller.goes_to(said.following)

    def _reading(self, uuid: bytes) -> FinishedSource | None:
        for controller, _ in self._open:
            if controller.uuid == uuid and isinstance(controller, FinishedSource):
                return controller
        return None

    @property
    def is_reading(self) -> bool:
        """There are sources in the queue, or being read."""
        return bool(self._queue or self._open)

    def reached(self, uuid: bytes) -> int:
        """Number of the next message of a source that is not read now; 0: it has not been."""
        left = self.left.get(uuid)
        return left.next if left is not None else 0

    # The queue ----------------------------------------------------------------------------------------------

    def turn(self, now_ns: int, all_said: Callable[[], bool]) -> None:
        """Lets go of what was read, and begins with what is next. ``all_said``: no store of the
        domain is still to tell of its sources."""
        self._tick_deregistrations(now_ns)
        if self._open:
            self._open = [each for each in self._open if self._goes_on(*each, now_ns)]
        if not self._queue or not self._receiver.has_session(claims=False):
            return
        if self._seen != self._told:
            self._seen, self._since_ns = self._told, now_ns
        if not all_said() and now_ns - self._since_ns < PATIENCE_NS:
            return
        while self._queue and self._begin_next(now_ns):
            self._said[heapq.heappop(self._queue)[1]].queued = False

    def _begin_next(self, now_ns: int) -> bool:
        """Begins with the first one of the queue. False: not yet."""
        receiver, uuid = self._receiver, self._queue[0][1]
        said = self._said[uuid]
        if receiver.knows(uuid) or not self._has_news(said) or uuid in receiver.ringed:
            return True  # it lives again, or two stores told of it
        going = [each for each, _ in self._open if not (isinstance(each, FinishedSource) and each.stands)]
        last = self._open[-1][0] if self._open else None
        controller: DeliveryController
        if self._nameless and said.is_agreed():
            before = last if isinstance(last, FinishedSource) else None
            if len(going) >= AHEAD or (last is not None and (before is None or not before.ready)):
                return False
            self._begun += 1
            rings = self._begun % (AHEAD // 4) == 0 or len(self._queue) == 1
            controller = FinishedSource(
                receiver, said.found, said.low, said.following, receiver.resumed(uuid), before, said.logs, rings=rings
            )
        elif len(going) >= self.at_once:
            return False
        else:
            controller = receiver.new_controller(said.found)
        self._open.append((controller, now_ns))
        receiver.take(controller)
        return True

    def _goes_on(self, controller: DeliveryController, since_ns: int, now_ns: int) -> bool:
        """It holds its place. One that is read from its files goes where that is done."""
        receiver = self._receiver
        if not receiver.knows(controller.uuid) or controller.failure is not None:
            return False
        if isinstance(controller, FinishedSource):
            if not controller.ready:  # this process lacks something
                if controller.uuid not in receiver.ringed:
                    return True
                receiver.let_go(controller)  # it lives again
                return False
            feed = controller.live
            if controller.done:
                receiver.context.wake()  # its reader is about to close its files
            else:
                feed.parting |= controller.uuid in receiver.ringed  # it lives again
            if not ((controller.done and feed.at_end) or (feed.parting and feed.parted)):
                return True
            if controller.done:
                controller.ended()
            self._end(controller, feed.next, {})
            return False
        if controller.watch.ring:
            return False
        live = controller.live
        if live is None:
            return now_ns - since_ns < finished_source.STANDS_NS
        return not live.ended and not controller.late.waits and now_ns - since_ns < LONG * finished_source.STANDS_NS

    def leave(self, controller: DeliveryController) -> None:
        """It is registered no more with this source, whose messages were delivered and acknowledged."""
        known = {
            name: Forgotten(answer.uuid, answer.registration_id, answer.source_registration_id, answer.flags)
            for name, answer in controller.registrar.granted()
            if not controller.registrar.ephemeral
        }
        for link, request in controller.leave_requests():  # a store that was away may have granted meanwhile
            link.ask(request, _ignore)
        self._end(controller, self._next_of(controller), known)

    def _next_of(self, controller: DeliveryController) -> int:
        """Where this receiver goes on when the source comes back."""
        assert controller.live is not None
        return controller.live.next

    def _end(self, controller: DeliveryController, following: int, known: dict[str, Forgotten]) -> None:
        uuid = controller.uuid
        self.left[uuid] = Left(controller.found, controller.begun, following, known)
        self._receiver.let_go(controller)
        said = self._said.get(uuid)
        if said is not None and said.over:
            said.tried = controller.begun[0] >= said.found.incarnation
            self._consider(said)

    def is_over(self, uuid: bytes) -> bool:
        """A store has said that this source is over."""
        said = self._said.get(uuid)
        return said is not None and bool(said.over)

    # Deregistration -----------------------------------------------------------------------------------------

    def read(self) -> list[bytes]:
        """Sources that this receiver has read, or a session of it that came before."""
        known = {uuid for uuid, said in self._said.items() if said.known}
        return [*known, *(uuid for uuid, left in self.left.items() if left.known and uuid not in known)]

    def deregister(self) -> None:
        """Stores that know this receiver of a source that it is not registered with forget it there, too."""
        self._closed = True
        self._queue.clear()
        self._greeted = {link for link in self._receiver.context.store_links() if link.welcome is not None}
        for uuid in self.read():
            said, left = self._said.get(uuid), self.left.get(uuid)
            known = (left.known if left is not None else {}) | (said.known if said is not None else {})
            found = said.found if said is not None else left.found if left is not None else None
            if found is not None and known and not self._receiver.knows(uuid):
                self._deregister(found, known)

    def _deregister(self, found: Found, known: dict[str, Forgotten]) -> None:
        receiver = self._receiver
        names = [*found.stores, *(name for name in known if name not in found.stores)]
        links = [receiver.context.link(name) for name in names]
        asked = ReceiverDeregistration(found.uuid, found.topic, source_name(found), receiver.tell, links, names, NOBODY)
        self._deregistrations.append(asked)
        mark_own_lines(receiver.context.domain, found.uuid, {each.uuid for each in known.values()}, self._session_id)
        asked.start({names.index(name): each for name, each in known.items()})

    def _tick_deregistrations(self, now_ns: int) -> None:
        """A store that was away is asked when it is back."""
        for asked in self._deregistrations:
            asked.tick(now_ns)
        if self._deregistrations:
            for link in self._receiver.context.store_links():
                if link.welcome is None:
                    self._greeted.discard(link)
                elif link not in self._greeted:
                    self._greeted.add(link)
                    for asked in self._deregistrations:
                        asked.link_up(link)


def _ignore(_: object) -> None:
    """An answer that changes nothing."""
