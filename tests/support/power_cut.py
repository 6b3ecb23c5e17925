"""A power cut under whole stores: ``unshare -m python power_cut.py DIRECTORY CASE`` (JSON: stores, options,
quorum).

Stores work on an ext4 file system in an image, mounted commit=300, each in a process of its own. Store a
dies; 100..199 become stable at the others; all are killed, and the image is copied as it is on the disk. The
copy takes its place, shared memory is gone, and a starts first. Prints what a reports, the number of the
first message of a new source, and what the heads said.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast import NotRegisteredError

if TYPE_CHECKING:
    from holdfast import Source

HERE = Path(__file__).resolve()
SESSION = 5
SHORT = 90.0
NEXT_AT = 144
"""Where a head has its number (csrc/README.md)."""


def send(src: Source) -> int:
    """Also while nobody has a dead store's seat yet."""
    deadline = time.monotonic() + SHORT
    while True:
        try:
            return src.send(b"x" * 100)
        except NotRegisteredError:
            assert time.monotonic() < deadline
            src.wait_registered(SHORT)


def source(options: dict[str, Any]) -> None:
    """Sends as many as each line of stdin says, and says the last one's number when it is stable."""
    from support.workers import until

    import holdfast as hf

    with hf.Context(session_id=SESSION) as ctx:
        # Patient: a store that answers late on a busy machine would lose its seat to the backup for good.
        src = ctx.source("quotes", options={**options, "ume_registration_interval": 60_000})
        # Two of three are enough to register.
        until("a has its seat", lambda: src.stats().stores["a"].state == "active")
        for line in sys.stdin:
            number = -1
            for _ in range(int(line)):
                number = send(src)
            src.wait_stable(timeout=SHORT)
            print(number, flush=True)


def mount(image: Path, at: Path) -> None:
    """Of this mount namespace alone."""
    subprocess.run(["mount", "-o", "loop,commit=300", str(image), str(at)], check=True)


def main() -> None:
    """See the module."""
    from process.conftest import ThreadStore
    from support.stores_process import House

    import holdfast as hf
    from holdfast.engine.memory.domain import Domain, unlink_object
    from holdfast.engine.options.store_config import StoreConfig

    where, case = Path(sys.argv[1]), json.loads(sys.argv[2])
    image, copy, disk = where / "disk.img", where / "copy.img", where / "disk"
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    with image.open("wb") as file:
        file.truncate(64 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", str(image)], check=True)
    disk.mkdir()
    mount(image, disk)
    houses = {name: House(disk, {name: {"type": "disk"}}) for name in case["stores"]}
    sender = None
    try:
        for house in houses.values():
            house.open()
        sender = subprocess.Popen(
            [sys.executable, str(HERE), "source", json.dumps(case["options"])],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert sender.stdin is not None
        assert sender.stdout is not None
        for count, last, dies in ((100, 99, "a"), (100, 199, "")):
            print(count, file=sender.stdin, flush=True)
            assert sender.stdout.readline() == f"{last}\n"
            if dies:
                houses[dies].kill()
    finally:
        for house in houses.values():
            house.kill()
        if sender is not None:
            sender.kill()
            sender.communicate()
    copy.write_bytes(image.read_bytes())
    subprocess.run(["umount", str(disk)], check=True)
    mount(copy, disk)
    place = Domain(os.environ["HOLDFAST_DOMAIN"], join=False)
    for item in place.objects():
        unlink_object(item.name)
    place.close()
    heads = {
        head.parents[2].name: struct.unpack_from("<Q", head.read_bytes(), NEXT_AT)[0]
        for head in disk.glob("*/logs/*/head")
    }
    running = []
    try:
        for name in case["quorum"]:
            running.append(ThreadStore(StoreConfig(name, disk / name, type="disk")))
            if name == "a":
                (repository,) = running[0].store.drainer.repositories.values()
                report = running[0].store.drainer.call(repository.report).end
        with hf.Context(session_id=SESSION) as ctx, ctx.source("quotes", options=case["options"]) as src:
            src.wait_registered(SHORT)
            first = src.send(b"y")
    finally:
        for store in running:
            store.stop()
    print(json.dumps({"report": report, "first": first, "heads": heads}))


if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parents[1]))
    if sys.argv[1] == "source":
        source(json.loads(sys.argv[2]))
    else:
        main()
