"""The text of a configuration file: read with care, and errors that point into it."""

from __future__ import annotations

import difflib
import os
from typing import TYPE_CHECKING, NamedTuple

from ..engine.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["BYTES_MAX", "Text", "Word", "near", "read"]

BYTES_MAX = 4 << 20
"""No configuration is larger; whoever names a disk or a log by mistake hears it at once."""

MESSAGE_MAX = 400
"""What a message repeats of the file can be of any length."""


class Word(NamedTuple):
    """A piece of a file and where it stands, both counted from 1."""

    text: str
    line: int
    column: int


class Text:
    """Name and contents of one file. Lines end with \\n or \\r\\n."""

    def __init__(self, name: str, contents: str) -> None:
        self.name = name
        self.contents = contents
        self.lines = [line.removesuffix("\r") for line in contents.split("\n")]

    def error(self, message: str, place: Word, hint: str | None = None) -> ConfigError:
        """A ConfigError at ``place``."""
        line = self.lines[place.line - 1] if 0 < place.line <= len(self.lines) else ""
        if len(message) > MESSAGE_MAX:
            message = f"{message[:MESSAGE_MAX]} ..."
        return ConfigError(message, self.name, place.line, place.column, hint=hint, text=line)


def read(path: str | os.PathLike[str], origin: str | None = None) -> Text:
    """The file's text. ``origin`` says where the path is from, for the error.

    Raises:
        ConfigError: it is missing or unreadable, larger than 4 MiB, or not UTF-8.
    """
    name = _name(path)
    try:
        with open(name, "rb") as file:
            data = file.read(BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigError(f"the configuration cannot be read: {why}", name, hint=origin) from error
    if len(data) > BYTES_MAX:
        raise ConfigError(f"the configuration is larger than {BYTES_MAX} bytes", name)
    try:
        return Text(name, data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line, column = before.count(b"\n") + 1, error.start - (before.rfind(b"\n") + 1) + 1
        message = f"the configuration is not UTF-8: byte 0x{data[error.start]:02x}"
        raise ConfigError(message, name, line, column, hint="save it as UTF-8") from None


def _name(path: str | os.PathLike[str]) -> str:
    try:
        name = os.fsdecode(path)
    except TypeError:
        name = ""
    if not name:
        raise ConfigError(f"config = {path!r} is not a path")
    return name


def near(name: str, known: Iterable[str]) -> str | None:
    """What was probably meant, as a hint."""
    known = list(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else f"one of: {', '.join(known)}" if known else None
