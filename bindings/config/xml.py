"""UM's XML configuration file: templates, and applications with contexts, and topics with options.

What applies to an object is collected from the outside in: the application's templates, those of <contexts>
and of the <context> with its name, that context's options; for a source or receiver also the templates of
<sources>, <receivers> or <wildcard-receivers>, and the <topic> or <wildcard-receiver> with its templates and
options. A later value replaces an earlier one. Names count before patterns, and the first pattern that is
found in the topic counts. ``rule``, ``order``, <allow> and <deny> forbid objects and values.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..engine.options.table import CONTEXT, SOURCE, WILDCARD
from .section import Section
from .text import Word, near
from .tree import Node, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..engine.errors import ConfigError
    from ..engine.options.resolve import Layer
    from .text import Text

__all__ = ["XmlFile"]

ROOT = "um-configuration"
CHILDREN: dict[str, tuple[str, ...]] = {
    ROOT: ("license", "templates", "applications"),
    "templates": ("template",),
    "template": ("options",),
    "applications": ("application",),
    "application": ("contexts", "event-queues", "hfxs", "application-data"),
    "contexts": ("context",),
    "context": ("sources", "receivers", "wildcard-receivers", "options"),
    "sources": ("topic",),
    "receivers": ("topic",),
    "wildcard-receivers": ("wildcard-receiver",),
    "topic": ("options",),
    "wildcard-receiver": ("options",),
    "options": ("option", "application-data"),
    "option": ("allow", "deny"),
    "allow": (),
    "deny": (),
}
IGNORED = {"license", "event-queues", "hfxs", "application-data"}
"""Elements that nothing here uses, with all that is in them."""
_CONTAINER, _OBJECT = ("template", "order"), ("template", "rule")
ATTRIBUTES: dict[str, tuple[str, ...]] = {
    ROOT: ("version",),
    "template": ("name",),
    "application": ("name", "template"),
    "contexts": _CONTAINER,
    "context": ("name", *_OBJECT),
    "sources": _CONTAINER,
    "receivers": _CONTAINER,
    "wildcard-receivers": _CONTAINER,
    "topic": ("topicname", "pattern", *_OBJECT),
    "wildcard-receiver": ("pattern", "pattern-type", *_OBJECT),
    "options": ("type",),
    "option": ("name", "default-value", "order"),
}
REQUIRED = {ROOT: "version", "template": "name", "options": "type", "option": "name", "wildcard-receiver": "pattern"}
WORDS = {"version": ("1.0",), "order": ("deny,allow", "allow,deny"), "rule": ("allow", "deny")}


class XmlFile:
    """The part of a file for one application and one context of it.

    Raises:
        ConfigError: with file, line and column. Other applications of the file are checked for their
            structure only.
    """

    def __init__(self, text: Text, application: str | None, context: str | None) -> None:
        self._text = text
        self._context_name = context
        root = parse(text)
        if root.tag.text == "ume-store":
            raise text.error("this is the configuration of a store", root.tag, "give it to: holdfast store run")
        if root.tag.text != ROOT:
            raise text.error(f"the root is <{root.tag.text}>", root.tag, f"the root of a configuration is <{ROOT}>")
        self._check(root)
        self._templates = {
            template.attributes["name"].text: template
            for templates in root.named("templates")
            for template in templates.named("template")
        }
        self._application = self._choose(root, application)
        self.ignored = self._check_options()
        self._contexts, self._context = self._select(
            self._application.named("contexts"), f"a context named {context}" if context else "a context without a name",
            lambda node: node.value("name") == context,
        )  # fmt: skip

    def layers(self, scope: str, name: str | None = None, *, wildcard: bool = False) -> list[Layer]:
        """As `engine.options.Defaults`."""
        chain = [self._application, self._contexts, self._context]
        if scope != CONTEXT and name is not None and self._context is not None:
            kind = "wildcard-receivers" if wildcard else "sources" if scope == SOURCE else "receivers"
            chain += self._for_topic(self._context.named(kind), scope, name, wildcard)
        section = Section(self._text)
        for node in chain:
            if node is not None:
                self._apply(section, node)
        return [section.layer(kind) for kind in ((WILDCARD, scope) if wildcard else (scope,))]

    def _for_topic(
        self, containers: list[Node], scope: str, name: str, wildcard: bool
    ) -> tuple[Node | None, Node | None]:
        if wildcard:
            return self._select(containers, f"a receiver of pattern {name}", lambda node: node.value("pattern") == name)

        def matches(node: Node) -> bool:
            exact, pattern = node.value("topicname"), node.value("pattern")
            if exact is None and pattern is None:
                return True
            return exact == name or (pattern is not None and re.search(pattern, name) is not None)

        return self._select(
            containers, f"a {scope} of topic {name}", matches, lambda node: node.value("topicname") == name
        )

    def _select(
        self,
        containers: list[Node],
        what: str,
        matches: Callable[[Node], bool],
        better: Callable[[Node], bool] = lambda _: False,
    ) -> tuple[Node | None, Node | None]:
        """The container and the element for an object: the first that is ``better``, else the first that
        matches.

        Raises:
            ConfigError: the file forbids the object: the last element that matches says so, or the
                container's order.
        """
        if not containers:
            return None, None
        found = [(container, node) for container in containers for node in container.children if matches(node)]
        if not found:
            container = containers[0]
            if container.value("order") == "allow,deny":
                raise self._text.error(f"{what} is forbidden: none of those here is allowed for it", container.tag)
            return container, None
        last = found[-1][1]
        if last.value("rule") == "deny":
            raise self._text.error(f"{what} is forbidden", last.attributes["rule"])
        return next(((container, node) for container, node in found if better(node)), found[0])

    # Options ------------------------------------------------------------------------------------------------

    def _apply(self, section: Section, node: Node) -> None:
        """A node's templates, then its own options."""
        for template in self._templates_of(node):
            self._apply_options(section, template)
        self._apply_options(section, node)
        kind = node.attributes.get("pattern-type")
        if kind is not None:
            section.apply(Word(WILDCARD, *kind[1:]), Word("pattern_type", *kind[1:]), kind)

    def _templates_of(self, node: Node) -> Iterable[Node]:
        word = node.attributes.get("template")
        for name in (part.strip() for part in word.text.split(",")) if word is not None else ():
            template = self._templates.get(name)
            if template is None:
                assert word is not None
                raise self._text.error(f"there is no template {name!r}", word, near(name, self._templates))
            yield template

    def _apply_options(self, section: Section, node: Node) -> None:
        for options in node.named("options"):
            scope = options.attributes["type"]
            for option in options.named("option"):
                name, value, order = (
                    option.attributes["name"],
                    option.attributes.get("default-value"),
                    option.value("order"),
                )
                if value is not None:
                    section.apply(scope, name, value)
                clauses = [
                    (clause.tag.text == "allow", Word(clause.text, *clause.tag[1:])) for clause in option.children
                ]
                if clauses or order is not None or value is None:
                    section.restrict(scope, name, None if order is None else order == "deny,allow", clauses)

    def _check_options(self) -> dict[str, None]:
        """Every option of this application and of the templates that it uses, so that a mistake is found at
        once."""
        ignored: dict[str, None] = {}
        for node in self._application.walk():
            section = Section(self._text)
            self._apply(section, node)
            ignored |= section.ignored
        return ignored

    # Structure ----------------------------------------------------------------------------------------------

    def _check(self, node: Node) -> None:
        """Refuses what UM's format does not have, and drops what nothing here uses."""
        tag = node.tag.text
        allowed = ATTRIBUTES.get(tag, ())
        for name, word in node.attributes.items():
            if name not in allowed:
                raise self._text.error(f"<{tag}> has no attribute {name}", word, near(name, allowed))
            words = WORDS.get(name)
            if words is not None and word.text not in words:
                raise self._text.error(f"{name} = {word.text!r}: expected {' or '.join(words)}", word)
        required = REQUIRED.get(tag)
        if required is not None and required not in node.attributes:
            raise self._text.error(f"<{tag}> lacks its attribute {required}", node.tag)
        if tag == "topic" and "pattern" in node.attributes:
            self._check_pattern(node.attributes["pattern"])
        for child in node.children:
            known = child.tag.text
            if known not in CHILDREN[tag]:
                raise self._text.error(f"<{known}> is no part of <{tag}>", child.tag, near(known, CHILDREN[tag]))
        node.children = [child for child in node.children if child.tag.text not in IGNORED]
        for child in node.children:
            self._check(child)

    def _check_pattern(self, pattern: Word) -> None:
        try:
            re.compile(pattern.text)
        except (re.error, OverflowError, RecursionError) as error:
            raise self._text.error(f"pattern {pattern.text!r}: {error}", pattern, "a regular expression") from None

    def _choose(self, root: Node, name: str | None) -> Node:
        """The application with this name. UM takes the one without a name for programs without one, and for
        no other."""
        applications = [one for group in root.named("applications") for one in group.named("application")]
        for one in applications:
            if one.value("name") == name:
                return one
        named = [known for one in applications if (known := one.value("name")) is not None]
        raise self._no_application(root, name, named)

    def _no_application(self, root: Node, name: str | None, named: list[str]) -> ConfigError:
        wanted = "without a name" if name is None else repr(name)
        hint = f"application= one of: {', '.join(named)}" if named else None
        return self._text.error(f"there is no application {wanted} in this file", root.tag, hint)
