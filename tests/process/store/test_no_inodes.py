"""A store whose disk has bytes, and no inode: it says so by name, refuses what is new, and goes on."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
from support.own_file_system import own_file_system
from support.receiving import SHORT
from support.three_stores import SOURCE
from support.workers import until

import holdfast as hf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from process.conftest import ThreadStore


@pytest.fixture
def few_inodes(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 MiB with 100 inodes."""
    with own_file_system(tmp_path / "few", "size=64m,nr_inodes=100") as made:
        yield made


def test_a_source_is_refused_with_what_is_missing_and_taken_when_it_is_there(
    few_inodes: Path, run_store: Callable[..., ThreadStore]
) -> None:
    run_store("a", "disk", "few/a")
    with hf.Context() as ctx, ctx.source("quotes", options={**SOURCE, "ume_store_name": ["a"]}) as src:
        src.wait_registered(SHORT)
        taken: list[Path] = []
        try:
            while True:
                taken.append(few_inodes / f"filler-{len(taken)}")
                taken[-1].touch()
        except OSError:
            taken.pop()
        with ctx.source("more", options={**SOURCE, "ume_session_id": 9, "ume_store_name": ["a"]}) as late:
            with pytest.raises(hf.RegistrationError) as refused:
                late.wait_registered(SHORT)
            assert "all 100 inodes are used" in str(refused.value)
            assert "df -i" in str(refused.value)
            for path in taken:
                path.unlink()

            def is_taken() -> bool:  # what was answered before holds until it is asked again
                with contextlib.suppress(hf.RegistrationError):
                    late.wait_registered(SHORT)
                    return True
                return False

            until("it is taken", is_taken)
            late.wait_stable(late.send(b"there is room"), SHORT)
        src.wait_stable(src.send(b"goes on"), SHORT)
