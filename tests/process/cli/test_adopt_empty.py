"""``holdfast store adopt-empty``: by name and by directory, only of a store that does not run."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from support.command_line import one_error, run

from holdfast.engine.log.state_file import StateFile

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from process.conftest import ThreadStore


def adopted(directory: Path) -> tuple[int, int]:
    """After which life the operator gave the word, and in which one the directory was last."""
    state = StateFile(directory).load()
    assert state is not None
    return state.adopted, state.opened


def test_a_wiped_store_is_adopted_by_its_name(run_store: Callable[..., ThreadStore], tmp_path: Path) -> None:
    run_store("a", "disk").stop()
    shutil.rmtree(tmp_path / "store-a")
    code, out, err = run("store", "adopt-empty", "a")
    assert (code, err) == (0, "")
    assert out.startswith(f"store a ({tmp_path}/store-a) votes as one that never had a message")
    assert adopted(tmp_path / "store-a") == (0, 0)
    store = run_store("a", "disk")
    assert store.store.state.adopts_empty


def test_the_word_holds_for_one_run_of_the_store(run_store: Callable[..., ThreadStore], tmp_path: Path) -> None:
    """Who loses its state in a later life may have had something by then."""
    run_store("a", "disk").stop()
    for _ in range(2):
        assert run("store", "adopt-empty", "a")[0] == 0
        store = run_store("a", "disk")
        assert store.store.state.adopts_empty
        store.stop()
        store = run_store("a", "disk")
        assert not store.store.state.adopts_empty
        store.stop()


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
    assert (after.uuid, after.opened, after.adopted) == (before.uuid, before.opened, before.opened)


def test_a_store_that_runs_is_left_alone(run_store: Callable[..., ThreadStore], tmp_path: Path) -> None:
    run_store("a", "disk")
    for given in ("a", str(tmp_path / "store-a")):
        one_error(run("store", "adopt-empty", given), 3, "is in use", "stop it first")
    assert adopted(tmp_path / "store-a")[0] == -1


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    one_error(run("store", "adopt-empty", "a"), 2, "no store named a ever ran")
    one_error(run("store", "adopt-empty", str(tmp_path / "none")), 2, "none is not a directory")
