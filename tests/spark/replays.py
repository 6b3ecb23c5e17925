"""A replay that is killed: ``python replays.py SETTINGS`` runs one and dies in its n-th send, when a part of
that is out."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

__all__ = ["replay_and_die"]


def replay_and_die(path: Path, topic: str, checkpoint: Path, *, send: int, part: float) -> None:
    """Replays an archive in a process of its own, which is killed in that ``send`` (from 1), when that
    ``part`` of it is out."""
    settings = [str(path), topic, str(checkpoint), send, part]
    done = subprocess.run([sys.executable, __file__, json.dumps(settings)], capture_output=True, text=True, timeout=200)
    assert done.returncode == -signal.SIGKILL, done.stderr


def main() -> None:
    """See the module."""
    from holdfast.spark.pipeline import recorded, replay
    from holdfast.spark.publishing import Publisher

    path, topic, checkpoint, send, part = json.loads(sys.argv[1])
    whole = Publisher.send
    sends = 0

    def dying(publisher: Publisher, to: str, values: Any) -> None:
        nonlocal sends
        sends += 1
        if sends == send:
            whole(publisher, to, values.slice(0, int(len(values) * part)))
            os.kill(os.getpid(), signal.SIGKILL)
        whole(publisher, to, values)

    Publisher.send = dying  # type: ignore[assignment, method-assign]
    replay.SAVE_SECONDS = 0.0
    given = recorded.ArchiveInput(path, "")
    replay.replay(given, topic, speed=0, checkpoint=Path(checkpoint), options={"stores": "a"})


if __name__ == "__main__":
    main()
