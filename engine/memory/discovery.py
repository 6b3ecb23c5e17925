"""Which sources exist: streams in shared memory, seen through their headers. Re-read only when /dev/shm has
changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import Error, LimitReachedError
from ..native.core import CData, ffi, lib
from ..native.limits import named
from ..native.runtime import os, time
from ..rules.quorum import Groups
from .domain import SHM_DIR, Domain, open_object
from .mapping import UnpublishedError, attach_stream

if TYPE_CHECKING:
    from .domain import ObjectName

__all__ = ["Discovery", "Found"]

TICK_NS = 50_000_000


class Found:
    """A source that discovery came upon: in a stream's header, or in a store's answer."""

    __slots__ = ("groups", "incarnation", "late_join", "session_id", "start_sqn", "stores", "topic", "uuid")

    def __init__(
        self, uuid: bytes, topic: str, stores: tuple[str, ...], session_id: int,
        incarnation: int = 0, start_sqn: int = 0, *, late_join: bool = True, groups: Groups | None = None,
    ) -> None:  # fmt: skip
        self.uuid, self.topic, self.stores = uuid, topic, stores
        self.session_id, self.late_join = session_id, late_join
        self.incarnation, self.start_sqn = incarnation, start_sqn
        count = len(stores)
        self.groups = groups if groups is not None and groups.stores == count else Groups.single(count)
        """How a store says that they are grouped; an SRI goes before that."""


class Discovery:
    """The rings of a domain. Any thread may ask; each sees a listing that was right at some moment since its
    call began."""

    def __init__(self, domain: Domain) -> None:
        self._domain = domain
        self._mtime = -1
        self._streams: dict[bytes, list[tuple[int, str]]] = {}
        self._headers: dict[str, Found | None] = {}
        self._identities: set[bytes] = set()
        self._removals = domain.removals()
        self.seen = 0
        """Grows when a source identity appears, or may have come and gone: one whose ring is gone already may
        be known by the stores alone."""

    def refresh(self) -> bool:
        """Looks again if something was created or removed. True when it did."""
        mtime = os.stat(SHM_DIR).st_mtime_ns
        if mtime == self._mtime:
            return False
        # The clock of file times ticks every few ms: a listing made in the tick of a change may miss the next
        # one.
        settled = time.time_ns() - mtime > TICK_NS
        streams: dict[bytes, list[tuple[int, str]]] = {}
        identities = set()
        for item in self._objects():
            if item.kind == "board":
                identities.add(item.uuid)
            if item.kind == "stream":
                streams.setdefault(item.uuid, []).append((item.incarnation, item.name))
        self._streams = streams
        removals = self._domain.removals()  # behind the listing: what has gone from it was told before
        if not identities <= self._identities or removals != self._removals:
            self.seen += 1
        self._identities, self._removals = identities, removals
        names = {name for entries in streams.values() for _, name in entries}
        self._headers = {name: found for name, found in self._headers.items() if name in names}
        self._mtime = mtime if settled else -1
        return True

    def _objects(self) -> list[ObjectName]:
        """Raises LimitReachedError."""
        try:
            return self._domain.objects()
        except OSError as error:
            raise named(error) from None

    def streams(self, uuid: bytes, begun: int = 0) -> list[tuple[int, str]]:
        """(incarnation, name) of a source's rings, oldest first, from ``begun`` on, which a store has said,
        up to the newest that has begun: that has an SRI. The source of a newer one may die before its BEGIN
        is durable, or be refused, and what was there before it goes on; what an older one left is void, or in
        the logs."""
        self.refresh()
        rings = self._up_to_begun(self._streams.get(uuid, []), begun)
        return [ring for ring in rings if ring[0] >= begun]

    def sources(self) -> list[Found]:
        """The newest ring of every source whose SRI can be read; one that registers right now comes a little
        later."""
        self.refresh()
        newest = [entries[-1][1] for rings in list(self._streams.values()) if (entries := self._up_to_begun(rings))]
        return [found for name in newest if (found := self._found(name)) is not None]

    def _up_to_begun(self, entries: list[tuple[int, str]], begun: int = 0) -> list[tuple[int, str]]:
        while entries and entries[-1][0] > begun and self._found(entries[-1][1]) is None:
            entries = entries[:-1]
        return entries

    def _found(self, name: str) -> Found | None:
        source = self._headers.get(name)
        if source is None:
            source = self._headers[name] = self._read(name)
        return source

    def _read(self, name: str) -> Found | None:
        try:
            with attach_stream(name, populate=False) as mapping:
                stores = ffi.new("struct hf_sri_store[]", lib.HF_STORES_MAX)
                version, groups = ffi.new("uint64_t *"), ffi.new("struct hf_sri_groups *")
                count = lib.hf_stream_sri(mapping.handle, stores, version, groups)
                if count < 0 or version[0] == 0:
                    return None
                header = mapping.stream
                names = tuple(
                    ffi.string(stores[i].name, lib.HF_NAME_MAX).decode(errors="replace") for i in range(count)
                )
                topic = ffi.string(header.topic, lib.HF_TOPIC_MAX).decode(errors="replace")
                incarnation = int(mapping.preamble.incarnation)
                return Found(
                    mapping.uuid, topic, names, int(header.session_id), incarnation,
                    late_join=not header.flags & lib.HF_STREAM_NO_LATE_JOIN,
                )  # fmt: skip
        except LimitReachedError:
            raise
        except (FileNotFoundError, UnpublishedError, Error):  # of another boot, layout or user: not for us
            return None
        except OSError as error:
            raise named(error, name) from None

    def header(self, uuid: bytes) -> CData | None:
        """A copy of the newest ring's header."""
        entries = self.streams(uuid)
        if not entries:
            return None
        try:
            fd = open_object(entries[-1][1])
        except (FileNotFoundError, Error):
            return None
        try:
            size = ffi.sizeof("struct hf_stream_header")
            data = os.pread(fd, size, 0)
        finally:
            os.close(fd)
        if len(data) < size:
            return None
        out = ffi.new("struct hf_stream_header *")
        ffi.memmove(out, data, size)
        return out if out.pre.magic else None

    def start_sqn(self, uuid: bytes) -> int:
        """First number of the newest ring."""
        header = self.header(uuid)
        return int(header.start_sqn) if header is not None else 0
