"""A power cut leaves heads that are older than their logs: no group commit syncs them. What was stable behind
such a head is reported, read, checked and caught up with while its store is still dead, and its numbers are
given to nothing else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from support import power_cut
from support.workers import until

import holdfast as hf
from holdfast.engine.log.catalog import topic_sources
from holdfast.engine.log.check import check_log, check_store
from holdfast.engine.log.compare import compare_stores
from holdfast.engine.log.info_file import log_range, peer_view
from holdfast.engine.log.reader import Block, Logs
from holdfast.engine.memory.domain import Domain, unlink_object
from holdfast.engine.rules.reconcile import LogView

if TYPE_CHECKING:
    from collections.abc import Callable

    from process.conftest import ThreadStore

SHORT = 90.0
SOURCE: dict[str, Any] = {"ring_size": 1 << 17, "fragment_size": 4096, "ume_registration_interval": 100}
SESSION = 5


class Case(NamedTuple):
    """Store a is seated first and dies first; the others keep what comes then."""

    stores: list[str]
    options: dict[str, Any]
    quorum: str
    """Stores that are started for a new source, one after the other."""


CASES = {
    "a backup": Case(["a", "b"], {"ume_store_name": ["a", "b"], "ume_store_group": ["0:1"]}, "a"),
    "three seats and a backup": Case(
        ["a", "b", "c", "d"], {"ume_store_name": ["a", "b", "c", "d"], "ume_store_group": ["0:3"]}, "abcd"
    ),
    "any of two groups": Case(
        ["a", "b"],
        {
            "ume_store_name": ["a:0:0", "b:0:1"],
            "ume_store_group": ["0:1", "1:1"],
            "ume_retention_intergroup_stability_behavior": "any",
        },
        "a",
    ),
}


def send(src: hf.Source, count: int) -> int:
    """Returns the last number, when it is stable."""
    number = 0
    for _ in range(count):
        number = power_cut.send(src)
    src.wait_stable(timeout=SHORT)
    return number


def log_of(store: ThreadStore) -> Path:
    (source,) = store.store.state.sources
    return Path(store.store.logs / source.uuid.hex())


def whole_below(log: Path, number: int) -> bool:
    """It has all messages below."""
    report = check_log(log)
    return (report.oldest, report.messages >= number, report.findings) == (0, True, [])


def cut(domain: str, heads: dict[Path, bytes]) -> None:
    """What the disk has after it; the dead have left nothing in shared memory."""
    for head, old in heads.items():
        with head.open("r+b") as file:
            file.write(old)
    place = Domain(domain, join=False)
    for item in place.objects():
        unlink_object(item.name)
    place.close()


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_what_was_stable_behind_an_old_head_is_never_numbered_again(
    run_store: Callable[..., ThreadStore], own_domain: str, case: Case
) -> None:
    stores = {name: run_store(name, "disk") for name in case.stores}
    with hf.Context(session_id=SESSION) as ctx:
        # Patient: a store that answers late on a busy machine would lose its seat to the backup for good.
        src = ctx.source("quotes", options={**SOURCE, **case.options, "ume_registration_interval": 60_000})
        # Two of three are enough to register.
        until("a has its seat", lambda: src.stats().stores["a"].state == "active")
        assert send(src, 100) == 99
        stores.pop("a").stop()
        assert send(src, 1) == 100
        kept = {name: log_of(store) for name, store in stores.items() if store.store.state.sources}
        holding = [log for log in kept.values() if (view := log_range(log)) is not None and view[1] == 101]
        heads = {log / "head": (log / "head").read_bytes() for log in holding}
        assert send(src, 99) == 199
        until("all that keep it have it", lambda: all((log_range(log) or (0, 0))[1] == 200 for log in holding))
    for store in stores.values():
        store.stop()
    cut(own_domain, heads)
    assert heads
    for log in holding:
        expect_whole(log)

    run_a = run_store("a", "disk")
    (repository,) = run_a.store.drainer.repositories.values()
    assert run_a.store.drainer.call(repository.report).end == 200
    for name in case.quorum[1:]:
        run_store(name, "disk")
    with hf.Context(session_id=SESSION) as ctx:
        src = ctx.source("quotes", options={**SOURCE, **case.options})
        src.wait_registered(SHORT)
        assert src.send(b"y") >= 200
        until("a has read it behind the old heads", lambda: whole_below(log_of(run_a), 200))


def cannot_mount(where: Path) -> str:
    """Why no image can be mounted here, or nothing."""
    if os.geteuid() != 0:
        return "mounting an image needs root"
    for program in ("unshare", "mkfs.ext4"):
        if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None:
            return f"{program} is missing"
    (where / "probe").mkdir()
    image = where / "probe.img"
    with image.open("wb") as file:
        file.truncate(8 << 20)
    script = f"mkfs.ext4 -q {image} && mount --make-rprivate / && mount -o loop {image} {where}/probe"
    probed = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, check=False)
    return f"no loop device: {probed.stderr.strip()}" if probed.returncode else ""


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_a_power_cut_under_whole_stores_takes_no_stable_number_back(tmp_path: Path, case: Case) -> None:
    wrong = cannot_mount(tmp_path)
    if wrong:
        pytest.skip(wrong)
    for turn in range(5):
        where = tmp_path / str(turn)
        where.mkdir()
        settings = json.dumps({**case._asdict(), "options": {**SOURCE, **case.options}})
        command = ["unshare", "-m", sys.executable, power_cut.__file__, str(where), settings]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout.splitlines()[-1])
        assert found["report"] == 200
        assert found["first"] >= 200
        if max(found["heads"].values()) < 200:
            return
    pytest.skip("the kernel wrote every head back before the cut, five times")


def expect_whole(log: Path) -> None:
    """200 messages, for everybody who reads it with its store dead."""
    view = peer_view(log)
    assert isinstance(view, LogView)
    assert view.end == 200
    assert log_range(log) == (0, 200)
    logs, block, number = Logs([str(log)]), Block(), 0
    while logs.read(number, block):
        number = int(block.entries[block.count - 1].sequence_number) + 1
    logs.close()
    assert number == 200
    directory = log.parent.parent
    (source,) = topic_sources(None, [directory])
    assert [kept.next for kept in source.logs] == [200]
    checked = check_store(directory)
    assert [(each.messages, each.next) for each in checked.logs] == [(200, 200)]
    (compared,) = compare_stores([directory, directory])
    assert (compared.next, compared.difference) == (200, None)
