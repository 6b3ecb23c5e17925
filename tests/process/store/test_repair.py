"""What is damaged or missing in one store's log comes back from the others: by itself, and by ``holdfast
store repair``."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from support.command_line import Program, run
from support.damaged_stores import (
    COUNT,
    FRAME,
    NAMES,
    PAYLOAD,
    clean,
    damage,
    filled,
    fills,
    held,
    kept,
    log_of,
    received,
    same,
    segment,
)
from support.receiving import SHORT, options, send, until

import holdfast as hf
from holdfast.engine.log.reader import Block, Logs
from holdfast.engine.log.repair import LogRepair
from holdfast.engine.native.core import ffi

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from process.conftest import ThreadStore

    Run = Callable[..., ThreadStore]


@pytest.fixture
def stopped(run_store: Run, tmp_path: Path) -> list[Path]:
    """Directories of three disk stores that have stopped, each with the same COUNT messages."""
    return kept(run_store, tmp_path)


SENT = [f"{number:>{PAYLOAD}}".encode() for number in range(COUNT)]


def test_a_store_that_starts_over_a_damaged_segment_repairs_it(stopped: list[Path], run_store: Run) -> None:
    damage(stopped[0], 10, 11, 12, 500, 2900)
    assert not clean(stopped[0])
    assert not same(stopped)
    store = run_store("a", "disk")
    until("it is repaired", lambda: clean(stopped[0]))
    store.stop()
    assert same(stopped)
    assert filled(stopped[0]) == [10, 11, 12, 500, 2900]


def test_what_was_repaired_is_served_without_the_others(stopped: list[Path], run_store: Run) -> None:
    damage(stopped[0], *range(100, 400))
    run_store("a", "disk")
    until("it is repaired", lambda: clean(stopped[0]))
    logs, block, found = Logs([str(log_of(stopped[0]))]), Block(), bytearray()
    while len(found) < COUNT * FRAME:
        assert logs.read(len(found) // FRAME, block)
        frames, size = block.frames
        found += bytes(ffi.buffer(frames, size))
    logs.close()
    assert [bytes(found[at + 32 : at + 32 + PAYLOAD]) for at in range(0, len(found), FRAME)] == SENT


def test_damage_to_all_of_them_at_different_places_is_repaired_everywhere(stopped: list[Path], run_store: Run) -> None:
    for i, directory in enumerate(stopped):
        damage(directory, *range(100 + 10 * i, 110 + 10 * i), 2000 + i)
    for name in NAMES:
        run_store(name, "disk")
    until("all are repaired", lambda: all(map(clean, stopped)))
    assert same(stopped)
    assert received(COUNT) == SENT


def test_damage_while_the_store_runs_is_found_by_the_next_look(
    stopped: list[Path], run_store: Run, caplog: pytest.LogCaptureFixture
) -> None:
    store = run_store("a", "disk", **{"holdfast-scrub-interval": 1})
    until("a first look", lambda: store.store.drainer._scrub.wait_s() not in {None, 0})
    damage(stopped[0], 77)
    with caplog.at_level(logging.WARNING, "holdfast.store"):
        until("it is repaired", lambda: clean(stopped[0]))
    assert fills(stopped[0]) != []
    until("it is told", lambda: any("77..77 were missing" in record.getMessage() for record in caplog.records))


def test_a_lost_segment_header_is_repaired(stopped: list[Path], run_store: Run) -> None:
    with segment(stopped[0]).open("r+b") as file:
        file.write(bytes(4096))
    assert not clean(stopped[0])
    run_store("a", "disk")
    until("it is repaired", lambda: clean(stopped[0]))
    assert same(stopped)


def lose(directory: Path, *, everything: bool) -> None:
    """Its oldest segment file goes, or all of them; the head stays."""
    segments = sorted(log_of(directory).glob("seg-*"))
    assert len(segments) > 1
    for path in segments if everything else segments[:1]:
        path.unlink()


@pytest.mark.parametrize("everything", [False, True], ids=["the oldest", "all"])
def test_a_store_that_lost_segment_files_gets_their_messages_back(
    run_store: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture, everything: bool
) -> None:
    directories = kept(run_store, tmp_path, pad=1000)
    where = [str(path) for path in directories]
    lose(directories[0], everything=everything)
    assert run("store", "check", where[0])[0] == 5
    assert run("store", "check", "--compare", *where)[0] == 1
    with caplog.at_level(logging.WARNING, "holdfast.store"):
        store = run_store("a", "disk")
        until("it is repaired", lambda: clean(directories[0]))
        until(
            "it is told",
            lambda: any(" on topic " in each and ": 0.." in each for each in (x.getMessage() for x in caplog.records)),
        )
    store.stop()
    assert run("store", "check", *where)[0] == 0
    assert run("store", "check", "--compare", *where)[0] == 0
    assert held(run_store("a", "disk")) == COUNT


def test_a_peer_that_comes_back_later_is_asked_then(stopped: list[Path], run_store: Run) -> None:
    damage(stopped[0], 5)
    hidden = [path.rename(path.with_name(path.name + "-away")) for path in stopped[1:]]
    store = run_store("a", "disk")
    told = store.store.drainer._scrub._told
    until("nobody had it", lambda: 5 in {gap.first for gaps in list(told.values()) for gap in gaps})
    assert not clean(stopped[0])
    for path, back in zip(hidden, stopped[1:], strict=True):
        path.rename(back)
    until("it is repaired", lambda: clean(stopped[0]))


def test_offline_repair_mends_all_from_each_other(stopped: list[Path]) -> None:
    for i, directory in enumerate(stopped):
        damage(directory, *range(100 + 10 * i, 110 + 10 * i))
    where = [str(path) for path in stopped]
    assert run("store", "check", *where)[0] == 5
    code, out, _ = run("store", "check", "--compare", *where)
    assert (code, out.splitlines()[0]) == (1, "quotes: DIFFERENT from number 100 on")
    code, out, err = run("store", "repair", *where)
    assert (code, err) == (0, "")
    assert out.count("10 numbers copied") == 3
    assert run("store", "check", *where)[0] == 0
    code, out, _ = run("store", "check", "--compare", *where)
    assert (code, out) == (0, f"quotes: equal, numbers 0..{COUNT - 1}\n")
    assert run("store", "repair", *where)[1].count("0 numbers copied") == 3


def test_offline_repair_of_one_takes_from_the_stores_of_the_domain(stopped: list[Path]) -> None:
    damage(stopped[1], 1234)
    code, out, err = run("store", "repair", str(stopped[1]))
    assert (code, err) == (0, "")
    assert "1 numbers copied" in out
    assert same(stopped)


def test_damage_at_the_same_number_everywhere_is_reported(stopped: list[Path]) -> None:
    for directory in stopped:
        damage(directory, 41, 42)
    damage(stopped[0], 43)
    where = [str(path) for path in stopped]
    code, out, _ = run("store", "repair", *where)
    assert code == 5
    assert out.count("numbers 41..42 (damage): in none of the others") == 3
    code, out, _ = run("store", "repair", "--json", *where)
    assert code == 5
    (log,) = json.loads(out)[0]["logs"]
    assert (log["filled"], log["left"]) == (0, [[41, 43, "damage"]])
    assert run("store", "check", str(stopped[0]))[0] == 5


def test_a_store_that_runs_repairs_itself_and_is_left_alone(stopped: list[Path], run_store: Run) -> None:
    run_store("a", "disk")
    code, _, err = run("store", "repair", *map(str, stopped))
    assert code == 3
    assert str(stopped[0]) in err


def test_a_memory_store_is_repaired(run_store: Run, tmp_path: Path) -> None:
    directories = kept(run_store, tmp_path, "memory")
    damage(directories[0], 3)
    damage(directories[1], 4)
    code, _, err = run("store", "repair", str(directories[0]))
    assert (code, err) == (0, "")
    run_store("b", "memory")
    until("it is repaired", lambda: clean(directories[1]))
    assert same(directories)


KILLED = """
import sys
from pathlib import Path
from holdfast.engine.native.core import lib
from holdfast.engine.log.repair import LogRepair
lib.hf_failpoint_arm(sys.argv[1].encode())
with LogRepair(Path(sys.argv[2]), [Path(sys.argv[3])]) as repair:
    repair.run()
"""


@pytest.mark.parametrize("point", ["fill.appended@2", "fill.written", "fill.synced@2", "fill.renamed"])
def test_a_kill_during_repair_leaves_what_a_repeated_repair_finishes(stopped: list[Path], point: str) -> None:
    damage(stopped[0], *range(50, 60), *range(70, 80))
    name, _, nth = point.partition("@")
    arguments = [f"{name}=kill@{nth or 1}", str(log_of(stopped[0])), str(log_of(stopped[1]))]
    environment = {**os.environ, "HOLDFAST_FAILPOINTS": ""}
    ended = subprocess.run([sys.executable, "-c", KILLED, *arguments], env=environment, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert not clean(stopped[0])
    with LogRepair(log_of(stopped[0]), [log_of(stopped[1])]) as repair:
        repair.run()
    assert same(stopped)
    assert clean(stopped[0])
    assert not (log_of(stopped[0]) / "fill-new").exists()


def test_a_store_that_is_killed_while_it_repairs_itself_goes_on_at_the_next_start(
    stopped: list[Path], start: Callable[..., Program]
) -> None:
    damage(stopped[0], 5, 50, 500)
    arguments = ["store", "run", "--name", "a", "--dir", str(stopped[0])]
    program = start(*arguments, HOLDFAST_FAILPOINTS="fill.synced=kill@2")
    assert program.process.wait(SHORT) == -signal.SIGKILL
    assert len(fills(stopped[0])) == 2, "one, and one that nobody reads"
    start(*arguments)
    until("it is repaired", lambda: clean(stopped[0]))
    assert same(stopped)


def test_a_store_that_has_no_log_of_a_source_is_different(stopped: list[Path]) -> None:
    shutil.rmtree(log_of(stopped[1]))
    code, out, _ = run("store", "check", "--compare", *map(str, stopped))
    assert code == 1
    assert "it has no log of this source" in out
    code, out, _ = run("store", "check", "--compare", "--json", str(stopped[0]), str(stopped[2]))
    assert code == 0
    (found,) = json.loads(out)
    assert (found["topic"], found["first"], found["next"], found["difference"]) == ("quotes", 0, COUNT, None)


def test_comparing_one_directory_is_a_usage_error(stopped: list[Path]) -> None:
    code, _, err = run("store", "check", "--compare", str(stopped[0]))
    assert code == 2
    assert "two or more" in err


def test_repair_does_not_hold_up_the_drain(stopped: list[Path], run_store: Run) -> None:
    damage(stopped[0], *range(100, 200))
    stores = [run_store(name, "disk") for name in NAMES]
    (damaged,) = stores[0].store.drainer.repositories.values()
    # The helper thread holds this while it works. Now it stands still.
    with hf.Context() as ctx, damaged.files:
        src = ctx.source("other", options=options("a"))
        src.wait_registered(SHORT)
        send(src, 50)
        src.close()
    until("repaired", lambda: clean(stopped[0]))
