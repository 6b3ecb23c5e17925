"""A receiver that takes no messages: it acknowledges what somebody else has read from the stores' logs.

For the stores, for its sources and for ``stat`` it is a receiver as any other: it has a RegID by its session
ID, a line on each source's board, and its acknowledgements are where its next life is told to go on. It has
no feed, so no ring is read for it and nothing is kept back. What may be acknowledged, whoever reads says; how
far that holds now is decided here at every tick:

* never beyond what is published: the rest is acknowledged when it is;
* under the newest BEGIN that the stores have told of (docs/design.md 13). Until that is known here, the
  stores take acknowledgements as the older incarnation's, and cut them off where the new one begins; with the
  next tick they count in full.

A source without stores has nobody who keeps acknowledgements, so there is no registration with it. With one
that is over it is registered as long as something of it is not acknowledged, and with few of these at a time
(visits.py): their stores have closed the logs, and open them for who registers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from ..control.refusals import refusal_error
from ..errors import ClosedError, UsageError
from .ack_controller import AckController
from .receiver import Receiver
from .visits import VisitLeaving, Visits

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from ..control.host import Host
    from ..memory.discovery import Found
    from .delivery_controller import DeliveryController

__all__ = ["AckOnlyReceiver"]

NUMBERS = 2**63
"""Sequence numbers are below."""
ASKED_OFTEN_MS = 500
"""A session whose last holder is just dying is asked for again soon."""
OPTIONS = {"ume_use_ack_batching": 0, "ume_explicit_ack_only": 1, "ume_registration_interval": ASKED_OFTEN_MS}


class AckOnlyReceiver(Receiver):
    """See the module. Any thread may call it; the context must have a thread.

    Args:
        topic, pattern: which sources, as ``Context.receiver``; a pattern is a regular expression, found
            anywhere in a topic.
        chosen: uuids of the sources to register with; None: every one. :meth:`choose` adds to them.
        on_event: is told what a receiver is told of its registrations.
        alone: it claims its session (engine/control/session_claim.py). Else others may have sources of its
            topic.

    Raises:
        ConfigError: a bad topic, pattern or option of the context's configuration.
    """

    def __init__(
        self, context: Host, topic: str | None = None, pattern: str | None = None,
        chosen: Collection[bytes] | None = None, on_event: Callable[[Any], object] | None = None, *, alone: bool = True,
    ) -> None:  # fmt: skip
        given: dict[str, object] = {**OPTIONS, **({"pattern_type": "pcre"} if pattern is not None else {})}
        name = topic if pattern is None else pattern
        options = context.options_for("receiver", given, name, wildcard=pattern is not None)
        super().__init__(context, topic, pattern, options, on_event)
        self.read_below: dict[bytes, int] = {}
        """uuid of a source -> everything below this number may be acknowledged."""
        if not alone:
            self._claim.close()
        self._chosen = set(chosen) if chosen is not None else None
        self._passed: dict[bytes, Found] = {}
        """Sources that are not over, and not chosen: a store tells of each once."""
        self.finished: Visits = Visits(self, self._session_id)
        self._leaving = VisitLeaving(self.finished)
        context.add_receiver(self)

    def choose(self, sources: Collection[bytes]) -> None:
        """Registers with these sources, too, as soon as they are found; of a receiver of every source they
        are among them."""
        with self.context.turning():
            if self._chosen is None or self._chosen.issuperset(sources):
                return
            new = set(sources) - self._chosen
            self._chosen |= new
            for uuid in new:
                passed = self._passed.pop(uuid, None)
                if passed is not None and not self.finished.is_over(uuid):
                    self._found(passed)
                else:
                    self.finished.consider(uuid)
        self.context.wake()

    def is_chosen(self, uuid: bytes) -> bool:
        """It registers with this source."""
        return self._chosen is None or uuid in self._chosen

    def acknowledge_below(self, source: bytes, number: int) -> None:
        """Everything of the source with the uuid ``source`` below ``number`` is processed for good.

        Cumulative: a number that is not above an earlier one has no effect. It may be said before the
        registration with the source is complete, and before its stores run: it is acknowledged when they do.

        Raises:
            UsageError: not a sequence number.
            ClosedError: the receiver was closed.
            ForkedHandleError: it belongs to the parent process.
        """
        if not 0 <= number < NUMBERS:
            raise UsageError(f"an acknowledgement below {number}", hint="a sequence number of this stream")
        self.context.check_usable()
        with self.context.turning():
            if self.closed:
                raise ClosedError(f"receiver of {self.name}")
            if number > self.read_below.get(source, 0):
                self.read_below[source] = number
                controller = self._all.get(source)
                if controller is not None:
                    controller.acknowledge()
                else:
                    self._come_back(source)

    def _come_back(self, uuid: bytes) -> None:
        """More of a source is to be acknowledged that was left, or is over."""
        left = self.finished.left.get(uuid)
        if self.finished.is_over(uuid):
            self.finished.consider(uuid)
        elif left is not None:
            self._found(left.found)
        self.context.wake()

    def acknowledged(self) -> dict[bytes, int]:
        """uuid of each source in which the session has a position -> first number that is not acknowledged.

        These are the sources that it is registered with, those that it has left, and those that are over and
        were acknowledged to the end before.
        """
        with self.context.turning():
            ready = {
                each.uuid: each.acked for each in self._all.values() if isinstance(each, AckController) and each.ready
            }
            return {uuid: acked for uuid, acked in self.finished.positions().items() if uuid not in self._all} | ready

    @property
    def pending(self) -> int:
        """Sources that it is about to register with because they are over, or were left, and something is to
        be acknowledged: as long as that takes, an acknowledgement is in this process alone."""
        with self.context.turning():
            if self.closed:
                return 0
            left = [uuid for uuid in self.finished.left if uuid in self._all]
            return self.finished.pending + sum(
                not self.finished.is_over(uuid) and not cast("AckController", self._all[uuid]).ready for uuid in left
            )

    def refusal(self, sources: Collection[bytes]) -> Exception | None:
        """Why a store refuses the registration with one of ``sources`` however often it is asked, or why it
        failed for good.

        Raises nothing; a RegIdInUseError names the process that holds the session.
        """
        with self.context.turning():
            if self._failure is not None:
                return self._failure
            said = [refusal for uuid in sources if uuid in self._all and (refusal := self._all[uuid].refusal())]
            lasting = [refusal for refusal in said if refusal.lasts]
            return refusal_error(lasting[0]) if lasting else self._claim.refusal() if sources else None

    def trouble(self) -> str:
        """What keeps it from registering with a source, and passes: it is tried again. Empty: nothing
        does."""
        with self.context.turning():
            found = (cast("AckController", each).hindrance() for each in self._all.values())
            return next(filter(None, found), self.finished.trouble)

    def new_controller(self, found: Found) -> DeliveryController:
        """Driver: without a feed."""
        return AckController(self, found, self.read_below)

    def _found(self, found: Found) -> None:
        if not found.stores:
            return
        if self.is_chosen(found.uuid):
            super()._found(found)
        else:
            self._passed[found.uuid] = found
