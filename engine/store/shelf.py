"""Logs of sources that are over: closed until somebody asks for them. A store may keep thousands, and those
cost it no descriptor, no memory and next to no time. The store's control thread.

A log is shelved when all of it is there, and nobody needs it open:
 - no ring of its source is left, neither to be read nor as a name in shared memory;
 - it lacks nothing that it knows of, and has been looked through and compared with its peers;
 - nobody holds the source, or a receiver of it, and what these have acknowledged is in the state.

The state says that it is shelved, and under which incarnation: a BEGIN that comes later takes it down,
whatever a crash leaves. Who asks for the source has its log opened, as at a start of the store. A reader
finds a shelved log as it finds that of a store which does not run: its head is a lower bound, and the end is
walked to.

A store that was killed with more logs open than it may open at its start (engine/store/limits.py) opens the
others in turn: while some wait, none is left open for its age, and each look opens some.

What a crash leaves: a log that was closed and is not yet said to be shelved, which the next start opens; or
one that was opened again and still is said to be shelved. Nothing comes into that without a BEGIN but what
peers have, and the rounds find it (engine/store/rounds.py).
"""

from __future__ import annotations

import logging
import math
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

from ..errors import Error
from ..log.info_file import read_info
from ..log.stale_rings import unlink_unused
from ..log.timestamps import first_kept
from ..memory.mapping import UnpublishedError, attach_board, read_lines
from ..native.core import CData, ffi, lib
from ..native.runtime import time
from ..native.status import check
from . import acks
from .news import called
from .rounds import Rounds

if TYPE_CHECKING:
    from ..log.state_file import SourceState
    from ..memory.domain import Domain
    from .clients import Clients
    from .holdings import Holdings
    from .repository import Repository

__all__ = ["Shelf"]

_log = logging.getLogger("holdfast.store")

LOOK_NS = 1_000_000_000
"""How often it is looked which logs may be shelved: sooner where IDLE_MAX more have been opened."""
IDLE_NS = 10_000_000_000
"""So long nobody has asked for a log that is shelved: a program that ends and starts again finds it open."""
IDLE_MAX = 16
"""With more idle logs than this, those that were asked for first are shelved at once."""
PATIENCE_NS = 60_000_000_000
"""A log whose peers cannot all be read is shelved after so long: the rounds look at them again."""
BOARD_NS = 10_000_000_000
"""So long a board stays for receivers that find a source by it; one that comes later is told by
:meth:`Domain.removals`."""
AT_ONCE = 16
"""Logs that are shelved in a look, and boards that are removed: the store's clients wait meanwhile, some
milliseconds for each log (its new head is synced)."""
OPENED_MAX = 8
"""Logs that are opened in a look, of those that wait."""
SOON_NS = 100_000_000
"""The next look, where this one has closed as many as it may, or logs wait."""


class Shelf:
    """See the module."""

    def __init__(self, holdings: Holdings, clients: Clients) -> None:
        self._holdings = holdings
        self._clients = clients
        self._rounds = Rounds(holdings)
        self._boards: deque[tuple[int, bytes]] = deque()
        """When to see whether the board of a shelved source may go, and which."""
        self._begun: dict[bytes, int] = {}
        """Of logs that are to be closed: below which number the disk has begun with what is to be synced."""
        self._begins = 0
        """Of these at this look."""
        self._due_ns = 0
        self._open = 0
        """Logs that were left open at the last look."""
        self._full_ns = 0
        """A limit was reached, and no log could be closed: when that is tried again."""
        holdings.limits.make_room = self.make_room

    @property
    def due_s(self) -> float:
        """When :meth:`turn` does something, CLOCK_MONOTONIC; ``inf``: never, it writes nothing."""
        return math.inf if self._holdings.sealed else self._due_ns / 1e9

    def turn(self) -> None:
        """Shelves what may be shelved, and goes on with the round, if it is time."""
        now, open_ = time.monotonic_ns(), self._holdings.drainer.repositories
        if self._holdings.sealed or (now < self._due_ns and len(open_) < self._open + IDLE_MAX):
            return
        put_away = self._put_away(now, 0 if self._holdings.unopened else IDLE_MAX)
        soon = self._open_more() or put_away == AT_ONCE
        self._due_ns = time.monotonic_ns() + (SOON_NS if soon else LOOK_NS)  # clients come in between
        self._remove_boards(now)
        self._open = len(open_)
        self._rounds.turn(now)

    def make_room(self) -> None:
        """A limit of the process is reached: some logs that may be are shelved, however new. The next turn
        tells what hinders that."""
        now, closed = time.monotonic_ns(), 0
        if self._holdings.sealed or now < self._full_ns:
            return
        try:
            closed = self._put_away(now, 0, at_once=True)
        except (Error, OSError) as error:
            _log.debug("store %s: no room is made: %s", self._holdings.name, error)
        if not closed:
            self._full_ns = now + SOON_NS

    def _open_more(self) -> bool:
        """Some of the logs that wait. False: there are none, or none can be opened now."""
        holdings = self._holdings
        due = list(islice(holdings.unopened, OPENED_MAX))
        for place, uuid in enumerate(due):
            source = holdings.registry.source(uuid)
            closed = source is not None and holdings.repository(uuid) is None
            if source is not None and closed and not holdings.take_down(source):
                return place > 0
            holdings.unopened.pop(uuid, None)
        if due and not holdings.unopened:
            _log.info("store %s: every log that it had open is open again, or at rest", holdings.name)
        return bool(due)

    def may_change(self) -> bool:
        """At a limit: a log that is open may be closed soon. Nobody holds its source, nor a receiver of it;
        or its source has not begun, and may give up."""
        held = {key.source for client in self._clients for key in client.holds}
        return any(
            not each.source.incarnation or (each.source.uuid not in held and self._may_be_shelved(each))
            for each in self._holdings.open_ones()
        )

    # Putting away -------------------------------------------------------------------------------------------

    def _put_away(self, now_ns: int, most_idle: int, *, at_once: bool = False) -> int:
        """Returns how many logs it has closed. ``at_once``: also such as are to be synced to the end then."""
        holdings = self._holdings
        held = {key.source for client in self._clients for key in client.holds}
        idle = [
            repository
            for repository in list(holdings.drainer.repositories.values())
            if repository.source.uuid not in held and self._may_be_shelved(repository)
        ]
        idle.sort(key=lambda repository: holdings.used_ns(repository.source.uuid))
        wanted: dict[bytes, bool] = {}
        """Of each log that may go: whether its peers are waited for."""
        for place, repository in enumerate(idle):
            rests_ns, crowded = now_ns - holdings.used_ns(repository.source.uuid), place < len(idle) - most_idle
            if crowded or rests_ns >= IDLE_NS:
                wanted[repository.source.uuid] = not crowded and rests_ns < PATIENCE_NS
        self._begun = {uuid: following for uuid, following in self._begun.items() if uuid in wanted}
        self._begins = 0
        if not wanted:
            return 0
        # Listed once, and here: shared memory may hold thousands of names, and all drains would wait. Who
        # makes a ring later and begins at this store holds the source before.
        ringed = {item.uuid for item in holdings.domain.objects() if item.kind == "stream"}
        ringless = [uuid for uuid in wanted if uuid not in ringed]
        holdings.drainer.guard(time.monotonic_ns())  # who has lost the directory writes nothing there
        taken = holdings.drainer.take_out(
            ringless,
            lambda each: _is_over(each, patient=wanted[each.source.uuid]) and (at_once or self._may_rest(each)),
            AT_ONCE,
        )
        shelved = [repository.source for repository in taken if self._close(repository)]
        if shelved:
            holdings.save(sync=False)
        self._boards.extend((now_ns + BOARD_NS, source.uuid) for source in shelved)
        return len(taken)

    def _may_rest(self, repository: Repository) -> bool:
        """What is acknowledged from memory goes to disk when its log is closed. At a first call the disk
        begins with it, so a later one finds less to do. On the drain thread."""
        uuid, following = repository.source.uuid, repository.next_sqn
        if repository.level == lib.HF_LEVEL_DISK or repository.source.repository == "memory":
            return True
        if self._begun.pop(uuid, -1) == following:
            return True
        if self._begins >= AT_ONCE:  # in turn: all drains wait meanwhile
            return False
        self._begins += 1
        check(lib.hf_log_rest_begin(repository.log), what=str(repository.path))
        self._begun[uuid] = following
        return False

    def _may_be_shelved(self, repository: Repository) -> bool:
        """What it is set to keep needs nobody who looks after it."""
        source = repository.source
        options = self._holdings.rules(source).options
        ages = source.repository == "memory" and options.repository_age_threshold
        stands_in = source.proxy and options.allow_proxy_source
        return bool(repository.level) and source.paced is None and not ages and not stands_in and not source.learner

    def _close(self, repository: Repository) -> bool:
        """Nobody else has this repository any more."""
        source = repository.source
        with repository.files:
            following, oldest = repository.next_sqn, int(repository.info.oldest_sqn)
            status = repository.close(for_long=True)
        if status != lib.HF_OK:  # it is not said to be shelved: who asks for it opens it, and meets what is wrong
            _log.warning("%s: closed, and not shelved: %s", repository.called, lib.hf_status_name(status))
            return False
        try:
            first_ns = first_kept(repository.path) or 0
        except (Error, OSError) as error:
            _log.warning("%s: closed, and not shelved: %s", repository.called, error)
            return False
        source.shelved, source.shelved_next = source.incarnation, following
        source.shelved_oldest, source.first_ns = oldest, first_ns
        self._holdings.changes.note(source.uuid)
        if not repository.caught_up and repository.peers():
            self._rounds.ask(source.uuid)
        return True

    def _remove_boards(self, now_ns: int) -> None:
        for _ in range(AT_ONCE):
            if not self._boards or self._boards[0][0] > now_ns:
                return
            source = self._holdings.registry.source(self._boards.popleft()[1])
            if source is not None and source.is_shelved:
                self._remove_board(source)

    def _remove_board(self, source: SourceState) -> None:
        """The last store that closes its log takes the board away: what was on it is in the states.

        Not where another store may have to take in what receivers have acknowledged: it is away, or has left
        its log closed at its start; then this store may not even know them.
        """
        holdings = self._holdings
        others = [name for name in [*source.stores, *source.others] if name != holdings.name]
        if others and (source.receivers or not all(map(self._runs, others))):
            return
        try:
            if _has_receivers(holdings.domain, source, alone=not others):
                return
            unlink_unused(holdings.domain, source.uuid, kept=True)
        except (OSError, Error) as error:  # `holdfast gc` finds it
            _log.debug("%s: its board stays: %s", called(holdings.name, source), error)

    def _runs(self, name: str) -> bool:
        info = read_info(self._holdings.domain, name)
        return info is not None and info.alive(self._holdings.domain) == 1


def _has_receivers(domain: Domain, source: SourceState, *, alone: bool) -> bool:
    """A receiver is on the board of this source, or was and may come again. ``alone``: it is no other store's
    source, so the board says nothing more of those that the state knows. Raises Error, OSError."""
    try:
        with attach_board(domain, source.uuid, writable=False) as board:
            views = [view for view in read_lines(board, domain, test=True) if view.line.role == lib.HF_ROLE_RECEIVER]
    except (FileNotFoundError, UnpublishedError):
        return False
    over = lib.HF_LINE_EPHEMERAL | lib.HF_LINE_DEREGISTERED
    awaited = [view.line for view in views if not view.line.flags & over]
    if alone:
        awaited = [line for line in awaited if not _knows(source, line)]
    return bool(awaited) or any(view.alive != 0 for view in views)


def _knows(source: SourceState, line: CData) -> bool:
    uuid, session = bytes(ffi.buffer(line.uuid)), int(line.session_id)
    return any(each.uuid == uuid or 0 < each.session_id == session for each in source.receivers)


def _is_over(repository: Repository, *, patient: bool) -> bool:
    """All of its source is there, and nobody needs it; it has no ring. The drain thread. ``patient``: nor may
    its peers have more, as far as they can be read."""
    read = repository.stream is None and repository.item.status in {lib.HF_OK, lib.HF_CLOSED}
    return read and _is_whole(repository, patient) and _is_free(repository)


def _is_whole(repository: Repository, patient: bool) -> bool:
    if repository.catch_up is not None or repository.looking is not None or repository.stale:
        return False
    if repository.unsure or repository.losses or repository.lost_below != repository.lost_on_disk:
        return False
    return repository.caught_up or not patient or not repository.peers()


def _is_free(repository: Repository) -> bool:
    """No receiver that lives is on the board, and the state has what those say there that were."""
    fd, lines = repository.domain.fd, repository.line.receivers()
    for view in lines.values():
        line = view.line
        alive = lib.hf_process_alive(fd, line.owner, line.owner_pid, line.owner_start)
        if line.state == lib.HF_LINE_ACTIVE and alive != 0:
            return False
    said, end = repository.acks()
    receivers = repository.source.receivers
    return not any(each.uuid in said and acks.is_news(each, said[each.uuid], end) for each in receivers)
