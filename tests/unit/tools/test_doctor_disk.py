"""What the logs of a store take on disk, and may take."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from holdfast.engine.rules.log_sizes import most_bytes
from holdfast.engine.tools import doctor
from holdfast.engine.tools.doctor_disk import DiskUse, disk_use

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

MIB = 1 << 20


def source(name: str, repository: str = "disk", paced: int | None = None, *, shelved: bool = False) -> Any:
    limits = None if paced is None else SimpleNamespace(disk_limit=paced)
    return SimpleNamespace(uuid=name.encode(), repository=repository, paced=limits, is_shelved=shelved)


def test_one_file_is_made_ahead() -> None:
    assert most_bytes(64 * MIB, paced=False) == (64 + 8 + 16) * MIB
    assert most_bytes(64 * MIB, paced=True) == (64 + 24 + 16) * MIB
    assert most_bytes(1 << 40, paced=False) == (1 << 40) + (64 + 16) * MIB


def test_blocks_are_counted_and_what_lies_in_memory_is_not(tmp_path: Path) -> None:
    for name in "abce":
        log = tmp_path / name.encode().hex()
        log.mkdir()
        (log / "seg-0").write_bytes(bytes(8192))
        with (log / "sparse").open("wb") as file:
            file.truncate(MIB)
    sources = [source("a"), source("b", "memory"), source("c", paced=8 * MIB), source("d"), source("e", shelved=True)]
    found = disk_use(tmp_path, sources, 64 * MIB)
    most = 2 * most_bytes(64 * MIB, paced=False) + most_bytes(8 * MIB, paced=True) + 8192
    assert found == DiskUse(4, 1, 3 * 8192, most, 1)


def store(tmp_path: Path, limit: int, *sources: Any) -> Any:
    return SimpleNamespace(
        name="a", info=SimpleNamespace(disk_limit=limit, logs=str(tmp_path)), listed=SimpleNamespace(sources=sources)
    )


def test_the_doctor_says_when_the_disk_will_be_full_before_the_limits_are_met(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert list(doctor._taken(store(tmp_path, 0, source("a")), tmp_path)) == [], "of an older version"
    assert list(doctor._taken(store(tmp_path, MIB), tmp_path)) == []
    room = SimpleNamespace(f_bavail=80, f_frsize=MIB)
    monkeypatch.setattr("holdfast.engine.tools.doctor.os.statvfs", lambda _: room)
    (tight,) = doctor._taken(store(tmp_path, 64 * MIB, source("a", paced=0)), tmp_path)
    assert not tight.ok
    assert "1 logs take 0 MiB of files; each keeps 64 MiB at most" in tight.found
    assert "104 MiB of files when all are full; 1 are receiver-paced" in tight.found
    assert tight.remedy.startswith("make 24 MiB of room, or lower repository-disk-file-size-limit")
    room.f_bavail = 104
    (enough,) = doctor._taken(store(tmp_path, 64 * MIB, source("a", paced=0)), tmp_path)
    assert enough.ok
    assert not enough.remedy
