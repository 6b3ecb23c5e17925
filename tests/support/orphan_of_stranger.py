"""An orphan of another user's, whose domain lies where he may not look. Run by test_orphans.py, as root,
which it gives up when everything is imported:

    python -m support.orphan_of_stranger DIRECTORY
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec
from support.other_user import STRANGER

from holdfast.engine.memory.card import Card, prefix_of
from holdfast.engine.memory.domain import SHM_DIR
from holdfast.engine.tools.orphans import known_domains, orphans

if __name__ == "__main__":
    parent = Path(sys.argv[1])
    os.chown(parent, STRANGER, STRANGER)
    place = os.open(parent, os.O_RDONLY | os.O_DIRECTORY)
    os.setgroups([])
    os.setgid(STRANGER)
    os.setuid(STRANGER)
    os.environ["HOLDFAST_DIR"] = "/nowhere"
    os.mkdir("one", 0o700, dir_fd=place)
    made = os.stat("one", dir_fd=place)
    prefix = prefix_of(made.st_dev, made.st_ino)
    (SHM_DIR / f"{prefix}card").write_bytes(msgspec.json.encode(Card.of(parent / "one", made)))
    (SHM_DIR / f"{prefix}bells").write_bytes(b"1")
    os.fchmod(place, 0)
    for each in orphans(remove=True, everything=True):
        print(each.kind, each.gone, each.why, each.kept, sep="; ")
    print(*((each.path, each.unseen) for each in known_domains()))
