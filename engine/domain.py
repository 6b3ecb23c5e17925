"""A domain: one directory, and the shared-memory objects that carry its hash in their names.

``$HOLDFAST_DIR`` (else ``$XDG_RUNTIME_DIR/holdfast``, else ``/tmp/holdfast-<uid>``) holds one directory per domain::

    <domain>/processes/<token>     one lock file per process (csrc/process.h)
    <domain>/stores/<name>.sock    a running store's control socket
    <domain>/stores/<name>.info    who that store is; stays when it dies
    <domain>/stores/<alias>.*      symbolic links to the two: other names of it, such as 127.0.0.1:PORT
    <domain>/doubts/<uuid>[.<uuid>]  a sync failed in this boot: of a store's state, of a source's log there (engine/sync.py)

Objects in shared memory are called ``hf.<hash of the directory's device and inode>.<source uuid>.<what>``, so that two domains
never meet, and a listing by prefix is all the discovery there is: no registry that could disagree with what exists.
"""

from __future__ import annotations

import contextlib
import difflib
import fcntl
import hashlib
import os
import re
import stat
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import posix_ipc

from .core import lib
from .errors import ConfigError, ForeignOwnerError, NoDomainError
from .status import check
from .store_config import check_name

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["SHM_DIR", "Domain", "ObjectName", "unlink_source"]

SHM_DIR = Path("/dev/shm")
SOCKET_PATH_MAX = 107
"""Bytes of a Unix socket's path, NUL excluded (sockaddr_un)."""

_creating = threading.Lock()
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,63}")


def base_directory() -> Path:
    """Where domains live when nobody says otherwise (CONTRACT, "CLI, extras, places")."""
    if given := os.environ.get("HOLDFAST_DIR"):
        return Path(given)
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime) / "holdfast"
    return Path(f"/tmp/holdfast-{os.getuid()}")


def _private_directory(path: Path) -> None:
    """Make ``path`` with mode 0700, or check that it is ours and nobody else may enter.

    Raises:
        ForeignOwnerError: it belongs to another user, or others may enter.
        ConfigError: it is no directory, or cannot be made.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = os.stat(path, follow_symlinks=False)
    except OSError as error:
        raise ConfigError(f"cannot use {path} as a directory: {error.strerror}", hint="set HOLDFAST_DIR") from error
    if not stat.S_ISDIR(found.st_mode):
        raise ConfigError(f"{path} is not a directory", hint="set HOLDFAST_DIR to one of your own")
    if found.st_uid != os.geteuid():
        raise ForeignOwnerError(f"{path} belongs to uid {found.st_uid}, not to {os.geteuid()}")
    if found.st_mode & 0o077:
        raise ForeignOwnerError(f"{path} has mode {stat.S_IMODE(found.st_mode):o}: others may enter; chmod 700 it")


def _no_domain(name: str, base: Path) -> NoDomainError:
    there = sorted(path.parent.name for path in base.glob("*/stores"))
    near = difflib.get_close_matches(name, there, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"domains there: {', '.join(there) or 'none'}"
    return NoDomainError(f"there is no domain {name!r} in {base}", hint=hint)


@dataclass(frozen=True, slots=True)
class ObjectName:
    """A shared-memory object of a domain, as its name tells it."""

    name: str
    """As in /dev/shm, without the leading slash."""
    uuid: bytes
    """Of the source, 16 bytes; empty for the bells."""
    incarnation: int
    """Of the stream, or of a channel's ring; 0 for a board and for the bells."""
    kind: str
    """``stream``, ``board``, ``channel``, ``bells``, or ``logs`` (the directory of a memory store)."""


class Domain:
    """One domain directory, joined by this process. Cheap; any number per process.

    ``make``: its directories are made where they are missing; who only reads does without.

    Raises:
        ConfigError: the name is not a file name, or the paths are too long for a Unix socket.
        NoDomainError: it is not there, and is not to be made.
        ForeignOwnerError: the directory is not ours alone.
    """

    def __init__(self, name: str | None = None, *, join: bool = True, make: bool = True) -> None:
        self.name = name or os.environ.get("HOLDFAST_DOMAIN") or "default"
        if not _NAME.fullmatch(self.name):
            raise ConfigError(f"domain {self.name!r} is not a name", hint="letters, digits and _ . + -, 64 at most")
        base = base_directory()
        self.path = base / self.name
        self.stores = self.path / "stores"
        self.doubts = self.path / "doubts"
        self.socket_path("a")  # where that is too long, no store can be reached
        if not make and not self.stores.is_dir():
            raise _no_domain(self.name, base)
        _private_directory(base)
        _private_directory(self.path)
        _private_directory(self.stores)
        self.fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        found = os.fstat(self.fd)
        digest = hashlib.blake2b(f"{found.st_dev}:{found.st_ino}".encode(), digest_size=6).hexdigest()
        self.prefix = f"hf.{digest}."
        if join:
            check(lib.hf_process_join(self.fd), what=str(self.path))

    def close(self) -> None:
        """Closes the directory's descriptor. The lock file stays locked as long as the process lives."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def socket_path(self, store: str) -> Path:
        """Path of a store's control socket. Raises ConfigError when it is no name, or too long for a Unix socket."""
        check_name(store)
        path = self.stores / f"{store}.sock"
        if len(os.fsencode(path)) > SOCKET_PATH_MAX:
            raise ConfigError(
                f"{path} is {len(os.fsencode(path))} bytes, a Unix socket takes {SOCKET_PATH_MAX}",
                hint="set HOLDFAST_DIR to a shorter path",
            )
        return path

    def info_path(self, store: str) -> Path:
        """Path of the file that says who a store is, also after its death."""
        return self.socket_path(store).with_suffix(".info")

    def store_names(self) -> list[str]:
        """Names of all stores that ever ran here and were not removed, sorted; each once, without its aliases."""
        suffix = ".info"
        with os.scandir(self.stores) as entries:
            found = [entry.name for entry in entries if entry.name.endswith(suffix) and not entry.is_symlink()]
        return sorted(name.removesuffix(suffix) for name in found)

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """One creator of named objects at a time, in this domain, over all processes and threads."""
        with _creating:
            fd = os.open("create.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600, dir_fd=self.fd)
            try:
                fcntl.lockf(fd, fcntl.LOCK_EX)
                yield
            finally:
                os.close(fd)

    # Names in shared memory ---------------------------------------------------------------------------------------------

    def stream_name(self, uuid: bytes, incarnation: int) -> str:
        """Name of the ring of one incarnation of a source."""
        return f"{self.prefix}{uuid.hex()}.s{incarnation}"

    def board_name(self, uuid: bytes) -> str:
        """Name of the board of a source identity."""
        return f"{self.prefix}{uuid.hex()}.b"

    def channel_name(self, uuid: bytes, life: int) -> str:
        """Name of the ring of one life of a channel's writer (engine/channel.py); its board has the name of a source's."""
        return f"{self.prefix}{uuid.hex()}.c{life}"

    def memory_logs(self, store: str) -> Path:
        """Directory of a memory store's logs: shared memory, so it outlives every process but not the boot."""
        return SHM_DIR / f"{self.prefix}logs.{store}"

    @property
    def bells_name(self) -> str:
        """Name of the domain's doorbells."""
        return f"{self.prefix}bells"

    def parse(self, name: str) -> ObjectName | None:
        """What ``name`` (as in /dev/shm) means, or None if it is not of this domain."""
        if not name.startswith(self.prefix):
            return None
        rest = name[len(self.prefix) :]
        if rest == "bells":
            return ObjectName(name, b"", 0, "bells")
        if rest.startswith("logs."):
            return ObjectName(name, b"", 0, "logs")
        uuid, dot, what = rest.partition(".")
        if not dot or len(uuid) != 32 or not re.fullmatch("[0-9a-f]{32}", uuid):
            return None
        if what == "b":
            return ObjectName(name, bytes.fromhex(uuid), 0, "board")
        if re.fullmatch(r"[sc][0-9]{1,19}", what):
            return ObjectName(name, bytes.fromhex(uuid), int(what[1:]), "stream" if what[0] == "s" else "channel")
        return None

    def objects(self, uuid: bytes = b"") -> list[ObjectName]:
        """All objects of this domain in shared memory, by name, or those of one source; its streams in the order of their
        incarnations."""
        prefix = self.prefix + uuid.hex()
        with os.scandir(SHM_DIR) as entries:
            names = [entry.name for entry in entries if entry.name.startswith(prefix)]
        found = [parsed for name in names if (parsed := self.parse(name))]
        return sorted(found, key=lambda item: (item.uuid, item.kind, item.incarnation))


def open_object(name: str, *, create: bool = False, writable: bool = False) -> int:
    """A descriptor of a shared-memory object (posix_ipc); the caller closes it.

    Raises:
        FileExistsError, FileNotFoundError: as it says.
        ForeignOwnerError: no permission, so it is somebody else's.
    """
    try:
        if create:
            return int(posix_ipc.SharedMemory("/" + name, posix_ipc.O_CREX, mode=0o600).fd)
        return int(posix_ipc.SharedMemory("/" + name, 0, read_only=not writable).fd)
    except posix_ipc.ExistentialError as error:
        raise (FileExistsError if create else FileNotFoundError)(name) from error
    except posix_ipc.PermissionsError as error:
        raise ForeignOwnerError(f"{SHM_DIR / name} belongs to another user") from error


def unlink_object(name: str) -> None:
    """Removes a name from shared memory; mappings live on. Absent is fine."""
    try:
        posix_ipc.unlink_shared_memory("/" + name)
    except posix_ipc.ExistentialError:
        return


def unlink_source(domain: Domain, uuid: bytes) -> None:
    """Removes the names of a source's board and of all its rings. For who holds the domain's lock. Whoever has them mapped reads
    on."""
    for item in domain.objects(uuid):
        unlink_object(item.name)
