"""What another user of this host does, now (other_user.py)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
SHORT = 90.0


def stranger(deed: str, *arguments: object) -> None:
    """The other user does this, now."""
    subprocess.run(
        [sys.executable, "-m", "support.other_user", deed, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(TESTS)}, capture_output=True, text=True, check=True, timeout=SHORT,
    )  # fmt: skip
