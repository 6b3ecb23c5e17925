"""What the doctor makes of mount tables, of logind's configuration, and of machines that are not as this one
is."""

from __future__ import annotations

import os
from collections import Counter
from importlib import metadata, util
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from support.leftovers import remove_objects

from holdfast.cli import all_domains
from holdfast.cli.doctor import diagnose
from holdfast.engine.errors import CorruptionError
from holdfast.engine.memory.domain import SHM_DIR, Domain
from holdfast.engine.native.core import lib
from holdfast.engine.tools import doctor
from holdfast.engine.tools.doctor import file_system, removes_ipc
from holdfast.engine.tools.orphan_messages import KnownDomain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.engine.tools.finding import Finding

MOUNTS = r"""
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw
25 22 0:22 / /dev/shm rw,nosuid - tmpfs tmpfs rw,size=65536k
30 22 0:40 / /data rw - nfs4 server:/data rw,vers=4.2
31 30 0:41 / /data/local\040disk rw - xfs /dev/sdb rw
32 22 0:42 / /database rw - btrfs /dev/sdc rw
33 22 0:43 / /twice rw - ext4 /dev/sdd rw
34 22 0:44 / /twice rw - fuse.sshfs host: rw
a line that is none
"""


@pytest.mark.parametrize(
    ("path", "kind", "mount"),
    [
        ("/var/lib/stores/a", "ext4", "/"),
        ("/dev/shm", "tmpfs", "/dev/shm"),
        ("/data/a", "nfs4", "/data"),
        ("/data/local disk/a", "xfs", "/data/local disk"),
        ("/database/a", "btrfs", "/database"),
        ("/twice/a", "fuse.sshfs", "/twice"),
    ],
)
def test_a_path_lies_on_the_deepest_mount_the_last_one_on_top(path: str, kind: str, mount: str) -> None:
    assert file_system(Path(path), MOUNTS) == (kind, mount)


def test_without_a_mount_table_the_file_system_is_unknown() -> None:
    assert file_system(Path("/a"), "") == ("unknown", "")


@pytest.mark.parametrize(
    ("texts", "removes"),
    [
        ([], True),
        (["[Login]\n#RemoveIPC=no\n"], True),
        (["[Login]\nRemoveIPC=no\n"], False),
        (["[Login]\n RemoveIPC = 0 \n"], False),
        (["RemoveIPC=no\n", "RemoveIPC=yes\n"], True),
        (["RemoveIPC=yes\n", "RemoveIPC=false\n"], False),
    ],
)
def test_logind_removes_what_a_user_shares_unless_the_last_file_says_no(texts: list[str], removes: bool) -> None:
    assert removes_ipc(texts) == removes


# Machines that are not as this one is -----------------------------------------------------------------------

MIB = 1 << 20


@pytest.fixture
def empty(domain: str) -> Iterator[Domain]:
    made = Domain(domain, join=False)
    yield made
    made.close()


def bad(found: list[Finding], check: str) -> Finding:
    """The only finding of this check that is not good."""
    (it,) = [each for each in found if each.check == check and not each.ok]
    return it


def memory(monkeypatch: pytest.MonkeyPatch, total: int, free: int) -> list[Finding]:
    """What is said of a /dev/shm of this many MiB."""
    size = SimpleNamespace(f_frsize=MIB, f_blocks=total, f_bavail=free)
    monkeypatch.setattr(os, "statvfs", lambda _: size)
    return list(doctor._shared_memory())


def test_small_and_full_shared_memory_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_mounts", lambda: MOUNTS)
    assert "size=1g" in bad(memory(monkeypatch, 64, 64), "shm").remedy
    full = bad(memory(monkeypatch, 4096, 1), "shm")
    assert full.found == "/dev/shm: 4,096 MiB, 1 MiB free"
    assert full.remedy == "holdfast gc, or mount -o remount,size=8192m /dev/shm"
    assert [each.ok for each in memory(monkeypatch, 4096, 4096)] == [True]


def test_shared_memory_on_a_disk_is_found_whatever_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_mounts", lambda: "22 1 254:0 / / rw - ext4 /dev/root rw")
    assert bad(memory(monkeypatch, 4096, 4096), "shm").found == "/dev/shm is ext4, not tmpfs"


def test_a_machine_without_shared_memory_is_told_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor, "SHM_DIR", tmp_path / "shm")
    (it,) = doctor._shared_memory()
    assert (it.ok, it.found) == (False, f"{tmp_path / 'shm'}: No such file or directory")
    assert it.remedy == f"mount -t tmpfs tmpfs {tmp_path / 'shm'}"


@pytest.mark.parametrize(
    ("runs", "uid", "text", "ok", "found"),
    [
        (False, 1000, "", True, "systemd-logind does not run here"),
        (True, 0, "", True, "uid 0 is a system user: logind keeps its shared memory"),
        (True, 1000, "RemoveIPC=no", True, "RemoveIPC=no"),
        (True, 1000, "", False, "RemoveIPC=yes: logind deletes this user's rings, boards and memory logs"),
    ],
)
def test_logind_is_a_danger_to_a_user_of_its_own_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, runs: bool, uid: int, text: str, ok: bool, found: str
) -> None:
    (tmp_path / "logind.conf.d").mkdir()
    (tmp_path / "logind.conf.d" / "10.conf").write_text(f"[Login]\n{text}\n")
    (tmp_path / "logind.conf.d" / "20.conf").symlink_to(tmp_path / "is not there")
    monkeypatch.setattr(doctor, "LOGIND", [str(tmp_path / "logind.conf"), str(tmp_path / "logind.conf.d")])
    monkeypatch.setattr(os.path, "isdir", lambda _: runs)
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    it = doctor._remove_ipc()
    assert (it.ok, bool(it.remedy)) == (ok, not ok)
    assert it.found.startswith(found)


@pytest.mark.parametrize("works", [True, False])
def test_a_container_that_forbids_membarrier_is_found(monkeypatch: pytest.MonkeyPatch, works: bool) -> None:
    monkeypatch.setattr(doctor, "lib", SimpleNamespace(hf_wait_setup=lambda: int(works)))
    it = doctor._membarrier()
    assert (it.ok, "seccomp" in it.remedy) == (works, not works)


def test_a_checkout_that_is_not_installed_has_no_version_and_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", none)
    it = doctor._extension()
    assert it.ok
    assert it.found.startswith("holdfast (not installed), compiled core with layout ")


def test_without_its_stub_a_package_wants_nothing_of_the_core(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(util, "find_spec", lambda _: SimpleNamespace(origin=str(tmp_path / "__init__.py")))
    assert doctor._declared() == {}
    assert doctor._extension().ok


@pytest.mark.parametrize("data", [b"", b"too short for a preamble", bytes(4096)])
def test_an_object_that_is_not_done_is_of_no_other_version(empty: Domain, data: bytes) -> None:
    """Whoever makes it may be about to; what is not there at all neither."""
    board = SHM_DIR / empty.board_name(b"source of a test")
    kind = lib.HF_KIND_BOARD
    assert not doctor._foreign_layout(str(board), kind)
    board.write_bytes(data)
    assert not doctor._foreign_layout(str(board), kind)


def test_a_store_whose_info_file_is_damaged_is_found_and_named(empty: Domain) -> None:
    empty.info_path("a").write_bytes(b"no info of a store")
    it = bad(list(doctor._directories(empty)), "store")
    assert it.found == "store a: its info file cannot be read"
    assert str(empty.info_path("a")) in it.remedy


def test_a_domain_that_cannot_be_looked_at_is_a_finding_and_no_traceback(
    empty: Domain, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise CorruptionError("its objects make no sense")

    monkeypatch.setattr(doctor, "sweep", fail)
    it = bad(list(doctor._stale(empty)), "stale")
    assert "the domain cannot be looked at: " in it.found
    assert "its objects make no sense" in it.found


@pytest.mark.parametrize("as_json", [False, True])
def test_what_is_of_the_machine_is_looked_at_once_for_all_domains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    """All of shared memory and /proc was looked through for orphans for each domain."""
    places = [str(tmp_path / name) for name in "abc"]
    for place in places:
        Domain(place).close()
    looks = Counter[str]()

    def counted(name: str) -> None:
        look = getattr(doctor, name)

        def looked() -> object:
            looks[name] += 1
            return look()

        monkeypatch.setattr(doctor, name, looked)

    names = ("_shared_memory", "_remove_ipc", "_membarrier", "_extension")
    for name in names:
        counted(name)
    monkeypatch.setattr(doctor, "_orphans", lambda: looks.update(["_orphans"]) or [])
    monkeypatch.setattr(all_domains, "known_domains", lambda: [KnownDomain(place, "") for place in places])
    try:
        diagnose(as_json, None, all_domains=True)
    finally:
        for place in places:
            remove_objects(place)
    assert looks == dict.fromkeys((*names, "_orphans"), 1)
    said = capsys.readouterr().out
    assert all(place in said for place in places)
    assert said.count("compiled core with layout") == len(places), "it is said of each"
