"""What a domain without a directory has left in shared memory that may hold messages: rings, and the logs of
memory stores. It goes only with ``everything`` (``--all``, as in gc.py).

A directory that was moved to where nobody looks is taken for one that is gone. Its stores have their logs
still, and the messages of a ring that one of them has drained are there. What none has drained is in the ring
alone. Who drained what stands on the source's board; a line that says where its store's range begins, behind
the ring's first number, does not count.

Logs of a memory store are found by links in the store's own directory, also from another domain. They never
go where a store of a domain that is there has such a link, nor where a domain cannot be looked at.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

from ..errors import Error
from ..log.files import links_in
from ..log.info_file import read_info
from ..memory.domain import Domain
from ..memory.mapping import UnpublishedError, attach_stream, said_lines
from ..native.core import ffi, lib
from .snapshot import declared_stores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

__all__ = ["WITH_ALL", "KnownDomain", "Messages", "Thing", "text_of"]

WITH_ALL = "(removed with --all)"
"""How the reason ends where nothing else keeps it."""


class KnownDomain(NamedTuple):
    """A domain of this user that a card names, or that lies where domains live."""

    path: str
    unseen: str = ""
    """Why nobody can say whether it is there; empty: it is."""


class Thing(NamedTuple):
    """One name in shared memory."""

    kind: str
    name: str
    uuid: bytes
    """Of the source; empty where it is none's."""
    bytes: int
    written_ns: int


class Messages:
    """See the module. ``known``: the domains, asked for once and only where a log is met."""

    def __init__(self, known: Callable[[], Iterable[KnownDomain]], *, everything: bool) -> None:
        self._known, self._everything = known, everything
        self._linked: dict[str, str] | None = None
        self._unseen: dict[str, str] = {}
        """Domains whose stores nobody can ask for their links -> why."""
        self._rings: dict[str, str] = {}
        """By name, why it stays."""

    def kept(self, thing: Thing, things: Sequence[Thing], domain: str) -> str:
        """Why it stays, whatever becomes of the rest of its domain, which are ``things``; empty: it may go.

        A board stays for its ring, and the card because it names whose these are.
        """
        if thing.kind == "card":
            return "it names whose the messages are that stay" if any(self._stays(things, domain)) else ""
        if thing.kind == "board":
            rings = (each for each in things if each.kind == "stream" and each.uuid == thing.uuid)
            return "it says who has drained the ring that stays" if any(self._stays(rings, domain)) else ""
        if thing.kind == "stream":
            return "" if self._everything else self._ring(thing.name)
        return self._log(thing.name, domain) if thing.kind == "logs" else ""

    def _stays(self, things: Iterable[Thing], domain: str) -> Iterator[bool]:
        return (bool(self.kept(each, (), domain)) for each in things if each.kind in {"stream", "logs"})

    def _ring(self, name: str) -> str:
        if name not in self._rings:
            why = _undrained(name)
            self._rings[name] = f"{why} {WITH_ALL}" if why else ""
        return self._rings[name]

    def _log(self, name: str, domain: str) -> str:
        if self._linked is None:
            self._linked = self._links()
        if store := self._linked.get(name):
            return f"store {store} has a log there"
        if other := next((path for path in self._unseen if path != domain), ""):
            return f"a store of domain {other} may have a log there: {self._unseen[other]}"
        return (
            "" if self._everything else "messages of a memory store, whose directory leads there (removed with --all)"
        )

    def _links(self) -> dict[str, str]:
        """Directories of logs in shared memory that a store of a domain has a link to -> it."""
        found: dict[str, str] = {}
        for known in self._known():
            if known.unseen:  # what is at this path now may be another one
                self._unseen[known.path] = known.unseen
                continue
            try:
                domain = Domain(known.path, join=False, make=False)
            except (Error, OSError) as error:
                self._unseen[known.path] = text_of(error)
                continue
            with contextlib.closing(domain):
                infos = [info for name in domain.store_names() if (info := read_info(domain, name)) is not None]
            for info in infos:
                try:
                    found |= {log.parent.name: f"{info.name} of domain {known.path}" for log in links_in(info.logs)}
                except OSError as error:
                    self._unseen[known.path] = text_of(error)
        return found


def _undrained(name: str) -> str:
    """Why this ring may hold what a store was to have and none has; empty: it does not."""
    tail, end = ffi.new("uint64_t *"), ffi.new("uint64_t *")
    try:
        with attach_stream(name, populate=False) as mapping:
            if lib.hf_stream_end(mapping.handle, tail, end) < 0:
                return "it is damaged, and may hold messages that no store has"
            ring = int(mapping.preamble.incarnation), int(mapping.stream.start_sqn), int(end[0])
            stores = declared_stores(mapping)
        declared = {store.uuid for store in stores} if stores is not None else None
        if ring[1] == ring[2] or declared == set():
            return ""
        return "" if _is_drained(name, *ring, declared) else f"no store has drained it up to number {ring[2] - 1}"
    except (FileNotFoundError, UnpublishedError):  # removed meanwhile; or nothing was ever sent in it
        return ""
    except (Error, OSError) as error:
        return "" if getattr(error, "code", "") == "HF_GONE" else f"it cannot be read: {text_of(error)}"


def _is_drained(ring: str, incarnation: int, start: int, end: int, declared: set[bytes] | None) -> bool:
    """A store had all of it, as its line on the source's board says; or none of those that are ``declared``
    was to keep messages."""
    try:
        views = said_lines(f"{ring.rpartition('.')[0]}.b")
    except (FileNotFoundError, UnpublishedError):
        return False
    stores = [view.line for view in views if view.line.role == lib.HF_ROLE_STORE]
    keep = [line for line in stores if line.level]
    has = any(line.ack_stream >= incarnation and line.ack >= end and line.from_sqn <= start for line in keep)
    keep_none = {bytes(ffi.buffer(line.uuid)) for line in stores if not line.level}
    return has or (declared is not None and declared <= keep_none)


def text_of(error: Exception) -> str:
    """For an operator."""
    return str(getattr(error, "strerror", None) or error.args[0])
