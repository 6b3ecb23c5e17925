"""The ring of a new incarnation: made beside the source's board, under a name that nobody had; and its SRI,
by which receivers know the stores (docs/semantics.md B.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..native.core import CData, ffi, lib
from ..native.runtime import os
from ..native.status import check
from ..rules.quorum import INTERGROUP, INTRAGROUP
from .domain import open_object, unlink_object
from .mapping import Mapping, own_board, owned, read_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..options.resolve import Options
    from ..rules.quorum import Groups
    from .domain import Domain
    from .mapping import Bells

__all__ = ["SourceRing", "SriStore", "stream_config", "write_sri"]


def stream_config(uuid: bytes, topic: str, session: int, options: Options) -> CData:
    """``struct hf_stream_config *`` of a source, except for its first number and the ring's size."""
    config = ffi.new("struct hf_stream_config *")
    ffi.memmove(config.uuid, uuid, 16)
    name = topic.encode()
    ffi.memmove(config.topic, name, len(name))
    config.session_id, config.fragment_bytes = session, options.fragment_size
    config.flags = 0 if options.late_join else lib.HF_STREAM_NO_LATE_JOIN
    config.pin_timeout_ms = options.receiver_pin_timeout
    return config


class SourceRing(NamedTuple):
    """An open ring, and the board that it goes with."""

    name: str
    """In shared memory."""
    incarnation: int
    handle: CData
    """``struct hf_source *``."""
    board: Mapping

    @classmethod
    def make(cls, domain: Domain, bells: Bells, config: CData, incarnation: int) -> SourceRing:
        """Of ``incarnation``, or of the next one that nobody has had. ``config``: ``struct hf_stream_config
        *`` without it.

        Raises Error; then the ring has no name.
        """
        uuid = bytes(ffi.buffer(config.uuid))
        check(lib.hf_process_check(domain.fd), what=str(domain.path))
        with domain.exclusive():  # who finds no newer ring under it may take the board away
            board = own_board(domain, uuid)
            config.incarnation = max(incarnation, _newest_on(board, domain) + 1)
            while True:
                name = domain.stream_name(uuid, config.incarnation)
                try:
                    fd = open_object(name, create=True)
                    break
                except FileExistsError:  # left by a claimant that died before BEGIN
                    config.incarnation += 1
        out = ffi.new("struct hf_source **")
        try:
            status = lib.hf_source_create(fd, config, board.handle, bells.handle, out)
            check(status, what=name, size=int(config.ring_bytes))
        except BaseException:
            unlink_object(name)
            raise
        finally:
            os.close(fd)
        return cls(name, int(config.incarnation), owned(out[0], lib.hf_source_destroy, board.handle, bells), board)


def _newest_on(board: Mapping, domain: Domain) -> int:
    """The newest incarnation that anybody has acknowledged something of: stores that knew it may have lost
    their files."""
    return max((int(view.line.ack_stream) for view in read_lines(board, domain, test=False)), default=0)


class SriStore(NamedTuple):
    """What the SRI says of one store."""

    name: str
    uuid: bytes
    """16 bytes; empty while nobody knows it."""
    registration_id: int
    group: int
    version: int
    """Grows with each registration there; 0: it has no seat, and receivers do not wait for it."""


def write_sri(handle: CData, said: Sequence[SriStore], groups: Groups) -> None:
    """Tells receivers of the stores, in the order of store indexes."""
    stores = ffi.new("struct hf_sri_store[]", max(1, len(said)))
    for index, store in enumerate(said):
        name = store.name.encode()
        ffi.memmove(stores[index].name, name, len(name))
        ffi.memmove(stores[index].uuid, store.uuid, len(store.uuid))
        stores[index].registration_id, stores[index].version = store.registration_id, store.version
        stores[index].index, stores[index].group = index, store.group
    declared = ffi.new("struct hf_sri_groups *")
    for number, size in enumerate(groups.sizes):
        declared.sizes[number] = size
    declared.intragroup = INTRAGROUP.index(groups.intragroup)
    declared.intergroup = INTERGROUP.index(groups.intergroup)
    lib.hf_source_sri(handle, stores, len(said), declared)
