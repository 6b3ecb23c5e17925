"""A store's own census (census.py): it writes the key of each source before it first grants it.

Where it cannot, it takes the census away, so that nothing is proved of it, grants all the same, and tries now
and then to write all keys anew. Where it cannot even do that, it does not grant.

A store that starts goes on with what an earlier life has written in this boot: that may have granted sources
which its state, lost or restored since, does not know. Where that is gone as well, nobody knows them, and the
census says so until the next boot.
"""

from __future__ import annotations

import contextlib
import logging
from itertools import chain
from typing import TYPE_CHECKING

from ..errors import ConfigError, CorruptionError, Error
from ..native.runtime import secrets, time
from .census import KEY_BYTES, KEYS_MAX, add, boot_id, carried_over, key_of, read, write
from .info_file import read_info

if TYPE_CHECKING:
    from collections.abc import Collection

    from ..memory.domain import Domain
    from .state_file import SourceState, State

__all__ = ["OwnCensus"]

_log = logging.getLogger("holdfast.store")

RETRY_NS = 10_000_000_000
"""How soon after a trouble it is written again."""
RENEW_KEYS = (1 << 22) // KEY_BYTES
"""From this number on it is written anew, if that halves it: of a source that the store was told to forget,
or whose time is over, nobody asks."""


class OwnCensus:
    """See the module; the store's control thread. ``name``: the store's."""

    def __init__(self, domain: Domain, name: str, state: State) -> None:
        self._path, self._name, self._state = domain.census_path(name), name, state
        self.life = secrets.token_bytes(16)
        """The store's info file names it."""
        self._earlier, self._whole = self._begun(domain)
        self._keys = {*self._earlier, *chain.from_iterable(map(_keys_of, state.sources))}
        self._long = RENEW_KEYS
        self._written = self._left = False
        """It is on the host, with all keys; it may be there, and lack one that is not among them."""
        self._why = ""
        self._tried_ns = 0
        self._renew()

    def _begun(self, domain: Domain) -> tuple[frozenset[bytes], bool]:
        """As :func:`carried_over`."""
        info, found = read_info(domain, self._name), None
        try:
            boot = boot_id()
            with contextlib.suppress(FileNotFoundError, CorruptionError):
                found = read(self._path)
        except (Error, OSError):
            return frozenset(), False
        same = info is not None and info.uuid == self._state.uuid
        return carried_over(found, boot, life=info.census if info is not None else None, same=same)

    def note(self, source: SourceState) -> None:
        """Before ``source`` is granted. Raises ConfigError: it must not be."""
        new = _keys_of(source) - self._keys
        if not new:
            return
        if self._written and len(self._keys) + len(new) > min(self._long, KEYS_MAX):
            self._shorten(new)
        elif self._written:
            self._add(new)
        if self._left:
            self._take_away()
        if self._left:
            raise ConfigError(
                f"{self._path} lacks a source, and can be neither written nor removed ({self._why})",
                hint="mend the file system of the domain",
            )
        self._keys |= new  # last: with them it is on the host, or it is not there

    def look(self) -> None:
        """Now and then: after a trouble it is written anew."""
        if self._written or time.monotonic_ns() - self._tried_ns < RETRY_NS:
            return
        if len(self._keys) > KEYS_MAX:
            self._shorten()
        else:
            self._renew()

    def _add(self, keys: set[bytes]) -> None:
        try:
            add(self._path, b"".join(keys))
        except FileNotFoundError:  # somebody has taken it away
            self._renew(keys)
        except (Error, OSError, MemoryError) as error:
            self._fail(error)

    def _shorten(self, new: Collection[bytes] = ()) -> None:
        fewer = {*self._earlier, *chain.from_iterable(map(_keys_of, self._state.sources))}
        halves = 2 * len(fewer) < len(self._keys)
        self._long = RENEW_KEYS if halves else 2 * len(self._keys)  # not looked at for each source
        if halves:
            self._keys = fewer
        self._renew(new)

    def _renew(self, new: Collection[bytes] = ()) -> None:
        self._tried_ns = time.monotonic_ns()
        try:
            keys = {*self._keys, *new}
            if len(keys) > KEYS_MAX:
                raise OSError(f"{self._path} would have {len(keys)} keys, of {KEYS_MAX} at most")
            write(self._path, self.life, keys, whole=self._whole)
        except (Error, OSError, MemoryError) as error:
            self._fail(error)
            return
        if not self._whole and not self._written:
            _log.warning(
                "store %s may have granted sources in this boot that nobody knows any more; new sources wait for it "
                "while it is away, until the next boot", self._name,
            )  # fmt: skip
        elif self._why:
            _log.warning("store %s keeps a census again", self._name)
        self._why, self._written, self._left = "", True, False

    def _fail(self, trouble: Exception) -> None:
        why = str(trouble.args[0] if isinstance(trouble, Error) else trouble) or type(trouble).__name__
        if not self._why:
            said = "store %s keeps no census now: %s; new sources wait for it while it is away"
            _log.warning(said, self._name, why)
        self._why, self._written, self._left = why, False, True
        self._take_away()

    def _take_away(self) -> None:
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
            self._left = False


def _keys_of(source: SourceState) -> set[bytes]:
    """It may come back without its session, by the RegID that it has here."""
    given = (source.session_id, 0), (0, source.registration_id)
    return {key_of(source.topic, *each) for each in given if any(each)}
