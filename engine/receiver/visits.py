"""Sources that are over, at a receiver that only acknowledges what others have read from the stores' files
(ack_only.py). It goes by the rules of those that deliver (finished.py, leaving.py):

 - what its session has acknowledged to the end is left alone;
 - it registers with the others, and so has a position with each: what it has not acknowledged is owed to it;
 - it leaves where everything is acknowledged. Its position stays at the stores.

What it has not read may be thousands. It never waits for all of them at once: with more than IDLE_MAX it
leaves the oldest, too, and visits each again when there is something to acknowledge. The position holds what
is not acknowledged meanwhile. Whoever reads does so without a registration, so nothing is out of his reach.

A visit is over when every store that has told of the source has granted: those that come later would not
learn of the acknowledgement. One that comes to nothing, because stores are away, ends when the others have
answered, and is made again when another store tells of the source. A store that is linked, and does not
answer or refuses for now, is visited again after a registration interval; each time twice as late, because
the others open their logs for it, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from ..native.runtime import time
from . import finished_source
from .ack_controller import AckController
from .finished import Finished, ReaderPort
from .leaving import IDLE_MAX, Leaving, may_be_left

if TYPE_CHECKING:
    from collections.abc import Callable

    from .delivery_controller import DeliveryController
    from .finished import _Said

__all__ = ["VisitLeaving", "Visits"]


HANGS_NS = 60_000_000_000
"""So long a store that is linked has to answer: there may be much that it does, or its disk hangs. And it is
visited again so late at most."""


class AckPort(ReaderPort, Protocol):
    """A receiver that only acknowledges, for this."""

    read_below: dict[bytes, int]

    def is_chosen(self, uuid: bytes) -> bool:
        """It registers with this source."""


class _Visit(NamedTuple):
    """The last one to a source."""

    incarnation: int
    wanted: int
    """What was to be acknowledged then."""
    stores: frozenset[str]
    """Those that have granted, or had their time to."""
    silent: frozenset[str] = frozenset()
    """Of these, those that had it in vain."""
    times: int = 0
    """How often in a row some had."""


class Visits(Finished):
    """See the module."""

    at_once = 2 * IDLE_MAX

    def __init__(self, receiver: AckPort, session_id: int) -> None:
        super().__init__(receiver, session_id)
        self._nameless = False  # it is there to be known
        self._acks = receiver
        self._visits: dict[bytes, _Visit] = {}
        self._again: dict[bytes, int] = {}
        """When the silent ones of a visit are visited again."""
        self.trouble = ""
        """What kept it from acknowledging at its last visit."""
        self._until: dict[bytes, int] = {}
        """Sources where it acknowledges -> until when stores that have not granted are waited for."""

    def turn(self, now_ns: int, all_said: Callable[[], bool]) -> None:
        """As Finished."""
        for uuid in [uuid for uuid, due_ns in self._again.items() if now_ns >= due_ns]:
            del self._again[uuid]
            visit = self._visits[uuid]
            self._visits[uuid] = visit._replace(stores=visit.stores - visit.silent)
            self.consider(uuid)
        super().turn(now_ns, all_said)

    def consider(self, uuid: bytes) -> None:
        """There may be something to acknowledge."""
        said = self._said.get(uuid)
        if said is not None and not self._receiver.knows(uuid):
            self._consider(said)

    def _has_news(self, said: _Said) -> bool:
        uuid = said.found.uuid
        if not self._acks.is_chosen(uuid):
            return False
        visit = self._visits.get(uuid)
        there: frozenset[str] = frozenset()
        if visit is not None and visit.incarnation >= said.found.incarnation and visit.wanted >= self._wanted(uuid):
            there = visit.stores
        return any(over.acked < over.following and store not in there for store, over in said.over.items())

    def _wanted(self, uuid: bytes) -> int:
        return self._acks.read_below.get(uuid, 0)

    def _goes_on(self, controller: DeliveryController, since_ns: int, now_ns: int) -> bool:
        """It keeps its place until it is left: so few are registered at a time."""
        assert isinstance(controller, AckController)
        if not self._receiver.knows(controller.uuid) or controller.failure is not None or controller.watch.ring:
            self._until.pop(controller.uuid, None)
            return False
        if controller.ready:
            self.trouble = ""
            self._until.setdefault(controller.uuid, now_ns + finished_source.STANDS_NS)
            return may_be_left(controller)
        if not _comes_to_nothing(controller, now_ns - since_ns):
            return True
        hindrance = controller.hindrance()
        for link, request in controller.leave_requests():  # a grant that is on its way goes astray
            link.ask(request, _ignore)
        self._note(controller)
        self.trouble = hindrance
        self._receiver.let_go(controller)
        return False

    def _note(self, controller: AckController) -> None:
        """It was there."""
        uuid, has = controller.uuid, granted(controller)
        said, before = self._said.get(uuid), self._visits.get(uuid)
        told = set(said.over) if said is not None else set()
        incarnation = max(controller.begun[0], said.found.incarnation if said is not None else 0)
        silent = told if controller.trouble else told - has
        times = before.times + 1 if silent and before is not None else bool(silent)
        self._visits[uuid] = _Visit(incarnation, self._wanted(uuid), frozenset(has | told), frozenset(silent), times)
        self._until.pop(uuid, None)
        self._again.pop(uuid, None)
        if silent:
            first_ns = self._receiver.options.ume_registration_interval * 1_000_000
            self._again[uuid] = time.monotonic_ns() + min(first_ns << min(times - 1, 16), max(first_ns, HANGS_NS))

    def leave(self, controller: DeliveryController) -> None:
        """As Finished."""
        assert isinstance(controller, AckController)
        self._note(controller)
        super().leave(controller)

    def _next_of(self, controller: DeliveryController) -> int:
        assert isinstance(controller, AckController)
        return controller.acked

    def unlinked(self, store: str) -> None:
        """As Finished. What it did not take in, it is told when it is back."""
        super().unlinked(store)
        for uuid, visit in self._visits.items():
            if store in visit.stores:
                self._visits[uuid] = visit._replace(stores=visit.stores - {store})

    def are_granted(self, controller: DeliveryController) -> bool:
        """By all stores that say that the source is over."""
        said = self._said.get(controller.uuid)
        return said is None or granted(controller).issuperset(said.over)

    def positions(self) -> dict[bytes, int]:
        """uuid of each source in which the session has a position by what was told or done -> first number
        that is not acknowledged."""
        told = {
            uuid: min(each.acked for each in said.over.values())
            for uuid, said in self._said.items()
            if said.over and all(each.acked >= each.following for each in said.over.values())
        }
        return told | {uuid: left.next for uuid, left in self.left.items()}

    @property
    def pending(self) -> int:
        """Visits that are due, or have begun and are not where every store hears what they acknowledge. A
        quorum would do for the next life. To a store that has not heard the source stays owed, as long as the
        others cannot be read (docs/semantics.md A.4)."""
        now_ns = time.monotonic_ns()
        begun = [each for each, _ in self._open if isinstance(each, AckController) and not self._is_heard(each, now_ns)]
        return len(self._queue) + len(begun)

    def _is_heard(self, controller: AckController, now_ns: int) -> bool:
        """By every store that says that the source is over, or those that are not there had their time."""
        late = now_ns >= self._until.get(controller.uuid, now_ns + 1)
        return controller.ready and (late or self.are_granted(controller))


class VisitLeaving(Leaving):
    """See the module."""

    def __init__(self, visits: Visits) -> None:
        super().__init__(visits)
        self._visits = visits
        self._due: dict[bytes, int] = {}
        """Until when stores that have not granted are waited for."""

    def _is_done(self, controller: DeliveryController) -> bool:
        assert isinstance(controller, AckController)
        return controller.ready and (self._visits.is_over(controller.uuid) or controller.is_settled)

    def _stays(self, controller: DeliveryController) -> bool:
        assert isinstance(controller, AckController)
        return not controller.is_settled

    def _has_parted(self, controller: DeliveryController) -> bool:
        return True  # nothing is delivered

    def _part(self, controller: DeliveryController, now_ns: int) -> None:
        self._due = {uuid: due_ns for uuid, due_ns in self._due.items() if uuid in self._ended}
        due_ns = self._due.setdefault(controller.uuid, now_ns + finished_source.STANDS_NS)
        if now_ns >= due_ns or self._visits.are_granted(controller):
            super()._part(controller, now_ns)
            del self._due[controller.uuid]  # the next visit has its own time


def _comes_to_nothing(controller: AckController, waited_ns: int) -> bool:
    """Too few stores are there. One that refuses for good is asked again, and whoever reads hears of that."""
    refusal = controller.refusal()
    if waited_ns < finished_source.STANDS_NS or (refusal is not None and refusal.lasts):
        return False
    silent = refusal is None and any(each.link.up and each.answer is None for each in controller.registrar.stores)
    return not silent or waited_ns >= HANGS_NS


def granted(controller: DeliveryController) -> set[str]:
    """The stores that have granted, by their own names. Not one that is asked again: it does not know yet by
    which name it is acknowledged."""
    return {
        each.link.welcome.name if each.link.welcome is not None else each.name
        for each in controller.registrar.stores
        if each.answer is not None and not each.asked
    }


def _ignore(_: object) -> None:
    """An answer that changes nothing."""
