"""A log on a disk of which a part is gone: an ext4 image whose file is cut while it is mounted, so that reads
behind give EIO.

Run by test_bad_sectors.py as root, in a mount namespace of its own: ``cut_image.py DIRECTORY``. Each step
prints a line.
"""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import sys
from pathlib import Path

from support.handmade_feed import Log

from holdfast.engine.log.check import check_log
from holdfast.engine.log.reader import Block, Logs
from holdfast.engine.native.core import ffi, lib

UUID = b"source of a test"
COUNT, PAGE, FIBMAP = 2000, 4096, 1


def cut(image: Path, segment: Path) -> None:
    """From the middle of the segment on, the disk gives nothing."""
    with segment.open("rb") as file:
        middle = segment.stat().st_size // 4 // PAGE
        (block,) = struct.unpack("i", fcntl.ioctl(file.fileno(), FIBMAP, struct.pack("i", middle)))
        assert block
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    os.truncate(image, block * PAGE)


def main(root: Path) -> None:
    image, disk = root / "disk.img", root / "disk"
    disk.mkdir()
    with image.open("wb") as file:
        file.truncate(16 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-b", str(PAGE), "-O", "^has_journal", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(disk)], check=True)
    path = disk / "store" / "logs" / UUID.hex()
    path.parent.mkdir(parents=True)
    log = Log(path, UUID, level=lib.HF_LEVEL_DISK)
    log.begin(1, 0)
    for number in range(COUNT):
        log.plain(number, number)
    log.close()
    subprocess.run(["sync", "-f", str(disk)], check=True)  # of the others, some must not be
    (segment,) = path.glob("seg-*")
    cut(image, segment)
    try:
        segment.read_bytes()
    except OSError as refused:
        print("disk", refused.errno, flush=True)
    block, logs = Block(), Logs([str(path)])
    read = 0
    while logs.read(read, block):
        read += block.count - block.index
    print("read", 0 < read < COUNT, *logs.refused, flush=True)
    report = check_log(path)
    print("check", report.damaged, *sorted({finding.kind for finding in report.findings}), flush=True)
    log = Log(path, UUID, level=lib.HF_LEVEL_DISK)
    info = ffi.new("struct hf_log_info *")
    lib.hf_log_info(log.handle, info)
    print("open", info.next_sqn == COUNT, info.cut_bytes, flush=True)
    log.plain(COUNT, COUNT + 9)
    log.close()
    print("new", logs.read(COUNT, block), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
