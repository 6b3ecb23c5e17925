"""The register: which stores each source of this host has declared, and the lives of these stores.

A store remembers whom its source declared last. Where the list changes, and the one store that knew both
lists is wiped or restored, nobody else knows of the other list any more. So each source writes its list here,
on disk, before its first BEGIN with it, and the life of each store before that store's BEGIN, so before what
it acknowledges counts. At the next start that adds to what the stores say, and takes nothing away: a register
that is lost, or that another container has, leaves what the stores themselves know. Where no declared store
knows the source at all, it is a new one.

With its list stands the incarnation that was about to begin: nobody opens one that is not greater, also where
the store that has its BEGIN is away (docs/design.md 13).

A session ID of a topic has one file, and so has a RegID of a topic (engine/log/register_file.py). A list
counts up to the number from which another one was in force (``below``), so nobody waits for ever for stores
that were retired.

A disk may hang. So each look is a thread's of its own, which is waited for for :data:`PATIENCE_S`. Who got no
answer goes on with what was read before, and writes again later what is not written yet. So does a source
that has been registered, and whose process has run out of threads or descriptors: it decides nothing any
more.
"""

from __future__ import annotations

import contextlib
import logging
import pwd
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ..errors import ConfigError, Error
from ..memory.domain import volatile_bases
from ..native.limits import lacking
from ..native.runtime import Path, os, threading
from ..native.threads import start_thread
from ..rules.election import Register, Written
from ..rules.quorum import INTERGROUP, INTRAGROUP, Groups
from ..rules.reconcile import FOR_EVER
from .register_file import Entry, List, RegisterFile, all_over, last_lines, last_lives, read_file
from .source_key import digest_of, given_by

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ..control.wire import Elsewhere
    from ..memory.domain import Domain

__all__ = ["Entry", "SourceRegister", "earlier_stores", "elsewhere", "entries_of", "every_store", "register_directory"]

_log = logging.getLogger("holdfast")
_T = TypeVar("_T")

NAME = ".register"
"""No domain's name begins with a dot."""
PATIENCE_S = 2.0
"""Of a source that starts: so long it waits for this disk."""
OTHERS_MAX = 32
"""Stores that are asked for beside the declared ones: of the newest lists."""


def register_directory(domain: Path) -> Path:
    """Where the register of a domain is: beside the domain's directory, or, where that goes with a reboot, in
    a place that stays.

    Raises ConfigError: this user has no home.
    """
    if domain.parent not in volatile_bases():
        return domain.parent / NAME
    if os.geteuid() == 0:
        return Path("/var/lib/holdfast") / NAME
    state = os.environ.get("XDG_STATE_HOME")
    if state:
        return Path(state) / "holdfast" / NAME
    home = os.environ.get("HOME")
    if not home:
        try:
            home = pwd.getpwuid(os.geteuid()).pw_dir
        except KeyError as error:
            raise ConfigError(f"uid {os.geteuid()} has no home directory", hint="set HOME") from error
    return Path(home) / ".local" / "state" / "holdfast" / NAME


def entries_of(domain: Path, uuid: str, source: tuple[str, int, Iterable[int]] | None = None) -> list[Entry]:
    """The last line of each list of the source whose uuid begins so. For who only reads: nothing is made.

    ``source``: its topic, session ID and RegIDs, which say in which files it is; without, all are looked
    through. What cannot be read adds nothing.
    """
    found: dict[tuple[str, List], Entry] = {}
    with contextlib.suppress(ConfigError, OSError):
        directory = register_directory(Path(os.path.realpath(domain)))
        names = _file_names(domain, *source) if source is not None else sorted(os.listdir(directory))
        for name in names:
            for entry in read_file(directory / name):
                if entry.uuid.startswith(uuid):
                    found[entry.uuid, entry.list] = entry
    return list(found.values())


def _file_names(domain: Path, topic: str, session: int, registration_ids: Iterable[int]) -> list[str]:
    """Of the files of a source: one for its session ID, or one for each RegID."""
    path = os.fsencode(os.path.realpath(domain)).hex()
    return [digest_of(path, topic, *each) for each in given_by(session, registration_ids)]


def every_store(domain: Path) -> set[str]:
    """Names of all stores that some source of this host has ever declared; empty where the register cannot be
    read."""
    return {store for entry in entries_of(domain, "") for store in (*entry.list[0], *entry.lives)}


def elsewhere(register: Register) -> dict[bytes, dict[str, Elsewhere]]:
    """By identity, the stores of all lists: the life in which each last took part, and the number below which
    a list with it may still count; -1 where that is not known, or not bounded."""
    found: dict[bytes, dict[str, Elsewhere]] = {}
    left = OTHERS_MAX
    for uuid, written in reversed(list(register.items())):
        below: dict[str, int] = {}
        for each in reversed(written.configurations):
            for store in each.stores:
                below[store] = max(below.get(store, 0), each.below)
        names = list(dict.fromkeys([*below, *written.lives]))[:left]
        if not names:
            continue
        left -= len(names)
        bounds = {name: below.get(name, FOR_EVER) for name in names}
        found[uuid] = {
            name: (written.lives.get(name, -1), bound if bound < FOR_EVER else -1) for name, bound in bounds.items()
        }
    return found


def earlier_stores(register: Register, uuid: bytes, start: int) -> dict[str, int]:
    """The stores of all lists of one source -> the number below which they may have messages of it, with
    ``start`` begun now."""
    of_uuid = elsewhere(register).get(uuid, {})
    return {name: below if 0 <= below < start else start for name, (_, below) in of_uuid.items()}


class _Claim(NamedTuple):
    """What is to be written. ``start``: the first number that this list is in force from; -1: it is not
    yet."""

    uuid: bytes = b""
    incarnation: int = 0
    lives: tuple[tuple[str, int], ...] = ()
    start: int = -1
    over: tuple[int, ...] = ()


class SourceRegister:
    """What one source reads and writes there. A trouble with a file is told once, and costs what the file
    would add.

    ``registration_ids``: those that it gives. One without any of them and without ``session`` has nothing
    written: nobody can come back as it.
    """

    def __init__(
        self, domain: Domain, topic: str, session: int, registration_ids: Sequence[int], names: Sequence[str],
        groups: Groups | None,
    ) -> None:  # fmt: skip
        self._topic = topic
        self._domain = Path(os.path.realpath(domain.path))
        self._names = _file_names(domain.path, topic, session, registration_ids) if groups is not None else []
        if groups is not None:
            agree = INTRAGROUP.index(groups.intragroup), INTERGROUP.index(groups.intergroup)
            self._list: List = (tuple(names), groups.sizes, groups.of, *agree)
        self._trouble = ""
        self._known: Register = {}
        """What was read last."""
        self.is_read = False
        """The last try to read it succeeded."""
        self._claim = self._written = _Claim()
        self._busy: threading.Thread | None = None
        self._hangs = False
        """It was waited for in vain."""

    def read(self, *, strict: bool = True) -> Register:
        """What is there now, by identity; what was there before, where it cannot be read now.

        ``strict``: raises what :func:`lacking` knows: this process has run out of something, which says
        nothing of what is written, and nobody is elected by that. Else what this source has declared since is
        added.
        """
        entries = self._look(
            lambda files: [entry for file in files for entry in file.load()], PATIENCE_S, strict=strict
        )
        self.is_read = entries is not None
        if entries is not None:
            self._known = _register(entries)
        return self._with_declared() if self._names and not (strict or self.is_read) else self._known

    def _with_declared(self) -> Register:
        claim = self._claim
        written = self._known.get(claim.uuid, Written())
        return {**self._known, claim.uuid: written._replace(lives={**written.lives, **dict(claim.lives)})}

    def declare(self, uuid: bytes, incarnation: int, lives: Mapping[str, int], *, strict: bool = True) -> None:
        """Before these stores begin under ``uuid`` with this list: on disk when it returns, unless a file is
        in trouble. ``strict``: raises as :meth:`read`, and is to be declared again."""
        same = self._claim[:2] == (uuid, incarnation)
        known = dict(self._claim.lives) if same else {}
        start = self._claim.start if same else -1
        ended = self._claim.over if same else ()
        self._claim = _Claim(uuid, incarnation, tuple(sorted({**known, **lives}.items())), start, ended)
        self.settle(strict=strict)

    def complete(self, start: int, over: Iterable[int] = ()) -> None:
        """The source is, with what it has declared, from ``start`` on: no other list counts from there on.
        ``over``: exclusions by the operator that were for this start."""
        self._claim = self._claim._replace(start=start)
        self.end(over)

    def end(self, over: Iterable[int]) -> None:
        """These are over, if the source is complete: a store that was excluded is about to count again."""
        if self._claim.start >= 0:
            self._claim = self._claim._replace(over=tuple(dict.fromkeys([*self._claim.over, *over])))
            self.settle()

    def settle(self, patience_s: float = PATIENCE_S, *, strict: bool = False) -> None:
        """Writes what is not written yet. To be called again and again: a file may have been in trouble."""
        claim = self._claim
        if claim == self._written:
            return

        def write(files: Sequence[RegisterFile]) -> None:
            for file in files:
                file.append(lambda entries: self._news(entries, claim))
            self._written = claim

        self._look(write, patience_s, strict=strict)

    def _news(self, entries: Sequence[Entry], claim: _Claim) -> list[Entry]:
        """What is to be appended to these lines."""
        own = [entry for entry in entries if entry.uuid == claim.uuid.hex()]
        last = {entry.list: entry for entry in own}
        known = {name: life for name, (_, life) in last_lives(own).get(claim.uuid.hex(), {}).items()}
        news, lives = [], dict(claim.lives)
        mine = last.get(self._list)
        if (
            mine is None
            or mine.below >= 0
            or mine.incarnation < claim.incarnation
            or not lives.items() <= known.items()
            or not {*claim.over} <= {*all_over(own).get(claim.uuid.hex(), ())}
        ):
            news.append(Entry(claim.uuid.hex(), self._list, lives, claim.incarnation, over=claim.over))
        if claim.start >= 0:  # a later claimant may have declared that list again, while this thread stood still
            news += [
                Entry(entry.uuid, entry.list, {}, entry.incarnation, claim.start)
                for entry in last.values()
                if entry.list != self._list
                and entry.incarnation < claim.incarnation
                and not 0 <= entry.below <= claim.start
            ]
        return news

    def _look(self, work: Callable[[Sequence[RegisterFile]], _T], patience_s: float, *, strict: bool) -> _T | None:
        """``work`` with the files, on another thread; None where that fails or takes too long. ``strict``:
        what this process lacks is raised."""
        if not self._names:
            return None
        done: list[_T] = []
        failed: list[Exception] = []

        def run() -> None:
            try:
                directory = register_directory(self._domain)
                with contextlib.ExitStack() as stack:
                    done.append(
                        work(
                            [
                                stack.enter_context(contextlib.closing(RegisterFile(directory, name)))
                                for name in self._names
                            ]
                        )
                    )
            except (Error, OSError, ValueError, MemoryError) as error:
                failed.append(error)

        if self._is_free(patience_s):
            busy = threading.Thread(target=run, name="holdfast-register", daemon=True)
            try:
                start_thread(busy)
            except Error as error:
                failed.append(error)
            else:
                self._busy = busy
                self._is_free(patience_s)
        if done:
            self._trouble = ""
            return done[0]
        if failed:
            lacks = lacking(failed[0])
            if lacks is not None and strict:
                raise lacks
            self._tell(lacks or failed[0])
        elif patience_s:
            self._tell("the disk of the register of sources does not answer")
        return None

    def _is_free(self, patience_s: float) -> bool:
        """No look is under way, or it ends in time. Who has been waited for in vain is not waited for
        again."""
        busy = self._busy
        if busy is None:
            return True
        busy.join(0 if self._hangs else patience_s)
        self._hangs = busy.is_alive() and (self._hangs or patience_s > 0)
        return not busy.is_alive()

    def _tell(self, trouble: Exception | str) -> None:
        """Once: the text of a limit changes with its use."""
        which = getattr(trouble, "limit", "") or str(trouble)
        if which != self._trouble:
            said = str(trouble) or type(trouble).__name__
            _log.warning("%s; only its stores know whom topic %r has declared", said, self._topic)
        self._trouble = which


def _register(entries: Sequence[Entry]) -> Register:
    """By identity, in the order in which they were declared last: so are their lists."""
    lists: dict[str, dict[List, Entry]] = {}
    lives, over = last_lives(entries), all_over(entries)
    for entry in last_lines(entries):
        of_uuid = lists[entry.uuid] = lists.pop(entry.uuid, {})
        of_uuid[entry.list] = entry
    return {
        bytes.fromhex(uuid): Written(
            tuple(entry.configuration for entry in found.values()),
            {store: life for store, (_, life) in lives[uuid].items()},
            over[uuid],
            max(entry.incarnation for entry in entries if entry.uuid == uuid),
        )
        for uuid, found in lists.items()
    }
