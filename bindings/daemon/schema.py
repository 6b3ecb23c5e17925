"""The table of elements as a RELAX NG schema, for editors and lxml: what ``holdfast store run --dump-schema``
prints."""

from __future__ import annotations

from xml.sax.saxutils import quoteattr

from .elements import ELEMENTS, ROOT, Element

__all__ = ["schema"]

_COUNTS = {"?": "optional", "*": "zeroOrMore", "+": "oneOrMore"}


def schema() -> str:
    """The schema, an XML document."""
    parts = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        '<grammar xmlns="http://relaxng.org/ns/structure/1.0">',
        f"  <start><ref name={quoteattr(ROOT)}/></start>",
    ]
    for tag, element in ELEMENTS.items():
        parts += [
            f"  <define name={quoteattr(tag)}>",
            f"    <element name={quoteattr(tag)}>",
            *(f"      {line}" for line in _contents(element)),
            "    </element>",
            "  </define>",
        ]
    return "\n".join([*parts, "</grammar>", ""])


def _contents(element: Element) -> list[str]:
    lines = [_attribute(name, element) for name in element.required]
    lines += [f"<optional>{_attribute(name, element)}</optional>" for name in element.optional]
    children = [_counted(f"<ref name={quoteattr(tag)}/>", count) for tag, count in element.children.items()]
    if element.text:
        space = "<choice><value>default</value><value>preserve</value></choice>"
        lines += [f'<optional><attribute name="xml:space">{space}</attribute></optional>', "<text/>"]
    elif len(children) > 1:
        lines += ["<interleave>", *(f"  {child}" for child in children), "</interleave>"]
    else:
        lines += children or ["<empty/>"]
    return lines


def _attribute(name: str, element: Element) -> str:
    words = element.words.get(name)
    said = "<text/>" if words is None else f"<choice>{''.join(f'<value>{word}</value>' for word in words)}</choice>"
    return f"<attribute name={quoteattr(name)}>{said}</attribute>"


def _counted(reference: str, count: str) -> str:
    wrapper = _COUNTS.get(count)
    return f"<{wrapper}>{reference}</{wrapper}>" if wrapper else reference
