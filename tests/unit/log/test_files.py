"""The files of a log, and the logs of a store that lie elsewhere."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from holdfast.engine.log.files import links_in, taken_bytes

if TYPE_CHECKING:
    from pathlib import Path


def test_links_are_read_and_logs_are_not(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "head").write_bytes(b"1")
    (tmp_path / "c").symlink_to("/dev/shm/nowhere/c")
    (tmp_path / "d").symlink_to(tmp_path / "a")
    assert sorted(map(str, links_in(tmp_path))) == ["/dev/shm/nowhere/c", str(tmp_path / "a")]
    assert links_in(tmp_path / "a" / "head") == links_in(tmp_path / "not") == []


def test_a_link_that_goes_meanwhile_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abc":
        (tmp_path / name).symlink_to(f"/nowhere/{name}")
    read = os.readlink

    def goes(path: str) -> str:
        if path.endswith("b"):
            raise FileNotFoundError(path)
        return read(path)

    monkeypatch.setattr(os, "readlink", goes)
    assert sorted(path.name for path in links_in(tmp_path)) == ["a", "c"]


def test_blocks_are_counted(tmp_path: Path) -> None:
    (tmp_path / "full").write_bytes(bytes(8192))
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 20)
    assert taken_bytes(tmp_path) == (tmp_path / "full").stat().st_blocks * 512
    with pytest.raises(FileNotFoundError):
        taken_bytes(tmp_path / "not")
