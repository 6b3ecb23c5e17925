"""A disk that becomes read-only under a store: its log takes nothing more, nobody dies of it, and what it has
is read."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest
from support.mounted_image import run_mounted
from support.receiving import SHORT, take
from support.recorded_events import Events
from support.workers import until

import holdfast as hf
from holdfast.engine.log.info_file import read_info

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from process.conftest import ThreadStore

OPTIONS = {"ume_store_name": ["a"], "ring_size": 1 << 17}


def test_a_real_disk_that_becomes_read_only_ends_no_store(tmp_path: Path) -> None:
    """By a store into the mapped head each of these was a SIGBUS."""
    said = run_mounted("read_only_disk.py", tmp_path)
    if said == ["no error can be triggered"]:
        pytest.skip("this kernel has no /sys/fs/ext4/*/trigger_fs_error")
    assert said == [
        "disk 30", "append HF_POISONED", "begin HF_POISONED", "release HF_POISONED", "roll HF_POISONED", "closed",
        "read 100", "open EROFS",
    ]  # fmt: skip


def test_a_store_process_on_a_disk_that_becomes_read_only_serves_what_it_has(tmp_path: Path) -> None:
    said = run_mounted("read_only_disk.py", tmp_path, "store")
    if said == ["no error can be triggered"]:
        pytest.skip("this kernel has no /sys/fs/ext4/*/trigger_fs_error")
    assert said == [
        "disk 30", "source True", "received True", "received True", "the new one is told True",
        "lives None",
        "ended 1 False 2",  # when it was met, and at the end
        "again True", "ended 1", "check 0",
    ]  # fmt: skip


def test_a_store_that_starts_on_a_read_only_disk_serves_what_is_there_and_writes_nothing(tmp_path: Path) -> None:
    assert run_mounted("read_only_start.py", tmp_path) == [
        "filled 0",
        "known True True", "new True True",  # also what lies behind the published end that an old head gives
        "source True",
        "acknowledged [(2, 99), (3, 99)]",  # on the board
        "told True True 1",
        "a second one 3 True", "excluded 3 True",
        "and later True True True",  # when the disk can be written again, nothing changes
        "told True True 1 True",
        "a second one 3 True", "marked 1 True",
        "ended 1 2 untouched",
        "goes on [100] [0] False False 0",  # the new one is on record nowhere
        "beside a writer 3 True", "ended 0",
        "empty 1 True True",
    ]  # fmt: skip


def test_of_two_disks_the_one_that_is_read_only_is_named(tmp_path: Path) -> None:
    assert run_mounted("read_only_start.py", tmp_path, "cache") == [
        "ended 0", "source True", "doctor True", "and later True", "ended 0",
    ]  # fmt: skip


def test_a_store_whose_state_meets_a_read_only_disk_serves_what_it_has_until_it_can_be_written(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same without a real disk, which wants root."""
    store = run_store("a", "disk").store

    def says_so() -> bool:
        info = read_info(store.domain, "a")
        return info is not None and info.read_only

    def fails(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with hf.Context(session_id=1) as ctx, ctx.source("quotes", options=OPTIONS) as src:
        src.wait_registered(SHORT)
        for number in range(5):
            src.send(b"%d" % number)
        src.wait_stable(timeout=SHORT)
    with hf.Context(session_id=2) as ctx:
        with monkeypatch.context() as patch:
            patch.setattr(store._file, "_put", fails)
            with (
                ctx.source("other", options=OPTIONS) as src,
                pytest.raises(hf.RegistrationError, match=f"{store.directory.path} cannot be written"),
            ):
                src.wait_registered(SHORT)
            events = Events()
            with ctx.receiver("quotes", on_event=events) as rcv:
                assert take(rcv, 5) == list(range(5))
            assert any("records nothing" in event.text for event in events.of("RegistrationError"))
            assert store.holdings.read_only is not None
            until("the others are told", says_so)
        with ctx.source("other", options=OPTIONS) as src:
            src.wait_registered(SHORT)
        until("the others are told that it is over", lambda: not says_so())
