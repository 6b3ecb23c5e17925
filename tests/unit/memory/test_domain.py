"""Domains: where they live, who may enter them, and what the names in shared memory mean."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import posix_ipc
import pytest

from holdfast.engine.errors import ConfigError, ForeignOwnerError, NoDomainError
from holdfast.engine.memory.domain import (
    Domain,
    base_directory,
    domain_directory,
    open_object,
    unlink_object,
    unlink_source,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

UUID, OTHER = b"source of a test", b"another source.."


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "base"
    monkeypatch.setenv("HOLDFAST_DIR", str(path))
    return path


@pytest.fixture
def own(domain: str) -> Iterator[Domain]:
    made = Domain(domain, join=False)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("given", "runtime", "path"),
    [
        ("/given", "/run/user/7", "/given"),
        (None, "/run/user/7", "/run/user/7/holdfast"),
        ("", "/run/user/7", "/run/user/7/holdfast"),
        (None, None, f"/tmp/holdfast-{os.getuid()}"),
    ],
)
def test_domains_live_where_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, given: str | None, runtime: str | None, path: str
) -> None:
    for name, value in (("HOLDFAST_DIR", given), ("XDG_RUNTIME_DIR", runtime)):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    assert base_directory() == Path(path)


@pytest.mark.parametrize("name", ["../d", ".hidden", "a/b", "a b", "x" * 65])
def test_what_is_no_file_name_is_no_domain(base: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="is not a name"):
        Domain(name)
    assert not base.exists()


def test_a_domain_may_be_named_by_its_directory(own: Domain, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """For a process that was told where it is, and has another environment."""
    monkeypatch.setenv("HOLDFAST_DIR", str(tmp_path / "elsewhere"))
    same = Domain(str(own.path), join=False)
    assert (same.name, same.path, same.prefix) == (own.name, own.path, own.prefix)
    same.close()
    with pytest.raises(ConfigError, match=r"'/a/\.b' is not a name"):
        Domain("/a/.b")
    assert domain_directory("d") == tmp_path / "elsewhere" / "d"


def test_a_domain_is_made_for_its_user_alone(base: Path) -> None:
    Domain("d", join=False).close()
    for path in (base, base / "d", base / "d" / "stores"):
        assert path.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("place", ["", "d", "d/stores"])
def test_a_directory_that_others_may_enter_is_refused(base: Path, place: str) -> None:
    Domain("d", join=False).close()
    (base / place).chmod(0o750)
    with pytest.raises(ForeignOwnerError, match="has mode 750: others may enter"):
        Domain("d", join=False)


def test_another_users_directory_is_refused(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Domain("d", join=False).close()
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(ForeignOwnerError, match=f"{base} belongs to uid {owner}, not to {owner + 1}"):
        Domain("d", join=False)


def test_a_link_to_a_directory_is_not_followed(base: Path, tmp_path: Path) -> None:
    """Whoever may write to the parent could lead us to a directory that they have chosen."""
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    base.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="is not a directory"):
        Domain("d")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_file_in_place_of_a_directory_is_a_mistake_in_the_configuration(base: Path) -> None:
    base.write_text("")
    with pytest.raises(ConfigError, match=f"{base} is not a directory; set HOLDFAST_DIR"):
        Domain("d")


def test_who_only_reads_makes_no_domain_and_is_told_what_there_is(base: Path) -> None:
    with pytest.raises(NoDomainError) as none:
        Domain("prices", make=False)
    assert none.value.hint == "domains there: none"
    assert not base.exists()
    for name in ("prices", "orders"):
        Domain(name, join=False).close()
    with pytest.raises(NoDomainError) as near:
        Domain("price", make=False)
    assert near.value.hint == "did you mean 'prices'?"
    with pytest.raises(NoDomainError) as far:
        Domain("xyz", make=False)
    assert far.value.hint == "domains there: orders, prices"
    Domain("prices", join=False, make=False).close()


def test_a_path_that_is_too_long_for_a_socket_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    longest = 107 - len(f"{tmp_path}//d/stores/a.sock")
    monkeypatch.setenv("HOLDFAST_DIR", str(tmp_path / ("x" * longest)))
    made = Domain("d", join=False)
    made.socket_path("a")
    with pytest.raises(ConfigError, match="is 108 bytes, a Unix socket takes 107") as refused:
        made.socket_path("aa")
    assert refused.value.hint == "set HOLDFAST_DIR to a shorter path"
    made.close()
    monkeypatch.setenv("HOLDFAST_DIR", str(tmp_path / ("x" * (longest + 1))))
    with pytest.raises(ConfigError, match="a Unix socket takes 107"):
        Domain("d", join=False)
    assert [path.name for path in tmp_path.iterdir()] == ["x" * longest]


def test_names_in_shared_memory_say_what_they_are_and_others_are_nobodys(own: Domain) -> None:
    names = [own.stream_name(UUID, 12), own.board_name(UUID), own.channel_name(UUID, 3), own.bells_name]
    parsed = [own.parse(name) for name in [*names, own.memory_logs("a", b"a" * 16).name]]
    assert [(it.kind, it.uuid, it.incarnation) for it in parsed if it is not None] == [
        ("stream", UUID, 12), ("board", UUID, 0), ("channel", UUID, 3), ("bells", b"", 0), ("logs", b"", 0),
    ]  # fmt: skip
    strange = [
        "",
        UUID.hex(),
        f"{UUID.hex()}.x",
        f"{UUID.hex()}.s",
        f"{UUID.hex()}.s-1",
        f"{UUID.hex().upper()}.b",
        "ab.b",
    ]
    assert [own.parse(own.prefix + rest) for rest in strange] == [None] * len(strange)
    assert own.parse("hf.000000000000.bells") is None


def make(name: str) -> None:
    os.close(open_object(name, create=True))


def test_a_source_takes_its_rings_and_its_board_along_and_nobody_elses(own: Domain) -> None:
    for uuid in (UUID, OTHER):
        for name in (own.board_name(uuid), own.stream_name(uuid, 10), own.stream_name(uuid, 9)):
            make(name)
    assert [it.incarnation for it in own.objects(UUID) if it.kind == "stream"] == [9, 10]
    unlink_source(own, UUID)
    assert own.objects(UUID) == []
    assert len(own.objects()) == len(own.objects(OTHER)) == 3


def test_an_object_is_made_once_opened_where_it_is_and_removed_in_any_case(own: Domain) -> None:
    name = own.bells_name
    with pytest.raises(FileNotFoundError, match=name):
        open_object(name)
    make(name)
    with pytest.raises(FileExistsError, match=name):
        open_object(name, create=True)
    os.close(open_object(name, writable=True))
    unlink_object(name)
    unlink_object(name)
    assert own.objects() == []


def test_an_object_that_may_not_be_opened_is_another_users(own: Domain, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise posix_ipc.PermissionsError

    monkeypatch.setattr(posix_ipc, "SharedMemory", refuse)
    with pytest.raises(ForeignOwnerError, match=f"/dev/shm/{own.bells_name} belongs to another user"):
        open_object(own.bells_name, create=True)
