"""Liveness detection, the driver of `liveness`: a context shows itself to the sources that it receives from,
and watches those that receive from it.

Both halves are off until their options are given (docs/semantics.md H): in the receiving context
``ume_receiver_liveness_interval``, ``ume_user_receiver_registration_id`` and a session ID; in the sending
context ``ume_source_liveness_timeout`` and ``ume_receiving_context_notification_function``, and
``ume_confirmed_delivery_notification`` of a source. The context's thread runs everything here.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ..events.info import ReceivingContextFlags, ReceivingContextInfo
from ..native.core import CData, ffi, lib
from ..native.runtime import secrets, time
from ..native.status import error_of
from ..rules.liveness import Came, Line, Liveness, Went

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ..control.host import Host
    from ..memory.mapping import Mapping
    from ..source.session import SourceSession

__all__ = ["LivenessDriver"]

_log = logging.getLogger("holdfast")

FOR_EVER_NS = 2**62
JOIN_AGAIN_NS = 500_000_000
"""Until a line is asked for again that could not be had: whoever's turn it was may stand still."""
LOOK_NS = 50_000_000
"""How often the boards are read at most ..."""
LOOK_AGAIN_NS = 200_000_000
"""... and how often at least: a context's thread that has nothing else to do turns more rarely."""


class LivenessDriver:
    """One context in both roles. ``turn`` is called in every turn of its thread."""

    def __init__(self, context: Host) -> None:
        options = context.options
        self._context = context
        self._uuid = secrets.token_bytes(16)
        self._interval_ns = options.ume_receiver_liveness_interval * 1_000_000
        self._registration_id = options.ume_user_receiver_registration_id
        if self._interval_ns and not self._registration_id:
            _missing(context, "ume_receiver_liveness_interval", "ume_user_receiver_registration_id")
            self._interval_ns = 0
        self._joining: list[tuple[bytes, Mapping, int]] = []
        self._join_ns = 0
        self._lines: dict[bytes, tuple[Mapping, int]] = {}
        """Source -> board and line. The mapping is kept, because the line outlives the receiver that
        joined."""
        self._beat_ns = FOR_EVER_NS

        timeout_ns = options.ume_source_liveness_timeout * 1_000_000
        functions = options.ume_receiving_context_notification_function
        if bool(timeout_ns) != (functions is not None):
            pair = ["ume_source_liveness_timeout", "ume_receiving_context_notification_function"]
            _missing(context, *(pair if timeout_ns else pair[::-1]))
        silence = options.ume_source_liveness_behavior == "silence"
        self._watch = Liveness(timeout_ns, silence=silence) if timeout_ns and functions is not None else None
        self._functions = functions
        self._client_data: dict[bytes, object] = {}
        self._views: CData = ffi.new("struct hf_line_view[]", lib.HF_BOARD_LINES) if self._watch else ffi.NULL
        self._look_ns = 0
        self._closed = False

    def turn(self, now_ns: int, sources: Iterable[SourceSession]) -> int:
        """Heartbeats, and looks at the boards of ``sources``, as they are due. Returns the number of
        callbacks."""
        if self._joining and now_ns >= self._join_ns:
            joining, self._joining = self._joining, []
            for source, board, session_id in joining:
                self._join(source, board, session_id)
        if now_ns >= self._beat_ns:
            self._beat_ns = now_ns + self._interval_ns
            for board, line in self._lines.values():
                lib.hf_board_line_at(board.handle, line).heartbeat_ns = now_ns
        if self._watch is not None and now_ns >= self._look_ns:
            self._look_ns = now_ns + LOOK_NS
            return self._tell(self._watch, sources, now_ns)
        return 0

    def deadline(self) -> int:
        """When the next turn is due at the latest."""
        return self._beat_ns if self._watch is None else min(self._beat_ns, self._look_ns - LOOK_NS + LOOK_AGAIN_NS)

    def close(self) -> None:
        """The context is closing: says so to the sources, and watches no more. Under the context's lock."""
        self._closed, self._watch, self._beat_ns = True, None, FOR_EVER_NS
        self._joining.clear()
        lines, self._lines = self._lines, {}
        for board, line in lines.values():
            lib.hf_board_release(board.handle, line)

    # Receiving ----------------------------------------------------------------------------------------------

    def joined(self, source: bytes, board: Mapping, session_id: int) -> None:
        """A receiver of this context has joined a source."""
        if self._interval_ns and not self._closed:
            if not session_id:
                _missing(self._context, "ume_receiver_liveness_interval", "ume_session_id")
                return
            self._joining.append((source, board, session_id))

    def _join(self, source: bytes, board: Mapping, session_id: int) -> None:
        """Takes a line. Another receiver may have joined before: then it is there, unless the board is a new
        one."""
        context = self._context
        who = ffi.new("struct hf_identity *")
        ffi.memmove(who.uuid, self._uuid, 16)
        name = context.name.encode()[:31]
        ffi.memmove(who.name, name, len(name))
        who.role, who.bell, who.session_id = lib.HF_ROLE_CONTEXT, context.bells.index, session_id
        who.user_registration_id = self._registration_id
        status = lib.hf_board_claim(board.handle, context.domain.fd, who, ffi.NULL)
        if status >= 0:
            self._lines[source] = board, int(status)
            self._beat_ns = 0
        elif status == lib.HF_AGAIN:
            self._joining.append((source, board, session_id))
            self._join_ns = time.monotonic_ns() + JOIN_AGAIN_NS
        elif status != lib.HF_BUSY:
            _log.warning("%s cannot show itself to %s: %s", context.name, source.hex(), error_of(status))

    # Sending ------------------------------------------------------------------------------------------------

    def _tell(self, watch: Liveness, sources: Iterable[SourceSession], now_ns: int) -> int:
        """Looks at the boards and calls the program."""
        found = watch.look(self._seen(sources), now_ns)
        create, delete = self._functions
        for what in found:
            if self._closed:  # by a callback
                break
            line = what.line
            match what:
                case Came():
                    info = ReceivingContextInfo(line.registration_id, line.session_id, ReceivingContextFlags(0))
                    self._client_data[line.uuid] = self._call(create, info)
                case Went(line, flag):
                    data = self._client_data.pop(line.uuid)
                    self._call(delete, ReceivingContextInfo(line.registration_id, line.session_id, flag, data))
        return len(found)

    def _call(self, function: Callable[[ReceivingContextInfo], object], info: ReceivingContextInfo) -> object:
        try:
            return function(info)
        except Exception as error:
            self._context.callback_failed(error)
            return None

    def _seen(self, sources: Iterable[SourceSession]) -> Iterator[Line]:
        fd = self._context.domain.fd
        for source in sources:
            board = source.liveness_board
            if board is None:
                continue
            count = lib.hf_board_read(board.handle, fd, 0, self._views, lib.HF_BOARD_LINES)
            for view in self._views[0:count]:
                line = view.line
                if line.role == lib.HF_ROLE_CONTEXT:
                    yield Line(
                        bytes(ffi.buffer(line.uuid)), int(line.user_registration_id), int(line.session_id),
                        int(line.heartbeat_ns), line.state == lib.HF_LINE_CLOSED,
                        _proof(fd, int(line.owner), int(line.owner_pid), int(line.owner_start)),
                    )  # fmt: skip


def _proof(fd: int, owner: int, pid: int, start: int) -> Callable[[], bool]:
    return lambda: bool(lib.hf_process_alive(fd, owner, pid, start) == 0)


def _missing(context: Host, given: str, missing: str) -> None:
    _log.info("%s: liveness detection is off: %s is given, %s is not", context.name, given, missing)
