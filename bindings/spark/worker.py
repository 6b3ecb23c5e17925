"""Spark's workers, which do one task after the other.

After each task Spark's daemon has the worker look through all its objects for garbage. Nearly all of them
belong to imported modules (pyarrow, pandas): some 50 ms, in which half a million messages could be read.
"""

from __future__ import annotations

import gc
import sys

__all__ = ["spare_modules"]

_spared = 0
"""Modules that were imported when objects were last left out."""


def spare_modules() -> None:
    """At the beginning of a task: what is there now is not looked through any more. Only in Spark's
    workers."""
    global _spared
    if is_worker() and len(sys.modules) != _spared:
        _spared = len(sys.modules)
        gc.freeze()


def is_worker() -> bool:
    """Whether this process was forked by Spark's daemon."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return getattr(spec, "name", None) == "pyspark.daemon"
