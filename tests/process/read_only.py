"""A log on a disk that the kernel makes read-only after an error (errors=remount-ro), under the store that writes it.

Run by test_read_only.py as root, in a mount namespace of its own: ``read_only.py DIRECTORY``. Each step prints a line.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from process.feeds import Log

import holdfast as hf
from holdfast.engine.core import lib
from holdfast.engine.logs import Block, Logs

if TYPE_CHECKING:
    from collections.abc import Callable

UUID = b"source of a test"
COUNT = 100


def break_it(disk: Path) -> None:
    """What was dirty is on the disk, and its pages in memory are clean."""
    os.sync()
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


def main(root: Path) -> None:
    image, disk = root / "disk.img", root / "disk"
    disk.mkdir()
    with image.open("wb") as file:
        file.truncate(16 << 20)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    # data=journal: there a store into a mapping of a page that is clean asks the file system, and is SIGBUS.
    subprocess.run(["mount", "-o", "loop,errors=remount-ro,data=journal", str(image), str(disk)], check=True)
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


if __name__ == "__main__":
    main(Path(sys.argv[1]))
