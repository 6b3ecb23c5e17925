"""The locks under which a store may write: its process's in the domain, and those of its directories. Without
one of them others may take the store for dead, or open its logs as their own: two writers of one log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import FencedError
from ..memory.domain import LOCK_NS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..log.store_directory import StoreDirectory
    from ..memory.domain import Domain

__all__ = ["StoreGuard"]


class StoreGuard:
    """Both threads of the store ask it, before they write."""

    def __init__(self, domain: Domain, directories: Sequence[StoreDirectory]) -> None:
        self._domain = domain
        self._directories = directories
        self._looked_ns = 0
        self.lost: FencedError | None = None
        """The first loss; nothing is written from then on, at the end neither."""

    def look(self, now_ns: int) -> None:
        """Raises FencedError when a lock is not there, or was not once; looks every LOCK_NS at most."""
        if self.lost is not None:
            raise FencedError(self.lost.path)
        if now_ns - self._looked_ns < LOCK_NS:
            return
        self._looked_ns = now_ns
        try:
            self._domain.look_at_lock(now_ns)
            for directory in self._directories:
                directory.check_lock()
        except FencedError as error:
            self.lost = error
            raise
