"""What only some installations have: the modules that an extra brings."""

from __future__ import annotations

import contextlib
import importlib.util
from typing import TYPE_CHECKING

from .engine.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["needed", "required"]

EXTRAS = {"pyspark": "spark", "pyarrow": "spark", "pandas": "spark", "py4j": "spark", "matplotlib": "plot"}
"""Module -> the extra that brings it."""


@contextlib.contextmanager
def needed() -> Iterator[None]:
    """Around imports of such modules. Raises MissingExtraError with the extra that brings what is missing."""
    try:
        yield
    except ModuleNotFoundError as missing:
        module = (missing.name or "").partition(".")[0]
        if module not in EXTRAS:
            raise
        raise MissingExtraError(module, EXTRAS[module]) from None


def required(module: str) -> None:
    """Raises MissingExtraError unless ``module``, which is not imported, can be."""
    try:
        found = importlib.util.find_spec(module)
    except ValueError:  # it was made by hand, and says nothing of where it is from
        return
    if found is None:
        raise MissingExtraError(module, EXTRAS[module])
