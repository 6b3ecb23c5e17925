"""A repository of a store that has started on a disk that is read-only: what its log holds is read, and
nothing is written.

The log is opened as receivers open it, so its end is walked to and no head is believed (csrc/log/beyond.c).
It stands still: the store's locks on its directory exclude everybody who would write. No stream is read and
no line on a board is taken, so a source counts this store as one that is dead; receivers' lines are looked
at, and what they acknowledge stays there.
"""

from __future__ import annotations

import contextlib
import errno
from typing import TYPE_CHECKING

from ..errors import CorruptionError, ReadOnlyError
from ..log.end import OpenLog, open_log
from ..log.info_file import log_view
from ..native.core import CData, ffi, lib
from ..native.status import check, error_of
from ..rules.reconcile import void_from
from .repository import Repository

if TYPE_CHECKING:
    from ..rules.reconcile import Table

__all__ = ["StillLog"]


class StillLog(Repository):
    """See the module.

    Raises:
        Error: the log is not there, or cannot be read.
    """

    def _open(self, config: CData) -> CData:
        """None: how far it goes is noted, once."""
        found = open_log(self.path)
        if not isinstance(found, OpenLog):
            if found.number == errno.ENOENT:  # in memory, before a reboot; or somebody has removed it
                raise CorruptionError(f"{self.path} is not there, and the disk is read-only")
            raise error_of(found.status, what=str(self.path))
        with contextlib.closing(found) as opened:
            status, number = opened.end()
            if status not in {lib.HF_OK, lib.HF_DAMAGED, lib.HF_GONE, lib.HF_AGAIN}:
                raise error_of(status, what=str(self.path))
            oldest = ffi.new("uint64_t[2]")
            check(lib.hf_logr_range(opened.log, oldest, oldest + 1), what=str(self.path))
        self._info.next_sqn = self._info.appended_sqn = number
        self._info.oldest_sqn = oldest[0]
        self.level = 0  # it acknowledges nothing, and nobody looks through it to repair it
        return ffi.NULL

    def _adopt(self, table: Table) -> None:
        """Nothing is written: what a BEGIN makes void that the log has missed is not offered."""
        view = log_view(self.path)
        if view is not None and view.begins:
            self._info.next_sqn = min(int(self._info.next_sqn), void_from(table, view.begins[-1][0]))

    @property
    def info(self) -> CData:
        """As it was opened."""
        return self._info

    def release(self, below: int) -> bool:
        """Never."""
        return False

    def begin(self, table: Table, stream: str) -> tuple[int, bool]:
        """Never. Raises ReadOnlyError."""
        raise ReadOnlyError(str(self.path), since_start=True)

    def resume(self) -> None:
        """No stream is read."""

    def look_again(self, now_ns: int) -> None:
        """Nor do peers have anything for it."""
