"""Whether a ring's owner lives; and rings that are over: read to their end, or passed over by a newer
incarnation. Their names go when a quorum of the source's stores holds what was in them (docs/design.md 14),
or when their source is forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..errors import Error, SharedMemoryFullError, SystemCallError
from ..memory.domain import Domain, ObjectName, unlink_object, unlink_source
from ..memory.mapping import UnpublishedError, attach_board, attach_stream, read_lines
from ..memory.sri import groups_of
from ..native.core import CData, ffi, lib
from ..native.status import check
from ..rules.reconcile import FOR_EVER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Set

    from ..memory import mapping
    from ..rules.quorum import Groups

__all__ = [
    "LivingStream", "StaleRings", "deregistered", "is_deregistered", "living", "living_ring", "owner_lives", "same_process",
    "unlink_deregistered", "unlink_unsent", "unlink_unused",
]  # fmt: skip


class LivingStream(NamedTuple):
    """An open stream whose owner lives."""

    owner: int
    """Owner word."""
    pid: int
    since_ns: int
    """CLOCK_REALTIME of its creation."""


def living(stream: mapping.Mapping) -> LivingStream:
    """Of a stream whose owner lives."""
    preamble = stream.preamble
    return LivingStream(int(preamble.owner), int(preamble.owner_pid), int(preamble.created_ns))


def owner_lives(domain: Domain, stream: mapping.Mapping) -> bool:
    """Its owner has not closed it, and is not proved dead (docs/design.md 12)."""
    owner = stream.preamble
    closed = stream.stream.state == lib.HF_STREAM_CLOSED
    return not closed and bool(lib.hf_process_alive(domain.fd, owner.owner, owner.owner_pid, owner.owner_start))


class _Left(NamedTuple):
    incarnation: int
    end: int
    """Where it is committed to."""
    groups: Groups
    stores: list[bytes]
    """Who has to hold it."""


def same_process(stream: mapping.Mapping, owner: int | None) -> bool:
    """The process of an owner word has made it; None: nobody's."""
    return owner is not None and int(stream.preamble.owner) >> 16 == owner >> 16


def living_ring(domain: Domain, uuid: bytes, but: int | None = None) -> LivingStream | None:
    """The first open stream of a source whose owner lives; None: there is none. ``but``: as of
    :func:`same_process`, no owner.

    Raises SystemCallError, SharedMemoryFullError: this process has run out of something, which says nothing
    of a ring; who asks would grant what is held, or forget who lives.
    """
    for item in domain.objects(uuid):
        if item.kind != "stream":
            continue
        try:
            with attach_stream(item.name, populate=False) as stream:
                if owner_lives(domain, stream) and not same_process(stream, but):
                    return living(stream)
        except (SystemCallError, SharedMemoryFullError):
            raise
        except (FileNotFoundError, UnpublishedError, Error):  # of another boot or layout: nobody's
            continue
    return None


class StaleRings:
    """Those of one source at one store. The drain thread."""

    def __init__(self, domain: Domain) -> None:
        self._domain = domain
        self._left: dict[str, _Left] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def leave(self, stream: mapping.Mapping) -> None:
        """This one is read to its end."""
        tail, end = ffi.new("uint64_t *"), ffi.new("uint64_t *")
        check(lib.hf_stream_end(stream.handle, tail, end), what=stream.name)
        stores = ffi.new("struct hf_sri_store[]", lib.HF_STORES_MAX)
        version, groups = ffi.new("uint64_t *"), ffi.new("struct hf_sri_groups *")
        # An SRI that never got written belongs to a source that never sent.
        count = max(0, lib.hf_stream_sri(stream.handle, stores, version, groups))
        uuids = [bytes(ffi.buffer(stores[i].uuid)) for i in range(count)]
        begun = int(stream.preamble.incarnation)
        self._left[stream.name] = _Left(begun, int(end[0]), groups_of(groups[0], stores, count), uuids)

    def pass_over(self, item: ObjectName) -> None:
        """Something newer has begun after this one: nothing of it is read here any more."""
        try:
            with attach_stream(item.name, populate=False) as stream:
                if not owner_lives(self._domain, stream):
                    self.leave(stream)
        except (FileNotFoundError, UnpublishedError, Error):  # of another boot or layout: `holdfast gc` says so
            return

    def tidy(self, lines: Iterable[CData]) -> None:
        """Removes the names whose end a quorum holds, as the board's lines (struct hf_line_view) say."""
        held = {  # a store of level 0 keeps no messages: nobody waits until it holds them
            bytes(ffi.buffer(view.line.uuid)): (int(view.line.ack_stream), int(view.line.ack))
            if view.line.level
            else (FOR_EVER, FOR_EVER)
            for view in lines
        }
        for name, left in list(self._left.items()):
            positions = {}
            for store, uuid in enumerate(left.stores):
                incarnation, ack = held.get(uuid, (0, 0))
                positions[store] = ack if incarnation >= left.incarnation else 0  # its numbers were others' before
            if not left.stores or left.groups.stable_number(positions) >= left.end:
                unlink_object(name)
                del self._left[name]

    def __bool__(self) -> bool:
        return bool(self._left)


def unlink_unused(domain: Domain, uuid: bytes, *, kept: bool = False) -> None:
    """Removes the names of a source's board and rings, unless somebody who lives is on the board, or sends.
    ``kept``: stores still keep it. Then a ring stays, which may have what one of them lacks; and receivers
    that have not seen the board are told that there was one.

    Under the domain's lock: nobody attaches to the board, or makes one, meanwhile. What stays is `holdfast
    gc`'s.
    """
    with domain.exclusive():
        objects = domain.objects(uuid)
        ringed = kept and any(item.kind == "stream" for item in objects)
        if not objects or ringed or any(_in_use(domain, item) for item in objects):
            return
        if kept:
            domain.tell_removal()
        unlink_source(domain, uuid)


def is_deregistered(name: str) -> bool:
    """The source of this ring has asked its stores to forget it, and nothing of it is to be waited for."""
    try:
        with attach_stream(name, populate=False) as stream:
            return bool(stream.stream.flags & lib.HF_STREAM_DEREGISTERED)
    except (FileNotFoundError, UnpublishedError, Error):
        return False


def deregistered(domain: Domain, kept: Set[bytes]) -> set[bytes]:
    """Sources that were deregistered and whose rings are there still, beside those that a store keeps: their
    process was killed, or left, before all stores had answered."""
    return {
        item.uuid
        for item in domain.objects()
        if item.kind == "stream" and item.uuid not in kept and is_deregistered(item.name)
    }


def unlink_deregistered(domain: Domain, uuid: bytes) -> None:
    """Removes the names of a source that was deregistered and that no store keeps. They stay while somebody
    who lives is on the board, and where there is a ring of another life of that identity."""
    with domain.exclusive():
        objects = domain.objects(uuid)
        others = any(item.kind == "stream" and not is_deregistered(item.name) for item in objects)
        if not others and not any(_in_use(domain, item) for item in objects):
            unlink_source(domain, uuid)


def unlink_unsent(domain: Domain, begun: Mapping[bytes, int]) -> list[str]:
    """Removes the rings of dead owners in which nothing was sent, of incarnations that have not begun here;
    returns their names.

    A source that dies between the making of its ring and BEGIN leaves one. No store ever needs it, so any
    store may do this, and nobody else knows of it. ``begun``: of each source that a store keeps, its newest
    incarnation there. Who makes a ring never takes a name that is there: under the domain's lock, what was
    judged is what goes.
    """
    newer = [
        item for item in domain.objects() if item.kind == "stream" and item.incarnation > begun.get(item.uuid, FOR_EVER)
    ]
    if not any(_is_unsent(domain, item.name) for item in newer):
        return []
    with domain.exclusive():
        unsent = [item.name for item in newer if _is_unsent(domain, item.name)]
        for name in unsent:
            unlink_object(name)
    return unsent


def _is_unsent(domain: Domain, name: str) -> bool:
    tail, end = ffi.new("uint64_t *"), ffi.new("uint64_t *")
    try:
        with attach_stream(name, populate=False) as stream:
            whole = lib.hf_stream_end(stream.handle, tail, end) >= 0
            return not owner_lives(domain, stream) and whole and int(end[0]) == int(stream.stream.start_sqn)
    except (FileNotFoundError, UnpublishedError, Error):
        return False


def _in_use(domain: Domain, item: ObjectName) -> bool:
    try:
        if item.kind == "board":
            with attach_board(domain, item.uuid, writable=False) as board:
                views = read_lines(board, domain, test=True)
            # A context only shows itself.
            return any(view.alive != 0 and view.line.role != lib.HF_ROLE_CONTEXT for view in views)
        with attach_stream(item.name, populate=False) as stream:
            return owner_lives(domain, stream)
    except (FileNotFoundError, UnpublishedError):
        return False
    except Error:  # not for this version to judge
        return True
