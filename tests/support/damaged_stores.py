"""Three disk stores with the same messages, damage to one of them, and what was repaired."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.receiving import SHORT, options, until

import holdfast as hf
from holdfast.engine.log.check import check_store
from holdfast.engine.log.compare import compare_stores

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from process.conftest import ThreadStore

    Run = Callable[..., ThreadStore]


NAMES = "abc"


COUNT = 3000


FRAME = 96
"""Bytes of each message in a log."""


PAYLOAD = 60


def kept(run_store: Run, tmp_path: Path, kind: str = "disk", count: int = COUNT, pad: int = 0) -> list[Path]:
    stores = [run_store(name, kind) for name in NAMES]
    with hf.Context() as ctx:
        src = ctx.source("quotes", options=options(*NAMES))
        src.wait_registered(SHORT)
        for number in range(count):
            src.send(f"{number:>{PAYLOAD}}".encode() + bytes(pad), timeout=SHORT)
        src.wait_stable(timeout=SHORT)
        until("all stores have all", lambda: all(held(store) == count for store in stores))
    for store in stores:
        store.stop()
    return [tmp_path / f"store-{name}" for name in NAMES]


def held(store: ThreadStore) -> int:
    (repository,) = store.store.drainer.repositories.values()
    return int(repository.info.next_sqn)


def log_of(directory: Path) -> Path:
    (log,) = (directory / "logs").iterdir()
    return log


def segment(directory: Path) -> Path:
    return min(log_of(directory).glob("seg-*"))


def fills(directory: Path) -> list[Path]:
    return sorted(log_of(directory).glob("fill-*"))


def filled(directory: Path) -> list[int]:
    """Numbers that the fills cover. How many fills they are depends on where the store synced: a gap ends at
    a SYNC record."""
    bounds = [[int(bound, 16) for bound in path.name.split("-")[1:]] for path in fills(directory)]
    return [number for first, following in bounds for number in range(first, following)]


def place(directory: Path, number: int) -> int:
    """Offset of a message's bytes in the first segment."""
    at = segment(directory).read_bytes().find(f"{number:>{PAYLOAD}}".encode())
    assert at > 0
    return at


def damage(directory: Path, *numbers: int) -> None:
    """One bit of each of these messages turns over."""
    offsets = [place(directory, number) + 7 for number in numbers]
    with segment(directory).open("r+b") as file:
        for at in offsets:
            file.seek(at)
            (byte,) = file.read(1)
            file.seek(at)
            file.write(bytes([byte ^ 16]))


def clean(directory: Path) -> bool:
    return not check_store(directory).damaged


def same(directories: list[Path]) -> bool:
    return not any(found.difference for found in compare_stores(directories))


def received(count: int) -> list[bytes]:
    """What a new receiver gets."""
    with hf.Context() as ctx:
        rcv = ctx.receiver("quotes")
        found: list[bytes] = []
        for _ in range(count):
            message = rcv.receive(timeout=SHORT)
            assert message is not None, f"only {len(found)} came"
            found.append(bytes(message))
            message.release()
    return found
