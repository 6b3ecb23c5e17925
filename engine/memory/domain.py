"""A domain: one directory, and the shared-memory objects that carry its hash in their names.

``$HOLDFAST_DIR`` (else ``$XDG_RUNTIME_DIR/holdfast``, else ``/tmp/holdfast-<uid>``) holds one directory per
domain::

    <domain>/processes/<token>     one lock file per process (csrc/base/process.h)
    <domain>/sessions.lock         a locked byte for each session and topic (engine/control/session_claim.py)
    <domain>/stores/<name>.sock    a running store's control socket
    <domain>/stores/<name>.info    who that store is; stays when it dies
    <domain>/stores/<alias>.*      symbolic links to the two: other names of it, such as 127.0.0.1:PORT
    <domain>/doubts/<uuid>[.<uuid>]  a sync failed in this boot: of a store's state, of a source's log there
    <domain>/doubts/names-<boot>-<..>  of the names in a directory that leads to a store's

Objects in shared memory are called ``hf.<hash of the directory's device and inode>.<source uuid>.<what>``, so
that two domains never meet, and a listing by prefix is all the discovery there is: no registry that could
disagree with what exists. ``hf.<hash>.card`` says which directory that is (card.py).
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import re
import stat
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import ConfigError, Error, ForeignOwnerError, NoDomainError
from ..native.core import lib
from ..native.limits import named
from ..native.private_directory import open_private, open_regular
from ..native.room import FULL
from ..native.runtime import OfProcess, Path, os, posix_ipc, shutil, threading
from ..native.status import check
from ..options.store_names import check_name
from ..options.values import is_domain
from .card import Card, HeldCard, prefix_of
from .turn import take_turn

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "SHM_DIR", "Domain", "ObjectName", "base_directory", "check_topic", "domain_directory", "is_ours", "parse_object",
    "unlink_object", "unlink_source", "volatile_bases",
]  # fmt: skip

SHM_DIR = Path("/dev/shm")
LOCK_NS = 50_000_000
"""How often a process looks whether its own lock is there: two system calls."""
SOCKET_PATH_MAX = 107
"""Bytes of a Unix socket's path, NUL excluded (sockaddr_un)."""

_creating = OfProcess(threading.Lock)
_REMEDY = "have root remove it: no other name will do"


def base_directory() -> Path:
    """Where domains live when nobody says otherwise (bindings/README.md, "Command line")."""
    if given := os.environ.get("HOLDFAST_DIR"):
        return Path(given)
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime) / "holdfast"
    return Path(f"/tmp/holdfast-{os.getuid()}")


def volatile_bases() -> set[Path]:
    """Directories of domains that a reboot empties: where domains live while ``$HOLDFAST_DIR`` is not set."""
    uid = os.getuid()
    runtime = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{uid}"
    bases = [Path(runtime) / "holdfast", Path(f"/run/user/{uid}/holdfast"), Path(f"/tmp/holdfast-{uid}")]
    return {Path(os.path.realpath(base)) for base in bases}


def domain_directory(name: str | None = None) -> Path:
    """Where the directory of a domain is, or would be. ``name``: as of :class:`Domain`.

    Raises:
        ConfigError: it is not a file name.
    """
    given = name or os.environ.get("HOLDFAST_DOMAIN") or "default"
    path = Path(given) if given.startswith("/") else base_directory() / given
    if not is_domain(given):
        raise ConfigError(f"domain {given!r} is not a name", hint="letters, digits and _ . + -, 64 at most")
    return path


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

    Args:
        name: of a domain where domains live here (``$HOLDFAST_DIR``), or the absolute path of its directory,
            for who was told where it is by another process.
        make: its directories are made where they are missing; who only reads does without.

    Raises:
        ConfigError: the name is not a file name, or the paths are too long for a Unix socket.
        NoDomainError: it is not there, and is not to be made.
        ForeignOwnerError: the directory is not ours alone.
    """

    def __init__(self, name: str | None = None, *, join: bool = True, make: bool = True) -> None:
        self.path = domain_directory(name)
        base, self.name = self.path.parent, self.path.name
        self.stores = self.path / "stores"
        self.doubts = self.path / "doubts"
        self.socket_path("a")  # where that is too long, no store can be reached
        if not make and not self.stores.is_dir():
            raise _no_domain(self.name, base)
        self.fd = self._enter(base)
        found = os.fstat(self.fd)
        self.prefix = prefix_of(found.st_dev, found.st_ino)
        self._strange: dict[str, int] = {}
        """Names that are no objects of ours -> inode: what was looked at once is not looked at again, however
        many there are."""
        self._looked_ns = 0
        self._card: HeldCard | None = None
        if join:
            check(lib.hf_process_join(self.fd), what=str(self.path))
            self._card = HeldCard(SHM_DIR / self.card_name, Card.of(self.path, found))
            self._show_card()

    def _enter(self, base: Path) -> int:
        """A descriptor of the domain's directory. All above the sockets is ours alone, each looked at where
        it was opened."""
        opened = open_private(base, closed=True, hint="set HOLDFAST_DIR")
        try:
            fd = open_private(self.path, at=opened, closed=True, hint="set HOLDFAST_DIR")
        finally:
            os.close(opened)
        try:
            os.close(open_private(self.stores, at=fd, closed=True, hint="set HOLDFAST_DIR"))
        except BaseException:
            os.close(fd)
            raise
        return fd

    def look_at_lock(self, now_ns: int) -> None:
        """Is this process's lock still there? Looked at every LOCK_NS at most; for who has joined.

        Raises:
            FencedError: it is not, or was not once. Nobody in this process may publish or acknowledge here
                any more.
        """
        if now_ns - self._looked_ns >= LOCK_NS:
            check(lib.hf_process_check(self.fd), what=str(self.path))
            self._looked_ns = now_ns

    def removals(self) -> int:
        """How often the names of a source in shared memory were removed while stores keep it. A number that
        grew between two looks: there was one that neither has seen."""
        try:
            return (self.path / "removals").stat().st_size
        except FileNotFoundError:
            return 0

    def tell_removal(self) -> None:
        """One more, before the first name goes; under :meth:`exclusive`. Raises OSError."""
        fd = open_regular(self.path / "removals", os.O_RDWR | os.O_CREAT, at=self.fd)
        try:
            os.pwrite(fd, b".", os.fstat(fd).st_size)
        finally:
            os.close(fd)

    def _show_card(self) -> None:
        """Before anything is made in shared memory. Best effort."""
        if self._card is None:
            return
        with contextlib.suppress(Error, OSError):
            try:
                self._card.show()
            except (ForeignOwnerError, PermissionError):
                if evict(self.card_name):
                    self._card.show()

    def close(self) -> None:
        """Closes the descriptors of the directory and of its card. The lock file stays locked as long as the
        process lives."""
        fd, self.fd = self.fd, -1  # first: who closes again after an interrupt must not meet another one's
        if fd >= 0:
            os.close(fd)
        if self._card is not None:
            self._card.close()

    def socket_path(self, store: str) -> Path:
        """Path of a store's control socket. Raises ConfigError when it is no name, or too long for a Unix
        socket."""
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

    def census_path(self, store: str) -> Path:
        """Path of the file that says which sources a store has granted in this boot."""
        return self.socket_path(store).with_suffix(".census")

    def store_names(self) -> list[str]:
        """Names of all stores that ever ran here and were not removed, sorted; each once, without its
        aliases."""
        suffix = ".info"
        with os.scandir(self.stores) as entries:
            found = [entry.name for entry in entries if entry.name.endswith(suffix) and not entry.is_symlink()]
        return sorted(name.removesuffix(suffix) for name in found)

    @contextlib.contextmanager
    def exclusive(self, *, patient: bool = False) -> Iterator[None]:
        """One creator of named objects at a time, in this domain, over all processes and threads.
        ``patient``: as of take_turn.

        Raises:
            TurnHeldError: whoever is at it stands still.
        """
        with _creating.value:
            fd = os.open("create.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600, dir_fd=self.fd)
            try:
                take_turn(fd, f"to make, join or remove shared objects of domain {self.name}", patient=patient)
                self._show_card()
                yield
            finally:
                os.close(fd)

    # Names in shared memory ---------------------------------------------------------------------------------

    def stream_name(self, uuid: bytes, incarnation: int) -> str:
        """Name of the ring of one incarnation of a source."""
        return f"{self.prefix}{uuid.hex()}.s{incarnation}"

    def board_name(self, uuid: bytes) -> str:
        """Name of the board of a source identity."""
        return f"{self.prefix}{uuid.hex()}.b"

    def channel_name(self, uuid: bytes, life: int) -> str:
        """Name of the ring of one life of a channel's writer (engine/channel/channel.py); its board has the
        name of a source's."""
        return f"{self.prefix}{uuid.hex()}.c{life}"

    def memory_logs(self, store: str, uuid: bytes) -> Path:
        """Directory of a memory store's logs: shared memory, so it outlives every process but not the boot.

        It is the one store's that has this ``uuid``. Another one may have the name next.
        """
        return SHM_DIR / f"{self.prefix}logs.{store}.{uuid.hex()}"

    @property
    def bells_name(self) -> str:
        """Name of the domain's doorbells."""
        return f"{self.prefix}bells"

    @property
    def card_name(self) -> str:
        """Name of the domain's card (card.py)."""
        return f"{self.prefix}card"

    def parse(self, name: str) -> ObjectName | None:
        """What ``name`` (as in /dev/shm) means, or None if it is not of this domain."""
        return parse_object(self.prefix, name)

    def objects(self, uuid: bytes = b"") -> list[ObjectName]:
        """All objects of this domain in shared memory, by name, or those of one source; its streams in the
        order of their incarnations. Anybody may give a file such a name: what belongs to another user, or is
        of another kind, is not of it."""
        prefix = self.prefix + uuid.hex()
        uid, known, strange = os.geteuid(), self._strange, {}
        found = []
        with os.scandir(SHM_DIR) as entries:
            for entry in entries:
                name = entry.name
                if not name.startswith(prefix):
                    continue
                if known.get(name) != entry.inode():
                    with contextlib.suppress(FileNotFoundError):
                        item = self.parse(name)
                        if item is not None and is_ours(item, entry.stat(follow_symlinks=False), uid):
                            found.append(item)
                            continue
                strange[name] = entry.inode()
        if not uuid:
            self._strange = strange
        return sorted(found, key=lambda item: (item.uuid, item.kind, item.incarnation))

    def strangers(self) -> dict[int, int]:
        """Uids of others who have made something with a name of this domain's -> how many names."""
        self.objects()
        owners: Counter[int] = Counter()
        for name in self._strange:
            with contextlib.suppress(FileNotFoundError):
                owners[os.stat(SHM_DIR / name, follow_symlinks=False).st_uid] += 1
        del owners[os.geteuid()]
        return dict(owners)


def parse_object(prefix: str, name: str) -> ObjectName | None:
    """What ``name`` (as in /dev/shm) means in the domain with this prefix, or None."""
    if not name.startswith(prefix):
        return None
    rest = name[len(prefix) :]
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


def is_ours(item: ObjectName, made: os.stat_result, uid: int) -> bool:
    """It belongs to this user, and is of the kind that its name tells."""
    return made.st_uid == uid and (stat.S_ISDIR if item.kind == "logs" else stat.S_ISREG)(made.st_mode)


def open_object(name: str, *, create: bool = False, writable: bool = False) -> int:
    """A descriptor of a shared-memory object; the caller closes it. What others may have put under its name
    is not waited for, and not followed (posix_ipc would: shm_open of a FIFO ends when somebody opens its
    other end).

    Raises:
        FileExistsError, FileNotFoundError: as it says.
        ForeignOwnerError: it is another user's, or no object.
    """
    path = SHM_DIR / name
    try:
        if create:
            return int(posix_ipc.SharedMemory("/" + name, posix_ipc.O_CREX, mode=0o600).fd)
        return open_regular(path, os.O_RDWR if writable else os.O_RDONLY)
    except (posix_ipc.ExistentialError, FileNotFoundError, FileExistsError) as error:
        raise (FileExistsError if create else FileNotFoundError)(name) from error
    except (posix_ipc.PermissionsError, PermissionError) as error:
        raise ForeignOwnerError(f"{path} belongs to another user", hint=_REMEDY) from error
    except OSError as error:
        if error.errno is None or error.errno in FULL:  # posix_ipc says it in words, and names no file
            raise named(error, str(path)) from None
        if error.errno in {errno.ELOOP, errno.ENXIO, errno.EISDIR}:
            raise ForeignOwnerError(f"{path} is not a shared-memory object", hint=_REMEDY) from error
        raise


def evict(name: str) -> bool:
    """Takes away what another user has put under a name of ours, as only root may. False: it is ours, or
    there to stay."""
    path = SHM_DIR / name
    try:
        if os.stat(path, follow_symlinks=False).st_uid == os.geteuid():
            return False
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def unlink_object(name: str) -> None:
    """Removes a name from shared memory; mappings live on. Absent is fine, and another user's stays where it
    is."""
    with contextlib.suppress(FileNotFoundError, PermissionError, IsADirectoryError):
        (SHM_DIR / name).unlink()


def unlink_source(domain: Domain, uuid: bytes) -> None:
    """Removes the names of a source's board and of all its rings. For who holds the domain's lock. Whoever
    has them mapped reads on."""
    for item in domain.objects(uuid):
        unlink_object(item.name)


def check_topic(topic: object) -> None:
    """Raises ConfigError where no source can have this topic."""
    if not isinstance(topic, str) or not topic or len(topic.encode()) > lib.HF_TOPIC_MAX - 1 or "\0" in topic:
        raise ConfigError(f"topic {topic!r}", hint=f"a string of 1 to {lib.HF_TOPIC_MAX - 1} bytes without NUL")
