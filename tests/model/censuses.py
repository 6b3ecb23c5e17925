"""The censuses of the stores of a history, as the host has them: what a store writes before it grants, what
others remember, and what befalls the files. What that proves is the product's to say."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from model.fates import Fates

from holdfast.engine.rules.census import TROUBLE, Found, Mark, Told, remember

if TYPE_CHECKING:
    from collections.abc import Collection

    from model.declared import Declared

__all__ = ["Censuses", "File", "Host"]

DIRECTORIES = ((1, 1, 1), (2, 2, 2))
"""Where sources read, and another one, in which a store may keep its census."""


@dataclass(frozen=True)
class File:
    """A census; of its keys only the source's counts."""

    id: bytes
    lines: int = 1
    lists: bool = False
    spoilt: bool = False

    @property
    def mark(self) -> Mark:
        """As it is told."""
        return Mark(self.id, self.lines)


@dataclass
class Host:
    """What lies on the host's disk, and in its memory."""

    files: tuple[dict[str, File], dict[str, File]] = field(default_factory=lambda: ({}, {}))
    """In each of the directories."""
    unsynced: dict[tuple[int, str], File] = field(default_factory=dict)
    """What of these is on disk, where that is something else."""
    saved: dict[str, File] = field(default_factory=dict)
    full: set[str] = field(default_factory=set)
    """Stores that cannot write theirs."""
    hung: set[str] = field(default_factory=set)
    """Nor spoil it."""
    moved: set[str] = field(default_factory=set)
    """They keep it in the other directory."""
    off: set[str] = field(default_factory=set)
    """They keep none any more."""
    older: set[str] = field(default_factory=set)
    """They know nothing of censuses."""
    infos: dict[str, Mark] = field(default_factory=dict)
    """What their info files say. They go with a reboot."""
    begun: int = 0


class Censuses(Fates):
    """See the module."""

    host: Host
    writes_census = True
    """Planted: what is granted is written when the store starts again only."""
    refuses = True
    """Planted: a store grants also where no file says that the census is in trouble."""
    spoils_behind = True
    """Planted: the census that a store leaves behind stays as it is."""
    rewrites = True
    """Planted: a store that starts believes that what it reads is on disk."""
    spoils_at_the_end = True
    """Planted: the census of a store that keeps none any more stays as it is."""
    begins_with_state = True
    """Planted: a census begins without what the store has granted before."""
    distrusts = True
    """Planted: a store that keeps its first census takes it that the stores beside it have had none."""
    meets = False
    """After each life another source lives on all stores. What befalls the files befalls them then."""

    lived_before = False
    """Another source may have lived on all stores before the history. Then backups of the files were made."""

    older_first = False
    """All stores are older ones when it has."""

    def live_before(self) -> None:
        """It has."""
        if self.older_first:
            self.host.older.update(self.disks)
        self.another_source()
        for name in self.disks:
            self.save_census(name)

    def _place(self, name: str) -> int:
        return int(name in self.host.moved)

    def _file(self, name: str) -> File | None:
        return self.host.files[self._place(name)].get(name)

    def begin_census(self, name: str) -> None:
        """The store starts."""
        host, disk, place = self.host, self.disks[name], self._place(name)
        beside = disk.knows | (disk.state.peers.keys() if disk.state is not None else set())
        if name in host.older:
            host.infos[name] = TROUBLE
            return
        if name in host.off:
            self._end(name)
            return
        if disk.mark is None and self.distrusts:
            disk.marks = {**remember({}, dict.fromkeys(beside - {name}, TROUBLE)), **disk.marks}
        moved = disk.place not in {None, place}
        if moved and name not in host.hung and self.spoils_behind:
            self._spoil(name, disk.place)
        if name in host.full | host.hung:
            self._trouble(name)
            return
        found, known = self._file(name), disk.mark
        if found is not None and found.spoilt:
            found = None
        if found is None:
            goes = False
        elif known is None or moved:
            goes = disk.state is None and not beside
        else:
            goes = found.id == known.id and found.lines >= known.lines
        file = found or File(b"")
        if not goes:
            host.begun += 1
            file = replace(file, id=b"%016d" % host.begun)
        if disk.state is not None and not file.lists and self.begins_with_state:
            file = replace(file, lists=True, lines=file.lines + 1)
        if self.rewrites or file != found:
            host.unsynced.pop((place, name), None)
        host.files[place][name], disk.place = file, place
        disk.mark = host.infos[name] = file.mark

    def _end(self, name: str) -> None:
        """It is kept no more."""
        disk = self.disks[name]
        if disk.place is not None:
            if self.spoils_at_the_end:
                self._spoil(name, disk.place)
            disk.mark, disk.place = TROUBLE, None
        self.host.infos[name] = TROUBLE

    def _spoil(self, name: str, place: int | None) -> None:
        files = self.host.files[place or 0]
        if name in files:
            files[name] = replace(files[name], spoilt=True)
            self.host.unsynced.pop((place or 0, name), None)

    def _trouble(self, name: str) -> None:
        """It cannot be written."""
        if name not in self.host.hung:
            self._spoil(name, self._place(name))
        self.disks[name].mark = self.host.infos[name] = TROUBLE

    def _add(self, name: str, *, ours: bool = True) -> None:
        """A line; of the source, or of another one."""
        file = self._file(name)
        assert file is not None
        grown = replace(file, lines=file.lines + 1, lists=file.lists or ours)
        self.host.files[self._place(name)][name] = grown
        self.host.unsynced.pop((self._place(name), name), None)
        self.disks[name].mark = self.host.infos[name] = grown.mark

    def lists(self, name: str) -> bool:
        """As the store knows it."""
        file = self._file(name)
        return file is not None and file.mark == self.disks[name].mark and file.lists

    def note(self, name: str) -> bool:
        """Before the source is granted. A trouble is one for a new line alone. False: it is refused."""
        host, disk, file = self.host, self.disks[name], self._file(name)
        if name in host.off | host.older:
            return True
        if disk.mark is None or (disk.mark != TROUBLE and (file is None or file.mark != disk.mark)):
            self.begin_census(name)  # it starts now; or it notices that the file was taken away or changed
        file = self._file(name)
        if disk.mark != TROUBLE and file is not None and not file.lists:
            if name in host.full | host.hung:
                self._trouble(name)
            elif self.writes_census:
                self._add(name)
        return disk.mark != TROUBLE or self._grants_in_trouble(name)

    def _grants_in_trouble(self, name: str) -> bool:
        """Its file says so, or it has begun there."""
        file, state = self._file(name), self.disks[name].state
        begun = state is not None and state.incarnation > 0
        return begun or not self.refuses or (file is not None and file.spoilt and name not in self.host.hung)

    def tell(self, name: str) -> Told | None:
        """With its grant."""
        disk = self.disks[name]
        if name in self.host.older or disk.mark is None:
            return None
        forgot = disk.state is not None and disk.state.forgotten and not disk.state.incarnation
        others = {other: Mark(*each[:2]) for other, each in disk.marks.items()}
        return Told(disk.mark, DIRECTORIES[self._place(name)], others, forgot)

    def take_marks(self, name: str, granted: Collection[str]) -> None:
        """A BEGIN tells a store of those that have granted."""
        marks = {other: self.disks[other].mark for other in granted if other not in self.host.older}
        disk = self.disks[name]
        if name not in self.host.older and any(mark is not None for mark in marks.values()):
            told = {other: marks.get(other) or TROUBLE for other in granted if other != name}
            disk.marks = remember(disk.marks, told)

    def looked_at(self, declared: Declared, but: Collection[int]) -> dict[int, Found]:
        """Of stores that have not answered."""
        found = {}
        for index, name in enumerate(declared.stores):
            if index not in but:
                file, says = self.host.files[0].get(name), self.host.infos.get(name)
                if file is None:
                    found[index] = Found(name, DIRECTORIES[0], info=says)
                else:
                    why = "it is spoilt" if file.spoilt else ""
                    found[index] = Found(name, DIRECTORIES[0], why, file.mark, file.lists, says)
        return found

    # What befalls them --------------------------------------------------------------------------------------

    def another_source(self, _: str = "") -> None:
        """One lives on all stores that grant it: each has another line, and knows of the others'."""
        granted = []
        for name, disk in self.disks.items():
            self.begin_census(name)
            if name in self.host.off | self.host.older:
                granted.append(name)
            elif disk.mark != TROUBLE:
                self._add(name, ours=False)
                granted.append(name)
            elif (file := self._file(name)) is not None and file.spoilt and name not in self.host.hung:
                granted.append(name)
        for name in granted:
            self.take_marks(name, granted)
            self.disks[name].knows.update({*granted} - {name})

    def reboot(self, _: str) -> None:
        """What lies in memory is gone."""
        self.host.infos.clear()
        self.host.unsynced.clear()

    def power_cut(self, _: str) -> None:
        """And what was not on disk."""
        for (place, name), file in self.host.unsynced.items():
            self.host.files[place][name] = file
        self.reboot("")

    def lose_census(self, name: str) -> None:
        """Somebody removes it."""
        self.host.files[0].pop(name, None)

    def save_census(self, name: str) -> None:
        """A backup is made of it."""
        if name in self.host.files[0]:
            self.host.saved[name] = self.host.files[0][name]

    def set_census_back(self, name: str) -> None:
        """The backup takes its place, in the same file."""
        if name in self.host.saved:
            self.host.files[0][name] = self.host.saved[name]

    def fill_census_disk(self, name: str) -> None:
        """It cannot be written from now on; or can be again."""
        self.host.full ^= {name}

    def hang_census_disk(self, name: str) -> None:
        """Nor can it be spoilt."""
        self.host.hung ^= {name}

    def die_before_the_sync(self, name: str) -> None:
        """The store has written the source's line, and is killed before that is on disk: it has granted
        nothing."""
        file, place = self._file(name), self._place(name)
        if file is not None and file.mark == self.disks[name].mark and not file.lists:
            self.host.unsynced[place, name] = file
            self.host.files[place][name] = replace(file, lines=file.lines + 1, lists=True)

    def move_census(self, name: str) -> None:
        """The store is started with another directory for it, or with the first one again. One that has never
        been in that one can be anywhere."""
        if name in self.host.files[0]:
            self.host.moved ^= {name}

    def switch_census(self, name: str) -> None:
        """Off, or on again. Where that cannot be told, or there is nothing to be spoilt, nobody knows."""
        if name not in self.host.hung and self._file(name) is not None:
            self.host.off ^= {name}
            self.begin_census(name)

    def upgrade(self, name: str) -> None:
        """From now on it keeps one."""
        self.host.older.discard(name)

    def upgrade_others(self, name: str) -> None:
        """All but this one do."""
        self.host.older.intersection_update({name})

    def upgrade_all(self, _: str) -> None:
        """All of them do."""
        self.host.older.clear()
