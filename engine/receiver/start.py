"""Where a receiver starts with one source: gathers what the rules ask for (docs/semantics.md F.1).

The rules are rules/start_and_gap.py's, and rules/chosen_start.py's where the program has said
``start=``. All of it runs on the context's thread, but what is noted when a receiver is made.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

from ..errors import ConfigError
from ..events import info as callbacks
from ..log.info_file import log_range
from ..log.reader import Logs
from ..native.core import ffi
from ..native.runtime import Path, time
from ..rules import chosen_start
from ..rules.chosen_start import ChosenStart, Published
from ..rules.reconcile import void_from
from ..rules.start_and_gap import Gap, Start, limited_low, start_number
from .feed import Feed

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..memory.discovery import Discovery
    from ..options.resolve import Options
    from .ports import DeliveryPort

__all__ = ["OfProgram", "check_start", "published_now", "start_of"]

_log = logging.getLogger("holdfast")

STAMPS_LAG_NS = 2_000
"""A message may say that it was published so much before it was: its time goes by the CPU's counter
(csrc/base/stamp.h)."""


class OfProgram(Exception):  # noqa: N818  (never shown)
    """``error``: what a function of the program raised."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


def check_start(start: object, options: Options, *, reset: bool) -> ChosenStart | None:
    """What ``start`` and ``reset`` ask for, as :func:`parsed_start`; raises ConfigError also where an option
    says otherwise."""
    chosen = chosen_start.parsed_start(start, reset=reset)
    if chosen is None:
        return None
    if options.ume_recovery_sequence_number_info_function is not None:
        text = "both start= and ume_recovery_sequence_number_info_function say where to start"
        raise ConfigError(text, hint="leave one of them out")
    if not options.use_late_join and chosen.place != "latest":
        text = f"start={start!r} asks for recovery, and use_late_join 0 for none"
        raise ConfigError(text, hint='leave use_late_join out, or start="latest"')
    if not options.ume_use_store and chosen.place != "latest":
        text = f"start={start!r} asks for recovery, and ume_use_store 0 for no stores"
        raise ConfigError(text, hint='leave ume_use_store out, or start="latest"')
    return chosen


def published_now(discovery: Discovery, matches: Callable[[str], bool]) -> Published:
    """How far the sources of these topics have come. Any thread."""
    now = time.time_ns() - STAMPS_LAG_NS  # first: what is published from here on may count as later, and nothing else
    headers = {found.uuid: discovery.header(found.uuid) for found in discovery.sources() if matches(found.topic)}
    rings = {uuid: (int(each.pre.incarnation), int(each.next_sqn)) for uuid, each in headers.items() if each}
    return Published(now, rings)


def start_of(controller: DeliveryPort, low: int, high: int) -> Start:
    """The first number to deliver. ``low``: as the stores agreed; ``high``: published so far, -1 for none."""
    options, receiver = controller.receiver.options, controller.receiver
    left = receiver.resumed(controller.uuid)
    if left is not None:  # nobody is asked again
        under, number = left
        return Start(
            min(number, void_from(controller.registrar.table(), under), high + 1), limited=False, clamped=False
        )
    if not (options.use_late_join and options.ume_use_store and controller.found.late_join):
        return Start(high + 1, limited=False, clamped=False)
    chosen = receiver.chosen
    if chosen is not None and (chosen.reset or not _has_position(controller)):
        return Start(_chosen(controller, chosen, high + 1), limited=False, clamped=False)
    maximum = options.retransmit_request_maximum
    if controller.streaming:
        low = receiver.context.discovery.start_sqn(controller.uuid)
    asked = low
    function = options.ume_recovery_sequence_number_info_function
    if function is not None:
        session = controller.registrar.source_session_id()
        flags = callbacks.RecoveryInfoFlags.SRC_SID if session else callbacks.RecoveryInfoFlags(0)
        info = callbacks.RecoverySequenceNumberInfo(
            flags, low, limited_low(low, high, maximum), high, controller.source, controller.client_data, session
        )
        try:
            function(info)
        except Exception as error:
            raise OfProgram(error) from error
        asked = int(info.low_sequence_number)
    start = start_number(low, high, maximum, asked)
    if start.clamped:
        _log.warning(
            "%s: low sequence number %d is beyond the newest, %d: starts at %d, no messages will be recovered",
            controller.source, asked, high, start.sequence_number,
        )  # fmt: skip
    return start


def _has_position(controller: DeliveryPort) -> bool:
    """A store knew this receiver before this object came, also if it had acknowledged nothing. What was made
    for this object has the identity that it has proposed."""
    registrar = controller.registrar
    return any(each.uuid != registrar.proposal for each in registrar.answers())


def _chosen(controller: DeliveryPort, chosen: ChosenStart, end: int) -> int:
    discovery, made = controller.receiver.context.discovery, controller.receiver.made
    assert made is not None
    header = discovery.header(controller.uuid)
    ring = int(header.start_sqn) if header is not None else None
    oldest = _oldest(controller, end if ring is None else ring)
    then, table = made.rings.get(controller.uuid), controller.registrar.table()
    with contextlib.closing(_Times(controller, oldest, end)) as times:

        def latest(since: Callable[[], int]) -> int:
            return chosen_start.latest_number(then, table, ring, since)

        def by_the_clock() -> int:
            return latest(lambda: times.since(made.time_ns))

        return chosen_start.chosen_number(chosen, oldest, end, latest(lambda: end), by_the_clock, times.since)


def _oldest(controller: DeliveryPort, ring: int) -> int:
    """The first number that a log has, also of a store that does not run; ``ring`` where none has any."""
    ranges = [log_range(Path(path)) for path in controller.logs()[0] if path]
    return min((each[0] for each in ranges if each is not None and each[0] < each[1]), default=ring)


class _Times:
    """When the messages of [oldest, end) were published, in the ring and in the logs alike."""

    def __init__(self, controller: DeliveryPort, oldest: int, end: int) -> None:
        assert controller.board is not None
        context = controller.receiver.context
        paths, until = controller.logs()
        self._range = oldest, end
        self._feed = Feed(
            controller.uuid, controller.board, context.bells, -1, context.discovery, Logs(paths, until), oldest, 0,
            controller.known_begin(), _Unheard(), Gap(0), time.monotonic_ns, end,
        )  # fmt: skip
        self._entry = ffi.new("struct hf_entry[]", 1)

    def since(self, time_ns: int) -> int:
        """The first number that was published then or later; the end: there is none."""
        return chosen_start.first_sent_since(self._sent, *self._range, time_ns)

    def _sent(self, number: int, stop: int) -> tuple[int, int] | None:
        feed, entry = self._feed, self._entry[0]
        feed.stop = stop
        feed.seek(number)
        if feed.batch(self._entry, 1, 0) is None or entry.sequence_number < number:  # one has begun below it
            return None
        return int(entry.sequence_number), int(entry.timestamp_ns)

    def close(self) -> None:
        """Lets the ring and the logs go."""
        self._feed.close()


class _Unheard:
    """A listener to whom nothing matters: nothing is delivered."""

    def lost(self, first: int, last: int) -> None:
        """Listener."""

    def resumed(self) -> None:
        """Listener."""

    def ended(self) -> None:
        """Listener."""

    def parted(self) -> None:
        """Listener."""

    def rebased(self, incarnation: int, start: int, void: int) -> None:
        """Listener."""
