"""A disk that becomes read-only under a store: its log takes nothing more, nobody dies of it, and what it has is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from process.mounted import run_mounted

if TYPE_CHECKING:
    from pathlib import Path


def test_a_real_disk_that_becomes_read_only_ends_no_store(tmp_path: Path) -> None:
    """By a store into the mapped head each of these was a SIGBUS."""
    said = run_mounted("read_only.py", tmp_path)
    if said == ["no error can be triggered"]:
        pytest.skip("this kernel has no /sys/fs/ext4/*/trigger_fs_error")
    assert said == [
        "disk 30", "append HF_POISONED", "begin HF_POISONED", "release HF_POISONED", "roll HF_POISONED", "closed",
        "read 100", "open EROFS",
    ]  # fmt: skip


def test_a_store_process_on_a_disk_that_becomes_read_only_serves_what_it_has(tmp_path: Path) -> None:
    said = run_mounted("read_only.py", tmp_path, "store")
    if said == ["no error can be triggered"]:
        pytest.skip("this kernel has no /sys/fs/ext4/*/trigger_fs_error")
    directory = tmp_path / "disk" / "a"
    assert said == [
        "disk 30", "source True", "received True", "received True", "the new one is told True",
        "lives None",
        "ended 1 False 2",  # when it was met, and at the end
        f"again 1 error: {directory} cannot be written: its file system is read-only True", "check 0",
    ]  # fmt: skip
