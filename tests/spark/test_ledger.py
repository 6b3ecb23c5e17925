"""How many rows a commit that died has published: from where its source goes on, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import holdfast as hf
from holdfast.spark.ledger import Intent, Ledger, Piece, Share, rows_below
from holdfast.spark.staging import StagedFile

if TYPE_CHECKING:
    from pathlib import Path

LENGTHS = np.array([10, 0, 250, 100, 101, 1000], np.int64)
"""In fragments of 100 bytes: 1, 1, 3, 1, 2, 10."""


def share(*pieces: tuple[int, int, int]) -> Share:
    return Share("t", len(LENGTHS), [Piece(*piece) for piece in pieces])


@pytest.mark.parametrize(
    ("number", "rows"), [(40, 0), (41, 1), (42, 2), (45, 3), (46, 4), (48, 5), (58, 6), (39, 0), (0, 0)]
)
def test_rows_below_the_number_are_published(number: int, rows: int) -> None:
    assert rows_below(share((0, 40, 100)), number, LENGTHS) == rows


@pytest.mark.parametrize("number", [43, 44, 47, 59, 1000])
def test_a_number_inside_a_row_or_behind_the_last_is_somebody_elses(number: int) -> None:
    with pytest.raises(hf.CorruptionError, match="another program has published"):
        rows_below(share((0, 40, 100)), number, LENGTHS)


def test_the_last_piece_that_can_be_true_counts() -> None:
    """Two rows, then (a restart) from row 2 on in fragments of 1000 bytes: rows 2 .. 5 have the numbers 42 ..
    45."""
    both = share((0, 40, 100), (2, 42, 1000))
    assert rows_below(both, 44, LENGTHS) == 4
    assert len(both.pieces) == 2
    assert rows_below(both, 41, LENGTHS) == 1  # row 1 was lost again, with everything behind it
    assert both.pieces == [Piece(0, 40, 100)]


def test_stores_that_begin_anew_have_no_row() -> None:
    wiped = share((0, 40, 100), (3, 45, 1000))
    assert rows_below(wiped, 0, LENGTHS) == 0


def test_a_record_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    file = StagedFile("3-0-ab.arrow", 0, {"t": 6}, {"t": 1000}, 2000, 0xFFFFFFFF, "host")
    with Ledger(tmp_path / "q", 0) as ledger:
        ledger.record.done, ledger.record.intent = 2, Intent(3, [file], [share((0, 40, 100))])
        ledger.save()
        saved = ledger.record
    with Ledger(tmp_path / "q", 0) as ledger:
        assert ledger.record == saved
    assert sorted(path.name for path in (tmp_path / "q").iterdir()) == ["ledger", "lock"]


@pytest.mark.parametrize("cut", [0, 5, 8, 20])
def test_a_record_that_was_cut_is_damage(tmp_path: Path, cut: int) -> None:
    with Ledger(tmp_path, 0) as ledger:
        ledger.save()
    path = tmp_path / "ledger"
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(hf.CorruptionError, match="cannot be read"):
        Ledger(tmp_path, 0)
