"""Pages that the disk does not give, under stores and readers: sectors.py, each test of it with its own
preloaded shim."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.bad_pages import run_scene, scenes
from support.mounted_image import run_mounted

SECTORS = Path(__file__).with_name("sectors.py")


@pytest.mark.parametrize("scene", scenes(SECTORS))
def test_over_bad_sectors(scene: str, tmp_path: Path) -> None:
    run_scene(SECTORS, scene, tmp_path)


def test_a_real_disk_that_ends_in_the_middle_of_a_segment(tmp_path: Path) -> None:
    """Through a map each of these reads was a SIGBUS."""
    assert run_mounted("cut_image.py", tmp_path) == [
        "disk 5", "read True -9", "check True unreadable", "open True 0", "new True",
    ]  # fmt: skip
