"""Removes what the dead left behind in a domain, and says why of each thing. What lives, and what somebody
may still need, stays.

Death is proved by a free lock and by nothing else (csrc/base/process.h). Everything happens under the
domain's creation lock: nobody makes a board or doorbells meanwhile, and one without a magic is one whose
creator died. The domain's card goes when nothing else is left and no process holds it. Two exceptions to
"needed": with ``everything`` the operator gives up what a store that is not there has not drained yet, and
the logs of dead memory stores.

What stays need not name the dead: their doorbells, and their lines as receivers, are released for them, with
what the lines say. So their lock files can go.
"""

from __future__ import annotations

import re

import msgspec

from ..control.waits import wait_files
from ..errors import Error, ForeignOwnerError
from ..log.files import links_in
from ..memory.card import withdraw
from ..memory.domain import SHM_DIR, Domain, ObjectName, open_object, unlink_object
from ..memory.mapping import Mapping, UnpublishedError, attach_bells, attach_board, attach_stream, read_lines
from ..memory.turn import holder_of
from ..native.core import CData, ffi, lib
from ..native.runtime import Path, os, shutil, time
from .snapshot import StoreFiles, declared_stores, store_files

__all__ = ["Item", "sweep"]

GRACE_S = 10.0
"""A lock file that is still empty belongs to a process that starts just now, or died while it did."""


class Item(msgspec.Struct, frozen=True):
    """One thing that belongs to nobody alive, or that is kept although its owner is dead."""

    kind: str
    """``stream``, ``board``, ``channel``, ``bells``, ``logs``, ``socket``, ``info``, ``waits`` or ``lock``;
    ``writer``: of Spark's, whose directories the data source looks after."""
    path: str
    bytes: int
    remove: bool
    why: str


def sweep(domain: Domain, *, everything: bool = False, dry_run: bool = False) -> list[Item]:
    """Looks, removes what may go (unless ``dry_run``), and returns what was seen; what lives is not
    mentioned.

    Raises:
        OSError: something could not be removed.
    """
    with domain.exclusive():
        look = _Sweep(domain, everything, dry_run=dry_run)
        items = look.items()
        if not dry_run:
            for item in items:
                if item.remove:
                    _remove(item)
            if not domain.objects():
                withdraw(SHM_DIR / domain.card_name)
    return items


def _remove(item: Item) -> None:
    path = Path(item.path)
    if item.kind == "logs":
        shutil.rmtree(path)
    elif item.kind in {"socket", "info", "census", "lock", "waits"}:
        path.unlink(missing_ok=True)
    else:
        unlink_object(path.name)


class _Sweep:
    """One look at a domain. Arguments as of :func:`sweep`."""

    def __init__(self, domain: Domain, everything: bool, *, dry_run: bool) -> None:
        self.dry_run = dry_run
        self.domain = domain
        self.everything = everything
        self.stores = store_files(domain)
        self.locks = self._locks()
        self.dead = {int(path.name, 16) for path, alive in self.locks if alive == 0}
        """Tokens whose lock proves the death."""
        self.populated = any(alive != 0 for _, alive in self.locks)
        """Somebody lives here, or may."""
        self.named: set[int] = set()
        """Tokens that objects which stay name as an owner: their lock files are the proof of death."""
        self.kept_streams: set[bytes] = set()
        self.channels: set[bytes] = set()

    def items(self) -> list[Item]:
        """In the order of removal: what others refer to goes last."""
        objects = self.domain.objects()
        self.channels = {item.uuid for item in objects if item.kind == "channel"}
        found: list[Item | None] = [self._stream(item) for item in objects if item.kind == "stream"]
        found += [self._channel(item) for item in objects if item.kind == "channel"]
        found += [self._board(item) for item in objects if item.kind == "board"]
        found += [self._memory_logs(item) for item in objects if item.kind == "logs"]
        found += [self._bells(item) for item in objects if item.kind == "bells"]
        found += self._store_files()
        found += [
            Item("waits", str(path), _size(path), True, "its process is dead")
            for path, _, dead in wait_files(self.domain)
            if dead
        ]
        found += [self._lock(path, alive) for path, alive in self.locks]
        return [item for item in found if item is not None]

    def _item(self, item: ObjectName, remove: bool, why: str) -> Item:
        path = SHM_DIR / item.name
        return Item(item.kind, str(path), _size(path), remove, why)

    def _alive(self, owner: int, pid: int = 0, start: int = 0) -> bool:
        """Not proved dead."""
        return bool(lib.hf_process_alive(self.domain.fd, owner, pid, start) != 0)

    # Streams ------------------------------------------------------------------------------------------------

    def _stream(self, item: ObjectName) -> Item | None:
        try:
            with attach_stream(item.name, populate=False) as mapping:
                verdict = self._stream_verdict(mapping)
                if verdict is None or not verdict[0]:
                    self.named.add(int(mapping.preamble.owner) >> 16)
                    self.kept_streams.add(item.uuid)
        except FileNotFoundError:
            return None
        except UnpublishedError:
            verdict = (not self.populated, "whoever made it died before it was done" if not self.populated else "")
            verdict = verdict if verdict[0] else None
        except Error as refused:
            verdict = self._refused(refused)
        return None if verdict is None else self._item(item, *verdict)

    def _refused(self, error: Error) -> tuple[bool, str]:
        """An object that this version cannot read."""
        text = str(error.args[0])
        if isinstance(error, ForeignOwnerError):
            return False, text
        if error.code == "HF_GONE":
            return True, "of another boot"
        return self.everything and not self.populated, f"{text} (removed by --all when nobody lives here)"

    def _stream_verdict(self, mapping: Mapping) -> tuple[bool, str] | None:
        header, preamble = mapping.stream, mapping.preamble
        closed = header.state == lib.HF_STREAM_CLOSED
        if not closed and self._alive(preamble.owner, preamble.owner_pid, preamble.owner_start):
            return None
        gone = "its source has closed it" if closed else f"its source (pid {int(preamble.owner_pid)}) is dead"
        tail, end = ffi.new("uint64_t *"), ffi.new("uint64_t *")
        if lib.hf_stream_end(mapping.handle, tail, end) < 0:
            return self.everything, f"{gone}, and it is damaged (removed by --all)"
        if end[0] == header.start_sqn:
            return True, f"{gone}, nothing was sent in it"
        if header.flags & lib.HF_STREAM_DEREGISTERED and self._is_kept_by_none(mapping.uuid):
            return True, f"{gone}, which was deregistered, and no store keeps it"
        if declared_stores(mapping) is None and any(store.listed is None for store in self.stores):
            return (
                self.everything,
                f"{gone}, and the state of a store that may know it cannot be read (removed by --all)",
            )
        names = self._declared(mapping)
        lacking = [name for name, store in names.items() if self._held(store, mapping.uuid) < end[0]]
        if not lacking:
            return True, f"{gone}, " + ("every store has all of it" if names else "it had no store")
        what = f"{gone}, and store {', '.join(lacking)} has not drained it up to number {int(end[0]) - 1}"
        return self.everything, what + ("" if self.everything else "; start the store, or give it up with --all")

    def _is_kept_by_none(self, uuid: bytes) -> bool:
        """All of them can be asked, and no store knows the source."""
        return all(store.listed is not None and store.source(uuid) is None for store in self.stores)

    def _declared(self, mapping: Mapping) -> dict[str, StoreFiles | None]:
        """Stores that the source was registered with, by its names for them; when its SRI is torn, those that
        know it."""
        stores = declared_stores(mapping)
        if stores is None:
            return {store.name: store for store in self.stores if store.source(mapping.uuid) is not None}
        files = {store.info.uuid: store for store in self.stores if store.info is not None}
        return {store.name: files.get(store.uuid) for store in stores if store.seated}

    @staticmethod
    def _held(store: StoreFiles | None, uuid: bytes) -> int:
        found = store.log_range(uuid) if store is not None else None
        return found[1] if found is not None else 0

    # Channels -----------------------------------------------------------------------------------------------

    def _channel(self, item: ObjectName) -> Item | None:
        """A ring of a channel goes when neither end lives: the board says who they are
        (engine/channel/channel.py)."""
        try:
            with attach_board(self.domain, item.uuid, writable=False) as board:
                views = read_lines(board, self.domain, test=True)
        except (FileNotFoundError, UnpublishedError):
            views = []
        except Error as refused:  # nobody knows who is on it
            return self._item(item, *self._refused(refused))
        if any(view.alive != 0 for view in views):
            self.kept_streams.add(item.uuid)
            return None
        return self._item(item, True, "neither end of its channel lives")

    # Boards and doorbells -----------------------------------------------------------------------------------

    def _board(self, item: ObjectName) -> Item | None:
        try:
            with attach_board(self.domain, item.uuid, writable=False) as board:
                views = read_lines(board, self.domain, test=True)
                preamble = board.preamble
                made_by = int(preamble.owner), int(preamble.owner_pid), int(preamble.owner_start)
                claimer = int(ffi.cast("struct hf_board *", board.handle.base).claimer)
        except FileNotFoundError:
            return None
        except UnpublishedError:  # made under the lock that we hold
            return self._item(item, True, "whoever made it died before it was done")
        except Error as refused:
            return self._item(item, *self._refused(refused))
        verdict = self._board_verdict(item.uuid, views, made_by, claimer)
        if verdict is None or not verdict[0]:
            self.named |= {owner >> 16 for owner in (made_by[0], claimer)}
            released = set() if item.uuid in self.channels else self._release_lines(item.uuid, views)
            self.named |= {int(view.line.owner) >> 16 for view in views if view.index not in released}
        return None if verdict is None else self._item(item, *verdict)

    def _release_lines(self, uuid: bytes, views: list[CData]) -> set[int]:
        """Of a source's receivers that are proved dead; their indexes."""
        dead = {
            int(view.index)
            for view in views
            if view.line.role == lib.HF_ROLE_RECEIVER and int(view.line.owner) >> 16 in self.dead
        }
        if dead and not self.dry_run:
            try:
                with attach_board(self.domain, uuid) as board:
                    lib.hf_board_bury(board.handle, self.domain.fd)
            except (Error, FileNotFoundError, UnpublishedError):
                return set()
        return dead

    def _board_verdict(
        self, uuid: bytes, views: list[CData], made_by: tuple[int, int, int], claimer: int
    ) -> tuple[bool, str] | None:
        taking_part = [view for view in views if view.line.role != lib.HF_ROLE_CONTEXT]  # that one only shows itself
        if any(view.alive != 0 for view in taking_part) or self._alive(*made_by) or self._alive(claimer):
            return None
        if self.everything and uuid not in self.kept_streams:
            return True, "nobody on it lives"
        if uuid in self.kept_streams or any(store.source(uuid) is not None for store in self.stores):
            return None
        unread = [store.name for store in self.stores if store.listed is None]
        if unread:
            return False, f"the state of store {', '.join(unread)} cannot be read: it may know the source"
        return True, "no store knows its source"

    def _bells(self, item: ObjectName) -> Item | None:
        if not self.populated:
            return self._item(item, True, "nobody lives here")
        released = self._release_bells()
        try:
            fd = open_object(item.name)
        except (FileNotFoundError, ForeignOwnerError):
            return None
        try:
            data = os.pread(fd, ffi.sizeof("struct hf_bells"), 0)
        finally:
            os.close(fd)
        if len(data) == ffi.sizeof("struct hf_bells"):
            bells = ffi.cast("struct hf_bells *", ffi.from_buffer(data))
            self.named |= {int(bells.bells[i].owner) >> 16 for i in range(lib.HF_BELLS)} - released
        return None

    def _release_bells(self) -> set[int]:
        """Tokens that no doorbell names any more."""
        if not self.dry_run:
            try:
                with attach_bells(self.domain) as bells:
                    lib.hf_bell_bury(bells.handle, self.domain.fd)
            except (Error, FileNotFoundError, UnpublishedError):
                return set()
        return self.dead

    # Stores -------------------------------------------------------------------------------------------------

    def _memory_logs(self, item: ObjectName) -> Item | None:
        """Up to 0.1 their name had no uuid, and did not follow a store that was renamed."""
        name, _, uuid = item.name.removeprefix(f"{self.domain.prefix}logs.").rpartition(".")
        if re.fullmatch("[0-9a-f]{32}", uuid):
            own = [store for store in self.stores if store.info is not None and store.info.uuid.hex() == uuid]
            if not own and self.populated:
                why = f"messages of memory store {name} in a directory that is gone (removed by --all when nobody lives here)"
                return self._item(item, False, why)
        else:
            name = f"{name}.{uuid}".removeprefix(".")
            own = [store for store in self.stores if store.name == name]
            if self._is_in_use(SHM_DIR / item.name):
                return None
        if not all(map(self._store_is_gone, own)) or not (own or self._store_is_gone(None)):
            return None
        why = f"messages of memory store {name}, which does not run"
        return self._item(item, self.everything, why if self.everything else f"{why} (removed by --all)")

    def _is_in_use(self, logs: Path) -> bool:
        """A store that runs has a log here, whatever it is called now, or nobody can say."""
        alive = [store.info for store in self.stores if store.info is not None and not self._store_is_gone(store)]
        try:
            return any(log.parent == logs for info in alive for log in links_in(info.logs))
        except OSError:
            return True

    def _store_is_gone(self, store: StoreFiles | None) -> bool:
        """Proved. A store that starts holds its directory's lock before it makes anything, and writes its
        info last."""
        if store is None or store.info is None:
            return not self.populated
        return store.alive == 0 and not _locked(Path(store.info.directory) / "lock")

    def _store_files(self) -> list[Item | None]:
        found: list[Item | None] = []
        for path in sorted(self.domain.stores.glob("*.sock")):
            name = path.resolve().stem  # of the store, where that is another name of it
            store = next((store for store in self.stores if store.name == name), None)
            if self._store_is_gone(store):
                found.append(Item("socket", str(path), 0, True, f"store {name} is dead"))
        for store in self.stores:
            if store.info is not None and self._store_is_gone(store) and not Path(store.info.directory).exists():
                why = f"store {store.name} is dead and its directory {store.info.directory} does not exist"
                why = why if self.everything else f"{why} (removed by --all)"
                for kind, path in (
                    ("census", self.domain.census_path(store.name)),
                    ("info", self.domain.info_path(store.name)),
                ):
                    if path.exists():
                        found.append(Item(kind, str(path), _size(path), self.everything, why))
        for path in sorted(self.domain.stores.glob("*.census*")):
            name = path.name.rpartition(".census")[0]
            if not self.domain.info_path(name).exists():
                found.append(Item("census", str(path), _size(path), True, f"nobody knows a store {name}"))
        return found

    # Lock files ---------------------------------------------------------------------------------------------

    def _locks(self) -> list[tuple[Path, int]]:
        """Every process's lock file, and 1 alive, 0 proved dead, < 0 unknown."""
        try:
            names = sorted(os.listdir(self.domain.path / "processes"))
        except FileNotFoundError:
            return []
        tokens = [(name, int(name, 16) << 16) for name in names if re.fullmatch("[0-9a-f]{12}", name)]
        folder = self.domain.path / "processes"
        return [(folder / name, int(lib.hf_process_alive(self.domain.fd, token, 0, 0))) for name, token in tokens]

    def _lock(self, path: Path, alive: int) -> Item | None:
        if alive != 0 or lib.hf_process_alive(self.domain.fd, int(path.name, 16) << 16, 0, 0) != 0:
            return None  # asked once more: it may have been starting at the first look
        try:
            found = path.stat()
        except FileNotFoundError:
            return None
        if int(path.name, 16) in self.named:
            return Item("lock", str(path), found.st_size, False, "its process is dead; objects that stay name it")
        if found.st_size == 0 and time.time() - found.st_mtime < GRACE_S:
            return Item("lock", str(path), 0, False, "its process may be starting")
        return Item("lock", str(path), found.st_size, True, "its process is dead")


def _locked(path: Path) -> bool:
    """Another process holds a lock on ``path``, or nobody can say."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        return holder_of(fd) is not None
    finally:
        os.close(fd)


def _size(path: Path) -> int:
    """Bytes, of a directory with all that is in it; 0 for what has gone."""
    try:
        if path.is_dir():
            return sum(entry.stat().st_size for entry in path.rglob("*") if entry.is_file())
        return path.stat().st_size
    except OSError:
        return 0
