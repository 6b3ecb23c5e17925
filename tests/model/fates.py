"""What befalls the stores of a history, its register, and whom the operator excludes (histories.py)."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from model.declared import Register
from model.disk import Disk

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

__all__ = ["Fates"]


class Fates:
    """See the module. The World that all this happens in adds what it knows of it."""

    disks: dict[str, Disk]
    copies: dict[str, Disk]
    register: Register
    saved: Register
    damaged: bool
    exclusions: int
    harmed: bool
    """Something has been lost or set back: there may be no decision for ever."""
    next_life: Callable[[], int]

    # What befalls a store -----------------------------------------------------------------------------------

    def wipe(self, name: str) -> None:
        """Its directory is gone, with another one in its place."""
        self.disks[name], self.harmed = Disk([self.next_life()], wiped=True), True

    def save(self, name: str) -> None:
        """A backup is made of it."""
        self.copies[name] = copy.deepcopy(self.disks[name])

    def restore(self, name: str) -> None:
        """The backup takes its place."""
        if name in self.copies:
            self.harmed = True
            self.disks[name] = copy.deepcopy(self.copies[name])

    def forget(self, name: str) -> None:
        """Its log is gone, and its state is not: one in memory, after a reboot."""
        disk = self.disks[name]
        self.harmed = True
        if disk.state is not None:
            disk.log, disk.end = {}, 0
            disk.state.learner |= disk.state.incarnation > 0

    def exclude(self, name: str) -> None:
        """The operator excludes it, and all the others remember that."""
        self.exclusions += 1
        for other, disk in self.disks.items():
            if other != name:
                disk.excluded[name] = self.exclusions

    def exclude_at_one(self, name: str) -> None:
        """The operator excludes it, and nobody but the next store could be told."""
        self.exclusions += 1
        names = list(self.disks)
        self.disks[names[(names.index(name) + 1) % len(names)]].excluded[name] = self.exclusions

    def heard(self, up: Collection[str]) -> set[tuple[str, int]]:
        """Whom these say that the operator has excluded; where the source has begun at some, these alone."""
        begun = [name for name in up if (state := self.disks[name].state) is not None and state.incarnation]
        return {each for name in begun or up for each in self.disks[name].excluded.items()}

    # What befalls the register ------------------------------------------------------------------------------

    def lose_register(self) -> None:
        """Its disk is another one."""
        self.register, self.damaged = Register(), True

    def save_register(self) -> None:
        """A backup is made of it."""
        self.saved = copy.deepcopy(self.register)

    def restore_register(self) -> None:
        """The backup takes its place."""
        self.register, self.damaged = copy.deepcopy(self.saved), True

    def save_both(self, name: str) -> None:
        """One backup of the register and of this store's directory."""
        self.save_register()
        self.save(name)

    def restore_both(self, name: str) -> None:
        """The host as it was then, and the other stores' hosts as they are."""
        self.restore_register()
        self.restore(name)
