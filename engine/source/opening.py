"""What became of the attempts to make a source's ring, and to ask its stores: the program is told, and
whoever waits for the registration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..events.source import RegistrationError
from ..rules.registration import REFUSED_RETRY_NS, TELL_AGAIN, Phase, Refusal, RefusedBy

if TYPE_CHECKING:
    from collections.abc import Set

    from ..rules.registration import Action
    from ..rules.source_registration import SourceRegistration

__all__ = ["Opening"]

PUT_OFF = Refusal("failed", "a store is not asked while this process lacks something")


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
        self._of_question = False
        """``error`` is of a question, not of the ring."""
        self._late: set[int] = set()
        """Those of them that the machine takes for asked."""

    @property
    def next_ns(self) -> int:
        """When the next attempt may be made where somebody waits for it."""
        return self._began_ns + REFUSED_RETRY_NS

    def failed(self, error: Exception, began_ns: int) -> list[RegistrationError]:
        """An attempt that began then has failed. The event, if that is news; the same is told again
        seldom."""
        self.error, self._began_ns, self._of_question = error, began_ns, False
        kind = type(error), getattr(error, "code", ""), getattr(error, "pid", 0)
        if kind == self._told and began_ns - self._told_ns < self._again_ns:
            return []
        self._told, self._told_ns = kind, began_ns
        return [RegistrationError(str(error) or type(error).__name__, "", getattr(error, "pid", 0))]

    def not_asked(self, store: int, error: Exception, began_ns: int) -> list[RegistrationError]:
        """This store could not be asked, of what this process lacks. The event, if that is news."""
        self._lacking.add(store)
        self._late.add(store)
        told = self.failed(error, began_ns)
        self._of_question = True
        return told

    def asked(self, store: int, machine: SourceRegistration) -> None:
        """This store was asked, and says itself from now on what it refuses."""
        self._late.discard(store)
        self._can_ask({store})
        entry = machine.entries[store]
        if entry.refusal == PUT_OFF:
            entry.refusal, entry.refusals = None, 0

    def put_off(self, machine: SourceRegistration) -> list[Action]:
        """A store that could not be asked is asked again as one that has refused: at the next turn, as if it
        had answered. The program has been told why. One that need not be asked any more was never asked."""
        late, self._late = sorted(self._late), set()
        due = [store for store in late if machine.entries[store].phase in {Phase.ASKED, Phase.ANNOUNCED}]
        for store in {*late} - {*due}:
            machine.entries[store].pending = None
        self._can_ask({store for store in self._lacking if machine.entries[store].phase in {Phase.DOWN, Phase.IDLE}})
        said = [action for store in due for action in machine.refused(store, PUT_OFF)]
        return [action for action in said if not isinstance(action, RefusedBy)]

    def _can_ask(self, stores: Set[int]) -> None:
        """These lack nothing any more, or are not asked."""
        before = len(self._lacking)
        self._lacking -= stores
        if before and not self._lacking and self._of_question:  # else there is the ring that may not be made
            self.made()

    def made(self) -> None:
        """The ring is there."""
        self.error = self._told = None

    def failed_since(self, since_ns: int) -> Exception | None:
        """What an attempt failed of that began since. An older one says nothing of now: there may be room."""
        return self.error if self._began_ns >= since_ns else None
