"""What the context's thread sees of a source whose feed somebody else reads: its newest ring, that ring's
owner, and the SRI.

The SRI is a record in the ring's header under a sequence lock, so UM's request for it is a read here
(docs/semantics.md B.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import Error, LimitReachedError
from ..native.core import CData, ffi, lib
from ..rules.quorum import Groups
from .mapping import Mapping, UnpublishedError, attach_stream

if TYPE_CHECKING:
    from .discovery import Discovery
    from .domain import Domain

__all__ = ["Sri", "SriWatch", "groups_of"]

OWNER_NS = 500_000_000
"""How often the owner's lock is looked at."""


@dataclass(frozen=True, slots=True)
class Sri:
    """Which stores a source is registered with. ``versions``: one per store, 0 = not (yet), or a backup; a
    version grows each time the source registers with that store, and starts again with an incarnation."""

    incarnation: int
    start_sqn: int
    stores: tuple[str, ...]
    groups: Groups
    versions: tuple[int, ...]
    registration_id: int
    session_id: int
    live: bool = False
    """Its source may still register with others."""


def groups_of(said: CData, stores: CData, count: int) -> Groups:
    """How an SRI groups its stores."""
    sizes, of = [int(size) for size in said.sizes], [int(stores[i].group) for i in range(count)]
    return Groups.told(sizes, of, int(said.intragroup), int(said.intergroup))


class SriWatch:
    """See the module."""

    def __init__(self, discovery: Discovery, domain: Domain, uuid: bytes) -> None:
        self._discovery, self._domain, self._uuid = discovery, domain, uuid
        self._mapping: Mapping | None = None
        self._version = -1
        self._owner_ns = 0
        self._live = True
        self.incarnation = 0
        """Of the newest ring; stays when the ring is gone."""
        self.begun = 0
        """Set by whoever knows: the newest incarnation that has begun at a store."""
        self.orphaned = 0
        """The newest incarnation whose owner is proved dead (docs/design.md 12)."""

    @property
    def ring(self) -> bool:
        """A ring is there."""
        return self._mapping is not None

    def look(self, now_ns: int) -> Sri | None:
        """The SRI if it has changed since the last look. Cheap when nothing has."""
        self._newest()
        mapping = self._mapping
        if mapping is None:
            return None
        header = mapping.stream
        if now_ns >= self._owner_ns and header.state == lib.HF_STREAM_OPEN:
            self._owner_ns = now_ns + OWNER_NS
            owner = mapping.preamble
            alive = lib.hf_process_alive(self._domain.fd, owner.owner, owner.owner_pid, owner.owner_start)
            if alive == 0:
                self.orphaned = self.incarnation
        live = header.state == lib.HF_STREAM_OPEN and self.orphaned < self.incarnation
        if header.sri_version == self._version and live == self._live:
            return None
        self._live = live
        return self._read(mapping)

    def _newest(self) -> None:
        streams = self._discovery.streams(self._uuid, self.begun)
        name = streams[-1][1] if streams else None
        if self._mapping is not None and self._mapping.name == name:
            return
        self._close()
        if name is None:
            return
        try:
            self._mapping = attach_stream(name, populate=False)
        except LimitReachedError:
            raise
        except (FileNotFoundError, UnpublishedError, Error):
            return
        self.incarnation = int(self._mapping.preamble.incarnation)
        self._version, self._owner_ns = -1, 0

    def _read(self, mapping: Mapping) -> Sri | None:
        stores = ffi.new("struct hf_sri_store[]", lib.HF_STORES_MAX)
        version, groups = ffi.new("uint64_t *"), ffi.new("struct hf_sri_groups *")
        count = int(lib.hf_stream_sri(mapping.handle, stores, version, groups))
        if count < 0 or version[0] == 0:  # being written, or not yet
            return None
        self._version = int(version[0])
        header = mapping.stream
        return Sri(
            self.incarnation,
            int(header.start_sqn),
            tuple(ffi.string(stores[i].name, lib.HF_NAME_MAX).decode(errors="replace") for i in range(count)),
            groups_of(groups[0], stores, count),
            tuple(int(stores[i].version) for i in range(count)),
            int(stores[0].registration_id) if count else 0,
            int(header.session_id),
            self._live,
        )

    def _close(self) -> None:
        mapping, self._mapping = self._mapping, None
        if mapping is not None:
            mapping.close()

    def close(self) -> None:
        """Lets the mapping go."""
        self._close()
