"""A source's sending side: publishes messages, and decides what a send does that finds no room
(docs/semantics.md D.6, D.7).

``Source.send`` is one call into C. This file comes in when a limit is reached (``_until_room``), or when
somebody wants to know of each message.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ..control.skipped import keeping_full, named
from ..errors import (
    ClosedError,
    MessageTooLargeError,
    NotRegisteredError,
    QuorumLostError,
    UsageError,
    WouldBlockError,
)
from ..events import source as events
from ..events.info import NoFlags
from ..memory.batch_input import feed_of
from ..memory.nameless import REMEDY
from ..native.core import CData, ffi, lib
from ..native.runtime import threading, time
from ..native.status import check, would_block
from ..native.waiting import STRATEGIES, check_timeout, deadline_of, left_of
from ..printable import printable
from ..shown import Shown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .session import SourceSession
    from .settlement import Settlement

__all__ = ["Claim", "Publisher"]

WAIT_NS = 50_000_000
_TEXT = "a message is bytes, and this is text: text.encode() gives the bytes of a str"
OBSTACLES = 3
"""Flight size, retention and ring may each stand in a send's way once, and give way."""


class Claim(Shown):
    """A fragment that is written in place: ``with src.claim(n) as view``. Commits at the end, aborts on an
    exception.

    >>> import holdfast as hf
    >>> with hf.Context() as ctx, ctx.source("quotes") as src:
    ...     src.wait_registered(timeout=10)
    ...     claim = src.claim(5, timeout=10)
    ...     with claim as view:
    ...         view[:] = b"101.5"
    ...     claim.sequence_number
    0

    One that is dropped without having been used as a context manager is aborted, too.
    """

    _shown = ("sequence_number",)
    _view: memoryview | None = None

    def __init__(self, publisher: Publisher, size: int, client_data: object, timeout: float | None) -> None:
        self.sequence_number: int | None = None
        self._publisher = publisher
        self._client_data = client_data
        self._base = publisher.begin_claim(size, timeout)
        self._view = memoryview(self._base)

    def __enter__(self) -> memoryview:
        if self._view is None:
            raise UsageError("this claim has ended already")
        return self._view

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._view is None:
            raise UsageError("this claim has ended already")
        kept = self._is_looked_at()
        data, self._client_data, self._base = self._client_data, None, None
        if kept:
            self._publisher.end_claim(commit=False)
            raise UsageError(
                "a view of the claimed bytes is still in use", hint="drop every slice and array of it inside the block"
            )
        self.sequence_number = self._publisher.end_claim(commit=kind is None, client_data=data)

    def _is_looked_at(self) -> bool:
        """Ends the claim's own view. True: there are others; they, and views of them, refer to the base as
        the attribute does."""
        view, self._view = self._view, None
        assert view is not None
        try:
            view.release()
        except BufferError:
            return True
        del view
        return sys.getrefcount(self._base) > 2  # the attribute and the call's argument

    def abandon(self) -> None:
        """Nobody will end it. With a view still out somewhere the bytes must not become anybody's: the source
        stays as it is."""
        if self._view is not None and not self._is_looked_at():
            self._publisher.end_claim(commit=False)

    def __del__(self) -> None:
        self.abandon()

    def __repr__(self) -> str:
        topic = printable(self._publisher.topic)
        if self._view is not None:
            return f"<Claim of {self._view.nbytes} bytes in {topic}, open>"
        return f"<Claim in {topic}, " + (
            "aborted>" if self.sequence_number is None else f"number {self.sequence_number}>"
        )


def _from_0(left: float | None) -> float | None:
    """What is left of a time, as a timeout."""
    return left if left is None or left > 0 else 0


class Publisher:
    """Publishes into the stream of ``session``. The first attempt of a plain send is ``Source.send``'s
    own."""

    def __init__(self, session: SourceSession) -> None:
        self.session = session
        self.context, self.topic, self.options = session.context, session.topic, session.options
        self.blocked_ns = 0
        self._strategy = STRATEGIES[self.options.wait_strategy]
        self._claimed_by = 0
        """Thread that has a claim open."""
        self._status = ffi.new("int64_t *")
        self._fragment = int(self.options.fragment_size)
        blocks = bool(session.stores) and self.options.ume_flight_size_behavior == "block"
        self._flight_bytes = int(self.options.ume_flight_size_bytes) if blocks else 0
        """A send of more waits for ever; 0: nothing limits it."""
        self._always_fits = min(self._fragment, self._flight_bytes or self._fragment)
        """Bytes of a message whose size needs no check."""
        self._skipped: list[events.Skipped] = []
        """What was told of it last."""

    def send(
        self, data: Any, client_data: object, sequence_info: str | None, timeout: float | None, *, awaits: bool = False
    ) -> int:
        """As :meth:`Source.send`. ``awaits``: who gets WouldBlockError waits by itself, and needs no
        Wakeup."""
        return self.send_fragments(data, client_data, sequence_info, timeout, awaits=awaits)[1]

    def send_fragments(
        self, data: Any, client_data: object, sequence_info: str | None, timeout: float | None, *, awaits: bool = False
    ) -> tuple[int, int]:
        """As :meth:`send`. The numbers of the first and the last fragment."""
        if sequence_info not in {None, "always", "fragmented"}:
            raise UsageError(f"sequence_info={sequence_info!r}", hint='None, "always" or "fragmented"')
        if isinstance(data, list | tuple):
            data = self._joined(data)
        if isinstance(data, str):
            raise TypeError(_TEXT)
        buffer = ffi.from_buffer("uint8_t[]", data)
        size = len(buffer)
        pieces = self._pieces(size)

        def attempt() -> int:
            settlement = self._recorder(client_data)
            if settlement is None:
                return int(lib.hf_source_send(self.session.handle, buffer, size))
            with settlement.recording:
                sqn = int(lib.hf_source_send(self.session.handle, buffer, size))
                if sqn >= 0:
                    settlement.retention.sent(sqn - pieces + 1, sqn, client_data)
                return sqn

        sqn = self._until_room(attempt, size, timeout, awaits=awaits)
        if sequence_info == "always" or (sequence_info == "fragmented" and pieces > 1):
            self.session.tell_now(events.SequenceNumberInfo(NoFlags.NONE, sqn - pieces + 1, sqn, client_data))
        return sqn - pieces + 1, sqn

    def _joined(self, parts: Sequence[Any]) -> bytes:
        """One message of several parts. Its size is checked first: what can never be sent is not copied,
        either."""
        if any(isinstance(part, str) for part in parts):
            raise TypeError(_TEXT)
        views = [memoryview(part) for part in parts]
        if not all(view.c_contiguous for view in views):
            raise BufferError("a part of a message is not contiguous in memory: bytes(part) makes it so")
        size = sum(view.nbytes for view in views)
        if size > self._always_fits:
            self.check_size(size)
        return b"".join(views)

    def _recorder(self, client_data: object) -> Settlement | None:
        """Who records a message with this client data; None: nobody will ask for it."""
        settlement = self.session.settlement
        if settlement is None:
            return None
        notices = settlement.notices
        return settlement if notices.records_all or (client_data is not None and notices.records_any) else None

    def _pieces(self, size: int) -> int:
        return max(1, -(-size // self._fragment))

    def send_batch(self, rows: Any, client_data: object, timeout: float | None) -> tuple[int, int]:
        """As :meth:`Source.send_batch`."""
        feed = feed_of(rows)
        count = feed.count
        if count == 0:
            raise UsageError("send_batch of no rows", hint="nothing would be published")
        first, sent = -1, 0
        deadline = deadline_of(timeout)

        def attempt() -> int:
            nonlocal first, sent
            assert self.session.settlement is not None
            with self.session.settlement.recording:
                before = int(lib.hf_source_next(self.session.handle))
                done = int(feed.send(self.session.handle, sent))
                if done <= 0:
                    return done
                after = int(lib.hf_source_next(self.session.handle))
                recorder = self._recorder(client_data)
                if recorder is not None and feed.uniform:
                    recorder.retention.sent(before, after - 1, client_data, (after - before) // done)
                elif recorder is not None:
                    number = before
                    for row in range(sent, sent + done):
                        pieces = self._pieces(feed.size(row))
                        recorder.retention.sent(number, number + pieces - 1, client_data)
                        number += pieces
            first = before if first < 0 else first
            sent += done
            return after - 1

        last = -1
        try:
            while sent < count:
                last = self._until_room(attempt, feed.size(sent), _from_0(left_of(deadline)))
        except Exception as error:
            error.first_sequence_number = first if sent else None  # type: ignore[attr-defined]
            error.sent = sent  # type: ignore[attr-defined]
            raise
        return first, last

    def begin_claim(self, size: int, timeout: float | None) -> Any:
        """For :class:`Claim`: the writable bytes."""
        check_timeout(timeout)
        if size > self._fragment:
            raise MessageTooLargeError(size, self._fragment, "fragment_size")
        pointer: CData = (
            lib.hf_source_claim(self.session.handle, size, self._status) if self.session.may_send else ffi.NULL
        )
        if not pointer:
            pointer = self._claim_slowly(size, timeout)
        self._claimed_by = threading.get_ident()
        return ffi.buffer(pointer, size)

    def _claim_slowly(self, size: int, timeout: float | None) -> CData:
        status = ffi.new("int64_t *")
        pointer: CData = ffi.NULL

        def attempt() -> int:
            nonlocal pointer
            pointer = lib.hf_source_claim(self.session.handle, size, status)
            return 0 if pointer else int(status[0])

        self._until_room(attempt, size, timeout)
        return pointer

    def end_claim(self, *, commit: bool, client_data: object = None) -> int | None:
        """For :class:`Claim`: publishes it and returns its number, or leaves no trace of it."""
        self._claimed_by = 0
        if not commit or self.context.fence is not None:
            lib.hf_source_abort(self.session.handle)
            if commit:
                self.context.check_fence()
            return None
        settlement = self._recorder(client_data)
        if settlement is None:
            return int(check(lib.hf_source_commit(self.session.handle), what="claim"))
        with settlement.recording:
            sqn = int(check(lib.hf_source_commit(self.session.handle), what="claim"))
            settlement.retention.sent(sqn, sqn, client_data)
        return sqn

    # Waiting for room ---------------------------------------------------------------------------------------

    def _until_room(self, attempt: Callable[[], int], size: int, timeout: float | None, *, awaits: bool = False) -> int:
        """Runs ``attempt`` until it returns a number, policy says no, or the time is over."""
        deadline = deadline_of(timeout)
        started = 0
        if size > self._always_fits:
            self.check_size(size)
        while True:
            self._check_may_send()
            moves = self.moves()
            glance = 0
            status = attempt()
            for _ in range(OBSTACLES):
                if not would_block(status):
                    break
                glance = glance or self.glance()
                made = self._make_room(status, size)
                status = attempt()
                if not made:
                    break
            if status >= 0:
                break
            if not would_block(status):
                if status == lib.HF_BUSY:
                    self._busy(deadline)
                    continue
                if status == lib.HF_CLOSED:  # meanwhile, on another thread: closed, or deregistered
                    self._check_may_send()
                check(status, what=f"source {self.topic}", size=size, limit=self._largest(), option="ring_size")
            left = left_of(deadline)
            if left is not None and left <= 0:
                self._refused(status, size, awaits=awaits)
            started = started or time.monotonic_ns()
            self._look_at_skipped()
            self.wait_for_board(glance, moves, left)
        if started:
            self.blocked_ns += time.monotonic_ns() - started
        return status

    def check_size(self, size: int) -> None:
        """Raises MessageTooLargeError for what can never be sent (docs/semantics.md D.6, D.7)."""
        if 0 < self._flight_bytes < size:
            raise MessageTooLargeError(size, self._flight_bytes, "ume_flight_size_bytes")
        if self._frames(size) > self._largest() or self._pieces(size) > lib.HF_FRAGMENTS_MAX:
            raise MessageTooLargeError(size, self._largest())

    def _frames(self, size: int) -> int:
        """Bytes of frames that a message takes: a header per fragment, each padded to the granule."""
        granule, fragment = int(lib.HF_GRANULE), self._fragment
        pieces = self._pieces(size)
        padded = [-(-part // granule) * granule for part in (fragment, size - (pieces - 1) * fragment)]
        return (pieces - 1) * padded[0] + padded[1] + pieces * granule

    def _make_room(self, status: int, size: int) -> bool:
        """Looks at the board, reclaims, or crosses the flight size, as policy is. True: it is worth another
        attempt."""
        settlement = self.session.settlement
        assert settlement is not None
        if status == lib.HF_RETENTION:
            made = settlement.reclaim()
        elif status == lib.HF_PINNED or not settlement.flight.notifies:
            made = settlement.refresh()
        else:
            made = True
            over = settlement.cross(self._pieces(size), size)
            if over is not None:
                self.session.tell_now(over)
                settlement.crossed()
        if settlement.notices.queue:
            self.context.wake()
        return made

    def _refused(self, status: int, size: int, *, awaits: bool = False) -> None:
        """Raises WouldBlockError; a Wakeup will follow."""
        assert self.session.settlement is not None
        if self.session.on_event is not None and not awaits:
            self.session.settlement.refuse(status, self._pieces(size), size, self._frames(size))
            self.context.wake()
        skipped = self._look_at_skipped()
        try:
            check(status)
        except WouldBlockError as error:
            if skipped:
                hint = "acknowledge there, or rcv.acknowledge_skipped()"
                raise WouldBlockError(error.reason, named(skipped), hint) from None
            raise

    def _look_at_skipped(self) -> list[events.Skipped]:
        """Who keeps the stores of a receiver-paced source full by what it skipped; each is told once."""
        if not self.options.ume_receiver_paced_persistence or self.session.board is None:
            return []
        found = keeping_full(self.session.board, self.context.domain.fd)
        news, self._skipped = [each for each in found if each not in self._skipped], found
        for each in news:
            self.session.tell_now(each)
        return found

    def _busy(self, deadline: int | None) -> None:
        """Another thread sends (a moment), or has a claim open (for as long as it likes; this thread's own
        would never end)."""
        if self._claimed_by == threading.get_ident():
            raise UsageError("a claim is open on this source", hint="end it before the next send")
        left = left_of(deadline)
        if self._claimed_by and left is not None and left <= 0:
            raise WouldBlockError("claim")
        time.sleep(0)

    def _largest(self) -> int:
        return int(self.options.ring_size // 4)

    def moves(self) -> int:
        """How often something was settled, for :meth:`wait_for_board`."""
        return self.session.settlement.moves if self.session.settlement else 0

    def glance(self) -> int:
        """What the board looks like, for `wait_for_board`; the caller looks at the board itself
        afterwards."""
        return int(lib.hf_board_glance(self.session.board.handle)) if self.session.board is not None else 0

    def wait_for_board(self, glance: int, moves: int, left: float | None) -> None:
        """Waits by strategy until somebody acks or lets go of a view, 50 ms at most: signals and a lost store
        are noticed in between.

        ``moves``: `Settlement.moves` before the caller looked; if another thread has settled something since,
        it does not wait, and one that does so from now on rings the bell.
        """
        assert self.session.board is not None
        bells = self.context.bells
        limit = WAIT_NS if left is None else min(WAIT_NS, int(left * 1e9) + 1)
        rung = lib.hf_bell_read(bells.handle, bells.index)
        if self.moves() == moves:
            lib.hf_board_wait(self.session.board.handle, bells.handle, bells.index, glance, rung, self._strategy, limit)

    def stable_soon(self, first: int | None, last: int, left: float | None) -> bool:
        """Waits with the tally, 50 ms at most. True: all of first to last (None: all up to it) are stable.
        False says nothing: `Settlement.refresh` decides."""
        settlement, board, bells = self.session.settlement, self.session.board, self.context.bells
        if settlement is not None:
            settlement.asked = True  # first: see Settlement._keep_answers
        tally = settlement.tally if settlement is not None else None
        if settlement is None or tally is None or board is None or last < 0:
            return False
        if first is None:  # what lies below is stable, or was given up
            first = settlement.retention.stable
            if first > last or settlement.retention.unproven:
                return False
        found = lib.hf_tally_soon(tally, board.handle, first, last)
        if found == 0 and (left is None or left > 0):
            limit = WAIT_NS if left is None else min(WAIT_NS, int(left * 1e9) + 1)
            found = lib.hf_tally_wait(
                tally, board.handle, bells.handle, bells.index, first, last, self._strategy, limit
            )
        return bool(found == 1)

    def _check_may_send(self) -> None:
        if self.session.may_send:
            return
        if self.session.closed:
            raise ClosedError(f"source {self.topic}")
        self.context.check_fence()
        self.check_not_deregistered()
        why = self.session.machine.why(self.session.names)
        if self.session.machine.was_complete:
            hint = REMEDY if self.session.own_names.removed else None
            raise QuorumLostError(f"topic {self.topic!r}: the quorum of stores is lost ({why})", hint=hint)
        raise NotRegisteredError(f"topic {self.topic!r}: not registered with enough stores ({why})")

    def check_not_deregistered(self) -> None:
        """Raises NotRegisteredError."""
        if self.session.deregistration is not None:
            raise NotRegisteredError(
                f"topic {self.topic!r}: this source was deregistered", hint="make a new source to register again"
            )
