"""A disk that becomes read-only under a store: its log takes nothing more, nobody dies of it, and what it has
is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.mounted_image import run_mounted

if TYPE_CHECKING:
    from pathlib import Path


def test_a_real_disk_that_becomes_read_only_ends_no_store(tmp_path: Path) -> None:
    """By a store into the mapped head each of these was a SIGBUS."""
    said = run_mounted("read_only_disk.py", tmp_path)
    if said == ["no error can be triggered"]:
        pytest.skip("this kernel has no /sys/fs/ext4/*/trigger_fs_error")
    assert said == [
        "disk 30", "append HF_POISONED", "begin HF_POISONED", "release HF_POISONED", "roll HF_POISONED", "closed",
        "read 100", "open EROFS",
    ]  # fmt: skip


def test_a_store_process_on_a_disk_that_becomes_read_only_serves_what_it_has(tmp_path: Path) -> None:
    said = run_mounted("read_only_disk.py", tmp_path, "store")
    if said == ["no error can be triggered"]:
        pytest.skip("this kernel has no /sys/fs/ext4/*/trigger_fs_error")
    assert said == [
        "disk 30", "source True", "received True", "received True", "the new one is told True",
        "lives None",
        "ended 1 False 2",  # when it was met, and at the end
        "again True", "ended 1", "check 0",
    ]  # fmt: skip


def test_a_store_that_starts_on_a_read_only_disk_serves_what_is_there_and_writes_nothing(tmp_path: Path) -> None:
    assert run_mounted("read_only_start.py", tmp_path) == [
        "filled 0",
        "known True True", "new True True",  # also what lies behind the published end that an old head gives
        "source True",
        "acknowledged [(2, 99), (3, 99)]",  # on the board
        "told True True 1",
        "a second one 3 True", "excluded 3 True",
        "and later True True True",  # when the disk can be written again, nothing changes
        "told True True 1 True",
        "a second one 3 True", "marked 1 True",
        "ended 1 2 untouched",
        "goes on [100] [0] False False 0",  # the new one is on record nowhere
        "beside a writer 3 True", "ended 0",
        "empty 1 True True",
    ]  # fmt: skip


def test_of_two_disks_the_one_that_is_read_only_is_named(tmp_path: Path) -> None:
    assert run_mounted("read_only_start.py", tmp_path, "cache") == [
        "ended 0", "source True", "doctor True", "and later True", "ended 0",
    ]  # fmt: skip
