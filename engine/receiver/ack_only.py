"""A receiver that takes no messages: it acknowledges what somebody else has read from the stores' logs.

For the stores, for its sources and for ``stat`` it is a receiver as any other: it has a RegID by its session
ID, a line on each source's board, and its acknowledgements are where its next life is told to go on. It has
no feed, so no ring is read for it and nothing is kept back. What may be acknowledged, whoever reads says; how
far that holds now is decided here at every tick:

* never beyond what is published: the rest is acknowledged when it is;
* under the newest BEGIN that the stores have told of (docs/design.md 13). Until that is known here, the
  stores take acknowledgements as the older incarnation's, and cut them off where the new one begins; with the
  next tick they count in full.

A source without stores has nobody who keeps acknowledgements, so there is no registration with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..control.refusals import refusal_error
from ..errors import ClosedError, UsageError
from ..log.info_file import published_below
from ..native.core import lib
from ..native.runtime import os
from ..rules.start_and_gap import Start
from .delivery_controller import DeliveryController
from .receiver import Receiver

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from ..control.host import Host
    from ..memory.discovery import Found

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

    Raises:
        ConfigError: a bad topic, pattern or option of the context's configuration.
    """

    def __init__(
        self, context: Host, topic: str | None = None, pattern: str | None = None,
        chosen: Collection[bytes] | None = None, on_event: Callable[[Any], object] | None = None,
    ) -> None:  # fmt: skip
        given: dict[str, object] = {**OPTIONS, **({"pattern_type": "pcre"} if pattern is not None else {})}
        name = topic if pattern is None else pattern
        options = context.options_for("receiver", given, name, wildcard=pattern is not None)
        super().__init__(context, topic, pattern, options, on_event)
        self.read_below: dict[bytes, int] = {}
        """uuid of a source -> everything below this number may be acknowledged."""
        self._chosen = set(chosen) if chosen is not None else None
        context.add_receiver(self)

    def choose(self, sources: Collection[bytes]) -> None:
        """Registers with these sources, too, as soon as they are found; of a receiver of every source they
        are among them."""
        with self.context.turning():
            if self._chosen is not None and not self._chosen.issuperset(sources):
                self._chosen.update(sources)
                self._asked.clear()  # what a store has told of them was passed over
                self.context.wake()

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

    def acknowledged(self) -> dict[bytes, int]:
        """uuid of each source that it is registered with -> first number that is not acknowledged."""
        with self.context.turning():
            return {each.uuid: each.acked for each in self._all.values() if isinstance(each, _AckOnly) and each.ready}

    def refusal(self, sources: Collection[bytes]) -> Exception | None:
        """Why a store refuses the registration with one of ``sources`` for as long as nothing changes, or why
        it failed.

        Raises nothing; a RegIdInUseError names the process that holds the session.
        """
        with self.context.turning():
            if self._failure is not None:
                return self._failure
            said = [refusal for uuid in sources if uuid in self._all and (refusal := self._all[uuid].refusal())]
            lasting = [refusal for refusal in said if refusal.code != "unknown_source"]
            return refusal_error(lasting[0]) if lasting else None

    takes_all = False

    def new_controller(self, found: Found) -> DeliveryController:
        """Driver: without a feed."""
        return _AckOnly(self, found, self.read_below)

    def _found(self, found: Found) -> None:
        if found.stores and (self._chosen is None or found.uuid in self._chosen):
            super()._found(found)


class _AckOnly(DeliveryController):
    """One source of an AckOnlyReceiver; all of it under ``Context.turning``."""

    def __init__(self, receiver: AckOnlyReceiver, found: Found, read_below: dict[bytes, int]) -> None:
        super().__init__(receiver, found)
        self._read_below = read_below

    @property
    def ready(self) -> bool:
        """It is registered, and its line counts."""
        return self.window is not None and self.board is not None

    @property
    def acked(self) -> int:
        """First number that is not acknowledged."""
        assert self.board is not None
        return int(lib.hf_board_line_at(self.board.handle, self.line).ack)

    def _start(self, low: int, high: int) -> Start:
        """At what was acknowledged. Late join, ``retransmit_request_maximum`` and the program's callback say
        where delivery starts, and would acknowledge what was never read."""
        return Start(min(low, high + 1), limited=False, clamped=low > high + 1)

    def _open(self, start: int, live_from: int, *, skips: bool) -> None:
        """No feed, and a window that is always settled: the context's thread sleeps."""
        self.window = self.receiver.new_window(start)

    def _cover(self, position: int, start: int) -> None:
        """From now on the line counts: what was said before goes with it."""
        super()._cover(position, position)  # nothing is delivered, so nothing is skipped
        self.acknowledge()

    def acknowledge(self, slot: int = -1, number: int | None = None) -> None:
        """What may be acknowledged, as far as it holds now. See the module."""
        board = self.board
        if board is None or not self.ready or self.registrar.deregistration is not None:
            return
        with self._acking:
            if self._left or self.receiver.context.fence is not None:
                return
            self._begun = max(self._begun, self.known_begin())
            self._rebase()
            wanted = self._read_below.get(self.uuid, 0)
            if wanted > self.acked:
                ack = min(wanted, self._published())
                lib.hf_board_ack(board.handle, self.receiver.context.bells.handle, self.line, ack, ack)

    def _published(self) -> int:
        """First number that is not published: neither in the ring, nor in a log, nor known to a store that
        answered."""
        return max(self._high(0) + 1, published_below(self._begun, self.registrar.log_paths()))

    def report(self, now_ns: int) -> None:
        """A heartbeat for ``stat``; nothing is delivered."""
        if self.board is not None and self.ready:
            lib.hf_board_line_at(self.board.handle, self.line).heartbeat_ns = now_ns

    def gone(self) -> bool:
        """The source was deregistered: neither a ring nor a log of it is left."""
        paths = self.registrar.log_paths()
        known = self.ready and not self.watch.ring and bool(paths)
        return known and not any(os.path.isdir(path) for path in paths)
