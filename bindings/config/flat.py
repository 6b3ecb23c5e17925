"""UM's flat configuration file: ``scope option value`` per line, ``#`` begins a comment, nothing is
quoted."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..engine.options.table import WILDCARD
from .section import Section
from .text import Word

if TYPE_CHECKING:
    from ..engine.options.resolve import Layer
    from .text import Text

__all__ = ["FlatFile"]

_LINE = re.compile(r"\s*(\S+)(?:\s+(\S+)(?:\s+(\S.*))?)?")
FORM = "a line is: scope option value"


class FlatFile:
    """All that it says holds for every object of a scope.

    Raises:
        ConfigError: with file, line and column.
    """

    def __init__(self, text: Text) -> None:
        self._section = Section(text)
        for number, line in enumerate(text.lines, 1):
            said = line.partition("#")[0].rstrip()
            match = _LINE.match(said)
            if match is None:
                continue
            words = [Word(match[part], number, match.start(part) + 1) for part in (1, 2, 3) if match[part] is not None]
            if len(words) < 3:
                missing = "the option's name is" if len(words) == 1 else "the value is"
                raise text.error(f"{missing} missing", Word("", number, len(said) + 1), FORM)
            self._section.apply(*words)
        self.ignored = self._section.ignored

    def layers(self, scope: str, name: str | None = None, *, wildcard: bool = False) -> list[Layer]:
        """As `engine.options.Defaults`."""
        del name
        return [self._section.layer(kind) for kind in ((WILDCARD, scope) if wildcard else (scope,))]
