"""What the verbs print: lines, and JSON, in which nothing is that a terminal would obey
(engine/printable.py)."""

from __future__ import annotations

import sys

from ..engine.printable import json_text, printable

__all__ = ["say", "say_json"]


def say(line: str, *, error: bool = False) -> None:
    """One line."""
    print(printable(line), file=sys.stderr if error else sys.stdout)


def say_json(value: object, *, indent: bool = False) -> None:
    """One line, or several with ``indent``."""
    import msgspec

    encoded = msgspec.json.encode(value)
    sys.stdout.write(json_text(msgspec.json.format(encoded, indent=2) if indent else encoded) + "\n")
