"""A smart source: memory and sizes are fixed when it is made, and messages are only written in place.

UM's smart source trades generality for a short send path (docs/semantics.md J.3). Here the path of a `Source`
is short already; what is left is that claims are recycled, so that a warm one allocates only a buffer and a
view.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from ..errors import ConfigError, MessageTooLargeError, UsageError
from ..native.core import lib
from ..native.runtime import threading
from ..options.table import BY_ANY_NAME
from .source import Claim, Source

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..options.resolve import Options
    from .publisher import Publisher
    from .session import SourceSession

__all__ = ["SmartClaim", "SmartSource", "smart_options"]

_log = logging.getLogger("holdfast")

GRANULE = int(lib.HF_GRANULE)
LIMIT_MIN, FRAGMENT_MIN, RING_MIN, RING_MAX = 8192, GRANULE, 1 << 16, 1 << 34
"""Of the options that are worked out, in bytes (option_table; csrc/stream/stream.h)."""
REFUSED = {
    "ume_message_stability_notification": (None, 0, 2),
    "ume_confirmed_delivery_notification": (0,),
    "ume_retention_unique_confirmations": (0,),
}
"""Options that a smart source has only these values of."""
IGNORED = (
    "retransmit_retention_size_threshold",
    "retransmit_retention_size_limit",
    "retransmit_retention_age_threshold",
    "ring_size",
    "fragment_size",
)
"""Options that a smart source works out, or does without."""


def smart_options(topic: str, given: Mapping[str, object], found: Options) -> dict[str, object]:
    """What to resolve for a smart source: ``given``, with the sizes that follow from the two smart_src
    options.

    The ring has room for ``smart_src_retention_buffer_count`` frames of the longest message, and as many
    messages are retained, however long they are (:meth:`SmartSource.claim`). Unless it is given,
    ume_flight_size_bytes is off, as in UM: messages are counted. ``found`` is what ``given`` comes to, with
    everything inherited.

    Raises:
        ConfigError: something that a smart source has not got (docs/semantics.md J.3), or the sizes are too
            large.
    """
    for name, allowed in REFUSED.items():
        value = getattr(found, name)
        if value not in allowed:
            words = " or ".join(str(number) for number in allowed if number is not None)
            raise ConfigError(
                f"source option {name} = {value}: a smart source has {words} only",
                hint="leave it out, or make a source",
            )
    ignored = [name for name in IGNORED if found.given(name)]
    if ignored:
        _log.info("smart source %r: %s ignored: smart_src_* say how much is retained", topic, ", ".join(ignored))
    length, count = found.smart_src_max_message_length, found.smart_src_retention_buffer_count
    if count <= found.ume_flight_size:
        _log.info(
            "smart source %r: smart_src_retention_buffer_count = %d should exceed ume_flight_size = %d: messages that are "
            "in flight may be reclaimed by force", topic, count, found.ume_flight_size,
        )  # fmt: skip
    span = -(-length // GRANULE) * GRANULE + GRANULE
    ring = max(RING_MIN, _power_of_two(count * span * 5 // 4), _power_of_two(4 * span))
    if ring > RING_MAX:
        raise ConfigError(
            f"source options smart_src_retention_buffer_count = {count} and smart_src_max_message_length = {length} need "
            f"a ring of {ring} bytes, the maximum is {RING_MAX}", hint="lower one of them",
        )  # fmt: skip
    sizes = {
        "retransmit_retention_size_threshold": 0,
        "retransmit_retention_size_limit": max(LIMIT_MIN, count * span),
        "retransmit_retention_age_threshold": 0,
        "ring_size": ring,
        "fragment_size": max(FRAGMENT_MIN, length),
    }
    flight = {} if found.given("ume_flight_size_bytes") else {"ume_flight_size_bytes": 0}
    kept = {name: value for name, value in given.items() if BY_ANY_NAME[name].name not in IGNORED}
    return {**kept, **sizes, **flight}


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()


class SmartClaim(Claim):
    """See :class:`Claim`. Once it has ended and nobody refers to it, the next claim is this same object."""

    def __init__(self, publisher: Publisher) -> None:
        self.sequence_number = None
        self._publisher = publisher
        self._client_data = None
        self._base = None
        self._view = None

    def begin(self, base: Any, client_data: object) -> None:
        """It is open, over these bytes."""
        self.sequence_number = None
        self._client_data = client_data
        self._base = base
        self._view = memoryview(base)


class SmartSource(Source):
    """Made by ``Context.smart_source``. A `Source` whose messages are claimed, at most
    ``smart_src_max_message_length`` bytes each, by one thread.

    >>> import holdfast as hf
    >>> with hf.Context() as ctx, ctx.smart_source("quotes") as src:
    ...     src.wait_registered(timeout=10)
    ...     with src.claim(5) as view:
    ...         view[:] = b"101.5"
    ...     src.next_sequence_number
    1

    It registers, recovers, deregisters and tells events as a `Source`; but it has no delivery confirmations,
    no receiver liveness, and stability notification 0 or 2 (or none given: ranges). It retains
    ``smart_src_retention_buffer_count`` messages at most; one that is not stable when its place is needed is
    reclaimed by force. Source: docs/semantics.md J.3.
    """

    _shown = tuple(name for name in Source._shown if not name.startswith("send"))

    def __init__(self, session: SourceSession) -> None:
        super().__init__(session)
        self._longest = int(self.options.smart_src_max_message_length)
        self._retained = int(self.options.smart_src_retention_buffer_count)
        self._room = 0
        """This many claims fit before what is retained must be looked at again."""
        self._recycled = SmartClaim(self._publisher)
        self._thread = 0
        self._thread_name = ""

    def claim(self, n: int, *, client_data: object = None, timeout: float | None = None) -> SmartClaim:
        """A writable buffer of ``n`` bytes inside the stream: ``with src.claim(n) as view``.

        Commits at the end of the block, aborts on an exception.

        Raises:
            As :meth:`Source.send`, and:
            MessageTooLargeError: larger than smart_src_max_message_length.
            UsageError: another thread has sent before, or a claim is open.
        """
        thread = threading.get_ident()
        if thread != self._thread:
            self._adopt(thread)
        if n > self._longest:
            raise MessageTooLargeError(n, self._longest, "smart_src_max_message_length")
        if sys.getrefcount(self._recycled) > 2:  # what refers to it beside the attribute and this call's argument
            self._recycled = SmartClaim(self._publisher)
        claim = self._recycled
        claim.abandon()
        base = self._publisher.begin_claim(n, timeout)
        self._room -= 1
        if self._room < 0:
            self._look_for_room()
        claim.begin(base, client_data)
        return claim

    def _look_for_room(self) -> None:
        """The message that is claimed is one of those that are retained: the oldest goes if they would be too
        many.

        After the claim, so that a flight that is full comes first: it waits, and loses nothing.
        """
        settlement = self._session.settlement
        assert settlement is not None
        self._room = settlement.retain_only(self._retained) - 1
        if settlement.notices.queue:
            self.context.wake()

    def _adopt(self, thread: int) -> None:
        """The first thread that claims is the one."""
        name = threading.current_thread().name
        if self._thread:
            raise UsageError(
                f"smart source {self.topic!r} is used by the thread {name!r}: {self._thread_name!r} has sent before",
                hint="one thread sends; or make a source",
            )
        self._thread, self._thread_name = thread, name

    def send(
        self,
        data: Any,
        *,
        client_data: object = None,
        sequence_info: str | None = None,
        timeout: float | None = None,
    ) -> NoReturn:
        """Raises UsageError: a smart source has claim() only."""
        del data, client_data, sequence_info, timeout
        self._refuse("send")

    async def send_async(
        self,
        data: Any,
        *,
        client_data: object = None,
        sequence_info: str | None = None,
        timeout: float | None = None,
    ) -> NoReturn:
        """Raises UsageError: a smart source has claim() only."""
        del data, client_data, sequence_info, timeout
        self._refuse("send_async")

    def send_batch(self, rows: Any, *, client_data: object = None, timeout: float | None = None) -> NoReturn:
        """Raises UsageError: a smart source has claim() only."""
        del rows, client_data, timeout
        self._refuse("send_batch")

    def send_stable(self, data: Any, timeout: float | None = None) -> NoReturn:
        """Raises UsageError: a smart source has claim() only."""
        del data, timeout
        self._refuse("send_stable")

    def _refuse(self, call: str) -> NoReturn:
        raise UsageError(f"{call}() of a smart source", hint="write in place: with src.claim(size) as view")
