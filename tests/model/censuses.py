"""The censuses of the stores of a history, as the host has them: what a store writes before it grants, what
others remember, and what befalls the files. What that proves is the product's to say."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from model.fates import Fates

from holdfast.engine.rules.census import TROUBLE, Found, Mark, Told, remember

if TYPE_CHECKING:
    from collections.abc import Collection

    from model.declared import Declared

__all__ = ["Censuses", "File", "Host"]

HERE = (1, 1, 1)


@dataclass(frozen=True)
class File:
    """A census; of its keys only the source's counts."""

    id: bytes
    lines: int = 1
    lists: bool = False

    @property
    def mark(self) -> Mark:
        """As it is told."""
        return Mark(self.id, self.lines)


@dataclass
class Host:
    """What lies on the host's disk, and in its memory."""

    files: dict[str, File] = field(default_factory=dict)
    saved: dict[str, File] = field(default_factory=dict)
    full: set[str] = field(default_factory=set)
    """Stores that cannot write theirs."""
    infos: dict[str, Mark] = field(default_factory=dict)
    """What their info files say. They go with a reboot."""
    begun: int = 0


class Censuses(Fates):
    """See the module."""

    host: Host
    writes_census = True
    """Planted: what is granted is written when the store starts again only."""
    meets = False
    """After each life another source lives on all stores. What befalls the files befalls them then."""

    lived_before = False
    """Another source may have lived on all stores before the history. Then backups of the files were made."""

    def live_before(self) -> None:
        """It has."""
        self.another_source()
        for name in self.disks:
            self.save_census(name)

    def begin_census(self, name: str) -> None:
        """The store starts."""
        host, disk = self.host, self.disks[name]
        if name in host.full:
            disk.mark = host.infos[name] = TROUBLE
            return
        file, state = host.files.get(name), disk.state
        known = disk.mark
        lost = file is None or (known is not None and (file.id != known.id or file.lines < known.lines))
        if file is None or lost:
            host.begun += 1
            file = File(b"%016d" % host.begun)
        host.files[name] = file
        disk.mark = host.infos[name] = file.mark
        if state is not None:
            self._add(name)

    def _add(self, name: str) -> None:
        file = self.host.files[name]
        if not file.lists:
            self.host.files[name] = File(file.id, file.lines + 1, lists=True)
        self.disks[name].mark = self.host.infos[name] = self.host.files[name].mark

    def lists(self, name: str) -> bool:
        """As the store knows it."""
        file = self.host.files.get(name)
        return file is not None and file.mark == self.disks[name].mark and file.lists

    def note(self, name: str) -> None:
        """Before the source is granted. A trouble is one for a new line alone."""
        host, disk = self.host, self.disks[name]
        file = host.files.get(name)
        if disk.mark is None or (disk.mark != TROUBLE and (file is None or file.mark != disk.mark)):
            self.begin_census(name)  # it starts now; or it notices that the file was taken away or changed
        if disk.mark == TROUBLE or host.files[name].lists:
            return
        if name in host.full:
            disk.mark = host.infos[name] = TROUBLE
        elif self.writes_census:
            self._add(name)

    def tell(self, name: str) -> Told:
        """With its grant."""
        disk = self.disks[name]
        forgot = disk.state is not None and disk.state.forgotten and not disk.state.incarnation
        others = {other: Mark(*each[:2]) for other, each in disk.marks.items()}
        return Told(disk.mark or TROUBLE, HERE, others, forgot)

    def looked_at(self, declared: Declared, but: Collection[int]) -> dict[int, Found]:
        """Of stores that have not answered."""
        host = self.host
        found = {}
        for index, name in enumerate(declared.stores):
            if index not in but:
                file = host.files.get(name)
                mark = file.mark if file is not None else None
                found[index] = Found(name, HERE, "", mark, file is not None and file.lists, host.infos.get(name))
        return found

    # What befalls them --------------------------------------------------------------------------------------

    def another_source(self, _: str = "") -> None:
        """One lives on all stores: each has another line, and knows of the others'."""
        for name in self.disks:
            self.begin_census(name)
            if self.disks[name].mark != TROUBLE:
                file = self.host.files[name]
                self.host.files[name] = File(file.id, file.lines + 1, file.lists)
                self.disks[name].mark = self.host.infos[name] = self.host.files[name].mark
        for name, disk in self.disks.items():
            disk.marks = remember(
                disk.marks, {other: each.mark or TROUBLE for other, each in self.disks.items() if other != name}
            )

    def reboot(self, _: str) -> None:
        """What lies in memory is gone."""
        self.host.infos.clear()

    def lose_census(self, name: str) -> None:
        """Somebody removes it."""
        self.host.files.pop(name, None)

    def save_census(self, name: str) -> None:
        """A backup is made of it."""
        if name in self.host.files:
            self.host.saved[name] = self.host.files[name]

    def set_census_back(self, name: str) -> None:
        """The backup takes its place, in the same file."""
        if name in self.host.saved:
            self.host.files[name] = self.host.saved[name]

    def fill_census_disk(self, name: str) -> None:
        """It cannot be written from now on; or can be again."""
        self.host.full ^= {name}
