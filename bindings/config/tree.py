"""An XML file as a tree of nodes that know their place.

lxml judges whether it is XML. It is told nothing but UTF-8 text without a document type: so there are no
entities to expand or to fetch, no DTD, and no network. It does not say where attributes stand, so the start
tags are found again in the text: what lxml has accepted has them in the order of its elements.
"""

from __future__ import annotations

import bisect
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..engine.errors import ConfigError
from .text import Word

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .text import Text

__all__ = ["Node", "parse"]

XINCLUDE = "{http://www.w3.org/2001/XInclude}"
SPACE = "{http://www.w3.org/XML/1998/namespace}space"
ATTRIBUTES_MAX = 50
"""Of one element. lxml takes quadratic time to list them."""

_TAG = re.compile(
    r"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>|</[^>]*+>"
    r"|<(?P<name>[^\s/>!?]++)(?P<rest>(?:[^>\"']++|\"[^\"]*+\"|'[^']*+')*+)>",
    re.DOTALL,
)
_ATTRIBUTE = re.compile(r"""([^\s=/]++)\s*+=\s*+("[^"]*+"|'[^']*+')""")
_PROLOG = re.compile(r"\s++|<\?.*?\?>|<!--.*?-->", re.DOTALL)


@dataclass(slots=True)
class Node:
    """An element: tag and attributes with their places, its text without white space at its ends, unless
    xml:space keeps it."""

    tag: Word
    attributes: dict[str, Word]
    text: str
    children: list[Node] = field(default_factory=list)

    def named(self, tag: str) -> list[Node]:
        """Children with this tag."""
        return [child for child in self.children if child.tag.text == tag]

    def value(self, attribute: str) -> str | None:
        """An attribute's value, or None."""
        word = self.attributes.get(attribute)
        return word.text if word is not None else None

    def walk(self) -> Iterator[Node]:
        """This node and everything below."""
        yield self
        for child in self.children:
            yield from child.walk()


def parse(text: Text) -> Node:
    """The root.

    Raises:
        ConfigError: not XML, or it has a document type or an inclusion; or lxml is not installed.
    """
    etree = _etree(text)
    _refuse_document_type(text)
    parser = etree.XMLParser(
        encoding="utf-8",
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
    )
    try:
        root = etree.fromstring(text.contents.encode(), parser)
    except etree.XMLSyntaxError as error:
        line = error.lineno or 1
        column = min(max(error.offset or 1, 1), len(text.lines[line - 1]) + 1 if line <= len(text.lines) else 1)
        message = " ".join(str(error.msg).partition(", line ")[0].split())  # without its own place and line ends
        raise text.error(f"this is not XML: {message}", Word("", line, column)) from None
    return _with_places(text, root)


def _etree(text: Text) -> Any:
    try:
        from lxml import etree
    except ModuleNotFoundError as missing:
        hint = "pip install 'holdfast[cli]', or use a flat file"
        raise ConfigError("an XML configuration needs lxml", text.name, hint=hint) from missing
    return etree


def _refuse_document_type(text: Text) -> None:
    """It can only stand in front of the root."""
    at = 0
    while (match := _PROLOG.match(text.contents, at)) is not None:
        at = match.end()
    if text.contents.startswith("<!", at) and not text.contents.startswith("<!--", at):
        line = text.contents.count("\n", 0, at) + 1
        column = at - (text.contents.rfind("\n", 0, at) + 1) + 1
        message = "a document type (DTD) is not read, nor its entities"
        raise text.error(message, Word("", line, column), "leave <!DOCTYPE ...> out")


def _with_places(text: Text, root: Any) -> Node:
    starts = [0, *(match.end() for match in re.finditer("\n", text.contents))]

    def word(value: str, at: int) -> Word:
        line = bisect.bisect_right(starts, at)
        return Word(value, line, at - starts[line - 1] + 1)

    nodes: dict[Any, Node] = {}
    tags = (match for match in _TAG.finditer(text.contents) if match["name"] is not None)
    for element, match in zip(root.iter("*"), tags, strict=True):
        rest = match.start("rest")
        places = {found[1]: rest + found.start(2) + 1 for found in _ATTRIBUTE.finditer(match["rest"])}
        tag = word(str(element.tag), match.start("name"))
        if tag.text.startswith(XINCLUDE):
            raise text.error("other files are not included", tag, "put what they contain here")
        if len(element.attrib) > ATTRIBUTES_MAX:
            raise text.error(f"more than {ATTRIBUTES_MAX} attributes", tag)
        # Those of a namespace (xsi:...) mean nothing here, except for xml:space.
        attributes = {name: word(value, places[name]) for name, value in element.attrib.items() if name in places}
        said = element.text or ""
        node = nodes[element] = Node(tag, attributes, said if element.get(SPACE) == "preserve" else said.strip())
        parent = element.getparent()
        if parent is not None:
            nodes[parent].children.append(node)
    return nodes[root]
