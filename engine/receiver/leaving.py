"""A receiver leaves a source that has ended: the stores may close its log then, and nothing is looked at any
more that costs time. Where the source comes back, the receiver registers again, and goes on where it was
(finished.py).

It leaves when everything was delivered and acknowledged, no ring is left, and nothing has come for a while.
The receiving thread says itself that it delivers no more from there: what it delivers counts as long as it
has not. Then the stores take in what was acknowledged, as at a close. The context's thread.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ..events.receiver import RegistrationSuccessFlags

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from ..control.link import StoreLink
    from .delivery_controller import DeliveryController
    from .finished import Finished

__all__ = ["Leaving", "may_be_left", "unregistered"]

IDLE_NS = 10_000_000_000
"""So long it stays: a source that ends and starts again finds its receivers there."""
IDLE_MAX = 16
"""With more than that it leaves those that ended first."""
ANSWER_NS = 1_000_000_000
"""So long a store has to answer."""


class Leaving:
    """See the module."""

    def __init__(self, finished: Finished) -> None:
        self._finished = finished
        self._ended: dict[bytes, int] = {}
        """Since when a source has been over, in that order."""
        self._asked: dict[bytes, tuple[set[StoreLink], int]] = {}
        """Stores that are still to answer, and until when they are waited for."""

    def turn(self, controllers: list[DeliveryController], now_ns: int) -> None:
        """One look at all sources that the receiver is registered with."""
        over = {
            each.uuid: each
            for each in controllers
            if each.uuid not in self._asked and may_be_left(each) and self._is_done(each)
        }
        for uuid in [uuid for uuid in self._ended if uuid not in over]:
            del self._ended[uuid]
        for uuid in over:
            self._ended.setdefault(uuid, now_ns)
        for place, (uuid, since_ns) in enumerate(list(self._ended.items())):
            crowded = place < len(self._ended) - IDLE_MAX
            is_due = now_ns - since_ns >= IDLE_NS or self._finished.is_over(uuid)
            if crowded or (is_due and not self._stays(over[uuid])):
                self._part(over[uuid], now_ns)
        here = {each.uuid: each for each in controllers if each.registers}
        self._asked = {
            uuid: asked
            for uuid, asked in self._asked.items()
            if uuid in here and here[uuid].registrar.deregistration is None
        }
        for each in here.values():
            live = each.live
            if live is not None and live.parting and each.uuid not in over and each.uuid not in self._asked:
                live.parting = live.parted = False  # a message has come, or its ring
            elif each.uuid in self._asked:
                links, until_ns = self._asked[each.uuid]
                if now_ns >= until_ns or not any(link.up for link in links):
                    del self._asked[each.uuid]
                    self._finished.leave(each)

    def _is_done(self, controller: DeliveryController) -> bool:
        """Everything that the source has was delivered and acknowledged."""
        live, window, feed = controller.live, controller.window, controller.feed
        if live is None or window is None or feed is None or not live.ended or live.ring is not None:
            return False
        return window.settled and window.ack >= live.next == feed.next

    def _stays(self, controller: DeliveryController) -> bool:
        """It leaves only where there are too many."""
        return False

    def _has_parted(self, controller: DeliveryController) -> bool:
        """Nothing is delivered from there any more. Else that is asked for."""
        live = controller.live
        assert live is not None
        if not live.parting:
            live.parted = False  # an answer to an earlier question
            live.parting = True
        return live.parted

    def _part(self, controller: DeliveryController, now_ns: int) -> None:
        if not self._has_parted(controller):
            return
        controller.acknowledge()
        del self._ended[controller.uuid]
        waiting: set[StoreLink] = set()
        self._asked[controller.uuid] = waiting, now_ns + ANSWER_NS
        for link, request in controller.leave_requests():
            if link.ask(request, partial(_answered, waiting, link)):
                waiting.add(link)


def _answered(waiting: set[StoreLink], link: StoreLink, _: object) -> None:
    waiting.discard(link)


def unregistered(
    every: Iterable[DeliveryController], registered: Collection[DeliveryController]
) -> Iterator[DeliveryController]:
    """Sources with stores that another receiver of the session is to have. The stores are told of each just
    before the receiver lets go of it: it asks for nothing from there on."""
    for controller in list(every):
        if controller not in registered and controller.found.stores and controller.failure is None:
            for link, request in controller.leave_requests():
                link.ask(request, lambda _: None)
            yield controller


def may_be_left(controller: DeliveryController) -> bool:
    """The source has ended, and no store would forget this receiver."""
    if not controller.registers or controller.streaming or controller.watch.ring or controller.board is None:
        return False
    if controller.registrar.deregistration is not None or controller.receiver.context.fence is not None:
        return False
    answers = controller.registrar.answers()
    # One that comes back to a receiver-paced source without a session begins where that stands by then.
    paced = any(answer.flags & RegistrationSuccessFlags.RPP for answer in answers)
    kept = all(answer.may_leave for answer in answers)  # else a store would forget it while it lives
    return not paced and kept
