"""One role of a system that is upgraded: a store, a source or a receiver, by the public names that 0.1.0 has,
too.

``python upgrade_role.py ROLE NAME DIRECTORY``. It says what it does in DIRECTORY/NAME.said, a line each, and
ends well when DIRECTORY/NAME.stop is there. It imports nothing of the tests: 0.1.0 runs it with its own
package.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import holdfast as hf

if TYPE_CHECKING:
    from collections.abc import Callable

TOPIC = "upgraded"
SOURCE = {
    "ume_store_name": ["a:0:0", "b:0:0", "c:0:0"],
    "ume_store_group": ["0:3"],
    "ring_size": 1 << 20,
    "fragment_size": 4096,
    "ume_registration_interval": 100,
}
PATIENCE_S = 90.0


def main(role: str, name: str, directory: Path) -> int:
    """Runs the role."""
    stop = directory / f"{name}.stop"
    with (directory / f"{name}.said").open("a", buffering=1) as said:
        said.write(f"of {Path(hf.__file__).parent}\n")
        if role == "store":
            return store(name, directory, stop)
        return source(stop, said.write) if role == "source" else receiver(stop, said.write)


def store(name: str, directory: Path, stop: Path) -> int:
    """Until it shall stop."""

    def watch() -> None:
        while not stop.exists():
            time.sleep(0.01)
        hf.store_main_shutdown()

    threading.Thread(target=watch, daemon=True).start()
    return int(hf.store_main(hf.StoreConfig(name, directory / f"store-{name}", type="disk")))


def source(stop: Path, say: Callable[[str], object]) -> int:
    """Sends numbers, each as its own text. ``sent N``, now and then ``stable N``: all below N."""
    with hf.Context(session_id=7) as ctx, ctx.source(TOPIC, options=SOURCE) as src:
        src.wait_registered(PATIENCE_S)
        say(f"from {src.next_sequence_number}\n")
        while not stop.exists():
            try:
                for _ in range(20):
                    src.send(b"%d" % src.next_sequence_number)
            except hf.QuorumLostError:  # a store was killed while another one comes back
                src.wait_registered(PATIENCE_S)
            src.wait_stable(timeout=PATIENCE_S)
            say(f"stable {src.next_sequence_number}\n")
            time.sleep(0.005)
    return 0


def receiver(stop: Path, say: Callable[[str], object]) -> int:
    """``got N TEXT``. What it has got when it shall stop, it has acknowledged."""
    with hf.Context(session_id=8) as ctx:
        rcv = ctx.receiver(TOPIC)
        while not stop.exists():
            message = rcv.receive(timeout=0.05)
            if message is not None:
                say(f"got {message.sequence_number} {bytes(message.data).decode()}\n")
                message.release()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
