"""What a census proves of a store that does not answer: that it has never granted a source (docs/design.md
15). Pure.

A store writes the key of each source into its census, a file of its own, before it first grants it
(engine/log/census.py). It begins a census with all keys of its state, and removes none. So a whole census
that lacks a source proves that the store, if it answered, would know nothing of it. What has to be shown is
that the file which was read is the one that the store writes, and that nobody has set it back:

* who answers keeps a census in the directory that was read, so the store that is away would do so, too;
* the file says of itself which file it is, so it is no copy;
* a census only grows. How long it was, its mark, is remembered by whom a BEGIN has told it
  (:func:`remember`), and by the store's info file. It is never shorter, and it is the same one;
* a store that could not write it has said so to the same ones.

Where there is no file, nobody must remember one, and nothing else of the store must be there. What the
host's register of sources says goes first: who took part by that is not proved. Unknown is never taken for
empty: what could not be read proves nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

__all__ = [
    "BEFORE_MAX", "CENSUSES_MAX", "MORE", "NOWHERE", "TROUBLE", "Found", "Identity", "Mark", "Remembered", "Told", "doubt",
    "goes_on", "remember",
]  # fmt: skip

CENSUSES_MAX = 64
"""Stores whose marks a store remembers; that there were more, it remembers, too."""
MORE = ""
"""Instead of a name: of a store that is not among them nobody knows what was known."""
BEFORE_MAX = 8
"""Earlier censuses of one store that are remembered."""

Identity = tuple[int, int, int]
"""Of a file or a directory: inode, file system, and when it was made (csrc/base/birth.h)."""
NOWHERE: Identity = (0, 0, 0)


class Mark(NamedTuple):
    """How far a census went."""

    id: bytes
    """Random, and another one for each census that a store begins; empty: :data:`TROUBLE`."""
    lines: int


TROUBLE = Mark(b"", 0)
"""The store could not write its census, or has none: what it grants is nowhere in it."""


class Remembered(NamedTuple):
    """What a store remembers of another one's census."""

    id: bytes
    lines: int
    """These two: the last mark that it was told."""
    before: tuple[bytes, ...] = ()
    """Earlier ones, the newest last: a BEGIN that was long on its way brings none of them back."""


class Told(NamedTuple):
    """What a store says with its grant."""

    mark: Mark
    directory: Identity
    """Where it keeps its census."""
    others: Mapping[str, Mark]
    """What it remembers of other stores, by their own names."""
    forgot: bool
    """Its census has this source, and its state has not: it has had it once."""
    lost: bool = False
    """Its own census was gone once, so others may be, too."""


class Found(NamedTuple):
    """What was found of the census of a store that did not answer."""

    name: str
    """The store's own, as far as it is known."""
    directory: Identity = NOWHERE
    """In which it was looked for."""
    why: str = ""
    """It could not be read, is damaged, or is not that store's."""
    mark: Mark | None = None
    """None: there is no file."""
    lists: bool = False
    """It has a key of the source."""
    info: Mark | None = None
    """What the store's info file says; TROUBLE: nothing of a census. None: there is no such file."""


def goes_on(mark: Mark, known: Mark) -> bool:
    """A census that was at ``known`` may have come to ``mark``."""
    return mark.id == known.id and mark.lines >= known.lines


def remember(known: Mapping[str, Remembered], told: Mapping[str, Mark]) -> dict[str, Remembered]:
    """What is remembered once a BEGIN has ``told`` this."""
    found = dict(known)
    for name, mark in told.items():
        last = found.get(name)
        if last is None:
            name = name if len(found) < CENSUSES_MAX else MORE
            found[name] = Remembered(*(mark if name else TROUBLE))
        elif mark.id == last.id:
            found[name] = last._replace(lines=max(mark.lines, last.lines))
        elif mark.id not in last.before:
            before = (*last.before, last.id)[-BEFORE_MAX:] if last.id else last.before
            found[name] = Remembered(*mark, before)
    return found


def doubt(found: Found, answers: Mapping[str, Told | None], took_part: Collection[str]) -> str:
    """Why ``found`` does not prove that its store has never granted the source; empty: it does.

    ``answers``: what the stores say that have answered, by name; None: of an older version. None of them has
    begun with the source. ``took_part``: stores that did once, as this host's register has it.
    """
    if found.why:
        return found.why
    for store, told in answers.items():
        if told is None or told.mark == TROUBLE:
            return f"{store} keeps no census of its sources"
        if told.directory != found.directory:
            return f"{store} keeps its census in another directory than is read here"
        if told.forgot:
            return f"{store} has had this source, and has forgotten it, or it was deregistered there"
    if found.name in took_part:
        return "it has taken part, or was to, as the register of sources says"
    known = [mark for told in answers.values() if told is not None and (mark := _of(told, found.name)) is not None]
    known += [found.info] if found.info is not None else []
    if TROUBLE in known:
        return "it could not write its census once, or it keeps none"
    if found.mark is None:
        if known or any(told is not None and told.lost for told in answers.values()):
            return "its census is gone, or another one was"
        return ""
    if found.lists:
        return "it has granted this source once, as its census says"
    return "" if all(goes_on(found.mark, mark) for mark in known) else "its census has been set back, or is another one"


def _of(told: Told, name: str) -> Mark | None:
    known = told.others.get(name)
    return known if known is not None or MORE not in told.others else TROUBLE
