"""``spawn_store`` takes what ``store_main`` takes: a StoreConfig, the path of an XML file, the arguments of
the command."""

from __future__ import annotations

import os
import resource
from typing import TYPE_CHECKING, Any

import pytest

import holdfast as hf
from holdfast.daemon.run import run_daemon

if TYPE_CHECKING:
    from pathlib import Path

SHORT = 90.0


def xml(path: Path, *names: str, daemon: str = "") -> Path:
    stores = "".join(
        f'<store name="{name}" port="0"><ume-attributes>'
        f'<option type="store" name="disk-state-directory" value="{path}/{name}"/></ume-attributes>'
        '<topics><topic pattern="." type="PCRE"/></topics></store>'
        for name in names
    )
    file = path / "s.xml"
    file.write_text(f'<ume-store version="1.3"><daemon>{daemon}</daemon><stores>{stores}</stores></ume-store>')
    return file


def serves(*names: str) -> None:
    with hf.Context() as ctx:
        source = ctx.source("quotes", options={"ume_store_name": list(names)})
        source.wait_registered(SHORT)
        source.wait_stable(source.send(b"kept"), SHORT)


@pytest.mark.parametrize("kind", [str, lambda path: path], ids=["str", "Path"])
def test_the_path_of_a_file_with_several_stores(tmp_path: Path, kind: Any) -> None:
    file = xml(tmp_path, "a", "b")
    with hf.spawn_store(kind(file), SHORT) as store:
        assert store.name == str(file)
        serves("a", "b")
        assert store.stop(SHORT) == 0
    assert (tmp_path / "a" / "state.1").exists()
    assert (tmp_path / "b" / "state.1").exists()


def test_the_arguments_of_the_command(tmp_path: Path) -> None:
    with hf.spawn_store(["--name", "a", "--directory", str(tmp_path / "a"), "--type", "memory"], SHORT) as store:
        serves("a")
        assert "--name a" in repr(store)
        assert store.stop(SHORT) == 0


def test_what_keeps_them_from_starting_is_raised_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(hf.ConfigError) as told:
        hf.spawn_store(xml(tmp_path, "a", daemon="<loog/>"), SHORT)
    assert told.value.line == 1
    with pytest.raises(hf.ConfigError, match=r"nothing\.xml"):
        hf.spawn_store(tmp_path / "nothing.xml", SHORT)
    with pytest.raises(hf.UsageError, match="--nonsense"):
        hf.spawn_store(["--nonsense"], SHORT)
    with pytest.raises(hf.UsageError, match="which store"):
        hf.spawn_store([], SHORT)
    with hf.spawn_store(hf.StoreConfig("a", tmp_path / "a"), SHORT) as first:
        with pytest.raises(hf.DirectoryInUseError) as held:
            hf.spawn_store(xml(tmp_path, "a", "b"), SHORT)
        assert held.value.pid == first.pid
    with pytest.raises(hf.Error, match="before it was ready"):
        hf.spawn_store(["--dump-schema"], SHORT)


@pytest.mark.parametrize("wrong", [None, 7, [1], b"x"], ids=repr)
def test_what_are_no_arguments_is_told_at_once(wrong: Any) -> None:
    with pytest.raises(hf.UsageError, match="give a StoreConfig"):
        hf.spawn_store(wrong, SHORT)


def test_the_daemon_says_once_that_it_is_ready(tmp_path: Path) -> None:
    """Whoever started it with events of its own is told when all of its stores serve."""
    from holdfast.daemon.config import DaemonConfig
    from holdfast.daemon.events import STOP, Events

    events = Events()
    told: list[str] = []

    def ready() -> None:
        told.append("ready")
        events.put(STOP)

    events.ready = ready
    stores = tuple(hf.StoreConfig(name, tmp_path / name, type="memory") for name in "ab")
    assert run_daemon(DaemonConfig(stores), events) == 0
    assert told == ["ready"]


def test_a_program_with_more_than_a_thousand_descriptors(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard == resource.RLIM_INFINITY else min(hard, 4096), hard))
    others: list[int] = []
    try:
        while not others or others[-1] < 1024:
            others.append(os.dup(0))
        with hf.spawn_store(hf.StoreConfig("a", tmp_path / "a"), SHORT):
            serves("a")
    finally:
        for descriptor in others:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
