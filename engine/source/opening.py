"""What became of the attempts to make a source's ring, and to ask its stores: the program is told, and
whoever waits for the registration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..events.source import RegistrationError
from ..rules.registration import REFUSED_RETRY_NS, TELL_AGAIN, Phase, Refusal, RefusedBy

if TYPE_CHECKING:
    from ..rules.registration import Action
    from ..rules.source_registration import SourceRegistration

__all__ = ["Opening"]


class Opening:
    """The attempts of one source. ``interval_ns``: the registration interval."""

    def __init__(self, interval_ns: int) -> None:
        self.error: Exception | None = None
        """What the last attempt failed of."""
        self._began_ns = self._told_ns = 0
        self._told: object = None
        self._again_ns = TELL_AGAIN * interval_ns
        self._lacking: set[int] = set()
        """Stores that could not be asked the last time."""
        self._late: list[int] = []
        """Those of them that the machine takes for asked."""

    @property
    def next_ns(self) -> int:
        """When the next attempt may be made where somebody waits for it."""
        return self._began_ns + REFUSED_RETRY_NS

    def failed(self, error: Exception, began_ns: int) -> list[RegistrationError]:
        """An attempt that began then has failed. The event, if that is news; the same is told again
        seldom."""
        self.error, self._began_ns = error, began_ns
        kind = type(error), getattr(error, "code", ""), getattr(error, "pid", 0)
        if kind == self._told and began_ns - self._told_ns < self._again_ns:
            return []
        self._told, self._told_ns = kind, began_ns
        return [RegistrationError(str(error), "", getattr(error, "pid", 0))]

    def not_asked(self, store: int, error: Exception, began_ns: int) -> list[RegistrationError]:
        """This store could not be asked, of what this process lacks. The event, if that is news."""
        self._lacking.add(store)
        self._late.append(store)
        return self.failed(error, began_ns)

    def asked(self, store: int, *, is_open: bool) -> None:
        """This store was asked."""
        lacked = store in self._lacking
        self._lacking.discard(store)
        if lacked and is_open and not self._lacking:  # else there is the ring that may not be made
            self.made()

    def put_off(self, machine: SourceRegistration) -> list[Action]:
        """A store that could not be asked is asked again as one that has refused: at the next turn, as if it
        had answered. The program has been told why."""
        late, self._late = self._late, []
        refusal = Refusal("failed", "a store is not asked while this process lacks something")
        due = [store for store in late if machine.entries[store].phase in {Phase.ASKED, Phase.ANNOUNCED}]
        said = [action for store in due for action in machine.refused(store, refusal)]
        return [action for action in said if not isinstance(action, RefusedBy)]

    def made(self) -> None:
        """The ring is there."""
        self.error = self._told = None

    def failed_since(self, since_ns: int) -> Exception | None:
        """What an attempt failed of that began since. An older one says nothing of now: there may be room."""
        return self.error if self._began_ns >= since_ns else None
