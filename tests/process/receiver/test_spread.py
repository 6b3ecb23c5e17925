"""Recovery is spread over the stores (docs/semantics.md F.2). Here each store's messages name it: what
arrives tells who served."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from support.handmade_feed import Stage

from holdfast.engine.log import reader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAD = 1000
MESSAGES = 3000
SHARE = 300 << 10


@pytest.fixture
def stage(tmp_path: Path, domain: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setattr(reader, "SHARE_BYTES", SHARE)
    made = Stage(tmp_path, domain)
    yield made
    made.close()


def write(stage: Stage, name: str, *, lacks: range = range(0)) -> None:
    """The log of one store, whose messages name it."""
    log = stage.log(name)
    log.begin(1, 0)
    for first, behind in ((0, lacks.start), (lacks.stop, MESSAGES)):
        for number in range(first, behind, 100):
            log.append(number, *([f"{i} {name}".encode().ljust(PAD)] for i in range(number, min(number + 100, behind))))
        if behind == lacks.start and lacks:
            log.lost(lacks.start, lacks.stop - 1)


def read(stage: Stage, **where: object) -> list[str]:
    """Who served each number; all of them came, in order."""
    stage.open(0, **where)  # type: ignore[arg-type]
    said = [one for one in stage.drain() if isinstance(one, bytes)]
    numbers, names = zip(*(one.decode().split() for one in said), strict=True)
    assert [int(number) for number in numbers] == list(range(MESSAGES))
    return list(names)


def test_a_large_recovery_is_read_from_every_store_in_ranges(stage: Stage) -> None:
    for name in "abc":
        write(stage, name)
    names = read(stage)
    served = Counter(names)
    changes = sum(one != other for one, other in pairwise(names))
    assert set(served) == {"a", "b", "c"}
    assert min(served.values()) > MESSAGES / 6
    assert changes <= MESSAGES * (PAD + 48) / SHARE  # ranges, not single blocks


def test_what_one_store_lacks_is_read_from_the_others_and_the_rest_is_spread(stage: Stage) -> None:
    lacks = range(400, 2500)
    write(stage, "a")
    write(stage, "b", lacks=lacks)
    names = read(stage)
    assert "b" not in names[lacks.start : lacks.stop]
    assert "b" in names[: lacks.start] or "b" in names[lacks.stop :]


def test_one_store_that_is_left_is_enough(stage: Stage) -> None:
    write(stage, "c")
    paths = [str(stage.path / "a"), str(stage.path / "b"), str(stage.path / "c")]
    assert set(read(stage, paths=paths)) == {"c"}
