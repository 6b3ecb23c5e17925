"""The names of a store: its own, its port, and others that it answers to while nobody else has them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import holdfast as hf
from holdfast.engine.log.info_file import read_info
from holdfast.engine.memory.domain import Domain
from holdfast.engine.options.store_names import is_store_name
from holdfast.engine.store.store import Store, StoreConfig
from holdfast.engine.tools.gc import sweep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PORT = "127.0.0.1:10313"


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., Store]]:
    """Opens stores; those that are not closed yet are closed at the end."""
    with contextlib.ExitStack() as stack:

        def open_store(name: str, **more: object) -> Store:
            store = Store(StoreConfig(name, tmp_path / f"store-{name}", **{"type": "memory", **more}))  # type: ignore[arg-type]
            store.open()
            stack.callback(close, store)
            return store

        yield open_store


def close(store: Store) -> None:
    if store.directory._fd >= 0:
        store.close()


def found(name: str) -> str:
    """Name of the store that its file under ``name`` tells of, or nothing."""
    domain = Domain()
    try:
        info = read_info(domain, name)
        return info.name if info is not None else ""
    finally:
        domain.close()


def sockets() -> set[str]:
    domain = Domain()
    domain.close()
    return {path.name.removesuffix(".sock") for path in domain.stores.glob("*.sock")}


@pytest.mark.parametrize(
    ("name", "valid"),
    [
        ("a", True), ("a" * 31, True), ("a" * 32, False), ("", False), ("a/b", False), ("..", False), (None, False),
        (PORT, True), ("127.0.0.1:65535", True), ("127.0.0.1:65536", False), ("127.0.0.1:0", False),
        ("127.0.0.1:010", False), ("127.0.0.1:", False), ("127.0.0.2:10313", False), ("127.0.0.1:" + "1" * 5000, False),
    ],
)  # fmt: skip
def test_what_a_store_may_be_called(name: object, valid: bool) -> None:
    assert is_store_name(name) is valid


def test_a_store_is_found_under_its_port_also_when_it_is_dead(opened: Callable[..., Store]) -> None:
    store = opened("a", port=10313)
    assert sockets() == {"a", PORT}
    assert (found("a"), found(PORT)) == ("a", "a")
    store.close()
    assert sockets() == set()
    assert found(PORT) == "a"


def test_a_port_of_a_living_store_is_refused_and_a_dead_ones_is_taken(opened: Callable[..., Store]) -> None:
    first = opened("a", port=10313)
    with pytest.raises(hf.DirectoryInUseError, match=r"port 10313 .*choose another port") as refused:
        opened("b", port=10313)
    assert (refused.value.pid, refused.value.exit_code) == (os.getpid(), 3)
    assert sockets() == {"a", PORT}
    first.close()
    opened("b", port=10313)
    assert (found(PORT), found("a")) == ("b", "a")


def test_another_port_replaces_the_one_of_the_start_before(opened: Callable[..., Store]) -> None:
    opened("a", port=10313).close()
    opened("a", port=11313)
    assert (found(PORT), found("127.0.0.1:11313")) == ("", "a")


def test_port_0_is_none_and_the_store_goes_by_its_name(opened: Callable[..., Store]) -> None:
    opened("a", port=0)
    assert sockets() == {"a"}


def test_a_store_may_have_nothing_but_a_port(opened: Callable[..., Store]) -> None:
    opened(PORT)
    assert found(PORT) == PORT
    with pytest.raises(hf.DirectoryInUseError, match="port 10313"):
        opened("b", port=10313)


def test_another_name_is_taken_only_where_no_store_ever_had_it(opened: Callable[..., Store]) -> None:
    opened("b").close()
    opened("a", aliases=("b", "c"))
    assert (found("b"), found("c")) == ("b", "a")
    assert sockets() == {"a", "c"}


def test_another_name_yields_to_the_store_whose_name_it_is(opened: Callable[..., Store]) -> None:
    first = opened("a", aliases=("c", "d"))
    opened("e", aliases=("d",))  # that it is not free is no reason not to start
    assert found("d") == "a"
    opened("c")
    assert found("c") == "c"
    first.close()
    assert sockets() == {"c", "e"}


def test_what_a_killed_store_leaves_of_its_other_names_is_swept(tmp_path: Path) -> None:
    code = """
import os, signal, sys
from holdfast.engine.store.store import Store, StoreConfig
Store(StoreConfig("a", sys.argv[1], port=10313, type="memory")).open()
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "a")], check=False)
    assert sockets() == {"a", PORT}
    domain = Domain()
    try:
        removed = {item.path.rpartition("/")[2] for item in sweep(domain) if item.kind == "socket" and item.remove}
    finally:
        domain.close()
    assert removed == {"a.sock", f"{PORT}.sock"}
    assert (sockets(), found(PORT)) == (set(), "a")


def test_other_names_are_no_stores_of_their_own(opened: Callable[..., Store]) -> None:
    opened("a", port=10313, aliases=("c",))
    domain = Domain()
    try:
        assert domain.store_names() == ["a"]
        assert [item.path for item in sweep(domain, everything=True) if item.kind in {"socket", "info"}] == []
    finally:
        domain.close()
    assert sockets() == {"a", "c", PORT}


def test_logs_may_lie_in_another_directory_and_are_found_from_the_first(
    tmp_path: Path, opened: Callable[..., Store]
) -> None:
    store = opened("a", type="disk", cache=tmp_path / "cache")
    assert store.logs.resolve() == tmp_path / "cache" / "logs"
    with pytest.raises(hf.DirectoryInUseError, match="cache"):
        opened("b", type="disk", cache=tmp_path / "cache")
    store.close()
    opened("a", type="disk", cache=tmp_path / "cache").close()
    (tmp_path / "cache" / "logs" / "something").mkdir()
    with pytest.raises(hf.ConfigError, match=r"lie in .*cache/logs, not in .*other"):
        opened("a", type="disk", cache=tmp_path / "other")


def test_a_store_ends_in_order_although_its_domain_was_removed(
    opened: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(_: Domain) -> None:
        raise FileNotFoundError("create.lock")

    store = opened("a", port=10313)
    with monkeypatch.context() as patch:
        patch.setattr(Domain, "exclusive", gone)
        store.close()
    assert store.directory._fd < 0
