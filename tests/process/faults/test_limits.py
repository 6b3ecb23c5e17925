"""Where a machine ends: no memory, no disk, no permission, another version, a broken peer. A typed error,
never a hang."""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.leftovers import remove_objects

import holdfast as hf
from holdfast.engine.memory.domain import SHM_DIR, Domain
from holdfast.engine.memory.mapping import attach_stream
from holdfast.engine.store.store import Store, StoreConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from process.conftest import ThreadStore

TESTS = Path(__file__).resolve().parents[2]
SHORT = 90.0
OPTIONS = {"ume_store_name": ["a:0:0"], "ring_size": 1 << 18, "ume_flight_size": 1000}
LAYOUT_VERSION_AT = 8
"""Offset in every object's preamble (base/layout.h)."""


def scene(name: str, *arguments: str, mounts: tuple[str, ...] = (), base: Path | None = None) -> None:
    """Runs a scene of cramped_scenes.py in a process of its own; ``mounts``: "SIZE PLACE" of the small file
    systems that it sees."""
    command = [sys.executable, "-m", "support.cramped_scenes", name, *arguments]
    if mounts:
        steps = [f"mount -t tmpfs -o size={mount.split()[0]} tmpfs '{mount.split()[1]}'" for mount in mounts]
        command = ["unshare", "-m", "sh", "-c", " && ".join([*steps, 'exec "$@"']), "sh", *command]
    environment = {**os.environ, "PYTHONPATH": str(TESTS), **({"HOLDFAST_DIR": str(base)} if base else {})}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def may_mount() -> None:
    """Skips where this user may not mount a file system of his own."""
    tried = subprocess.run(["unshare", "-m", "true"], capture_output=True, text=True, check=False)
    if os.getuid() != 0 or tried.returncode:
        pytest.skip(f"small file systems need root and unshare: {tried.stderr.strip() or 'not root'}")


@pytest.fixture
def root() -> None:
    """Skips where there is no other user to become."""
    if os.getuid() != 0:
        pytest.skip("only root can become another user")


@pytest.mark.parametrize("name", ["shared_memory_is_full", "memory_for_a_context_is_missing"])
@pytest.mark.usefixtures("may_mount")
def test_full_shared_memory(name: str) -> None:
    scene(name, mounts=("24m /dev/shm",))


@pytest.mark.parametrize("kind", ["disk", "memory"])
@pytest.mark.usefixtures("may_mount")
def test_a_stores_disk_is_full(kind: str, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    scene("store_disk_is_full", str(disk), kind, mounts=(f"32m {disk}", "32m /dev/shm"))


@pytest.mark.usefixtures("may_mount")
def test_a_store_that_falls_out_for_a_full_disk_twice_has_everything_when_there_is_room(tmp_path: Path) -> None:
    places = [tmp_path / "small", tmp_path / "large"]
    for place in places:
        place.mkdir()
    scene("one_of_three_disks_is_full", *map(str, places), mounts=(f"24m {places[0]}",))


def test_a_limit_of_the_size_of_files() -> None:
    scene("files_may_not_grow")


@pytest.mark.usefixtures("root")
def test_a_domain_of_another_user() -> None:
    # Short and enterable: the session's own directory is closed to other users.
    base = Path(f"/tmp/hf-{os.getpid()}")
    try:
        scene("directory_of_another_user", base=base)
    finally:
        leave_no_trace(base)


@pytest.mark.parametrize("mode", ["600", "666"])
@pytest.mark.usefixtures("root")
def test_an_object_of_another_user(mode: str) -> None:
    base = Path(f"/tmp/hf-{os.getpid()}")
    try:
        scene("object_of_another_user", mode, base=base)
    finally:
        leave_no_trace(base)


def leave_no_trace(base: Path) -> None:
    for directory in base.glob("*"):
        os.chown(base, os.getuid(), os.getgid())
        for path in (directory, directory / "stores"):
            os.chown(path, os.getuid(), os.getgid())
        remove_objects(directory)
    shutil.rmtree(base, ignore_errors=True)


def test_a_path_that_is_too_long_for_a_socket_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = tmp_path / ("x" * 90)
    monkeypatch.setenv("HOLDFAST_DIR", str(base))
    with pytest.raises(hf.ConfigError, match=r"bytes, a Unix socket takes 107.*HOLDFAST_DIR"):
        Store(StoreConfig("a", tmp_path / "store"))
    with pytest.raises(hf.ConfigError, match="107"):
        hf.Context()
    assert not base.exists()


def test_a_second_store_on_one_directory_names_the_first(tmp_path: Path, own_domain: str) -> None:
    code = "import sys; from process.conftest import *; ThreadStore(StoreConfig('a', sys.argv[1])); print('up', flush=True)"
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    command = [sys.executable, "-c", code, str(tmp_path / "store")]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as first:
        try:
            assert first.stdout is not None
            assert first.stdout.readline() == b"up\n"
            with pytest.raises(hf.DirectoryInUseError) as refused:
                Store(StoreConfig("b", tmp_path / "store"))
            assert refused.value.pid == first.pid
            assert str(tmp_path / "store") in str(refused.value)
        finally:
            first.kill()
    again = Store(StoreConfig("b", tmp_path / "store"))  # its death frees the directory
    again.open()
    again.close()


def forge(name: str, at: int, data: bytes) -> None:
    with (SHM_DIR / name).open("r+b") as file:
        file.seek(at)
        file.write(data)


def objects(kind: str) -> list[str]:
    domain = Domain(join=False)
    try:
        return [item.name for item in domain.objects() if item.kind == kind]
    finally:
        domain.close()


def test_another_layout_version_is_refused() -> None:
    with hf.Context() as ctx, ctx.source("ticks", options={"ring_size": 1 << 16}) as src:
        src.wait_registered(SHORT)
        (stream,) = objects("stream")
        attach_stream(stream).close()
        forge(stream, LAYOUT_VERSION_AT, struct.pack("<I", 999))
        with pytest.raises(hf.LayoutMismatchError, match="one version of holdfast"):
            attach_stream(stream)
        forge(objects("board")[0], LAYOUT_VERSION_AT, struct.pack("<I", 999))
        forge(stream, LAYOUT_VERSION_AT, struct.pack("<I", 1))
        with ctx.receiver("ticks") as rcv, pytest.raises(hf.RegistrationError) as refused:
            rcv.receive(timeout=SHORT)
        assert isinstance(refused.value.__cause__, hf.LayoutMismatchError)


def test_a_program_of_another_version_gets_no_context(own_domain: str) -> None:
    with hf.Context():
        forge(objects("bells")[0], LAYOUT_VERSION_AT, struct.pack("<I", 999))
        code = (
            "import holdfast as hf\ntry:\n    hf.Context()\nexcept hf.LayoutMismatchError as error:\n    print(error)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.count("\n") == 1
        assert "HF_LAYOUT" in done.stdout


def test_truncated_and_unfinished_objects_are_passed_over(run_store: Callable[..., ThreadStore]) -> None:
    run_store()
    domain = Domain()
    try:
        for size in (0, 1, 127, 3519, 4096, 70_000):
            for uuid in (os.urandom(16), os.urandom(16)):
                (SHM_DIR / domain.stream_name(uuid, 1)).write_bytes(os.urandom(size))
                (SHM_DIR / domain.board_name(uuid)).write_bytes(bytes(size))
    finally:
        domain.close()
    with hf.Context() as ctx:
        src = ctx.source("quotes", options=OPTIONS)
        src.wait_registered(SHORT)
        rcv = ctx.receiver("quotes")
        src.send(b"through the rubbish")
        message = rcv.receive(timeout=SHORT)
        assert message is not None
        assert bytes(message) == b"through the rubbish"


def spoil(name: str, stop: threading.Event) -> None:
    """A broken peer: random bytes into a board, everywhere but in the preamble, for ever."""
    random = np.random.default_rng(1)
    path = SHM_DIR / name
    size = path.stat().st_size
    with path.open("r+b", buffering=0) as file:
        while not stop.is_set():
            at = int(random.integers(128, size - 64))
            file.seek(at)
            file.write(random.integers(0, 256, 64, np.uint8).tobytes())
            stop.wait(0.0002)


def test_a_board_full_of_garbage_hurts_nobody_else(run_store: Callable[..., ThreadStore]) -> None:
    store = run_store()
    stop = threading.Event()
    with hf.Context() as ctx:
        victim = ctx.source("victim", options=OPTIONS)
        victim.wait_registered(SHORT)
        (board,) = objects("board")
        of_victim = ctx.receiver("victim")
        other = ctx.source("other", options=OPTIONS)
        other.wait_registered(SHORT)
        rcv = ctx.receiver("other")
        spoiler = threading.Thread(target=spoil, args=(board, stop))
        spoiler.start()
        try:
            for number in range(2000):
                with contextlib.suppress(hf.Error):
                    victim.send(b"x", timeout=0)
                with contextlib.suppress(hf.Error):
                    if (got := of_victim.receive(timeout=0)) is not None:
                        got.release()
                assert other.send(b"%d" % number, timeout=SHORT) == number
                message = rcv.receive(timeout=SHORT)
                assert message is not None
                assert bytes(message) == b"%d" % number
                message.release()
            other.wait_stable(timeout=SHORT)
        finally:
            stop.set()
            spoiler.join()
        victim.close()
        of_victim.close()
        with ctx.source("third", options=OPTIONS) as third:
            third.wait_registered(SHORT)
            third.send(b"the store is well")
            third.wait_stable(timeout=SHORT)
    store.stop()
