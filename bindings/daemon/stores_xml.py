"""The <store> elements of UM's umestored XML file: each becomes a StoreConfig."""

from __future__ import annotations

import contextlib
import ipaddress
from typing import TYPE_CHECKING

from ..engine.errors import ConfigError
from ..engine.options.resolve import check_value, find
from ..engine.options.store_config import StoreConfig
from ..engine.options.store_names import PORT_MAX, check_name, is_store_name, port_name
from ..engine.options.table import BY_ANY_NAME, CONTEXT, RECEIVER, SOURCE, STORE
from ..engine.options.topic_rules import RESTORE_HOURS_MAX, TopicOptions, Topics
from ..engine.options.unsupported import REMOVED, has_no_effect

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..config.text import Text, Word
    from ..config.tree import Node

    Refuse = Callable[..., None]

__all__ = ["StoresReader", "number"]

DEFAULT_TYPE = "memory"
"""UM's repository-type of a topic that says nothing."""
CONTEXT_NAME, STATE, CACHE = "context-name", "disk-state-directory", "disk-cache-directory"
DIRECTORIES = {STATE: "umestored-state", CACHE: "umestored-cache"}
"""UM's defaults, below the directory that the daemon is started in."""
PATH_MAX = 230
SCOPES = {"lbm-context": CONTEXT, "lbm-receiver": RECEIVER, "lbm-source": SOURCE}
"""Types of options that UM's store hands on to what it receives with; in <store> the first, in <topic> the
others."""
RESTORE_ALL = 0


class StoresReader:
    """Collects ``stores``; tells ``refuse`` of mistakes and ``warn`` of what has no effect."""

    def __init__(self, text: Text, domain: str | None, refuse: Refuse, warn: Callable[[str], None]) -> None:
        self.stores: list[StoreConfig] = []
        self._read = 0
        self._file = text.name
        self._domain = domain
        self._refuse = refuse
        self._warn = warn
        self._taken: dict[tuple[str, str], tuple[int, int]] = {}
        """What only one store may have -> index of the one that has it, and the line that says so."""

    def read(self, node: Node) -> None:
        """One <store>."""
        known: dict[str, Word] = {}
        ignored: dict[str, str] = {}
        options = self._options(node, ("store", "lbm-context"), known, ignored)
        label, port = node.value("name") or "", self._port(node)
        self._check_interface(node)
        name = self._name(node, known.get(CONTEXT_NAME), port)
        restore = self._restore(node, RESTORE_ALL)
        topics = [
            self._topic(topic, options, restore, ignored)
            for group in node.named("topics")
            for topic in group.named("topic")
        ]
        for option, why in ignored.items():
            self._warn(f"{self._file}:{node.tag.line}: store {label}: {option}: {why}")
        uses_disk = any(
            topic.options.get("repository-type", options.get("repository-type")) == "disk" for topic in topics
        )
        state, cache = self._path(known, STATE), self._path(known, CACHE) if uses_disk or CACHE in known else None
        self._claim("port", str(port or ""), node.attributes.get("port", node.tag))
        self._claim("context-name", name, known.get(CONTEXT_NAME, node.tag))
        self._claim(STATE, state, known.get(STATE, node.tag))
        self._claim(CACHE, cache or "", known.get(CACHE, node.tag))
        aliases = (label,) if is_store_name(label) and label != name else ()
        self._read += 1
        with contextlib.suppress(ConfigError):  # a name or a path that no store can have was told at its place
            self.stores.append(
                StoreConfig(
                    name, state, self._domain, DEFAULT_TYPE, None, port, options, tuple(topics), aliases,
                    cache if cache != state else None,
                )
            )  # fmt: skip

    def _claim(self, what: str, value: str, place: Word) -> None:
        if not value:
            return
        index, line = self._taken.setdefault((what, value), (self._read, place.line))
        if index != self._read:
            hint = "each store has its own"
            self._refuse(f"{what} {value!r} belongs to the store of line {line} as well", place, hint)

    # What the store is called -------------------------------------------------------------------------------

    def _port(self, node: Node) -> int | None:
        word = node.attributes.get("port")
        return (number(word, "port", PORT_MAX, self._refuse) or None) if word is not None else None

    def _name(self, node: Node, word: Word | None, port: int | None) -> str:
        if word is not None:
            try:
                check_name(word.text)
            except ConfigError as error:
                self._refuse(f"{CONTEXT_NAME}: {error.args[0]}", word, error.hint)
            return word.text
        if (node.value("port") or "1").strip(" 0") == "":  # it takes a port itself, in UM; what is needed is a name
            label = node.value("name") or ""
            if is_store_name(label):
                return label
            self._refuse(
                f"the store has no name that a source could write: port 0, no context-name, and {label!r} is none", node.tag,
                hint=f"a port, a {CONTEXT_NAME}, or as name letters, digits and _ . + -",
            )  # fmt: skip
        return port_name(port) if port is not None else ""

    def _check_interface(self, node: Node) -> None:
        word = node.attributes.get("interface")
        if word is None or word.text in {"", "*", "0.0.0.0", "localhost"}:
            return
        try:
            local = ipaddress.ip_interface(word.text).is_loopback
        except ValueError:
            local = False
        if not local:
            self._refuse(
                f"interface = {word.text!r}: expected a loopback address, or 0.0.0.0", word,
                "sources and stores share the memory of one host: leave it out",
            )  # fmt: skip

    def _path(self, known: dict[str, Word], option: str) -> str:
        word = known.get(option)
        if word is None:
            return DIRECTORIES[option]
        if not 1 <= len(word.text) <= PATH_MAX:
            self._refuse(f"{option} has {len(word.text)} characters: expected 1 to {PATH_MAX}", word)
        return word.text

    # Options ------------------------------------------------------------------------------------------------

    def _options(
        self, node: Node, types: tuple[str, ...], known: dict[str, Word], ignored: dict[str, str]
    ) -> dict[str, object]:
        """Options of a store or a topic, by name. ``known`` takes those that are not options here, but what
        the store is."""
        found: dict[str, object] = {}
        for option in (one for group in node.named("ume-attributes") for one in group.named("option")):
            kind, name, value = (option.attributes.get(part) for part in ("type", "name", "value"))
            if kind is None or name is None or value is None:
                continue  # told already
            if kind.text not in types:
                hint = f"one of {', '.join(types)}"
                self._refuse(f"options of type {kind.text} do not belong to a <{node.tag.text}>", kind, hint)
            elif kind.text != STORE:
                self._hand_on(SCOPES[kind.text], name, ignored)
            elif name.text in {CONTEXT_NAME, *DIRECTORIES} and node.tag.text == STORE:
                known[name.text] = value
            else:
                self._take(name, value, found, ignored)
        return found

    def _take(self, name: Word, value: Word, found: dict[str, object], ignored: dict[str, str]) -> None:
        try:
            row = find(STORE, name.text)
        except ConfigError as error:
            self._refuse(str(error.args[0]), name, error.hint)
            return
        try:
            found[row.name] = check_value(STORE, row, value.text)
        except ConfigError as error:
            self._refuse(str(error.args[0]), value, error.hint)
        if row.doc.startswith("no effect"):
            ignored[row.name] = row.doc

    def _hand_on(self, scope: str, name: Word, ignored: dict[str, str]) -> None:
        """Options of what UM's store receives with: there is no such thing here, but they must exist."""
        row = BY_ANY_NAME.get(name.text)
        if (row is not None and scope in row.scopes) or name.text in REMOVED or has_no_effect(name.text):
            ignored[name.text] = f"no effect: a store has no {scope} of its own, it reads the sources' memory"
            return
        try:
            find(scope, name.text)
        except ConfigError as error:
            self._refuse(str(error.args[0]), name, error.hint)

    # Topics -------------------------------------------------------------------------------------------------

    def _topic(
        self, node: Node, inherited: dict[str, object], restore: int | None, ignored: dict[str, str]
    ) -> TopicOptions:
        options = self._options(node, ("store", "lbm-receiver", "lbm-source"), {}, ignored)
        topic = TopicOptions(
            node.value("pattern") or "", node.value("type") or "direct", options, self._restore(node, restore)
        )
        try:
            Topics(DEFAULT_TYPE, None, inherited, [topic])
        except ConfigError as error:
            if "pattern" in node.attributes:
                self._refuse(str(error.args[0]), node.attributes["pattern"], error.hint)
        return topic

    def _restore(self, node: Node, inherited: int | None) -> int | None:
        """Hours of the store's or topic's <restore-last>."""
        for said in node.named("restore-last"):
            word = said.attributes.get("value")
            hours = 0 if word is None else number(word, "value of <restore-last>", RESTORE_HOURS_MAX, self._refuse)
            return None if said.value("behavior") == "none" else hours
        return inherited


def number(word: Word, what: str, maximum: int, refuse: Callable[[str, Word], None]) -> int:
    """A number from 0; 0 and a mistake for anything else."""
    text = word.text.strip()
    if text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= maximum:
        return int(text)
    refuse(f"{what} = {word.text!r}: expected a number from 0 to {maximum}", word)
    return 0
