"""The place that a plan is for: a host, a domain, the stores there. A task elsewhere ends before its first
byte.

Whoever plans a read or a write resolves the place once, by its own environment, and each task gets it with
its work. A task uses the paths that it was told, never those that ``$HOLDFAST_DIR`` gives where it runs, and
looks first whether they lead to the same things:

* the boot: memory and files of another machine, or of this one before it was booted again, are not there;
* directories by device and inode, as the names in shared memory have the domain's (engine/memory/domain.py):
  a bind mount into a container keeps both, and a directory that only has the same path has others;
* stores by the uuid in their directories, and what is read of them by device and inode of the directory of
  their logs, which may be on another volume. One that cannot be read here and now is not taken for another
  one, as long as one of them is known.

The host's name is for people: a container has one of its own, and may see everything all the same.
"""

from __future__ import annotations

import errno
import os
import socket
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ..engine.errors import CorruptionError
from ..engine.log.catalog import directory_uuid
from ..engine.log.info_file import read_info
from ..engine.memory.domain import Domain, domain_directory
from .errors import PlacementError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..engine.log.catalog import StoreLog
    from ..engine.log.info_file import StoreInfo

__all__ = ["Directory", "Place", "StorePlace", "boot_id", "place_of_logs", "place_of_write"]

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
ELSEWHERE = "run the executors on that host alone, or stores on each host with a query of its own there"
HIDDEN = (
    "a container needs the host's /dev/shm, and the domain's and the stores' directories under the same paths "
    "(docker: --ipc=host, -v)"
)
WIPED = "run the executors where the driver runs; if the store was wiped meanwhile, run the query again"


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory as one host has it: ``identity`` is its device and inode."""

    path: str
    identity: str


@dataclass(frozen=True, slots=True)
class StorePlace:
    """A store that a plan counts on, and the uuid of its directory. ``logs``: where its logs lie; None if
    nobody reads them."""

    name: str
    directory: str
    uuid: str
    logs: Directory | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """See the module. Pickled into every task."""

    host: str
    boot: str
    domain: str
    """Its directory; empty for a read of store directories."""
    directories: tuple[Directory, ...] = ()
    """That must be the same where a task runs."""
    stores: tuple[StorePlace, ...] = ()
    home: str = ""
    """Identity of the domain's directory, for a read: it need not be in sight of a task."""

    def has_domain(self) -> bool:
        """Whether the domain's directory is in sight here, and the same."""
        try:
            return bool(self.home) and _identity(self.domain) == self.home
        except OSError:
            return False

    def check(self, what: str) -> None:
        """Returns where a task is at this place. ``what`` is here, as an error says: ``"the logs of topic
        orders are"``.

        Raises:
            PlacementError: it runs elsewhere.
        """
        where = f"{what} on host {self.host} (boot {self.boot})"
        here = f"{socket.gethostname()} (boot {boot_id()})"
        if self.boot != boot_id():
            raise PlacementError(f"{where}; this task runs on {here}", ELSEWHERE)
        for directory in self.directories:
            if found := _difference(directory):
                raise PlacementError(f"{where}; where this task runs, on {here}, {directory.path} {found}", HIDDEN)
        unknown = []
        for store in self.stores:
            try:
                _check_store(store, where, here)
            except (OSError, CorruptionError) as error:
                unknown.append(f"{store.name}: {error}")
        if unknown and len(unknown) == len(self.stores) and self.stores[0].logs:
            raise PlacementError(
                f"{where}; this task, on {here}, can read none of its stores: {'; '.join(unknown)}", HIDDEN
            )


def _difference(directory: Directory) -> str:
    try:
        found = _identity(directory.path)
    except OSError as error:
        return f"cannot be looked at: {error.strerror}"
    if found == directory.identity:
        return ""
    return f"is another directory: device and inode {found}, not {directory.identity}"


def _check_store(store: StorePlace, where: str, here: str) -> None:
    """Raises OSError or CorruptionError where nobody can tell. Who only writes need not see the directory."""
    try:
        found = directory_uuid(Path(store.directory))
        logs = _identity(store.logs.path) if store.logs else ""
    except OSError as error:
        if not store.logs or error.errno not in {errno.ENOENT, errno.ENOTDIR}:
            raise
        gone = f"does not see {error.filename} of store {store.name}"
        raise PlacementError(f"{where}; this task, on {here}, {gone}", HIDDEN) from None
    if found != store.uuid:
        is_there = f"uuid {found}" if found else "no store"
        raise PlacementError(
            f"{where}; where this task runs, on {here}, {store.directory} has {is_there}, not {store.uuid} of store {store.name}",
            WIPED,
        )
    if store.logs and logs != store.logs.identity:
        raise PlacementError(
            f"{where}; where this task runs, on {here}, {store.logs.path} is not where store {store.name} has its logs, but "
            f"another directory: device and inode {logs}, not {store.logs.identity or 'known'}",
            HIDDEN,
        )


# Made by who plans ------------------------------------------------------------------------------------------


def place_of_logs(domain: str | None, directories: Sequence[str], logs: Iterable[StoreLog]) -> Place:
    """The place of a read: of these logs, which were found in this domain, or in these directories."""
    stores = tuple(
        StorePlace(log.store, log.directory, log.uuid, _found(os.path.dirname(os.path.realpath(log.path))))
        for log in logs
    )
    if directories:
        return Place(socket.gethostname(), boot_id(), "", (), stores)
    path = str(domain_directory(domain).absolute())
    return Place(socket.gethostname(), boot_id(), path, (), stores, _identity(path) if os.path.isdir(path) else "")


def place_of_write(domain: str | None, needed: Iterable[str], stores: Iterable[str]) -> Place:
    """The place of a write into a domain, which is made if it is missing.

    Args:
        domain: as of :class:`Domain`.
        needed: directories in which the tasks write.
        stores: names of those that the write uses: no other can stop it.

    Raises:
        ConfigError, ForeignOwnerError: there can be no such domain.
        OSError: one of ``needed`` is not there.
    """
    opened = Domain(domain, join=False)
    try:
        infos = [info for name in stores if (info := read_info(opened, name)) is not None]
    finally:
        opened.close()
    used = tuple(StorePlace(info.name, info.directory, info.uuid.hex()) for info in infos if _is_there(info))
    directories = tuple(Directory(path, _identity(path)) for path in needed)
    return Place(socket.gethostname(), boot_id(), str(opened.path), directories, used)


def _is_there(info: StoreInfo) -> bool:
    """Its directory is that store's, as far as this process sees: not wiped since, nor another store's
    now."""
    try:
        return directory_uuid(Path(info.directory)) == info.uuid.hex()
    except (OSError, CorruptionError):
        return False


def _found(path: str) -> Directory:
    """A directory as it is now; without an identity where it is not there any more: nobody is at this place
    then."""
    try:
        return Directory(path, _identity(path))
    except OSError:
        return Directory(path, "")


def _identity(path: str) -> str:
    found = os.stat(path)
    return f"{found.st_dev}:{found.st_ino}"


@cache
def boot_id() -> str:
    """Of this machine, since it was booted."""
    return BOOT_ID.read_text().strip()
