"""What this user has in shared memory that no domain claims: rings, boards, doorbells, channels and memory
logs of a domain whose directory is gone. Says why of each, and removes it on request.

*Whose is it?* The prefix of a name is a hash; the domain's card says which directory it is of
(engine/memory/card.py). A card is only a hint where to look: it is read like any file of a stranger, and
what it says must give the prefix that it is named with.

*Is the directory gone?* It is where, in this mount namespace and this boot, the file system that held it is
there and has no such name, or another directory in its place. Nothing else proves it. EACCES, ENOTDIR, a
file system that is not mounted, a card of another namespace or boot, a card that is missing or garbage: the
domain is unknown, and unknown is never taken for gone. One that was moved in its parent directory, or into
where domains live, is found there by its inode. /run/user is known to lose what it held with its mount.

*Does anybody live?* Every process that has joined a domain holds its card by a lock, in whatever container
it is. Who removes takes that lock alone and keeps it. 0.1 has no cards, so the kernel is asked as well
(users.py): whoever has anything of the prefix open or mapped, or the directory open, keeps all of it.

*Is it still wanted?* What may hold messages goes only with ``everything`` (orphan_messages.py).

*Races.* A domain may be made while this runs. With another inode its prefix is another one. With the inode of
the old one (file systems use them again) its first process waits for the card's lock before it makes or maps
anything, for as long as the removal takes, and then finds nothing. If it came first, the lock is not to be
had. After TRIES looks (card.py) it waits no more and puts a card of its own in that place: therefore the
name of the card and the directory are looked at once more before each removal, and it ends where either has
changed. The processes of 0.1 do not ask for the lock: one of them that makes a domain with that inode, and
attaches between the last look and the removal, goes on with nameless doorbells, and says so (nameless.py).
Where a prefix has no card, the removal makes an empty one to be locked. The card goes last: what a crash of
this leaves is an orphan with a card.
"""

from __future__ import annotations

import contextlib
import re
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from ..errors import Error
from ..memory.card import BYTES_MAX, Card, boot_id, leads_to, mount_namespace, prefix_of, try_lock
from ..memory.domain import SHM_DIR, ObjectName, base_directory, is_ours, parse_object, unlink_object, volatile_bases
from ..native.private_directory import open_regular
from ..native.runtime import Path, os, shutil, time
from .orphan_messages import WITH_ALL, KnownDomain, Messages, Thing, text_of
from .users import is_written, users

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["KnownDomain", "Orphan", "known_domains", "orphans"]

NAME = re.compile(r"(hf\.[0-9a-f]{12}\.)(.+)", re.DOTALL)
ORDER = ("stream", "channel", "board", "logs", "bells", "card")
"""Of removal: what others refer to goes last."""
AT_ONCE = 64
"""Cards that are locked at a time: each is a descriptor."""
RUNTIME = Path("/run/user")
"""A file system of each user's, which logind unmounts at the end of the last session."""


class Orphan(msgspec.Struct, frozen=True):
    """One thing in shared memory that no domain claims."""

    kind: str
    """``stream``, ``board``, ``channel``, ``bells``, ``logs`` or ``card``."""
    path: str
    bytes: int
    """Of memory, that its removal gives back."""
    age_ns: int
    """Since it was made, or last written as a file: what is written through a mapping does not count."""
    domain: str
    """Path of the domain's directory, as its card says; empty: not known."""
    gone: bool
    """That directory is proved to be gone. Else the domain is unknown."""
    why: str
    kept: str
    """Why it stays, or would; empty: it goes."""

    @property
    def needs_all(self) -> bool:
        """It stays because it may hold messages, and goes with ``everything``."""
        return self.kept.endswith(WITH_ALL)


@dataclass(frozen=True)
class _Verdict:
    state: str
    """``claimed``, ``gone`` or ``unknown``."""
    domain: str
    why: str = ""


def orphans(*, older_ns: int | None = None, remove: bool = False, everything: bool = False) -> list[Orphan]:
    """Everything that no domain claims, by domain; with ``remove`` it is removed where ``kept`` is empty.

    Args:
        older_ns: a domain of which anything is younger is kept. Without it, unknown domains are kept.
        everything: rings with messages that no store has, and the logs of memory stores, go, too.

    Raises:
        OSError: shared memory or /proc cannot be looked at, or something could not be removed.
    """
    groups = sorted(_listing().items())
    messages = Messages(known_domains, everything=everything)
    found: list[Orphan] = []
    for first in range(0, len(groups), AT_ONCE):
        with contextlib.ExitStack() as stack:
            look = _Look(dict(groups[first : first + AT_ONCE]), older_ns, remove, messages, stack)
            found += look.found()
    return sorted(found, key=lambda each: (not each.gone, each.domain, each.path))


def known_domains() -> list[KnownDomain]:
    """Those whose directory is there, and those of which nobody can say, by path; whose is gone is not
    mentioned. Raises OSError."""
    bases = _directories([base_directory(), *volatile_bases()])
    found = {str(path): "" for path in bases.values() if (path / "stores").is_dir()}
    for prefix in _listing():
        verdict = _verdict(prefix, bases)
        if verdict.domain and verdict.state != "gone":
            found.setdefault(verdict.domain, verdict.why)
    return [KnownDomain(path, why) for path, why in sorted(found.items())]


class _Look:
    """One look at some prefixes, with the locks of their cards."""

    def __init__(
        self,
        groups: dict[str, list[Thing]],
        older_ns: int | None,
        remove: bool,
        messages: Messages,
        stack: contextlib.ExitStack,
    ) -> None:
        self.older_ns, self.remove, self.messages, self.stack = older_ns, remove, messages, stack
        self.bases = _directories([base_directory(), *volatile_bases()])
        verdicts = {prefix: _verdict(prefix, self.bases) for prefix in groups}
        self.verdicts = {prefix: said for prefix, said in verdicts.items() if said.state != "claimed"}
        self.groups = {prefix: groups[prefix] for prefix in self.verdicts}
        self.cards: dict[str, int] = {}
        self.made: set[str] = set()
        """Prefixes that had no card."""
        self.now_ns = time.time_ns()
        self.users: dict[str, int] = {}

    def found(self) -> Iterator[Orphan]:
        held = {prefix: self._hold(prefix) for prefix in self.groups}  # before /proc is looked at
        if self.groups:
            self.users = users({said.domain: prefix for prefix, said in self.verdicts.items() if said.domain})
        for prefix, things in self.groups.items():
            kept = held[prefix] or self._kept(prefix, things)
            if self.remove and not kept:
                kept = self._remove(prefix)
            if prefix in self.made and leads_to(place := SHM_DIR / f"{prefix}card", self.cards[prefix]):
                unlink_object(place.name)
            said = self.verdicts[prefix]
            for thing in things:
                why = kept or self.messages.kept(thing, things, said.domain)
                why = why if not self.remove or os.path.lexists(SHM_DIR / thing.name) else ""
                yield Orphan(
                    thing.kind, str(SHM_DIR / thing.name), thing.bytes, max(0, self.now_ns - thing.written_ns),
                    said.domain, said.state == "gone", said.why, why,
                )  # fmt: skip

    def _hold(self, prefix: str) -> str:
        """Takes the card for this process alone; says why that is not possible."""
        place = SHM_DIR / f"{prefix}card"
        try:
            fd = open_regular(place, os.O_RDWR)
        except FileNotFoundError:
            if not self.remove or self._too_young(prefix):
                return ""
            return self._make(prefix, place)
        except (Error, OSError) as error:
            return f"its card cannot be opened: {text_of(error)}"
        return self._lock(prefix, place, fd)

    def _make(self, prefix: str, place: Path) -> str:
        """An empty card, to be locked."""
        try:
            fd = open_regular(place, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        except (Error, OSError) as error:
            return f"no card can be made for it: {text_of(error)}"
        self.made.add(prefix)
        return self._lock(prefix, place, fd)

    def _lock(self, prefix: str, place: Path, fd: int) -> str:
        if self.remove:
            self.stack.callback(os.close, fd)
            self.cards[prefix] = fd
        try:
            if not try_lock(fd, alone=True):
                return "a living process holds the domain's card"
            return "" if leads_to(place, fd) else "its card has been replaced just now"
        finally:
            if not self.remove:  # who only looks keeps nobody waiting
                os.close(fd)

    def _too_young(self, prefix: str) -> str:
        if self.older_ns is None:
            gone = self.verdicts[prefix].state == "gone"
            return "" if gone else "its domain is unknown (removed with --older-than AGE)"
        youngest = max(thing.written_ns for thing in self.groups[prefix])
        return "" if self.now_ns - youngest >= self.older_ns else "its domain has something younger"

    def _kept(self, prefix: str, things: list[Thing]) -> str:
        if (pid := self.users.get(prefix)) is not None:
            return f"process {pid} has something of its domain open"
        for path in self._files(things):
            try:
                if is_written(path):
                    return f"a process has {path} open"
            except FileNotFoundError:
                continue
            except (Error, OSError) as error:
                return f"whether a process has {path} open cannot be said: {text_of(error)}"
        return self._too_young(prefix)

    @staticmethod
    def _files(things: list[Thing]) -> Iterator[Path]:
        for thing in things:
            if thing.kind == "logs":
                yield from (path for path in (SHM_DIR / thing.name).rglob("*") if path.is_file())
            elif thing.kind != "card":  # its lock says it
                yield SHM_DIR / thing.name

    def _remove(self, prefix: str) -> str:
        """Says why it has ended early. ``users`` was asked under the lock, so who comes now waits for it."""
        place, fd = SHM_DIR / f"{prefix}card", self.cards[prefix]
        things = _listing(prefix).get(prefix, [])  # not those of the first look: some may be gone, or new
        for thing in sorted(things, key=lambda thing: ORDER.index(thing.kind)):
            if not leads_to(place, fd):
                return "another process has taken its domain's card"
            if _verdict(prefix, self.bases).state != self.verdicts[prefix].state:
                return "its domain's directory may be there again"
            if self.messages.kept(thing, things, self.verdicts[prefix].domain):
                continue
            if thing.kind == "logs":
                shutil.rmtree(SHM_DIR / thing.name)
            else:
                unlink_object(thing.name)
        return ""


# Whose it is ------------------------------------------------------------------------------------------------


def _listing(prefix: str = "") -> dict[str, list[Thing]]:
    """By prefix (this one alone, where one is given), what this user has in shared memory that looks like a
    domain's. Names that we do not make, links, FIFOs and what belongs to others are nothing of ours."""
    found: dict[str, list[Thing]] = {}
    uid = os.geteuid()
    with os.scandir(SHM_DIR) as entries:
        for entry in entries:
            named = NAME.fullmatch(entry.name) if entry.name.startswith(prefix) else None
            if named is None:
                continue
            with contextlib.suppress(FileNotFoundError):
                made, whose = entry.stat(follow_symlinks=False), named[1]
                if named[2] == "card":
                    if made.st_uid == uid and stat.S_ISREG(made.st_mode):
                        found.setdefault(whose, []).append(_thing(ObjectName(entry.name, b"", 0, "card"), made))
                elif (item := parse_object(whose, entry.name)) is not None and is_ours(item, made, uid):
                    found.setdefault(whose, []).append(_thing(item, made))
    return found


def _thing(item: ObjectName, made: os.stat_result) -> Thing:
    size, written_ns = made.st_blocks * 512, made.st_mtime_ns
    if item.kind == "logs":
        for path in (SHM_DIR / item.name).rglob("*"):
            with contextlib.suppress(FileNotFoundError):
                inside = os.stat(path, follow_symlinks=False)
                size, written_ns = size + inside.st_blocks * 512, max(written_ns, inside.st_mtime_ns)
    return Thing(item.kind, item.name, item.uuid, size, written_ns)


def _directories(places: Iterable[Path]) -> dict[str, Path]:
    """Prefix -> each directory of ours in one of these."""
    found: dict[str, Path] = {}
    for place in places:
        with contextlib.suppress(OSError), os.scandir(place) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        made = os.stat(entry.path, follow_symlinks=False)  # a mount point: of what is mounted
                        if made.st_uid == os.geteuid():
                            found[prefix_of(made.st_dev, made.st_ino)] = Path(os.path.realpath(entry.path))
    return found


def _verdict(prefix: str, bases: dict[str, Path]) -> _Verdict:
    if (path := bases.get(prefix)) is not None and _is_at(prefix, path):
        return _Verdict("claimed", str(path))
    try:
        card = _read(prefix)
    except FileNotFoundError:
        return _Verdict("unknown", "", "it has no card, as what 0.1 made, or who died at once")
    except (Error, OSError, ValueError, msgspec.MsgspecError) as error:
        return _Verdict("unknown", "", f"its card cannot be read: {text_of(error)}")
    path = Path(card.directory)
    if _is_at(prefix, path):
        return _Verdict("claimed", card.directory)
    if (moved := _directories([path.parent]).get(prefix)) is not None:
        return _Verdict("claimed", str(moved))
    if card.boot != boot_id() or not card.boot:
        return _Verdict("unknown", card.directory, "its card is of another boot")
    if card.namespace != mount_namespace():
        return _Verdict("unknown", card.directory, "its directory was seen in another mount namespace (a container)")
    return _absent(card, path)


def _is_at(prefix: str, path: Path) -> bool:
    try:
        made = os.stat(path)
    except OSError:
        return False
    return stat.S_ISDIR(made.st_mode) and prefix_of(made.st_dev, made.st_ino) == prefix


def _read(prefix: str) -> Card:
    """Raises Error, OSError, ValueError, MsgspecError."""
    fd = open_regular(SHM_DIR / f"{prefix}card", os.O_RDONLY)
    try:
        text = os.pread(fd, BYTES_MAX, 0)
    finally:
        os.close(fd)
    card = msgspec.json.decode(text, type=Card)
    if prefix_of(card.device, card.inode) != prefix:
        raise ValueError("it is of another domain")
    if not os.path.isabs(card.directory) or "\0" in card.directory:
        raise ValueError("it names no path")
    return card


def _absent(card: Card, path: Path) -> _Verdict:
    """The domain is not in its directory: is that proof?"""
    try:
        made = os.stat(path)
        device, why = made.st_dev, "another directory is in the place of its own"
    except FileNotFoundError:
        try:
            device, why = _nearest(path).st_dev, "its directory does not exist"
        except OSError as error:
            return _Verdict("unknown", card.directory, f"its directory cannot be looked at: {text_of(error)}")
    except OSError as error:
        return _Verdict("unknown", card.directory, f"its directory cannot be looked at: {text_of(error)}")
    if device != card.device:
        if path.is_relative_to(RUNTIME):
            return _Verdict(
                "gone", card.directory, "the file system that its directory was on has been unmounted for good"
            )
        return _Verdict("unknown", card.directory, "the file system that its directory was on is not mounted there")
    return _Verdict("gone", card.directory, why)


def _nearest(path: Path) -> os.stat_result:
    """Of the nearest directory above that is there. Raises OSError."""
    for parent in path.parents:
        with contextlib.suppress(FileNotFoundError):
            return os.stat(parent)
    raise FileNotFoundError(str(path))
