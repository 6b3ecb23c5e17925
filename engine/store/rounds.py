"""Rounds through the logs that are shelved (engine/store/shelf.py): after each start of a store, and every
holdfast-scrub-interval, each of them is looked at once.

A look asks whether the log is as it was left, verifies all that is in it, and asks whether a peer has more.
It opens nothing for writing: a log that is opened is synced several times before it rests again. So what is
opened is what lacks something, and what is too large to be read at once: that is looked through at a measured
rate (engine/store/scrub.py).

The looks run on a thread of their own, and the store's control thread takes what they have found. Where a
disk does not answer, that thread hangs: the round waits, and no client does.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from ..errors import Error
from ..log.end import WALK_S, OpenLog, Walk, is_stuck, open_log
from ..log.files import taken_bytes
from ..log.info_file import NO_LIVES, Own, bounds, earlier_logs, peers_of
from ..log.look import LogLook
from ..log.reader import view_of
from ..memory.domain import SHM_DIR
from ..native.background import in_background
from ..native.core import lib
from ..native.runtime import futures, os, time
from ..rules.reconcile import FOR_EVER, LogView
from .news import called

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from ..log.state_file import SourceState
    from .holdings import Holdings

__all__ = ["Rounds"]

_log = logging.getLogger("holdfast.store")

LOOK_NS = 1_000_000_000
"""How often some logs are looked at,"""
LOOKS_MAX = 8
"""and how many. A look takes a store about a third of a millisecond."""
OPENED_MAX = 4
"""Logs that are opened in that time."""
LATER_NS = 60_000_000_000
"""After so long a log is looked at once more one of whose peers could not be read: a volume may be mounted
late."""
LARGE_BYTES = 1 << 18
"""A log whose files take more is opened to be looked through."""
HEAD_BYTES = 4096
"""Of the file `head` of a log at rest (csrc/log/head_file.c)."""


class Rounds:
    """See the module. The control thread calls its methods."""

    def __init__(self, holdings: Holdings) -> None:
        self._holdings = holdings
        self._interval_ns = int(holdings.topics.store.options.holdfast_scrub_interval) * 1_000_000_000
        self._next_ns = time.monotonic_ns() + self._interval_ns
        self._due_ns = 0
        self._asked = deque(_shelved(holdings.state.sources))
        """To be looked at; then what is wrong with them is told by opening them."""
        self._lacking: deque[bytes] = deque()
        """To be opened."""
        self._later: deque[tuple[int, bytes]] = deque()
        """To be looked at once more: when, and which."""
        self._turns = 0
        self._looked: futures.Future[_Found] | None = None

    @property
    def is_over(self) -> bool:
        """No log is to be looked at now. Any thread."""
        return not (self._asked or self._looked or self._lacking)  # in the order in which they are filled

    def ask(self, uuid: bytes) -> None:
        """This log is shelved although a peer that may have more could not be read: this round looks at
        it."""
        self._asked.append(uuid)

    def turn(self, now_ns: int) -> None:
        """Goes on with the round, if it is time."""
        if now_ns < self._due_ns:
            return
        self._due_ns = now_ns + LOOK_NS
        if self.is_over and self._interval_ns and now_ns >= self._next_ns:
            self._asked.extend(_shelved(self._holdings.state.sources))
            self._later.clear()
            self._next_ns = now_ns + self._interval_ns
        if self._looked is not None and self._looked.done():
            try:
                self._take(self._looked.result(), now_ns)
            finally:
                self._looked = None  # last: whoever asks whether the round is over sees one or the other
        self._open()
        if self._looked is None:
            self._look(now_ns)

    def _take(self, found: _Found, now_ns: int) -> None:
        self._lacking.extend(found.lacking)
        self._later.extend((now_ns + LATER_NS, uuid) for uuid in found.unsure)

    def _open(self) -> None:
        for _ in range(min(OPENED_MAX, len(self._lacking))):
            source = self._closed(self._lacking[0])
            if source is not None and not self._holdings.take_down(source):
                self._lacking.rotate(-1)
                return  # a log that is opened needs some room: the round waits for it, with another one first
            self._lacking.popleft()

    def _look(self, now_ns: int) -> None:
        due = [uuid for due_ns, uuid in islice(self._later, LOOKS_MAX) if due_ns <= now_ns]
        again = due if self._turns % 2 or not self._asked else []  # in turns with the others, so that nobody starves
        self._turns += 1
        uuids = again or list(islice(self._asked, LOOKS_MAX))  # by themselves: their peers were walked before
        logs = [self._resting(source, last=bool(again)) for source in map(self._closed, uuids) if source is not None]
        if logs:
            try:
                self._looked = in_background("holdfast-round", partial(_look_at, logs))
            except Error as error:  # no thread can be started now
                _log.debug("store %s: its round waits: %s", self._holdings.name, error)
                return
        for _ in uuids:
            (self._later if again else self._asked).popleft()

    def _closed(self, uuid: bytes) -> SourceState | None:
        """This source, if its log is shelved still."""
        source = self._holdings.registry.source(uuid)
        closed = source is not None and source.is_shelved and self._holdings.repository(uuid) is None
        return source if closed else None

    def _resting(self, source: SourceState, *, last: bool) -> _Resting:
        holdings = self._holdings
        own = Own(holdings.state.uuid, holdings.name, holdings.logs)
        places = peers_of(holdings.domain, source, own, NO_LIVES)
        until = bounds(earlier_logs(places, source))
        peers = {path: until.get(path, FOR_EVER) for path in (os.fspath(place.log) for place in places)}
        return _Resting(
            source.uuid, called(holdings.name, source), holdings.logs / source.uuid.hex(),
            SHM_DIR / holdings.domain.board_name(source.uuid), LogView(tuple(source.begins), source.shelved_next), peers, last,
        )  # fmt: skip


class _Resting(NamedTuple):
    """A log that is shelved, as its store left it."""

    uuid: bytes
    called: str
    path: Path
    board: Path
    """Of its source: where it is still there, it may have what receivers have acknowledged."""
    view: LogView
    """What it holds, by the state of its store."""
    peers: Mapping[str, int]
    """Directories of its peers' logs, and below which number each counts."""
    last: bool
    """A peer that cannot be read is not waited for."""


class _Found(NamedTuple):
    """By the uuid of their sources."""

    lacking: list[bytes]
    """Something is wrong with these, or may be missing; or they are large."""
    unsure: list[bytes]
    """These are whole, and a peer that may have more cannot be read."""


def _shelved(sources: Iterable[SourceState]) -> list[bytes]:
    return [source.uuid for source in sources if source.is_shelved]


def _look_at(logs: Sequence[_Resting]) -> _Found:
    found = _Found([], [])
    reached = _reached(path for log in logs for path in log.peers)
    for log in logs:
        _look(log, found, reached=reached)
    return found


def _reached(peers: Iterable[str]) -> bool:
    """The disks of these logs answer, or are known not to: whoever looks at the logs does not hang."""
    try:
        return Walk(peers).over(WALK_S)
    except Error:  # no thread can be started now
        return False


def _look(log: _Resting, found: _Found, *, reached: bool) -> None:
    try:
        whole = _is_whole(log)
        peers = log.peers.items() if whole else ()
        ends = [_has_more(log.view, path, below) if reached else None for path, below in peers]
    except (Error, OSError) as error:  # who opens it says what is wrong
        _log.debug("%s: %s", log.called, error)
        whole, ends = False, []
    except Exception:  # one log that nobody foresaw must not end the care for all others
        _log.exception("%s: the look at this log failed (%s)", log.called, log.path)
        whole, ends = False, []
    if not whole or True in ends:
        found.lacking.append(log.uuid)
    elif None in ends and not (log.last and reached):
        found.unsure.append(log.uuid)


def _is_whole(log: _Resting) -> bool:
    """It is at rest, each number of it verifies, it ends where it did, and no board is left of its source.
    Raises Error, OSError: it cannot be read."""
    if os.path.lexists(log.board) or os.stat(log.path / "head").st_size != HEAD_BYTES:
        return False
    if taken_bytes(log.path) > LARGE_BYTES:
        return False
    opened = open_log(log.path)
    if not isinstance(opened, OpenLog):
        return False
    with contextlib.closing(opened):
        if view_of(opened.log) != log.view:
            return False
        look = LogLook(log.path, opened.log)
        while not look.over:
            if look.step() is not None:
                return False
        return view_of(opened.log) == log.view  # else its end was of a moment


def _has_more(own: LogView, path: str, below: int) -> bool | None:
    """This peer's log may have what ours lacks: a later number, or a later BEGIN. None: that cannot be
    read."""
    opened = None if is_stuck(path) else open_log(path)
    if not isinstance(opened, OpenLog):
        return None
    with contextlib.closing(opened), contextlib.suppress(Error):
        view = view_of(opened.log)
        more = view.incarnation > own.incarnation or min(view.next_sqn, below) > own.next_sqn
        return more if more or opened.end()[0] == lib.HF_OK else None
    return None
