"""A sync of a real store fails once, and the next one returns 0: nothing is called stable on the strength of
that.

The log, or the state, stands still until the store is started again; then what was not on disk is written
once more, into new files, and the stream goes on where it was.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import pytest
from support.handmade_feed import Log
from support.kill_scene import Scene
from support.silent_store import NEVER, may_fall_silent
from support.workers import Worker, until

import holdfast as hf
from holdfast.engine.log.state_file import SourceState
from holdfast.engine.native.core import ffi, lib
from holdfast.engine.native.status import error_of
from holdfast.engine.store.holdings import UnusableLogError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from process.conftest import ThreadStore

SEED = 11
SHORT = 90.0
SOURCE = {"ume_store_name": ["a:0:0"], "ring_size": 1 << 17, "ume_registration_interval": 100}
POISONED_AT = 160
"""Of the log's head (csrc/README.md)."""
FIRST = "seg-0000000000000000"
WINDOW = 50
SPARED = 30 * 10 * WINDOW
"""30 group commits have no more messages: behind them, every sync that is counted here was made."""


@pytest.mark.parametrize("call", ["log.fsync@1", "log.fsync@5", "log.fsync@7", "log.fdatasync@15", "log.fdatasync@30"])
def test_a_store_whose_sync_failed_goes_on_when_it_is_started_again(call: str, tmp_path: Path, own_domain: str) -> None:
    name, _, number = call.partition("@")
    with Scene(
        tmp_path, own_domain, SEED, segment_bytes=1 << 16, options={"repository-disk-file-size-limit": 400_000},
        window=WINDOW,  # the store keeps more than the source may be ahead of a receiver that is slow: ten times as many
    ) as scene:  # fmt: skip
        scene.lets_go = True
        doubts = scene.traces.domain.doubts

        def states() -> dict[str, int]:
            return {at.name: at.stat().st_ino for at in (tmp_path / "store").glob("state.[01]")}

        scene.store.start()
        until("its directory is on disk", states)
        scene.kill(scene.store)
        files = states()
        struck: set[str] = set()

        def fails() -> bool:
            """It is noted; or it was, for a moment that nobody saw: the state is another file now."""
            struck.update(at.name for at in doubts.iterdir()) if doubts.is_dir() else None
            return bool(struck) or any(files.setdefault(name, inode) != inode for name, inode in states().items())

        scene.store.start(f"{name}=errno:EIO@{number}")
        until("both files of its state are known", lambda: fails() or len(files) == 2)
        scene.start(scene.source, scene.receiver)
        # Of a segment that is prepared nothing is noted: that file goes, and nobody believes it.
        until("a sync fails", lambda: fails() or scene.processed > SPARED, scene.look)
        if number == "1" and scene.store.process is not None and scene.store.process.poll() == 1:
            scene.store.process = None  # its first life went on for longer: the sync was one of this start
        else:
            scene.kill(scene.store)
        of_the_log, left = ({name for name in names if "." in name} for names in (struck, os.listdir(doubts)))
        assert len(struck) <= 1
        assert left == of_the_log, "a log's stays; a state's goes when it is written anew, at once"
        scene.store.start()
        scene.go_on(60)
        assert scene.finish() > 20
        assert not any(doubts.iterdir()), "all was written once more"


def test_the_seat_of_a_store_whose_sync_failed_goes_to_a_backup(tmp_path: Path, own_domain: str) -> None:
    """That store lives, and its link holds; but its log takes nothing more until it is started again."""
    stores = {
        name: Worker("store", tmp_path, domain=own_domain, name=name, directory=str(tmp_path / name)) for name in "ab"
    }
    options = {
        **SOURCE, "ume_store_name": ["a:0:0", "b:0:0"], "ume_store_group": ["0:1"], **NEVER,
        "ume_registration_interval": 60_000,  # a has the seat first, however slow
    }  # fmt: skip
    try:
        # By then the state is at rest, and the sync is a log's: a doubt about the state ends at once.
        stores["a"].start("log.fdatasync=errno:EIO@60").wait_ready()
        stores["b"].start().wait_ready()
        with hf.Context(session_id=1) as ctx, ctx.source("quotes", options=options) as src:
            doubts = ctx.domain.doubts

            def fails() -> bool:
                with contextlib.suppress(hf.WouldBlockError, hf.NotRegisteredError, hf.StabilityTimeout):
                    src.send(b"x", timeout=0.05)
                    src.wait_stable(timeout=0.05)
                return doubts.is_dir() and any(doubts.iterdir())

            until("a sync fails", fails, stores["a"].check_alive)
            may_fall_silent(src, 0, 1000)

            def has_gone_on() -> bool:
                with contextlib.suppress(hf.WouldBlockError, hf.NotRegisteredError, hf.StabilityTimeout):
                    src.send(b"x", timeout=0.05)
                    src.wait_stable(timeout=0.05)
                return src.stats().stores["b"].state == "active"

            until("the backup has the seat", has_gone_on, stores["a"].check_alive)
            assert src.stats().stores["a"].state == "idle"
            src.wait_registered(SHORT)
            src.send(b"y")
            src.wait_stable(timeout=SHORT)
    finally:
        for store in stores.values():
            store.discard()


def log_of(store: ThreadStore) -> Path:
    return store.store.logs / store.store.state.sources[0].uuid.hex()


def flag(store: ThreadStore) -> None:
    """As it stands in the head of a store that was killed."""
    with (log_of(store) / "head").open("r+b") as head:
        head.seek(POISONED_AT)
        head.write(b"\1")


def doubt(store: ThreadStore) -> None:
    """The head's page was dropped, with its flag. The doubt is too short to say of which boot it is: it
    counts."""
    (store.store.domain.doubts / f"{store.store.state.uuid.hex()}.{log_of(store).name}").touch()


@pytest.mark.parametrize("poison", [flag, doubt])
def test_a_poisoned_log_is_written_once_more_at_the_next_start(
    poison: Callable[[ThreadStore], None], run_store: Callable[..., ThreadStore]
) -> None:
    store = run_store("a", "disk")
    with hf.Context(session_id=1) as ctx, ctx.source("quotes", options=SOURCE) as src:
        src.wait_registered(SHORT)
        for number in range(5):
            src.send(b"%d" % number)
        src.wait_stable(timeout=SHORT)
    log = log_of(store)
    store.stop()
    before = (log / FIRST).stat().st_ino
    poison(store)
    store = run_store("a", "disk")
    assert (log / FIRST).stat().st_ino != before
    assert not any(store.store.domain.doubts.iterdir())
    with hf.Context(session_id=2) as ctx, hf.Context(session_id=1) as sender:
        rcv = ctx.receiver("quotes")
        with sender.source("quotes", options=SOURCE) as src:
            src.wait_registered(SHORT)
            assert src.send(b"5") == 5
            src.wait_stable(timeout=SHORT)
            for number in range(6):
                message = rcv.receive(timeout=SHORT)
                assert message is not None
                assert bytes(message.data) == b"%d" % number
        rcv.close()


def test_a_log_that_fails_is_noted_off_its_device(tmp_path: Path) -> None:
    """Its own head may not keep the flag: the disk that fails is that one's, too."""
    note, path = tmp_path / "note", tmp_path / "log"

    def opened() -> Log:
        return Log(path, b"source of a test", level=lib.HF_LEVEL_DISK, doubt=ffi.new("char[]", os.fsencode(note)))

    log = opened()
    log.begin(1, 0)
    log.plain(0, 9)
    takes_nothing_more(path)
    with pytest.raises(hf.Error) as failed:
        log.plain(10, 10)
    assert failed.value.code == "HF_POISONED"
    lib.hf_log_close(log.handle)
    assert note.exists()
    with (path / "head").open("r+b") as head:
        head.seek(POISONED_AT)
        head.write(bytes(8))
    before = (path / FIRST).stat().st_ino
    lib.hf_log_close(opened().handle)
    assert (path / FIRST).stat().st_ino != before, "it was written once more"
    assert not note.exists()


def takes_nothing_more(log: Path) -> None:
    """Each descriptor of a segment that this process has is for reading from now on."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # that of the listing
            if os.readlink(f"/proc/self/fd/{name}").startswith(f"{log}/seg-"):
                fd = os.open(f"/proc/self/fd/{name}", os.O_RDONLY)
                os.dup2(fd, int(name), inheritable=False)
                os.close(fd)


def test_what_cannot_be_written_once_more_is_refused_and_says_what_to_do(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = run_store("a", "disk")
    with hf.Context(session_id=1) as ctx, ctx.source("quotes", options=SOURCE) as src:
        src.wait_registered(SHORT)
        src.send(b"0")
        src.wait_stable(timeout=SHORT)
    log = log_of(store)
    store.stop()
    flag(store)
    (log / "copy-new").mkdir()  # nothing can be copied
    store = run_store("a", "disk")
    source = store.store.state.sources[0]
    assert source.uuid in store.store.drainer.failures
    with pytest.raises(hf.Error, match=r"File exists|Is a directory"):
        store.store.holdings.ensure_repository(source)
    (log / "copy-new").rmdir()
    store.store.holdings.ensure_repository(source)  # somebody asked for it: it is tried again
    with hf.Context(session_id=1) as ctx, ctx.source("quotes", options=SOURCE) as src:
        src.wait_registered(SHORT)
        assert src.send(b"1") == 1
        src.wait_stable(timeout=SHORT)


def test_the_error_of_a_log_whose_sync_failed_says_what_to_do() -> None:
    source = SourceState(b"u" * 16, "quotes", 7, 0)
    poisoned = UnusableLogError("a", source, error_of(lib.HF_POISONED, what="/logs/x"))
    assert "/logs/x: a sync failed" in poisoned.args[0]
    assert "see to the disk: it is tried again" in poisoned.hint
    assert "move that directory away" in poisoned.hint
    damaged = UnusableLogError("a", source, error_of(lib.HF_DAMAGED, what="/logs/x"))
    assert "tried again" not in damaged.hint
