"""What a receiver counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .engine.receiver.delivery_controller import DeliveryController
    from .engine.receiver.receiver import Past
    from .pool import EntriesPool, MessagePool

__all__ = ["ReceiverStats"]


@dataclass(frozen=True, slots=True)
class ReceiverStats:
    """Counters of one receiver. In a steady state those of ``pool_*`` stand still: nothing is allocated."""

    sources: int
    """Sources that it is registered with."""
    delivered: int
    redelivered: int
    lag: int
    """Messages published and not delivered yet."""
    lapped: int
    """Times that a ring overtook it."""
    acknowledged: dict[str, int]
    """Source -> highest acknowledged number, -1 for none."""
    pool_allocated: int
    """Messages made so far."""
    pool_kept_views: int
    """Buffers that the program kept a view of when it released the message: they became the program's own."""
    pool_buffers: int = 0
    """Buffers made so far: one with each message, when one had to grow, and for each kept view."""
    pool_most_in_use: int = 0
    """High-water mark: messages in use at once, as of the last time that one had to be made."""
    pool_messages: int = 0
    """Messages that wait to be used again."""
    pool_bytes: int = 0
    """Bytes of their buffers."""
    pool_batches: int = 0
    """Arrays for batches made so far."""
    outstanding: int = 0
    """Fragments delivered and not consumed; counted only with ``ume_application_outstanding_maximum``."""

    @classmethod
    def of(
        cls,
        controllers: Sequence[DeliveryController],
        past: Past,
        pool: MessagePool,
        entries: EntriesPool,
        outstanding: int,
    ) -> Self:
        """As they stand now."""
        return cls(
            len(controllers),
            past.delivered + sum(i.delivered for i in controllers),
            past.redelivered + sum(i.redelivered for i in controllers),
            sum(i.lag() for i in controllers),
            past.lapped + sum(i.feed.lapped for i in controllers if i.feed is not None),
            {i.source: i.acked - 1 for i in controllers if i.window is not None},
            pool_allocated=pool.allocated,
            pool_kept_views=pool.kept_views,
            pool_buffers=pool.buffers,
            pool_most_in_use=pool.most_in_use,
            pool_messages=len(pool),
            pool_bytes=pool.bytes,
            pool_batches=entries.allocated,
            outstanding=outstanding,
        )
