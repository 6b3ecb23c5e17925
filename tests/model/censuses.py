"""The censuses of the stores of a history, as the domain has them: what a store writes before it grants, and
what befalls the files. What that proves, and what a store carries over, is the product's to say."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from model.fates import Fates

from holdfast.engine.log import census
from holdfast.engine.log.census import Census
from holdfast.engine.rules.election import Found

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from model.declared import Declared

__all__ = ["Censuses", "Host"]

OURS = b"the source's key"


class Info(NamedTuple):
    """What a store's info file says of its last life."""

    directory: int
    """The first life of it."""
    life: bytes
    """Empty: it was an older one."""


@dataclass
class Host:
    """What lies in the domain, and what that is on."""

    files: dict[str, Census] = field(default_factory=dict)
    infos: dict[str, Info] = field(default_factory=dict)
    synced: tuple[dict[str, Census], dict[str, Info]] = field(default_factory=lambda: ({}, {}))
    """What of these is on disk, where the domain has one."""
    full: set[str] = field(default_factory=set)
    """Stores that cannot write theirs."""
    older: set[str] = field(default_factory=set)
    """They know nothing of censuses."""
    boots: int = 0
    lives: int = 0

    @property
    def boot(self) -> bytes:
        """The id of this boot."""
        return b"%016d" % self.boots


class Censuses(Fates):
    """See the module."""

    host: Host
    open: Callable[[str], None]
    has_disk = False
    """The domain's directory outlives the boot."""
    ran_before = False
    """All stores have run once before the history."""
    writes_census = True
    """Planted: what is granted is written when the store starts again only."""
    begins_with_state = True
    """Planted: a census begins without what the store has granted before."""
    names_lives = True
    """Planted: the info file of an older store names the life before it."""

    def begin_census(self, name: str) -> None:
        """The store starts."""
        host, disk = self.host, self.disks[name]
        found, info = host.files.get(name), host.infos.get(name)
        if name in host.older:
            host.infos[name] = Info(disk.lives[0], info.life if info is not None and not self.names_lives else b"")
            return
        life, same = info.life if info is not None else None, info is not None and info.directory == disk.lives[0]
        keys, whole = census.carried_over(found, host.boot, life=life, same=same)
        lists = OURS in keys or (disk.state is not None and self.begins_with_state)
        host.lives += 1
        host.infos[name] = Info(disk.lives[0], b"%016d" % host.lives)
        host.files[name] = Census(host.boot, host.infos[name].life, whole, OURS if lists else b"")
        if name in host.full:
            del host.files[name]

    def note(self, name: str) -> None:
        """Before the source is granted."""
        host, file = self.host, self.host.files.get(name)
        if name in host.older or file is None or file.keys:
            return
        if name in host.full:
            del host.files[name]
        elif self.writes_census:
            host.files[name] = file._replace(keys=OURS)

    def looked_at(self, declared: Declared, but: Collection[int], hidden: Collection[str]) -> dict[int, Found]:
        """Of stores that have not answered."""
        found, host = {}, self.host
        for index, name in enumerate(declared.stores):
            if index not in but:
                info, why = host.infos.get(name), "it has not run since the last boot"
                if name not in hidden and self.disks[name].state is not None:
                    why = "it knows it, as its state says"
                elif info is not None:
                    why = census.doubt(host.files.get(name), info.life, {OURS}, host.boot)
                found[index] = Found(name, why)
        return found

    # What befalls them --------------------------------------------------------------------------------------

    def start(self, name: str) -> None:
        """The store runs for a moment."""
        self.open(name)

    def start_all(self, _: str = "") -> None:
        """All of them do."""
        for name in self.disks:
            self.open(name)

    def reboot(self, _: str) -> None:
        """The domain is gone, or is what was on its disk."""
        self.host.boots += 1
        files, infos = copy.deepcopy(self.host.synced) if self.has_disk else ({}, {})
        self.host.files, self.host.infos = files, infos

    def sync(self, _: str) -> None:
        """The domain is written back."""
        self.host.synced = copy.deepcopy((self.host.files, self.host.infos))

    def lose_census(self, name: str) -> None:
        """Somebody removes it."""
        self.host.files.pop(name, None)

    def fill_census_disk(self, name: str) -> None:
        """It cannot be written from now on; or can be again."""
        self.host.full ^= {name}

    def upgrade(self, name: str) -> None:
        """From its next life on it keeps one; or the store is an older one again."""
        self.host.older ^= {name}
