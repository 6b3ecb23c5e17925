"""Stores that a source has not heard of while it waits to begin: what their files say (docs/design.md 14 and
15).

A dead store whose state can be read has answered by that. Of any other the census is read, where enough
stores have answered and none of them knows the source (engine/rules/census.py). Its disk may hang, so that is
done on a thread, again and again while the source waits; each look replaces the one before.

Two lives of one source do not miss each other for it. Where both declare the same stores, what completes
the one and what completes the other have a store in common that answers both: it holds a source for one of
them, and what it has promised to a claimant makes it refuse the BEGIN of an earlier one. Where the lists
differ, and all that they share is a store that one of them has proved: the other life has had its grant
before the look, and the census has it; or that store is there now, and a link to it ends what was proved.
A look that began before the link came up, or before the last attempt was given up, counts no more.
Between a look and the BEGIN that it leads to nobody looks: two programs that start one source at that very
moment, with different lists, may both begin, as they may where a dead store's state is read. Then the store
knows one of them, and refuses the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import Error
from ..log.census import keys_of, look_at
from ..log.info_file import knows_nothing
from ..native.background import in_background
from ..native.runtime import time
from ..rules.census import Found

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..control.host import Host
    from ..control.link import StoreLink
    from ..log.register import SourceRegister
    from ..native.runtime import futures
    from ..rules.source_registration import SourceRegistration

__all__ = ["Unheard"]

PATIENCE_NS = 5_000_000_000
"""A look that takes longer is none."""
SHARE = 20
"""A look is not begun again before this many times what the last one took, and a disk that hung counts with
:data:`PATIENCE_NS`: a census may have 16 MiB."""
HANGS = "the disk of its census does not answer"
UNREAD = "the register of sources cannot be read"


class Unheard:
    """See the module; the context's thread. ``registration_ids``: of the source, by store; ``look_ns``: how
    often it looks."""

    def __init__(
        self, host: Host, machine: SourceRegistration, links: Sequence[StoreLink], register: SourceRegister, topic: str,
        session: int, registration_ids: Sequence[int], look_ns: int,
    ) -> None:  # fmt: skip
        self._host, self._machine, self._links, self._register = host, machine, links, register
        self._topic, self._session, self._registration_ids = topic, session, registration_ids
        self._look_ns = look_ns
        self._looked_ns = self._begun_ns = self._pause_ns = 0
        self._look: futures.Future[tuple[dict[int, Found], int]] | None = None
        """What it has found, and how long it took."""
        self._before = machine.found
        """What was found when it began: the machine drops that where a link comes up, or it begins anew."""

    def turn(self, now_ns: int) -> None:
        """While the source is not open."""
        due = now_ns - self._looked_ns >= self._look_ns
        if due:
            self._looked_ns = now_ns
            for index, link in enumerate(self._links):
                wanted = self._registration_ids[index]
                if not link.up and knows_nothing(self._host.domain, link.name, self._topic, wanted, self._session):
                    self._machine.knows_nothing(index)
        self._take(now_ns)
        if due and self._look is None and now_ns - self._begun_ns >= self._pause_ns:
            self._begun_ns = now_ns
            self._begin(self._machine.unheard(now_ns))

    def _take(self, now_ns: int) -> None:
        """What a look has found, if nothing has changed since it began."""
        look, machine = self._look, self._machine
        if look is None:
            return
        late = now_ns - self._begun_ns >= max(PATIENCE_NS, self._look_ns)
        if look.done():
            self._look = None
            found, took_ns = look.result()
            self._pause_ns = SHARE * min(took_ns, PATIENCE_NS)
            if machine.found is self._before:
                machine.found = found if self._register.is_read else self._all(UNREAD, found)
        if late:
            machine.found = self._all(HANGS, machine.unheard(now_ns))

    def _begin(self, stores: Sequence[int]) -> None:
        if not stores:
            self._machine.found = {}
            return
        self._before = self._machine.found
        domain, names = self._host.domain, {store: self._links[store].name for store in stores}
        keys = keys_of(self._topic, self._session, self._registration_ids)

        def look() -> tuple[dict[int, Found], int]:
            begun_ns = time.monotonic_ns()
            try:
                found = {store: look_at(domain, name, keys) for store, name in names.items()}
            except (Error, OSError, ValueError) as error:
                found = {store: Found(name, why=str(error)) for store, name in names.items()}
            return found, time.monotonic_ns() - begun_ns

        try:
            self._look = in_background("holdfast-census", look)
        except (Error, MemoryError) as error:  # no thread can be started now
            self._machine.found = self._all(str(error) or type(error).__name__, stores)

    def _all(self, why: str, stores: Sequence[int] | dict[int, Found]) -> dict[int, Found]:
        return {store: Found(self._links[store].name, why=why) for store in stores}
