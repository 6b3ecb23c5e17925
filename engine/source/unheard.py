"""Stores that a source has not heard of while it waits to begin: what their files say (docs/design.md 14 and
15).

A dead store whose state can be read has answered by that. Of any other the census is read, where enough
stores have answered and none of them knows the source (engine/log/census.py). It lies in the domain, with the
files by which stores are found, so it is read here and now, again and again while the source waits. A store
that refuses the source has answered: it may know it by another name.

Two lives of one source do not miss each other for it. Where both declare the same stores, what completes
the one and what completes the other have a store in common that answers both: it holds a source for one of
them, and what it has promised to a claimant makes it refuse the BEGIN of an earlier one. Where the lists
differ, and all that they share is a store that one of them has proved: the other life has had its grant
before the look, and the census has it. Between a look and the BEGIN that it leads to nobody looks: two
programs that start one source within ume_store_check_interval, with different lists, may both begin, as
they may where a dead store's state is read. Then the store knows one of them, and refuses the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..log.census import keys_of, look_at
from ..log.info_file import knows
from ..native.runtime import time
from ..rules.election import Found

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..control.host import Host
    from ..control.link import StoreLink
    from ..log.register import SourceRegister
    from ..rules.source_registration import SourceRegistration

__all__ = ["Unheard"]

SHARE = 20
"""It does not look again before this many times what the last look took: a census may have 16 MiB."""
KNOWN = "it knows it, as its state says"
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
        self._keys = keys_of(topic, session, registration_ids)
        self._look_ns = look_ns
        self._looked_ns = self._pause_ns = 0

    def turn(self, now_ns: int) -> None:
        """While the source is not open."""
        if now_ns - self._looked_ns < max(self._look_ns, self._pause_ns):
            return
        self._looked_ns = now_ns
        known = set[int]()
        for index, link in enumerate(self._links):
            given = self._topic, self._registration_ids[index], self._session
            said = knows(self._host.domain, link.name, *given) if not link.up else None
            if said:
                known.add(index)
            elif said is not None:
                self._machine.knows_nothing(index)
        unheard = self._machine.unheard(now_ns)
        begun_ns = time.monotonic_ns()
        self._machine.found = {store: self._look(self._links[store].name, known=store in known) for store in unheard}
        self._pause_ns = SHARE * (time.monotonic_ns() - begun_ns)

    def _look(self, name: str, *, known: bool) -> Found:
        if known or not self._register.is_read:
            return Found(name, KNOWN if known else UNREAD)
        return look_at(self._host.domain, name, self._keys)
