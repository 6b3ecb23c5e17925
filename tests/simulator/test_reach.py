"""What measures the reach of seeds: which it plays, what it says, and that it measures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from simulator import reach
from simulator.reach import FLOOR, MODULES, ROOT, Reached, judged, measured, reached, seeds
from simulator.scenes import SCENES
from simulator.shape import draw

if TYPE_CHECKING:
    from pathlib import Path


def test_every_module_is_there() -> None:
    assert [module for module in MODULES if not (ROOT / module).is_file()] == []


def test_a_module_below_the_floor_is_named_with_what_it_lacks() -> None:
    least = Reached("engine/rules/expiry.py", float(FLOOR), "7")
    assert judged([least]) == []
    (said,) = judged([least, Reached("engine/store/expiry.py", 79.94, "12-14, 20->22")])
    assert said == "engine/store/expiry.py: 79.9 %, and 80 % are asked for; no seed reaches 12-14, 20->22"


def test_the_first_seeds_and_some_of_each_plot_are_played() -> None:
    which = seeds(20, 2)
    assert which[:20] == list(range(20))
    assert sorted(set(which)) == which
    plots = [name for seed in which for name in (*draw(seed).plots, *draw(seed).faults)]
    assert {scene: plots.count(scene) for scene in SCENES if plots.count(scene) < 2} == {}
    assert seeds(3, 0) == [0, 1, 2]


def test_a_plot_that_no_seed_has_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "SEARCHED", 50)
    with pytest.raises(LookupError, match="too few among 50 seeds: nowhere"):
        seeds(10, 1, ["nowhere"])


def test_it_measures_lines_and_branches_of_each_module_in_every_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reach, "PIECE", 2)
    broken, found = measured([0, 1, 2, 3], tmp_path, 2)
    assert broken == []
    several, alone = reached(found), reached(measured([0], tmp_path / "one", 1)[1])
    assert [each.module for each in several] == list(MODULES)
    assert all(each.percent > 20 for each in several)
    assert all(more.percent >= less.percent for more, less in zip(several, alone, strict=True))
    assert judged(alone), "one seed is not enough"
    assert all("->" in each.lacking for each in alone if each.module == "engine/store/repository.py"), "branches, too"


def test_a_module_that_is_not_measured_is_no_module_without_gaps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, found = measured([0], tmp_path, 1)
    monkeypatch.setattr(reach, "MODULES", (*MODULES, "engine/rules/moved.py"))
    with pytest.raises(LookupError, match=r"engine/rules/moved\.py was not measured"):
        reached(found)
