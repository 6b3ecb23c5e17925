"""A store's own census (engine/log/census.py): what it writes before it first grants a source.

A disk may hang. So each piece of work is done by a thread, which a grant waits for at most
:data:`PATIENCE_S`. Work that fails or takes too long is *trouble*: the census has not what the store grants.
It tells that before the grant: to everybody in the domain in its info file, and with the grant to the
source, which tells it on. After a trouble nobody knows what is on disk, so the file is spoilt, and the census
is never gone on with: the store tries now and then to begin another one, with all keys of its state. Where
the file could not be spoilt, or there is none, nothing that outlives a reboot says so: then sources that are
not in it are refused, until another one is begun. Where the file system does not say when files were made
nothing there proves anything, and they are granted.

A store that starts never believes that what it reads is on disk: who wrote it may have been killed before its
sync. It writes all of it anew.

Where the option `holdfast-census` is 0 a store keeps none: nothing is written and nothing told. If it has
kept one before, that is spoilt, and it tells a trouble: what it grants from now on is not in it.

A store that has started on a disk that is read-only grants nothing: it begins no census, and has the mark
that its state has.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

from ..errors import ConfigError, CorruptionError, Error
from ..log.census import KEYS_MAX, RENEW_BYTES, Census, CensusFile, NamesUnsureError, key_of, spoil
from ..native.background import in_background
from ..native.runtime import Path, futures, time
from ..rules.census import NOWHERE, TROUBLE, Identity, Mark, goes_on

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from ..log.state_file import SourceState, State

__all__ = ["OwnCensus"]

_log = logging.getLogger("holdfast.store")

PATIENCE_S = 2.0
"""Of a grant, and of a store that starts: so long it waits for this disk."""
RETRY_NS = 10_000_000_000
"""How soon after a trouble it is tried again."""
BEGUN_MAX = KEYS_MAX // 8 * 7
"""With more sources none is begun after a trouble: it would soon be too long."""


class OwnCensus:
    """See the module; the store's control thread. ``tell``: what writes the store's info file. ``aliases``:
    other names of the store. ``keeps``: the option `holdfast-census`."""

    def __init__(
        self, domain: Path, name: str, state: State, tell: Callable[[], None], aliases: Collection[str] = (),
        keeps: bool = True,
    ) -> None:  # fmt: skip
        self._domain, self._name, self._state, self._tell = domain, name, state, tell
        self._aliases, self._keeps = aliases, keeps
        self.is_kept = keeps or state.census is not None
        """It has one, or has had one."""
        self._begun = self._complete = False
        """The store has started; and all that this asks for was done."""
        self.mark = Mark(*state.census[1:]) if state.census is not None else TROUBLE
        self.directory: Identity = NOWHERE
        self._census: Census | None = None
        self._had: frozenset[str] = frozenset()
        """In a trouble: keys that the census had before."""
        self._work: futures.Future[Census] | None = None
        """Under way, or waited for in vain."""
        self._late = False
        """It was waited for in vain: what it comes to counts no more."""
        self._spoilt = self._lost = self._over = self._unsure = False
        """What work has come to: the file says durably that it proves nothing; it was not there, or not as
        the store had left it; somebody else writes it; an earlier one may be in its place on disk."""
        self._untold = False
        """A trouble that the info file does not tell."""
        self._why = self._warned = ""
        self._long = RENEW_BYTES
        """From this size on it is asked whether a shorter one would do."""
        self._tried_ns = 0

    def begin(self) -> None:
        """The store starts: goes on with the census that is there, if it is the one of its state. The caller
        saves the state, and tells who the store is."""
        if not self._keeps:
            self._end()
            return
        self._begun = True
        if self._state.census is None:  # others were granted sources before, and had no census then
            known = {name for each in self._state.sources for name in (*each.peers, *each.directories, *each.others)}
            self._state.remember(dict.fromkeys(known - {*self._state.censuses}, TROUBLE))
        self._do(self._beginning())

    def _beginning(self) -> Callable[[], Census]:
        """What a store that starts has to do."""
        state, keys = self._state, self._keys()
        earlier, new = state.census_path, not state.sources
        known = Mark(*state.census[1:]) if state.census is not None else None

        def work() -> Census:
            for alias in self._aliases:
                CensusFile(self._domain, alias).set_alias(alias=True)
            file, found = CensusFile(self._domain, self._name), None
            moved = earlier not in {b"", file.path}
            if moved:  # there it would not have what is granted from now on
                spoil(earlier)
            file.set_alias(alias=False)
            with contextlib.suppress(CorruptionError, FileNotFoundError):
                found = file.load()
            goes = found is not None and (new if known is None or moved else goes_on(found.mark, known))
            self._lost = not (goes or moved or known is None or known == TROUBLE)
            if found is None:
                return file.renew(keys)
            return file.renew(keys | found.keys, found.mark.id if goes else b"")

        return work

    @property
    def told(self) -> Mark | None:
        """What others are told. None: it keeps none, and has kept none."""
        return self.mark if self.is_kept else None

    def _end(self) -> None:
        """It was kept before, and is no more."""
        path, spoilt = self._state.census_path, list[bytes]()
        if not path:
            return

        def work() -> Census:
            spoil(path)
            spoilt.append(path)
            raise OSError("it keeps no census any more (holdfast-census 0)")

        self._do(work)
        if spoilt:  # else the next life tries again
            self._state.census_path = b""

    def lists(self, source: SourceState) -> bool:
        """The store has granted it once."""
        return self._census is not None and _key(source) in self._census.keys

    def note(self, source: SourceState) -> bool:
        """Before ``source`` is granted: its key is on disk when this returns, or the trouble is told. True:
        the state is to be saved. Raises ConfigError, OSError: neither."""
        census, key = self._census, _key(source)
        if not self._begun or (census is not None and key in census.keys):
            return False
        if census is None:
            self._tell_trouble()
            self._check(source)
            return False
        keys = self._fewer(census)
        if keys:
            self._do(lambda: CensusFile(self._domain, self._name).renew(keys))
        else:
            self._do(lambda: self._append(census, key))
        if self._census is None:
            self._tell_trouble()
            self._check(source)
        else:
            with contextlib.suppress(OSError):
                self._tell()
        return True

    def _tell_trouble(self) -> None:
        if self._untold:
            self._tell()
            self._untold = False

    def _check(self, source: SourceState) -> None:
        """In a trouble: what outlives a reboot says so, or the source was granted before."""
        if self._spoilt or source.incarnation or _key(source) in self._had:
            return
        raise ConfigError(
            f"the census cannot be written ({self._why}), and its file does not say so",
            hint="mend the place of the censuses (.census beside the register of sources), or set holdfast-census to 0",
        )

    def _fewer(self, census: Census) -> set[str]:
        """The keys that another census would have, if it is time for one: the old one is long, and most of it
        is of no use. Empty: it is not."""
        if census.size < self._long:
            return set()
        keys = self._keys()
        fewer = 2 * len(keys) < len(census.keys)
        self._long = RENEW_BYTES if fewer else 2 * census.size  # not looked at for each source
        return keys if fewer else set()

    def _append(self, census: Census, key: str) -> Census:
        """Or begins another one, where somebody has taken the file away. Where somebody has changed it, there
        are two who write it: it is not believed again in this life."""
        file = CensusFile(self._domain, self._name)
        try:
            return file.append(census, [key])
        except FileNotFoundError:
            self._lost = True
            return file.renew(census.keys | {key})
        except CorruptionError:
            self._over = True
            raise

    def look(self) -> bool:
        """Now and then: after a trouble it begins another one. True: it has, and the state is to be saved and
        told."""
        if self._untold:
            with contextlib.suppress(Error, OSError):
                self._tell_trouble()
        if self._census is not None or not self._begun or self._over:
            return False
        if self._work is None:
            if time.monotonic_ns() - self._tried_ns >= RETRY_NS and len(self._state.sources) <= BEGUN_MAX:
                keys = self._keys()
                self._had &= keys  # what is granted from now on is to be in this one, too
                self._start(
                    (lambda: CensusFile(self._domain, self._name).renew(keys)) if self._complete else self._beginning()
                )
            return False
        if not self._work.done():
            return False
        work, self._work = self._work, None
        if not self._late:
            self._take(work)
        return self._census is not None

    def _start(self, work: Callable[[], Census]) -> None:
        self._tried_ns, self._spoilt, self._late = time.monotonic_ns(), False, False

        def run() -> Census:
            try:
                return work()
            except Exception as error:
                self._unsure |= isinstance(error, NamesUnsureError)
                with contextlib.suppress(Error, OSError):
                    file = CensusFile(self._domain, self._name)
                    self._spoilt = (file.spoil() and not self._unsure) or file.proves_nothing()
                raise

        try:
            self._work = in_background("holdfast-census", run)
        except (Error, MemoryError) as error:  # no thread can be started now
            self._fail(error)

    def _do(self, work: Callable[[], Census]) -> None:
        self._start(work)
        if self._work is None:
            return
        futures.wait((self._work,), PATIENCE_S)
        if not self._work.done():
            self._late = True
            self._fail("the disk of the censuses does not answer")
            return
        done, self._work = self._work, None
        self._take(done)

    def _take(self, work: futures.Future[Census]) -> None:
        try:
            done = work.result()
        except Exception as error:
            self._fail(error)
            return
        if self._why:
            _log.warning("store %s: its census can be written again", self._name)
        self._why, self._warned, self._untold, self._unsure, self._complete = "", "", False, False, True
        self._census, self.mark, self.directory = done, done.mark, done.directory
        self._state.census = self._name, *done.mark
        self._state.census_path = CensusFile(self._domain, self._name).path
        self._state.census_lost |= self._lost

    def _fail(self, trouble: Exception | str) -> None:
        why = str(trouble.args[0] if isinstance(trouble, Error) else trouble) or type(trouble).__name__
        which = getattr(trouble, "limit", "") or why  # the text of a limit changes with its use
        if which != self._warned:
            self._warned = which
            _log.warning("store %s: %s; nothing is proved of it while it is away", self._name, why)
        if self._census is not None:
            self._had = self._census.keys
        self._why, self._untold = why, True
        self._census, self.mark, self.directory = None, TROUBLE, NOWHERE
        self._state.census = self._name, *TROUBLE

    def _keys(self) -> set[str]:
        return {_key(source) for source in self._state.sources}


def _key(source: SourceState) -> str:
    return key_of(source.topic, source.session_id, source.registration_id)
