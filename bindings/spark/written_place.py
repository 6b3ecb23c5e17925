"""The place that a half-published batch belongs to: what a commit writes into its intent, and what the next
one compares.

A batch goes on only where it began: elsewhere its first part would be published once more, and its rest here.
It is the same place if one of the recorded stores is there (by uuid, which outlives reboots and moves), or if
the domain's directory is the same one in the same boot: then the stores were wiped, and the batch begins anew
with them (committing.py).
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import msgspec

from ..engine.log.info_file import read_info
from ..engine.memory.domain import Domain
from ..engine.options.values import store_addresses, store_names
from .errors import PlacementError
from .options import ENGINE, OptionError
from .place import boot_id

if TYPE_CHECKING:
    from pathlib import Path

    from .options import Options

__all__ = ["WrittenPlace", "check_place", "stores_of", "written_place"]


class WrittenPlace(msgspec.Struct, frozen=True):
    """``domain``: the directory, ``identity``: its device and inode; ``stores``: the uuids of those that the
    write uses."""

    host: str
    boot: str
    domain: str
    identity: str
    stores: dict[str, str]

    def is_same(self, now: WrittenPlace) -> bool:
        """Whether what was published there is where ``now`` publishes."""
        if set(self.stores.values()) & set(now.stores.values()):
            return True
        named = not self.stores or not now.stores or bool(self.stores.keys() & now.stores.keys())
        return named and (self.boot, self.identity) == (now.boot, now.identity)


def stores_of(options: Options) -> tuple[str, ...]:
    """Names of the stores that a write uses; empty if its options do not say so, but a configuration file.

    Raises:
        OptionError: an option cannot be read.
    """
    found = list(options.stores)
    for name, parse in (("ume_store", store_addresses), ("ume_store_name", store_names)):
        try:
            found += map(str, parse(options.engine.get(name, "")))
        except ValueError as error:
            raise OptionError(f"option {ENGINE}{name} is {options.engine[name]!r}; expected: {error}") from None
    return tuple(found)


def written_place(options: Options) -> WrittenPlace:
    """Where a write with these options publishes, as it is now. Without named stores: all of the domain."""
    domain = Domain(options.domain, join=False)
    try:
        found = os.fstat(domain.fd)
        names = stores_of(options) or domain.store_names()
        infos = [info for name in names if (info := read_info(domain, name)) is not None]
    finally:
        domain.close()
    stores = {info.name: info.uuid.hex() for info in infos}
    return WrittenPlace(socket.gethostname(), boot_id(), str(domain.path), f"{found.st_dev}:{found.st_ino}", stores)


def check_place(before: WrittenPlace | None, options: Options, batch: int, record: Path) -> None:
    """Returns where a batch may go on. ``before``: None in the records of older versions, which are believed.

    Raises:
        PlacementError: it was begun elsewhere.
    """
    now = written_place(options)
    if before is None or before.is_same(now):
        return
    raise PlacementError(
        f"batch {batch} is half published in {_said(before)}; this commit would go on in {_said(now)}",
        f"start it again with domain {before.domain} and stores {','.join(before.stores)}; "
        f"or remove {record}: the batch is then published here from its beginning",
    )


def _said(place: WrittenPlace) -> str:
    stores = ", ".join(f"{name} (uuid {uuid})" for name, uuid in place.stores.items()) or "none"
    return (
        f"domain {place.domain} on host {place.host} (boot {place.boot}, directory {place.identity}), stores {stores}"
    )
