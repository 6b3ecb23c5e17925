"""Prints a file of csrc/ with a bug in it: for each target in C one that it must find.

python tests/fuzz/plant.py TARGET
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

CSRC = Path(__file__).resolve().parents[2] / "csrc"


class Bug(NamedTuple):
    """``right`` stands once in ``file``, and becomes ``wrong``."""

    file: str
    right: str
    wrong: str


PLANTED = {
    # A seal may say that its segment has more of an index than there is room for.
    "segment": Bug(
        "log/segment.c",
        "s->seal.end_position == 0 || count > max ||",
        "s->seal.end_position == 0 || count > max + 256 ||",
    ),
    # A head may say that it remembers more incarnations than there is room for.
    "head": Bug("log/head.c", "if (count > HF_INCARNATIONS ||", "if (count > INT32_MAX ||"),
    # A frame may be longer than a source ever writes one.
    "stream": Bug(
        "stream/reader.c",
        "                   payload <= r->ring.frame_max - HF_GRANULE)) {",
        "                   1)) {",
    ),
    # A line may name a bell that there is not.
    "board": Bug("board/bell.c", "map->kind != HF_KIND_BELLS || bell >= HF_BELLS) {", "map->kind != HF_KIND_BELLS) {"),
    # What was overwritten meanwhile may be longer than the message was.
    "frames": Bug("stream/ring_walk.c", "length - HF_GRANULE > left) {", "length - HF_GRANULE > left + INT32_MAX) {"),
}


def planted(target: str) -> str:
    """The source with its bug. Raises ValueError where the right text is not there once: it was changed, so
    the bug must be."""
    bug = PLANTED[target]
    source = (CSRC / bug.file).read_text()
    if source.count(bug.right) != 1:
        raise ValueError(f"{bug.file} has {bug.right!r} {source.count(bug.right)} times: give {__file__} another bug")
    return source.replace(bug.right, bug.wrong)


if __name__ == "__main__":
    sys.stdout.write(planted(sys.argv[1]))
