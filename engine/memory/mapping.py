"""Python lifetime of mapped shared memory: who maps what, and when it goes.

Mappings are made by the C core from descriptors that open_object gives; a descriptor is closed as soon as it
is mapped. Objects that several processes may create (a source's board, a domain's bells) are created under
the domain's lock: then an object without a magic is one whose creator died, and the next creator replaces it.
"""

from __future__ import annotations

import itertools
import sys
from typing import TYPE_CHECKING, Self

from ..errors import Error, ForeignOwnerError, TurnHeldError
from ..native.core import CData, ffi, lib
from ..native.runtime import OfProcess, os, threading
from ..native.status import check
from .domain import Domain, evict, open_object, unlink_object
from .turn import stands_still

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "Bells", "Mapping", "attach_bells", "attach_board", "attach_stream", "claim_line", "join_board", "own_board", "read_lines",
    "said_lines",
]  # fmt: skip


class UnpublishedError(Exception):
    """An object without a magic: its creator is not done yet, or died."""


_kept: dict[int, tuple[object, ...]] = {}
_keys = itertools.count()


def owned(handle: CData, destroy: Callable[[CData], None], *kept: object) -> CData:
    """``handle``, destroyed when the last reference to what is returned goes; ``kept`` live longer.

    A plain reference would not do: of a cycle (a context and its receivers) that nobody refers to, the
    collector finalizes the members in any order, a board before the reader that pins on it. What the table
    holds is in no such cycle. When the interpreter ends, nothing is destroyed: there is no order then, and
    the process takes its mappings with it.
    """
    key = next(_keys)
    _kept[key] = kept

    def end(pointer: CData, *, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not ending():
            destroy(pointer)
            del _kept[key]

    return ffi.gc(handle, end)


class Mapping:
    """One mapped object. ``handle`` is the C core's ``struct hf_map *``.

    It is unmapped when the last reference to the handle goes, and never before: a thread that is inside C, an
    array over a batch that a program keeps, a reader that still pins, all refer to it. So a late use reads
    old bytes; it does not crash.
    """

    def __init__(self, handle: CData, name: str, inode: int) -> None:
        self.handle = owned(handle, lib.hf_map_detach)
        self.name = name
        self._inode = inode

    def is_named(self) -> bool:
        """Its name still leads to it, and not to another object that somebody has made since, or to none."""
        try:
            return os.stat(f"/dev/shm/{self.name}").st_ino == self._inode
        except FileNotFoundError:
            return False

    @property
    def preamble(self) -> CData:
        """``struct hf_preamble *`` at its start."""
        return ffi.cast("struct hf_preamble *", self.handle.base)

    @property
    def stream(self) -> CData:
        """``struct hf_stream_header *`` at its start; only for streams."""
        return ffi.cast("struct hf_stream_header *", self.handle.base)

    @property
    def uuid(self) -> bytes:
        """UUID of the source it belongs to."""
        return bytes(ffi.buffer(self.preamble.uuid))

    def memory(self, address: int, size: int) -> memoryview:
        """A read-only buffer of ``size`` bytes at ``address`` inside the mapping, which it keeps mapped."""
        base = owned(ffi.cast("uint8_t *", self.handle.base), _nothing, self.handle)
        offset = address - int(ffi.cast("uintptr_t", base))
        return memoryview(ffi.buffer(base, offset + size))[offset:].toreadonly()

    def close(self) -> None:
        """Unmaps now. Only for a mapping that nobody else refers to. Idempotent."""
        ffi.release(self.handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _attach(name: str, kind: int, *, writable: bool, populate: bool) -> Mapping:
    fd = open_object(name, writable=writable)
    try:
        out = ffi.new("struct hf_map **")
        status = lib.hf_map_attach(fd, kind, writable, populate, out)
        if status == lib.HF_AGAIN:
            raise UnpublishedError(name)
        check(status, what=name)
        return Mapping(out[0], name, os.fstat(fd).st_ino)
    finally:
        os.close(fd)


def _nothing(_: CData) -> None:
    return


def attach_stream(name: str, *, populate: bool = True) -> Mapping:
    """Maps a stream read-only. Raises FileNotFoundError, UnpublishedError, or why it is refused."""
    return _attach(name, lib.HF_KIND_STREAM, writable=False, populate=populate)


def attach_board(domain: Domain, uuid: bytes, *, writable: bool = True) -> Mapping:
    """Maps the board of a source. Raises FileNotFoundError when there is none."""
    return _attach(domain.board_name(uuid), lib.HF_KIND_BOARD, writable=writable, populate=True)


def said_lines(name: str) -> list[CData]:
    """As :func:`read_lines` of the board with this name; of a domain that may be gone. Raises as
    attach_board."""
    with _attach(name, lib.HF_KIND_BOARD, writable=False, populate=True) as board:
        return _lines(board, -1, test=False)


def attach_bells(domain: Domain) -> Mapping:
    """Maps the domain's doorbells. Raises FileNotFoundError when there are none."""
    return _attach(domain.bells_name, lib.HF_KIND_BELLS, writable=True, populate=False)


def _create(name: str, kind: int, struct: str, uuid: bytes) -> Mapping:
    fd = open_object(name, create=True)
    try:
        out = ffi.new("struct hf_map **")
        size = ffi.sizeof(struct)
        check(lib.hf_map_create(fd, kind, size, 0, uuid, 0, out), what=name, size=size)
        lib.hf_map_publish(out[0])
        return Mapping(out[0], name, os.fstat(fd).st_ino)
    except BaseException:
        unlink_object(name)
        raise
    finally:
        os.close(fd)


def _own(domain: Domain, name: str, kind: int, struct: str, uuid: bytes) -> Mapping:
    """Attaches, or creates; the domain's lock makes it one object for everybody."""
    with domain.exclusive():
        return _under_lock(name, kind, struct, uuid)


def _under_lock(name: str, kind: int, struct: str, uuid: bytes) -> Mapping:
    try:
        return _attach(name, kind, writable=True, populate=True)
    except FileNotFoundError:
        return _create(name, kind, struct, uuid)
    except UnpublishedError:  # under the lock: its creator died before it stored the magic
        unlink_object(name)
        return _create(name, kind, struct, uuid)
    except ForeignOwnerError:
        if not evict(name):
            raise
        return _create(name, kind, struct, uuid)


def own_board(domain: Domain, uuid: bytes) -> Mapping:
    """The board of a source identity, created by whoever comes first. For who holds the domain's lock
    (Domain.exclusive), until it can be seen: by its line, or by the name of its ring. Raises
    SharedMemoryFullError."""
    return _under_lock(domain.board_name(uuid), lib.HF_KIND_BOARD, "struct hf_board", uuid)


def join_board(domain: Domain, uuid: bytes, who: CData) -> tuple[Mapping, int]:
    """A source's board and the index of an own line on it, in one step under the domain's lock: who holds
    that, and finds nobody on the board, may take its name away. Raises as :func:`own_board` and
    :func:`claim_line`."""
    with domain.exclusive():
        board = own_board(domain, uuid)
        try:
            return board, claim_line(board, domain, who)
        except Error:
            board.close()
            raise


def read_lines(board: Mapping, domain: Domain, *, test: bool) -> list[CData]:
    """Copies of the lines of every participant on a board, ``struct hf_line_view *``. ``test``: whether they
    live is tested."""
    return _lines(board, domain.fd, test=test)


def _lines(board: Mapping, domain_fd: int, *, test: bool) -> list[CData]:
    views = ffi.new("struct hf_line_view[]", lib.HF_BOARD_LINES)
    count = lib.hf_board_read(board.handle, domain_fd, test, views, lib.HF_BOARD_LINES)
    return [ffi.new("struct hf_line_view *", views[i]) for i in range(count)]


CLAIM_TRIES = 40
"""Of 50 ms each."""
STANDS_TRIES = 10
"""After this many whoever is stopped is not waited for any more."""


def claim_line(board: Mapping, domain: Domain, who: CData) -> int:
    """Index of an own line on a board (csrc/board/board.h), for ``who`` (``struct hf_identity *``).

    Somebody who is stopped, or has no core, while it is its turn keeps the others waiting. Raises
    TurnHeldError: for too long; Error: the board is full.
    """
    holder = ffi.new("struct hf_line_view *")
    for tries in range(CLAIM_TRIES):
        status = int(lib.hf_board_claim(board.handle, domain.fd, who, holder))
        if status != lib.HF_AGAIN:
            return check(status, what=f"a line on {board.name}")
        if tries >= STANDS_TRIES and stands_still(int(holder.line.owner_pid)):
            break
    raise TurnHeldError(f"to take a line on {board.name}", int(holder.line.owner_pid))


class Bells:
    """The domain's doorbells, and the one that is this process's. One mapping per domain and process, kept
    for life."""

    def __init__(self, domain: Domain) -> None:
        self.mapping = _own(domain, domain.bells_name, lib.HF_KIND_BELLS, "struct hf_bells", bytes(16))
        self.handle = self.mapping.handle
        self.index = int(check(lib.hf_bell_claim(self.handle, domain.fd)))
        lib.hf_wait_setup()  # whoever has a bell rings others: with this, without a fence

    @classmethod
    def of(cls, domain: Domain) -> Bells:
        """This process's view of a domain's bells; a forked child gets its own."""
        every = _every_bells.value
        with every.lock:
            bells = every.of_domain.get(domain.prefix)
            if bells is None or not bells.mapping.is_named():
                bells = every.of_domain[domain.prefix] = cls(domain)
            return bells

    def ring(self) -> None:
        """Wakes the threads of this process that wait on its bell."""
        lib.hf_bell_ring(self.handle, self.index)


class _EveryBells:
    """Those of this process, by the prefix of their domain's names."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.of_domain: dict[str, Bells] = {}


_every_bells = OfProcess(_EveryBells)
