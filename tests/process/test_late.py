"""A number that is late (engine/late.py): it is no longer waited for when the operator has given up who may have it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from process.feeds import PATIENCE_S, Stage, numbers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def stage(tmp_path: Path, domain: str) -> Iterator[Stage]:
    made = Stage(tmp_path, domain)
    yield made
    made.close()


def test_what_only_a_store_may_have_that_the_operator_gave_up_is_lost(stage: Stage) -> None:
    log = stage.log("a")
    log.begin(1, 0)
    log.plain(4, 8)
    stage.open(0, paths=[str(log.path), str(stage.path / "down")]).late = lambda *_: False
    assert stage.drain() == []
    stage.now_ns += PATIENCE_S * 10**9
    assert stage.drain() == [("lost", 0, 3), *numbers(4, 8)]
