"""What a program forgets to close is told as Python tells of a file: by a ResourceWarning, which names the
line that made it.

A source is told of when the program drops it, and so is a context that the program polls. One that has a
thread is kept by that, and its receivers by it, whose callbacks go on: it is told of when the program ends.
"""

from __future__ import annotations

import sys
import warnings

__all__ = ["place", "tell"]

_OWN = __name__.partition(".")[0]


def place() -> str:
    """``file:line`` of the program that is making something now: of the innermost frame outside this
    package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == _OWN:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def tell(what: str, made_at: str, consequence: str) -> None:
    """The warning, as of the caller's caller."""
    warnings.warn(f"{what}, made at {made_at}, was not closed: {consequence}", ResourceWarning, stacklevel=3)
