"""A receiver whose delivery waits for consumption (``ume_application_outstanding_maximum``); others do not
pay for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .engine.receiver.delivery_limit import CountedExplicitWindow, CountedWindow, Outstanding
from .engine.receiver.receiver import FOR_EVER_NS
from .receiver import Receiver

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .batch import Batch
    from .engine.client.context import Context
    from .engine.options.resolve import Options
    from .engine.receiver.ack_window import Window
    from .engine.receiver.delivery_controller import DeliveryController
    from .engine.rules.chosen_start import ChosenStart
    from .message import Message

__all__ = ["LimitedReceiver"]


class LimitedReceiver(Receiver):
    """While too much is delivered and not consumed, every form of receiving finds nothing, and waits if it
    may.

    Consuming from any thread rings this process's bell if somebody waits.
    """

    def __init__(
        self, context: Context, topic: str | None, pattern: str | None, options: Options,
        on_message: Callable[[Message], object] | None, on_event: Callable[[Any], object] | None, chosen: ChosenStart | None,
    ) -> None:  # fmt: skip
        self._outstanding = Outstanding(options.ume_application_outstanding_maximum, context.wake)
        super().__init__(context, topic, pattern, options, on_message, on_event, chosen)

    @property
    def outstanding(self) -> int:
        """Fragments delivered and not consumed, as of the last receive."""
        return self._outstanding.count

    def new_window(self, start: int, *, acks: bool = True) -> Window:
        """Driver: one that counts."""
        if self.options.ume_explicit_ack_only:
            return CountedExplicitWindow(start, self._outstanding)
        return CountedWindow(start, self._outstanding)

    def _room(self) -> int:
        if self.again:  # what comes again is not out
            self._go_back()
        return self._outstanding.room()

    def _try_receive(self) -> Message | None:
        if self._room():
            return super()._try_receive()
        self._check_pull()
        return None

    def _alone(self) -> DeliveryController | None:
        """No ring is waited at that may not be read."""
        return super()._alone() if self._room() else None

    def open_lane(self) -> bool:
        """No short cut: each message is counted."""
        return False

    def _try_batch(self, maximum: int) -> Batch | None:
        room = self._room()
        if room:
            return super()._try_batch(min(maximum, room))
        self._check_pull()
        return None

    def _try_callback(self) -> Message | None:
        return super()._try_callback() if self._room() else None

    def dispatch(self) -> int:
        """Driver."""
        return 0 if self.wants_messages() and self._outstanding.pauses() else super().dispatch()

    def prepare_sleep(self) -> int:
        """Driver: messages that may not be delivered are no reason to stay awake."""
        return FOR_EVER_NS if self._outstanding.pauses() else super().prepare_sleep()
