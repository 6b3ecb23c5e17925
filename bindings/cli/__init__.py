"""The command ``holdfast``. `app` has its verbs, each of which imports what it needs only when it runs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

EXTRA = {"typer", "rich"}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command with ``argv`` (default: sys.argv) and returns its exit code.

    0 ok, 1 negative finding, 2 usage or configuration, 3 not running, 4 timeout, 5 data damage, 128 + n after
    signal n.
    """
    try:
        from .outcome import run

        return run(sys.argv[1:] if argv is None else list(argv))
    except ModuleNotFoundError as missing:
        if missing.name not in EXTRA:
            raise
        print(f"error: the command line needs {missing.name}", file=sys.stderr)
        print("hint: pip install 'holdfast[cli]'", file=sys.stderr)
        return 2
