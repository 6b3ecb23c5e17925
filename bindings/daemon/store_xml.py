"""UM's umestored XML file: what it says, and everything that is wrong with it, all at once.

Elements and attributes are checked by the table in elements.py, values by the tables of the options. What has
no meaning on one host is accepted, with one warning that says why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..config.text import Word, near, read
from ..config.tree import Node, parse
from .config import DaemonConfig, LogConfig
from .elements import ELEMENTS, ROOT
from .stores_xml import StoresReader, number

if TYPE_CHECKING:
    import os

    from ..config.text import Text
    from ..engine.errors import ConfigError

__all__ = ["StoreFile", "read_store_file"]

_NOT_OPENED = "the file is not opened: a store opens no socket and asks no network, so it has no options of a context"
NOT_HERE = {
    "lbm-config": _NOT_OPENED,
    "xml-config": _NOT_OPENED,
    "lbm-license-file": "there is no licence to check",
    "web-monitor": "there are no web pages: holdfast stat shows what they showed",
    "daemon-monitor": "nothing is published: holdfast stat reads it from shared memory, at any time",
    "publishing-interval": "nothing is published: holdfast stat reads it from shared memory, at any time",
}
"""Elements without a meaning, and why."""
LOG_MAX = 2**31 - 1
"""Millions of bytes of a log file, and rolled files that are kept."""
ID_MAX = 2**32 - 2
"""Of users and groups: the last one means "unchanged" to the kernel."""


def read_store_file(path: str | os.PathLike[str], domain: str | None = None) -> DaemonConfig:
    """What the file says.

    Raises:
        ConfigError: the first of its mistakes; its hint says how many more there are.
    """
    file = StoreFile(read(path), domain)
    if not file.errors:
        return file.config
    first = file.errors[0]
    if len(file.errors) > 1:
        more = f"{len(file.errors) - 1} more: holdfast store run --validate {file.name} lists them"
        first.hint = f"{first.hint}; {more}" if first.hint else more
    raise first


class StoreFile:
    """One file. ``errors``: all mistakes, in the order of lines; ``config`` is what is left, and true where
    there are none.

    Raises:
        ConfigError: it is not XML, has a document type or inclusions, or is another kind of file.
    """

    def __init__(self, text: Text, domain: str | None = None) -> None:
        self.name = text.name
        self._text = text
        self.errors: list[ConfigError] = []
        self._warnings: list[str] = []
        root = parse(text)
        if root.tag.text != ROOT:
            hint = f"the root of a store's configuration is <{ROOT}>"
            if root.tag.text == "um-configuration":
                hint = "this is the configuration of an application: give it to Context(config=...)"
            raise text.error(f"the root is <{root.tag.text}>", root.tag, hint)
        self._check(root)
        stores = StoresReader(text, domain, self.refuse, self._warnings.append)
        for node in (store for group in root.named("stores") for store in group.named("store")):
            stores.read(node)
        self._warn_of_elements(root)
        self.config = self._read(next(iter(root.named("daemon")), None), stores)
        self.errors.sort(key=lambda error: (error.line or 0, error.column or 0))

    def refuse(self, message: str, place: Word, hint: str | None = None) -> None:
        """One more mistake."""
        self.errors.append(self._text.error(message, place, hint))

    # Structure ----------------------------------------------------------------------------------------------

    def _check(self, node: Node) -> None:
        """What the table does not have is told and taken out, so that what comes after sees proper elements
        only."""
        tag = node.tag.text
        element = ELEMENTS[tag]
        known = (*element.required, *element.optional)
        given = dict(node.attributes)
        for name, word in given.items():
            if name not in known:
                self.refuse(f"<{tag}> has no attribute {name}", word, near(name, known))
                del node.attributes[name]
            elif name in element.words and word.text not in element.words[name]:
                self.refuse(f"{name} = {word.text!r}: expected {' or '.join(element.words[name])}", word)
                del node.attributes[name]
        for name in element.required:
            if name not in given:
                self.refuse(f"<{tag}> lacks its attribute {name}", node.tag)
        if node.text.strip() and not element.text:
            self.refuse(f"<{tag}> contains text", node.tag, "only elements belong there")
        self._check_children(node)

    def _check_children(self, node: Node) -> None:
        tag, counts = node.tag.text, ELEMENTS[node.tag.text].children
        for child in list(node.children):
            if child.tag.text not in counts:
                self.refuse(f"<{child.tag.text}> is no part of <{tag}>", child.tag, near(child.tag.text, counts))
                node.children.remove(child)
        for name, count in counts.items():
            found = node.named(name)
            if not found and count in "1+":
                self.refuse(f"<{tag}> lacks <{name}>", node.tag)
            for another in found[1:] if count in "1?" else []:
                self.refuse(f"<{tag}> has <{name}> twice", another.tag)
                node.children.remove(another)
        for child in node.children:
            self._check(child)

    def _warn_of_elements(self, root: Node) -> None:
        seen: dict[str, list[int]] = {}
        for node in root.walk():
            if node.tag.text in NOT_HERE:
                seen.setdefault(node.tag.text, []).append(node.tag.line)
        for tag, lines in seen.items():
            self._warnings.append(f"{self.name}:{lines[0]}: <{tag}> has no effect: {NOT_HERE[tag]}")

    # The daemon ---------------------------------------------------------------------------------------------

    def _read(self, daemon: Node | None, stores: StoresReader) -> DaemonConfig:
        def child(tag: str) -> Node | None:
            return next(iter(daemon.named(tag)), None) if daemon is not None else None

        log, pidfile = child("log"), child("pidfile")
        return DaemonConfig(
            tuple(stores.stores),
            self._log(log) if log is not None else LogConfig(),
            self._path(pidfile) if pidfile is not None else None,
            self._id(child("uid")),
            self._id(child("gid")),
            tuple(self._warnings),
        )

    def _log(self, node: Node) -> LogConfig:
        path, usual = None, LogConfig()
        if node.value("type") == "file":
            path = self._path(node)
        elif node.text:
            self._warnings.append(f"{self.name}:{node.tag.line}: <log> names a file and is not of type file: no effect")
        return LogConfig(
            path,
            self._number(node, "size", usual.size),
            node.value("frequency") or usual.frequency,
            self._number(node, "holdfast-keep", usual.keep),
        )

    def _number(self, node: Node, attribute: str, default: int) -> int:
        word = node.attributes.get(attribute)
        return default if word is None else number(word, f"{attribute} of <{node.tag.text}>", LOG_MAX, self.refuse)

    def _path(self, node: Node) -> str | None:
        if not node.text:
            self.refuse(f"<{node.tag.text}> is empty", node.tag, "it names a file")
            return None
        return node.text

    def _id(self, node: Node | None) -> int | None:
        if node is None:
            return None
        return number(Word(node.text, *node.tag[1:]), f"<{node.tag.text}>", ID_MAX, self.refuse)
