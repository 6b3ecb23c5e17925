"""What one log lacks, copied from the logs of the same source at other stores (its peers).

A log lacks what does not verify, what is recorded as lost, and what lies in a hole between two incarnations.
Nothing in it is rewritten: what a peer has goes into a fill beside the segments (csrc/log/fill.c), verified
on its way out of the peer's log and sealed with checksums of its own. Readers find it there at once.

Only one process repairs a log at a time: its store, or a tool that holds the store's directory.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from ..errors import CorruptionError
from ..native.core import CData, ffi, lib
from ..native.private_directory import open_log
from ..native.runtime import os
from ..native.status import check
from ..rules.scrub_schedule import WHOLE, Range
from .believed import newest_of
from .info_file import log_reader
from .look import Gap, LogLook
from .reader import ONLY_DECLARED, Block, Bounds, Logs, table_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["Gap", "LogRepair", "log_uuid"]


def log_uuid(path: Path) -> bytes | None:
    """The source whose log lies in ``path``; None when there is no readable log."""
    with log_reader(path) as log:
        if log is None:
            return None
        uuid = ffi.new("uint8_t[16]")
        lib.hf_logr_uuid(log, uuid)
        return bytes(ffi.buffer(uuid))


class LogRepair:
    """Looks through the log in ``path`` and fills what it lacks ``within`` these ranges. ``step`` until it
    says no; ``close``.

    ``until``: of the peers' logs, as of Logs.

    Raises:
        CorruptionError: it is no readable log.
        OSError, Error: it cannot be read or written; what was filled before stays.
    """

    def __init__(
        self, path: Path, peers: Sequence[Path], within: Sequence[Range] = WHOLE,
        until: Bounds = ONLY_DECLARED,
    ) -> None:  # fmt: skip
        self.filled: list[Range] = []
        self.left: list[Gap] = []
        """What no peer could give."""
        self.filled_bytes = 0
        self.path = path
        self._gap: Gap | None = None
        self._fill: CData = ffi.NULL
        self._fill_first = self._fill_next = self._fill_incarnation = 0
        self._block = Block()
        self._number = ffi.new("uint64_t *")
        with ExitStack() as stack:
            self._fd = open_log(path)
            stack.callback(os.close, self._fd)
            log = stack.enter_context(log_reader(path))
            if log is None:
                raise CorruptionError(
                    f"{path} is not a readable log", hint="its store writes a new head when it starts"
                )
            self._uuid = ffi.new("uint8_t[16]")
            lib.hf_logr_uuid(log, self._uuid)
            uuid = bytes(ffi.buffer(self._uuid))
            same = [str(peer) for peer in peers if log_uuid(peer) == uuid]
            # By the newest table, right or not: what it makes void is copied later, and never taken back.
            self._peers = Logs(same, until, marks=False, judge=newest_of)
            stack.callback(self._peers.close)
            self._peers.table = table_of(log)  # a peer that was away has records that are void, and does not know it
            self._peers.begun = self._peers.table[-1] if self._peers.table else (0, 0)
            check(lib.hf_fill_prune(self._fd), what=str(path))
            self._look = LogLook(path, log, within)
            self._open = stack.pop_all()

    def close(self) -> None:
        """Drops a fill that is not whole. Idempotent."""
        fill, self._fill = self._fill, ffi.NULL
        if fill:
            lib.hf_fill_abort(fill)
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def read_bytes(self) -> int:
        """Of the log itself, so far."""
        return self._look.read_bytes

    def run(self) -> Self:
        """All steps."""
        while self.step():
            pass
        return self

    def step(self) -> bool:
        """One block: looked at, or copied. False: all is done."""
        if self._gap is not None:
            self._copy(self._gap)
        elif self._look.over:
            return False
        else:
            self._gap = self._look.step()
        return True

    # Copying ------------------------------------------------------------------------------------------------

    def _copy(self, gap: Gap) -> None:
        if self._peers.read(gap.first, self._block, gap.next):
            following = self._append(gap, *self._block.frames)
        else:
            self._commit()
            following = min([number for number in self._peers.behind if number > gap.first] + [gap.next])
            following = min(following, gap.next)
            self._give_up(Gap(gap.first, following, gap.kind))
        self._gap = Gap(following, gap.next, gap.kind) if following < gap.next else None
        if self._gap is None:
            self._commit()

    def _give_up(self, gap: Gap) -> None:
        last = self.left[-1] if self.left else None
        if last is not None and (last.next, last.kind) == (gap.first, gap.kind):
            self.left[-1] = Gap(last.first, gap.next, gap.kind)
        else:
            self.left.append(gap)

    def _append(self, gap: Gap, frames: CData, size: int) -> int:
        """Returns the number that is missing next."""
        incarnation = self._peers.incarnation
        if self._fill and self._fill_incarnation != incarnation:
            self._commit()
        fresh = not self._fill
        if fresh:
            out = ffi.new("struct hf_fill **")
            check(lib.hf_fill_create(self._fd, self._uuid, incarnation, gap.first, gap.next, out), what=str(self.path))
            self._fill, self._fill_incarnation = out[0], incarnation
            self._fill_first = self._fill_next = gap.first
        took = lib.hf_fill_append(self._fill, frames, size, self._number)
        if took > 0:
            self.filled_bytes += int(took)
            self._fill_next = int(self._number[0])
            return self._fill_next
        if took == 0 and not fresh:  # it is full
            self._commit()
            return gap.first
        if took not in {0, lib.HF_DAMAGED}:
            check(took, what=str(self.path))
        # A peer's message does not begin where ours does, or does not end there.
        self._commit()
        self._give_up(gap)
        return gap.next

    def _commit(self) -> None:
        fill, self._fill = self._fill, ffi.NULL
        if not fill:
            return
        if self._fill_next == self._fill_first:
            lib.hf_fill_abort(fill)
            return
        check(lib.hf_fill_commit(fill), what=str(self.path))
        self.filled.append(Range(self._fill_first, self._fill_next))
