"""A message that a store copied from a peer is labelled with the store's own newest BEGIN, not with the one
under which it was sent (engine/log/written_under.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.handmade_feed import Log

from holdfast.engine.log.written_under import written_under

if TYPE_CHECKING:
    from pathlib import Path


def test_what_was_copied_is_labelled_with_the_newest_begin(tmp_path: Path) -> None:
    """0..4 were sent under 1. Then 2 began at 8, and 5..7 of 1 came from a peer."""
    log = Log(tmp_path / "log", bytes(16))
    log.begin(1, 0)
    log.plain(0, 4)
    log.begin(2, 8)
    assert written_under(log.path, 4) == 1
    log.plain(5, 7)
    log.append(8, [b"x" * 9000])
    assert [written_under(log.path, number) for number in (0, 4, 5, 7, 8)] == [1, 1, 2, 2, 2]
    log.lost(9, 12)
    assert [written_under(log.path, number) for number in (9, 12, 13)] == [None, None, None]


@pytest.mark.parametrize("there", [False, True])
def test_what_cannot_be_read_is_not_known(tmp_path: Path, there: bool) -> None:
    if there:
        (tmp_path / "log").mkdir()
    assert written_under(tmp_path / "log", 4) is None
