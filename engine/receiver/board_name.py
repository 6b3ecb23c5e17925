"""Whether the board that a receiver acknowledges on still has its name in shared memory.

Without it acks go on to whoever has this board. The source's next life has another one, which this receiver
is not on. The context's thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..events import receiver as events
from ..memory import nameless
from ..native.runtime import os

if TYPE_CHECKING:
    from .ports import DeliveryPort

__all__ = ["BoardName"]


class BoardName:
    """Of one source at one receiver: tells when the name is gone, and shows it as long as it is."""

    def __init__(self, controller: DeliveryPort) -> None:
        self._controller = controller
        self._looked_ns = 0
        self._gone = False

    def look(self, now_ns: int) -> None:
        """Seldom."""
        if now_ns - self._looked_ns < nameless.LOOK_NS:
            return
        self._looked_ns = now_ns
        controller = self._controller
        board = controller.board
        gone = board is not None and not board.is_named()
        if board is not None and gone and not self._gone:
            text = nameless.removed(board.name, "receiver")
            text += ": when the source is made again, close this receiver and make it again, too"
            controller.tell(events.RegistrationError(controller.topic, controller.source, text, ""))
        self._gone = gone
        self._say()

    def close(self) -> None:
        """Nothing is shown any more."""
        self._gone = False
        self._say()

    def _say(self) -> None:
        controller = self._controller
        board, uuid = controller.board, controller.uuid.hex()
        registrar = controller.registrar
        identity = registrar.identity()[0].hex() if registrar.answers() else ""
        note = None
        if self._gone and board is not None:
            note = nameless.Nameless(board.name, "receiver", uuid, controller.topic, os.getpid(), identity)
        nameless.say(controller.receiver.context.domain, f"receiver {uuid} {identity}", note)
