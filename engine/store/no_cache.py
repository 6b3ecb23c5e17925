"""A no-cache repository: who is registered and acknowledged what, which incarnations began, and up to which
number the source has sent; no message (docs/semantics.md I.3). It acknowledges nothing, and its line on the
board says so by level 0.

Its log is there for the numbers alone: what was sent is recorded as lost, and let go at once. So a receiver
that looks there is told at once that there is nothing, and the next incarnation goes on behind what this one
sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..native.core import CData, ffi, lib
from ..native.status import check
from .repository import Repository

if TYPE_CHECKING:
    from pathlib import Path

    from ..log.state_file import SourceState
    from ..memory.domain import Domain
    from ..memory.mapping import Bells

__all__ = ["NoCacheRepository"]


class NoCacheRepository(Repository):
    """See the module."""

    def __init__(
        self, domain: Domain, bells: Bells, source: SourceState, path: Path, config: CData, name: str, uuid: bytes
    ) -> None:
        super().__init__(domain, bells, source, path, config, name, uuid)
        self.level = 0
        try:
            self.release(self.next_sqn)
        except BaseException:
            self.close()
            raise

    def acknowledge(self) -> None:
        """Never."""

    def _follow(self) -> None:
        """Nothing is read."""
        self.item.status = lib.HF_CLOSED
        self.caught_up = True
        self._pass_over()

    def _rest(self) -> None:
        """What the peers have is not wanted."""

    def drained(self) -> bool:
        """When the committed end is known, nothing is left to do."""
        self._pass_over()
        return True

    def beat(self, now_ns: int) -> None:
        """As a store that drains; and the number goes on."""
        super().beat(now_ns)
        self._pass_over()

    def _pass_over(self) -> None:
        """Everything that was sent by now."""
        if self.stream is None:
            return
        tail, end = ffi.new("uint64_t *"), ffi.new("uint64_t *")
        check(lib.hf_stream_end(self.stream.handle, tail, end), what=self.stream.name)
        first, last = max(int(self.info.appended_sqn), int(self.stream.stream.start_sqn)), int(end[0]) - 1
        if first <= last:
            self._put(lambda: int(lib.hf_log_lost(self.log, first, last)))
            check(lib.hf_log_sync(self.log), what=str(self.path))
            self.release(last + 1)
