"""Spark's readers over pages that the disk does not give: sectors.py, each test of it with its own preloaded
shim."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.bad_pages import run_scene, scenes

SECTORS = Path(__file__).with_name("sectors.py")


@pytest.mark.parametrize("scene", scenes(SECTORS))
def test_over_bad_sectors(scene: str, tmp_path: Path) -> None:
    run_scene(SECTORS, scene, tmp_path)
