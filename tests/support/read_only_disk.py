"""A log on a disk that the kernel makes read-only after an error (errors=remount-ro), under the store that
writes it.

Run by test_read_only.py as root, in a mount namespace of its own: ``read_only_disk.py DIRECTORY [store]``.
Each step prints a line: the first run drives a log, the one with ``store`` a store process.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from support.command_line import Program, run
from support.handmade_feed import Log
from support.receiving import SHORT, take

import holdfast as hf
from holdfast.engine.log.reader import Block, Logs
from holdfast.engine.native.core import lib

if TYPE_CHECKING:
    from collections.abc import Callable

UUID = b"source of a test"
COUNT = 100


def break_it(disk: Path) -> None:
    """What was dirty is on the disk, and its pages in memory are clean."""
    subprocess.run(["sync", "-f", str(disk)], check=True)  # of the others, some must not be
    minor = os.minor(disk.stat().st_dev)
    trigger = Path(f"/sys/fs/ext4/loop{minor}/trigger_fs_error")
    if not trigger.exists():
        print("no error can be triggered", flush=True)
        sys.exit(0)
    trigger.write_text("a test")
    try:
        (disk / "probe").touch()
    except OSError as refused:
        print("disk", refused.errno, flush=True)


def mounted(root: Path) -> Path:
    image, disk = root / "disk.img", root / "disk"
    disk.mkdir()
    with image.open("wb") as file:
        file.truncate(32 << 20)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    # data=journal: there a store into a mapping of a page that is clean asks the file system, and is SIGBUS.
    subprocess.run(["mount", "-o", "loop,errors=remount-ro,data=journal", str(image), str(disk)], check=True)
    return disk


def drive_log(disk: Path) -> None:
    path = disk / "store" / "logs" / UUID.hex()
    path.parent.mkdir(parents=True)
    log = Log(path, UUID, level=lib.HF_LEVEL_DISK)
    log.begin(1, 0)
    log.plain(0, COUNT - 1)
    break_it(disk)
    steps: dict[str, Callable[[], None]] = {
        "append": partial(log.plain, COUNT, COUNT), "begin": partial(log.begin, 2, COUNT),
        "release": partial(log.release, COUNT // 2), "roll": log.roll,
    }  # fmt: skip
    for what, write in steps.items():
        try:
            write()
        except hf.Error as refused:
            print(what, refused.code, flush=True)
    lib.hf_log_close(log.handle)
    print("closed", flush=True)
    block, logs = Block(), Logs([str(path)])
    read = 0
    while logs.read(read, block):
        read = int(block.entries[block.count - 1].sequence_number) + 1
    print("read", read, flush=True)
    try:
        Log(path, UUID, level=lib.HF_LEVEL_DISK)
    except hf.Error as refused:
        print("open", refused.code, flush=True)


def drive_store(disk: Path) -> None:
    directory = disk / "a"
    command = ["store", "run", "--name", "a", "--directory", str(directory), "--type", "disk"]
    program = Program(*command)
    options = {"ume_store_name": ["a"], "ring_size": 1 << 17}
    with hf.Context(session_id=1) as ctx, hf.Context(session_id=2) as other, hf.Context(session_id=3) as third:
        with ctx.source("quotes", options=options) as src:
            src.wait_registered(SHORT)
            known = other.receiver("quotes")
            for number in range(COUNT):
                src.send(b"%d" % number)
            src.wait_stable(timeout=SHORT)
            take(known, COUNT // 2)
            known.close()
        break_it(disk)  # nothing has the messages but the store's log
        try:
            third.source("quotes", options=options).wait_registered(SHORT)
        except hf.RegistrationError as refused:
            print("source", f"{directory} cannot be written" in str(refused), flush=True)
        for context, count in ((other, COUNT - COUNT // 2), (third, COUNT)):
            said: list[object] = []
            with context.receiver("quotes", on_event=said.append) as rcv:
                print("received", take(rcv, count) == list(range(COUNT - count, COUNT)), flush=True)
        print("the new one is told", any("records nothing" in str(event) for event in said), flush=True)
    print("lives", program.process.poll(), flush=True)
    program.signal(signal.SIGTERM)
    code, _, err = program.end()
    print("ended", code, "Traceback" in err, err.count(f"HF_READ_ONLY: {directory}"), flush=True)
    program = Program(*command)
    with hf.Context(session_id=4) as ctx, ctx.receiver("quotes") as rcv:
        print("again", take(rcv, COUNT) == list(range(COUNT)), flush=True)
    program.signal(signal.SIGTERM)
    print("ended", program.end()[0], flush=True)
    print("check", run("store", "check", str(directory))[0], flush=True)


if __name__ == "__main__":
    place = mounted(Path(sys.argv[1]))
    drive_store(place) if sys.argv[2:] == ["store"] else drive_log(place)
