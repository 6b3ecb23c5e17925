"""Text of others, made fit to be shown: names and topics are data, and may hold what a terminal obeys or what
turns lines around.

What a terminal, a log or an error shows is escaped as ``repr`` does it: control characters, those that change
the direction of text, line separators, whatever does not show. Data stays as it is, in JSON as everywhere:
there the same characters are written as JSON's own escapes, which decode to what they were.
"""

from __future__ import annotations

import logging
import re

__all__ = ["LOGGERS", "cut", "json_text", "printable"]

LOGGERS = ("holdfast", "holdfast.source", "holdfast.store", "holdfast.daemon")
"""All that this package logs to."""
_BEYOND = re.compile(r"[^\x00-\x7e]")


def printable(text: str) -> str:
    """``text`` in one line, without anything that does not show."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii") for letter in text
    )


def cut(text: str, size: int) -> str:
    """At most ``size`` bytes of it: the beginning, which names a file or a store, and the end, which says why
    or what helps."""
    data = text.encode(errors="backslashreplace")  # a path may have bytes that are no text
    if len(data) <= size:
        return data.decode()
    left = (size - len("…".encode())) // 2
    return f"{data[:left].decode(errors='ignore')}…{data[-left:].decode(errors='ignore')}"


def json_text(encoded: bytes) -> str:
    """JSON that msgspec has encoded, without anything that does not show; it decodes to the same."""
    text = encoded.decode()
    if text.isascii() and "\x7f" not in text:  # those below the blank are escaped already
        return text
    return _BEYOND.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    letter = found[0]
    if letter.isprintable():
        return letter
    units = letter.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


class _Escaping(logging.Filter):
    """One record is one line: no topic forges another one."""

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if not text.isprintable():
            record.msg, record.args = printable(text), ()
        return True


for _name in LOGGERS:
    logging.getLogger(_name).addFilter(_Escaping())
