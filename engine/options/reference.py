"""The option table as Markdown: the section "Options" of bindings/README.md, which `make generate` writes."""

from __future__ import annotations

from .resolve import Options, resolve
from .table import CONTEXT, RECEIVER, ROWS, SOURCE, STORE, Option

__all__ = ["reference"]

HEADINGS = {CONTEXT: "Context", SOURCE: "Source", RECEIVER: "Receiver", STORE: "Store"}
HEAD = "| option | unit | default | meaning |\n|---|---|---|---|"


def reference() -> str:
    """One table per scope, in the order of the option table, with the defaults that are in force when nothing
    is given."""
    return "\n\n".join(f"### {heading}\n\n{HEAD}\n{_rows(scope)}" for scope, heading in HEADINGS.items())


def _rows(scope: str) -> str:
    view = resolve(scope, {})
    return "\n".join(
        f"| `{row.name}` | {row.unit} | {_default(view, row)} | {_meaning(row)} |"
        for row in ROWS
        if scope in row.scopes
    )


def _default(view: Options, row: Option) -> str:
    value = getattr(view, row.attribute)
    if value is None or value == ():
        return "–"
    return f"`{int(value) if isinstance(value, bool) else value}`"


def _meaning(row: Option) -> str:
    """The doc, the words it may be, and its other names."""
    parts = [row.doc.replace("|", "\\|")]
    if row.choices:
        parts.append("one of " + ", ".join(f"`{choice}`" for choice in row.choices))
    if row.aliases:
        parts.append("also " + ", ".join(f"`{alias}`" for alias in row.aliases))
    return "; ".join(parts)
