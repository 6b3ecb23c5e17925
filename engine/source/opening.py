"""What became of the attempts to make a source's ring: the program is told, and whoever waits for the
registration."""

from __future__ import annotations

from ..events.source import RegistrationError
from ..rules.registration import REFUSED_RETRY_NS, TELL_AGAIN

__all__ = ["Opening"]


class Opening:
    """The attempts of one source. ``interval_ns``: the registration interval."""

    def __init__(self, interval_ns: int) -> None:
        self.error: Exception | None = None
        """What the last attempt failed of."""
        self._began_ns = self._told_ns = 0
        self._told: object = None
        self._again_ns = TELL_AGAIN * interval_ns

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

    def made(self) -> None:
        """The ring is there."""
        self.error = self._told = None

    def failed_since(self, since_ns: int) -> Exception | None:
        """What an attempt failed of that began since. An older one says nothing of now: there may be room."""
        return self.error if self._began_ns >= since_ns else None
