"""A store that a program brings along: the parent sends and receives, a child process is the store.

UM's umestored_example forks a child that calls umestored_main, reads its output from a pipe, hands SIGINT on
to it, and asks the kernel to kill it with the parent. Here spawn_store() does all of it: the child is a fresh
interpreter, what it says goes to `logging`, it ends within 2 seconds of its parent's death however that comes
about, and the end of the `with` stops it in order. What it has kept is there again at the next run.
"""

from __future__ import annotations

import logging
import sys
import time
from typing import TYPE_CHECKING

import holdfast as hf

from .common import MESSAGES, TOPIC, program, until_the_last
from .options import Parser, seconds

if TYPE_CHECKING:
    from collections.abc import Sequence


def send_and_receive(store: str, interval: float) -> None:
    """What the program is for."""
    with hf.Context() as ctx:
        src = ctx.source(TOPIC, options={"ume_store_name": [store]})
        rcv = ctx.receiver(TOPIC)
        src.wait_registered()
        for number in range(1, MESSAGES + 1):
            src.send(f"UME Message {number:02}".encode())
            time.sleep(interval)
        src.wait_stable()
        for message in until_the_last(rcv):
            print(f"received {message.sequence_number}: {bytes(message.data).decode()}")


@program
def main(argv: Sequence[str] | None = None) -> int:
    """Runs store, source and receiver, and returns the exit code."""
    parser = Parser(__doc__)
    parser.add_argument("directory", help="of the store; made if missing")
    parser.add_argument("--name", default="a", help="of the store (a)")
    parser.add_argument("--interval", type=seconds, default=1.0, metavar="S", help="pause after each message (1)")
    given = parser.parse_args(argv)
    logging.basicConfig(format="%(name)s: %(message)s", level=logging.INFO, stream=sys.stdout, force=True)
    with hf.spawn_store(hf.StoreConfig(given.name, given.directory)) as store:
        print(f"store {given.name} runs in process {store.pid}")
        send_and_receive(given.name, given.interval)
        code = store.stop()
        print(f"store {given.name} has ended with {code}")
    return code


if __name__ == "__main__":
    sys.exit(main())
