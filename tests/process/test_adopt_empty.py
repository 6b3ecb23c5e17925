"""``holdfast store adopt-empty``: by name and by directory, only of a store that does not run."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from process.command import one_error, run

from holdfast.engine.store_state import StateFile

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from process.conftest import ThreadStore


def adopts(directory: Path) -> tuple[bool, int]:
    """The word of the operator, and how often the directory was opened."""
    state = StateFile(directory).load()
    assert state is not None
    return state.adopts_empty, state.opened


def test_a_wiped_store_is_adopted_by_its_name(run_store: Callable[..., ThreadStore], tmp_path: Path) -> None:
    run_store("a", "disk").stop()
    shutil.rmtree(tmp_path / "store-a")
    code, out, err = run("store", "adopt-empty", "a")
    assert (code, err) == (0, "")
    assert out.startswith(f"store a ({tmp_path}/store-a) votes as one that never had a message")
    assert adopts(tmp_path / "store-a") == (True, 0)
    store = run_store("a", "disk")
    assert store.store.state.adopts_empty


def test_a_store_is_adopted_by_its_directory_and_keeps_the_rest_of_its_state(
    run_store: Callable[..., ThreadStore], tmp_path: Path
) -> None:
    store = run_store("a", "disk")
    store.stop()
    before = StateFile(tmp_path / "store-a").load()
    assert run("store", "adopt-empty", str(tmp_path / "store-a"))[0] == 0
    after = StateFile(tmp_path / "store-a").load()
    assert before is not None
    assert after is not None
    assert (after.uuid, after.opened, after.adopts_empty) == (before.uuid, before.opened, True)


def test_a_store_that_runs_is_left_alone(run_store: Callable[..., ThreadStore], tmp_path: Path) -> None:
    run_store("a", "disk")
    for given in ("a", str(tmp_path / "store-a")):
        one_error(run("store", "adopt-empty", given), 3, "is in use", "stop it first")
    assert not adopts(tmp_path / "store-a")[0]


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    one_error(run("store", "adopt-empty", "a"), 2, "no store named a ever ran")
    one_error(run("store", "adopt-empty", str(tmp_path / "none")), 2, "none is not a directory")
