"""The limits of a store's process: told before they are reached, and with something left for the sources that
are there. A new log is refused while less is left than those may need, and a new client while still less is;
but first the logs are closed that nobody needs open.
"""

from __future__ import annotations

import errno
import logging
from typing import TYPE_CHECKING

from ..errors import LimitReachedError
from ..native.limits import descriptors, mappings
from ..rules.nearness import Nearness

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..native.limits import Use

__all__ = ["StoreLimits"]

_log = logging.getLogger("holdfast.store")

FILES_KEPT, FILES_LAST = 32, 16
"""Descriptors that no new log takes, and that no new client takes: for segments, states, peers' logs and
answers."""
MAPPINGS_KEPT = 512


class StoreLimits:
    """See the module. ``name``: the store's. One thread at a time: the drain thread asks while the control
    thread waits for it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._files, self._mappings = Nearness(), Nearness()
        self.make_room: Callable[[], object] = int
        """Closes logs that nobody needs open (engine/store/shelf.py); raises nothing. The control thread."""

    def require_room(self) -> None:
        """Before a log is opened that was not open. Raises LimitReachedError."""
        files = self._look()
        if files is not None and files.most - files.used < FILES_KEPT:
            raise _refusal(files, f"no new log is opened: the last {FILES_KEPT} are kept", errno.EMFILE)
        mapped = mappings() if self._mappings.near else None
        if mapped is not None and mapped.most - mapped.used < MAPPINGS_KEPT:
            raise _refusal(mapped, f"no new log is opened: the last {MAPPINGS_KEPT} are kept", errno.ENOMEM)

    def door(self) -> LimitReachedError | None:
        """Why a client that has just come is turned away; None: it is let in. The control thread."""
        files = self._look()
        if files is not None and files.most - files.used < FILES_LAST:
            self.make_room()
            files = self._look()
        if files is None or files.most - files.used >= FILES_LAST:
            return None
        return _refusal(files, f"no new client is let in: the last {FILES_LAST} are kept", errno.EMFILE)

    def _look(self) -> Use | None:
        """Says once that a limit is near. Returns the descriptors. To count mappings takes longer: it is done
        when it may matter."""
        files = descriptors()
        if files is not None and self._files.look(files.used, files.most):
            self._tell(files)
        mapped = mappings() if self._mappings.due() else None
        if mapped is not None and self._mappings.look(mapped.used, mapped.most):
            self._tell(mapped)
        return files

    def _tell(self, use: Use) -> None:
        what = "at the limit new sources and clients are refused, and those that are there go on"
        _log.warning("store %s is close to a limit: %s; %s; %s", self._name, use, what, use.remedy)


def _refusal(use: Use, what: str, number: int) -> LimitReachedError:
    return LimitReachedError(
        f"{use}; {what} for the sources that are there", number, errno.errorcode[number],
        limit=use.limit, value=use.most, used=use.used, hint=use.remedy,
    )  # fmt: skip
