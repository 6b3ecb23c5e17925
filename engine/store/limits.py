"""The limits of a store's process: told before they are reached, and with something left for the sources that
are there. A new log is refused while less is left than those may need, and a new client while still less is;
but first the logs are closed that nobody needs open.

A log that is opened has not yet all that it will have: its segment and the next one come with the first
messages. So what the open logs will still open counts as used. Else many sources that register at once, and
send only then, would each be granted what the others take.
"""

from __future__ import annotations

import errno
import logging
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ..errors import LimitReachedError
from ..native.core import lib
from ..native.limits import descriptors, mappings
from ..rules.nearness import FAR, Nearness

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..native.limits import Use
    from .repository import Repository

__all__ = ["Owed", "StoreLimits"]

_log = logging.getLogger("holdfast.store")

FILES_KEPT, FILES_LAST = 32, 16
"""Descriptors that no new log takes, and that no new client takes: for segments, states, peers' logs and
answers."""
ASKED_KEPT = 64
"""Besides, at most a quarter of all: a log that nobody has asked for leaves these to those that are."""
MAPPINGS_KEPT = 512
MAPPINGS_LOG = 8
"""Of a log and of the ring and the board that it is read from."""


class Owed(NamedTuple):
    """What the logs that are open will still need."""

    files: int
    mappings: int


class Logs(Protocol):
    """The open logs of the store (engine/store/drainer.py)."""

    repositories: dict[bytes, Repository]

    def call(self, work: Callable[[], Owed]) -> Owed:
        """Runs ``work`` on the drain thread."""


class StoreLimits:
    """See the module. ``name``: the store's. One thread at a time: the drain thread asks while the control
    thread waits for it."""

    def __init__(self, name: str, logs: Logs) -> None:
        self._name = name
        self._logs = logs
        self._files, self._mappings = Nearness(), Nearness()
        self.make_room: Callable[[], object] = int
        """Closes logs that nobody needs open (engine/store/shelf.py); raises nothing. The control thread."""

    def require_room(self, *, asked: bool = True) -> None:
        """Before a log is opened that was not open. ``asked``: by a client. The drain thread. Raises
        LimitReachedError."""
        files, owes = self._look(self._owed)
        if files is not None:
            kept = FILES_KEPT if asked else FILES_KEPT + min(ASKED_KEPT, files.most // 4)
            if files.most - files.used - owes.files < kept:
                raise _refusal(_said(files, owes.files), files, "no new log is opened", kept, errno.EMFILE)
        mapped = mappings() if self._mappings.near else None
        if mapped is not None and mapped.most - mapped.used - owes.mappings < MAPPINGS_KEPT:
            raise _refusal(_said(mapped, owes.mappings), mapped, "no new log is opened", MAPPINGS_KEPT, errno.ENOMEM)

    def has_room(self) -> bool:
        """The same, for who has asked; False where that raises."""
        try:
            self.require_room()
        except LimitReachedError:
            return False
        return True

    def door(self) -> LimitReachedError | None:
        """Why a client that has just come is turned away; None: it is let in. The control thread."""
        files, owes = self._look(self._ask)
        if files is not None and files.most - files.used - owes.files < FILES_LAST:
            self.make_room()
            files, owes = self._look(self._ask)
        if files is None or files.most - files.used - owes.files >= FILES_LAST:
            return None
        return _refusal(_said(files, owes.files), files, "no new client is let in", FILES_LAST, errno.EMFILE)

    def _look(self, owed: Callable[[], Owed]) -> tuple[Use | None, Owed]:
        """Says once that a limit is near. Returns the descriptors, and what the open logs will still need,
        where that may matter. To count mappings takes longer: it is done when it may matter."""
        files, owes = descriptors(), Owed(0, 0)
        due = self._mappings.due()
        if due or self._mappings.near or (files is not None and self._may_matter(files)):
            owes = owed()
        if files is not None and self._files.look(files.used + owes.files, files.most):
            self._tell(files, owes.files)
        mapped = mappings() if due else None
        if mapped is not None and self._mappings.look(mapped.used + owes.mappings, mapped.most):
            self._tell(mapped, owes.mappings)
        return files, owes

    def _may_matter(self, files: Use) -> bool:
        most = files.used + lib.HF_LOG_FILES * len(self._logs.repositories)
        return most > min(files.most * FAR // 100, files.most - FILES_KEPT - min(ASKED_KEPT, files.most // 4))

    def _owed(self) -> Owed:
        """The drain thread."""
        repositories = self._logs.repositories.values()
        files = sum(max(0, lib.HF_LOG_FILES - lib.hf_log_files(each.log)) for each in repositories if each.log)
        return Owed(files, MAPPINGS_LOG * sum(not each.source.incarnation for each in repositories))

    def _ask(self) -> Owed:
        """Any other thread."""
        return self._logs.call(self._owed)

    def _tell(self, use: Use, owes: int) -> None:
        what = "at the limit new sources and clients are refused, and those that are there go on"
        _log.warning("store %s is close to a limit: %s; %s; %s", self._name, _said(use, owes), what, use.remedy)


def _said(use: Use, owes: int) -> str:
    return f"{use}, and {owes:,} more will be by the logs that are open" if owes else str(use)


def _refusal(said: str, use: Use, what: str, kept: int, number: int) -> LimitReachedError:
    return LimitReachedError(
        f"{said}; {what}: the last {kept} are kept for the sources that are there", number, errno.errorcode[number],
        limit=use.limit, value=use.most, used=use.used, hint=use.remedy,
    )  # fmt: skip
