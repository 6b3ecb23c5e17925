"""One kill at a random moment of an archive run, while a source publishes to three stores; torture_archive.py
has many."""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from spark.torture_archive import ArchiveTorture

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

FLIGHTS = 4000


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """With a short name: a domain's sockets lie in it."""
    path = Path(tempfile.mkdtemp(prefix="hfa", dir="/tmp"))
    monkeypatch.setenv("HOLDFAST_DIR", str(path / "run"))
    yield path
    shutil.rmtree(path)


def test_a_kill_at_a_random_moment(folder: Path, own_domain: str) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    with ArchiveTorture(folder, FLIGHTS, rate=400, kills=1, seed=seed) as torture:
        tally = torture.run()
    assert (sum(tally.kills.values()), tally.rows) == (1, FLIGHTS)
