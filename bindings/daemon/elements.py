"""The elements of UM's store configuration: what may be in what. One table, for the reader and for the
schema.

Source: docs/semantics.md I.1 (UM's DTD, version 1.3). UM wants the children of <store> and <topic> in one
order; here any order will do. What begins with ``holdfast-`` is ours.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["ELEMENTS", "ROOT", "Element"]

ROOT = "ume-store"


@dataclass(frozen=True, slots=True)
class Element:
    """One element. ``children``: tag -> how many: ``?``, ``*``, ``+`` or ``1``; ``words``: attribute -> what
    it may say."""

    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    children: dict[str, str] = field(default_factory=dict)
    text: bool = False
    words: dict[str, tuple[str, ...]] = field(default_factory=dict)


_TEXT = Element(text=True)
_ALLOW = Element(("allow",), words={"allow": ("0", "1")})

ELEMENTS: dict[str, Element] = {
    ROOT: Element(
        ("version",), children={"daemon": "?", "stores": "1"}, words={"version": ("1.0", "1.1", "1.2", "1.3")}
    ),
    "daemon": Element(
        children={
            "log": "?", "pidfile": "?", "uid": "?", "gid": "?", "lbm-config": "?", "xml-config": "?",
            "lbm-license-file": "?", "web-monitor": "?", "daemon-monitor": "?",
        }
    ),
    "log": Element(
        optional=("type", "frequency", "size", "holdfast-keep"),
        text=True,
        words={"type": ("file", "console"), "frequency": ("disable", "daily", "hourly", "test")},
    ),
    "pidfile": _TEXT,
    "uid": _TEXT,
    "gid": _TEXT,
    "lbm-config": _TEXT,
    "xml-config": Element(optional=("application-name",), text=True),
    "lbm-license-file": _TEXT,
    "web-monitor": _TEXT,
    "daemon-monitor": Element(
        optional=("topic",),
        children={
            "lbm-config": "?", "publishing-interval": "?", "remote-snapshot-request": "?",
            "remote-config-changes-request": "?",
        },
    ),
    "remote-snapshot-request": _ALLOW,
    "remote-config-changes-request": _ALLOW,
    "publishing-interval": Element(children={"group": "+"}),
    "group": Element(
        ("name", "ivl"), words={"name": ("default", "store", "source", "receiver", "disk", "config", "memory")}
    ),
    "stores": Element(children={"store": "+"}),
    "store": Element(
        ("name", "port"),
        ("interface",),
        {"restore-last": "?", "publishing-interval": "?", "ume-attributes": "+", "topics": "+"},
    ),
    "ume-attributes": Element(children={"option": "*"}),
    "option": Element(
        ("type", "name", "value"), words={"type": ("store", "lbm-context", "lbm-receiver", "lbm-source")}
    ),
    "topics": Element(children={"topic": "+"}),
    "topic": Element(
        ("pattern",),
        ("type",),
        {"restore-last": "?", "ume-attributes": "*"},
        words={"type": ("direct", "PCRE", "regexp")},
    ),
    "restore-last": Element(optional=("behavior", "value"), words={"behavior": ("hours", "none")}),
}  # fmt: skip
