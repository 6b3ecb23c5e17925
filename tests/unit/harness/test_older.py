"""The head that the simulator's earlier release leaves is the one that is kept of it (tests/golden/v1)."""

from __future__ import annotations

import struct

from golden import make
from simulator.older import head_v1


def test_a_head_of_version_2_becomes_the_one_that_version_1_would_have_written() -> None:
    golden = make.head(make.segments()[1].end)
    aged = head_v1(make.head_v2(make.segments()[1].end))
    assert aged is not None
    assert (aged[:272], aged[280:]) == (golden[:272], golden[280:])
    assert struct.unpack_from("<Q", aged, 272) == (6,), "the third table: each one took two steps of its lock"


def test_one_whose_newest_table_is_lost_and_one_of_version_1_stay_as_they_are() -> None:
    lost = bytearray(make.head_v2(make.segments()[1].end))
    lost[272:280] = struct.pack("<Q", 4)
    assert head_v1(bytes(lost)) is None
    assert head_v1(make.head(make.segments()[1].end)) is None
