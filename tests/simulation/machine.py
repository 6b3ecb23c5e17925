"""The machine of one seed: world, files, who runs, and what a scheduler of faults may do to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from simulation.config import draw, features
from simulation.disk import Directory
from simulation.truth import Truth
from simulation.world import World

from holdfast.engine.log.state_file import State
from holdfast.engine.rules.quorum import Groups

if TYPE_CHECKING:
    from simulation.disk import Log
    from simulation.receiver import Receiver
    from simulation.source import Source
    from simulation.store import Store


class Machine:
    """See the module."""

    def __init__(self, seed: int, *, verbose: bool = False, plain: bool = False) -> None:
        """``plain``: without the seed's features."""
        self.world = World(seed, verbose=verbose)
        self.config = config = draw(self.world)
        if not plain:
            features(config, seed)
        self.groups = Groups(config.sizes, config.groups, config.intragroup, config.intergroup)
        self.directories = [Directory(0) for _ in config.groups]
        self.known: set[str] = set()
        """Stores whose info files are there: they have run since the machine was booted."""
        self.truth = Truth(self.world, config, self.directories, self.known)
        self.stores: dict[int, Store] = {}
        self.sources: list[Source] = []
        self.receivers: dict[int, Receiver] = {}
        self.eagerness = 0.75
        """How often a source that may send does."""
        self._contents = 0

    def content(self) -> int:
        """A message that was never sent before."""
        self._contents += 1
        return self._contents

    def log_of(self, name: str, uuid: bytes, *, known: bool = False) -> Log | None:
        """A store's log, as everybody on this machine can read it, also with the store dead. ``known``:
        wherever it lies."""
        if not known and name not in self.known:
            return None
        return self.directories[self.config.names.index(name)].logs.get(uuid)

    def lacks(self, name: str, uuid: bytes, number: int, begun: tuple[int, int]) -> bool:
        """That store has not begun with this source, or not with the incarnation that ``number`` is of, as
        its files say."""
        log, saved = self.log_of(name, uuid), self.directories[self.config.names.index(name)].saved
        if name not in self.known or saved is None:
            return False
        known = [each.incarnation for each in msgspec.msgpack.decode(saved, type=State).sources if each.uuid == uuid]
        newest = log.begins[-1][0] if log is not None and log.begins else 0
        if not newest:
            return not any(known)
        return number >= begun[1] and max(newest, *known) < begun[0]

    def logs(self, uuid: bytes) -> list[Log]:
        """Every store's log of a source."""
        return [directory.logs[uuid] for directory in self.directories if uuid in directory.logs]

    def discover(self) -> list[bytes]:
        """Sources that receivers come upon: by their rings, or because a store that answers knows them."""
        found = {uuid: None for uuid, _ in self.world.rings}
        for store in self.stores.values():
            for source in store.state.sources:
                if source.incarnation:
                    found[source.uuid] = None
        return list(found)
