"""A number that a receiver waits for: no store that can be read has it, and one that cannot be read may have
it (docs/design.md 30).

It is told as an event, again after each patience, and shown to `doctor` and `stat` as long as it lasts. It is
never lost by that: delivery goes on when a store gives the number, when every store has been read and lacks
it, or when the operator has given up those that may have it (`holdfast store exclude`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..control.waits import Wait
from ..events import receiver as events
from ..log.info_file import excluded_by
from ..native.runtime import Path, time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .ports import DeliveryPort

__all__ = ["Late"]


class Late:
    """See the module. Of one receiver and source."""

    def __init__(self, controller: DeliveryPort) -> None:
        self._controller = controller
        self._number: int | None = None
        """Written by the receiving thread, taken back by the context's."""
        self._since_ns = 0
        self._again = False
        """Where the logs are is to be looked up again: a store that has no seat, and had never run when this
        receiver was registered, grants nothing. Written as the number is."""

    def tell(self, number: int, awaited: Sequence[str]) -> bool:
        """The number is late: these logs may have it. None of them: all can be read, and a store of an
        earlier list, which cannot, decides whether it is void. False: the operator has given them up. The
        receiving thread."""
        controller = self._controller
        registrar = controller.registrar
        declared = list(enumerate(zip(registrar.stores, registrar.log_paths(), strict=False)))
        logs = {path: (f"store {index} [{store.name}]", store.name) for index, (store, path) in declared}
        logs |= {path: (f"store [{name}]", name) for path, (name, _) in registrar.earlier_logs().items()}
        names = {logs[path][1] for path in awaited if path in logs}
        if names and names <= excluded_by([Path(path) for path in logs if path not in awaited]):
            self.close()
            return False
        who = ", ".join(logs[path][0] for path in awaited if path in logs) or "a store"
        why = f"no store that can be read has it, and {who} may: it cannot be read, or is behind"
        if not awaited:
            why = "whether it is void depends on a store of an earlier list of this source, which cannot be read"
        text = f"waits for {number}: {why}; if it is gone for good, `holdfast store exclude` its name"
        self._again = True
        if self._number != number:
            self._number, self._since_ns = number, time.time_ns()
        controller.tell(events.RegistrationError(controller.topic, controller.source, text, ""))
        wait = Wait(controller.topic, controller.uuid.hex(), controller.registrar.session_id, self._since_ns, text)
        controller.receiver.context.waits.show(self, wait)
        return True

    @property
    def waits(self) -> bool:
        """A number is late. Any thread."""
        return self._number is not None

    def look(self) -> None:
        """Shows it no longer when delivery has gone on. The context's thread."""
        if self._again:
            self._again = False
            self._controller.found_logs()
        feed = self._controller.feed
        if self._number is not None and (feed is None or feed.next > self._number):
            self.close()

    def close(self) -> None:
        """Nothing is waited for any more. Idempotent."""
        self._number = None
        self._controller.receiver.context.waits.show(self, None)
