"""Configuration files: UM's flat file and UM's XML file. What the options mean is in
``engine/options/table.py``."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from ..engine.options.resolve import Layer
from ..engine.options.table import CONTEXT
from .flat import FlatFile
from .text import read

if TYPE_CHECKING:
    from .xml import XmlFile

__all__ = ["Configuration"]

_log = logging.getLogger("holdfast")

FLAT, XML, APPLICATION = "LBM_DEFAULT_CONFIG_FILE", "LBM_XML_CONFIG_FILENAME", "LBM_XML_CONFIG_APPNAME"
"""UM's environment variables."""


class Configuration:
    """All files that hold for one context, highest first: the one it was given, then those of UM's
    environment variables.

    Raises:
        ConfigError: with file, line and column.
    """

    def __init__(self, path: str | os.PathLike[str] | None, application: str | None, context: str | None) -> None:
        self._files: list[FlatFile | XmlFile] = []
        if path is not None:
            self._files.append(_file(path, application, context))
        if flat := os.environ.get(FLAT):
            self._files.append(_file(flat, application, context, FLAT))
        if xml := os.environ.get(XML):
            self._files.append(_file(xml, application or os.environ.get(APPLICATION), context, XML))

    def layers(self, scope: str, name: str | None = None, *, wildcard: bool = False) -> list[Layer]:
        """As `engine.options.Defaults`. What a file says of the context holds for what the file does not say
        of its children."""
        found = []
        for file in self._files:
            found += file.layers(scope, name, wildcard=wildcard)
            if scope != CONTEXT:
                found += [Layer(layer.values) for layer in file.layers(CONTEXT)]
        return found


def _file(
    path: str | os.PathLike[str], application: str | None, context: str | None, variable: str | None = None
) -> FlatFile | XmlFile:
    """A file, told apart by how it begins; with one warning for all that has no effect here."""
    text = read(path, None if variable is None else f"its name is in ${variable}")
    if text.contents.lstrip().startswith("<"):
        from .xml import XmlFile

        file: FlatFile | XmlFile = XmlFile(text, application, context)
    else:
        file = FlatFile(text)
    if file.ignored:
        _log.warning("%s: options of a network have no effect on one host: %s", text.name, ", ".join(file.ignored))
    return file
