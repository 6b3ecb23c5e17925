"""The speed lab at tiny sizes: what is measured is checked, what is missing is named, what fails leaves the
others alone."""

from __future__ import annotations

import importlib
import inspect
import json
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from perf.cli import RESULTS
from perf.harness import ROOT, WARM_UP, Bench, Sample, Series
from perf.lab import __main__ as main
from perf.lab import first_screen, link, peers, tables, workloads
from perf.lab.data import Check, Messages, WrongMessageError, take_batches, take_singles
from perf.lab.peer import Peer, Receiver, Sender
from perf.lab.peers.aeron import Aeron
from perf.lab.peers.holdfast_line import Holdfast
from perf.lab.peers.holdfast_log import HoldfastEach, HoldfastLog
from perf.lab.peers.holdfast_spinning import InPlace
from perf.lab.peers.mp_queue import Queue
from perf.lab.peers.pipe import Pipe
from perf.lab.peers.sqlite_wal import SqliteWal
from perf.lab.turns import Row
from perf.peers import domain

if TYPE_CHECKING:
    from collections.abc import Iterator

ADAPTERS = sorted(Path(inspect.getfile(peers)).parent.glob("*.py"))
LINES_MAX = 60
TINY = replace(
    workloads.QUICK, runs=1, reading_s=0.001, line_bytes=1 << 20, batch_sizes=(16,), sizes=(16,), fan_outs=(2,),
    echoes=20, log_sizes=(128,), log_bytes=1 << 20, replayed=10_000, fill_s=90, rest_s=0.01,
    lines=(Holdfast, Pipe, Queue), logs=(SqliteWal,),
)  # fmt: skip


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with pytest.MonkeyPatch.context() as patch, Bench(runs=1) as bench, domain(bench):
        patch.setattr(Bench, "probe", lambda _: 100.0)  # the real one is a C program, which other tests compile
        patch.setattr(os, "sync", lambda: None)  # of all file systems: other tests would wait for it
        yield bench


# Data and checks --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [16, 700, 4096])
def test_messages_are_the_same_in_both_forms_and_pass_the_checks(size: int) -> None:
    messages = Messages.numbered(300, size)
    assert [row.tobytes() for row in messages.rows] == messages.payloads
    take_singles(iter(messages.payloads).__next__, size, 300)
    pieces = iter(messages.batches(300, 128))
    assert take_batches(lambda check: check.payloads(next(pieces).payloads), size, 300).first == 128


@pytest.mark.parametrize("size", [16, 4096])
def test_a_lost_a_doubled_and_a_short_message_are_found(size: int) -> None:
    good = Messages.numbered(10, size).payloads
    for bad in (good[:3] + good[4:], good[:3] + good[2:], [*good[:3], good[3][:-1], *good[4:]]):
        with pytest.raises(WrongMessageError):
            take_singles(iter(bad).__next__, size, 9)
        with pytest.raises(WrongMessageError):
            Check(size).payloads(bad)


def test_a_changed_byte_is_found_in_batches_and_in_large_messages() -> None:
    changed = bytearray(Messages.numbered(1, 4096).payloads[0])
    changed[-1] ^= 1
    with pytest.raises(WrongMessageError):
        take_singles(lambda: changed, 4096, 1)
    with pytest.raises(WrongMessageError):
        Check(4096).octets(bytes(changed))


def test_more_messages_than_were_sent_are_found() -> None:
    with pytest.raises(WrongMessageError, match="3 messages came instead of 2"):
        take_batches(lambda check: check.payloads(Messages.numbered(3, 16).payloads), 16, 2)


def test_records_count_only_once_they_were_released() -> None:
    records = np.zeros(2, [("offset", "u8"), ("length", "u4")])
    records["offset"], records["length"] = (0, 16), 16
    memory = Messages.numbered(2, 16).rows.reshape(-1)
    check = Check(16)

    def evicted() -> None:
        raise LookupError

    with pytest.raises(LookupError):
        check.frames(records, memory, evicted)
    assert check.number == 0
    assert check.frames(records, memory, lambda: None) == 2
    with pytest.raises(WrongMessageError):
        check.frames(records, memory, lambda: None)  # the same ones again


# Adapters ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ADAPTERS, ids=lambda path: path.stem)
def test_an_adapter_is_short_and_can_be_imported_without_its_product(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LINES_MAX
    importlib.import_module(f"perf.lab.peers.{path.stem}")


class Absent(Pipe):
    name = "absent"
    needs = (("no_such_module", "nothing on PyPI"), ("no-such-program", "Debian package nothing"))


class Losing(Pipe):
    """Loses its third message."""

    name = "losing"

    def sender(self) -> Sender:
        good = super().sender()
        numbers = iter(range(1_000_000))

        def send(payload: bytes) -> None:
            if next(numbers) != 2:
                good.send(payload)

        return Sender(send, close=good.close)


class Dying(Pipe):
    """Its receiver's process ends."""

    name = "dying"

    def receiver(self, index: int) -> Receiver:
        os._exit(3)


def test_what_is_missing_is_named_with_what_brings_it() -> None:
    assert Pipe.available() is None
    assert Absent.available() == (
        "no_such_module is missing: nothing on PyPI; no-such-program is missing: Debian package nothing"
    )


FAKES = {
    "aeronmd": "exec sleep 60",
    "rate_subscriber": "exec sleep 60",
    "cpong": "exec sleep 60",
    "streaming_exclusive_publisher": 'echo "$*" > $0.said; echo "Total: 50ms, 4.1e+07 msgs/sec, 6.5e+08 bytes/sec, totals"',
    "cping": 'printf "       Value   Percentile   TotalCount\n       0.090     0.000000000            1\n'
    '       0.161     0.500000000        10100\n       0.171     0.550000000        11100\n"',
}
"""What the samples of an Aeron build print."""


def test_aeron_is_measured_where_a_build_is_given(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "--aeron" in str(Aeron.available())
    monkeypatch.setattr(Aeron, "build", tmp_path)
    assert str(Aeron.available()).endswith("aeronmd is missing")
    (tmp_path / "binaries").mkdir()
    for name, does in FAKES.items():
        program = tmp_path / "binaries" / name
        program.write_text(f"#!/bin/sh\n{does}\n")
        program.chmod(0o700)
    rate, p50 = workloads.programs(bench, replace(TINY, programs=(Aeron,)))
    assert _series(rate, "Aeron, C").values == [4.1e7]
    assert _series(p50, "Aeron, C").values == [161.0]
    said = (tmp_path / "binaries" / "streaming_exclusive_publisher.said").read_text()
    assert "-c aeron:ipc" in said
    assert said.endswith("-L 16\n")


def test_a_product_that_fails_or_is_missing_leaves_the_others_their_turns(bench: Bench) -> None:
    plan = replace(TINY, batch_sizes=(), lines=(Losing, Absent, Dying, Pipe))
    rate, _ = workloads.one_way(bench, plan)
    assert "WrongMessageError" in str(rate.cells["losing"])
    assert "has ended" in str(rate.cells["dying"])
    assert str(rate.cells["absent"]).startswith("no_such_module is missing")
    assert len(_series(rate, "pipe").values) == 1
    text = tables.markdown([rate], {})
    assert "| 16 B | failed | failed |" in text
    assert "| missing |" in text
    assert "- absent: no_such_module is missing: nothing on PyPI" in text


# Workloads --------------------------------------------------------------------------------------------------


def _series(row: Row, name: str) -> Series:
    cell = row.cells[name]
    assert isinstance(cell, Series), cell
    return cell


def _all_measured(rows: list[Row], products: tuple[type[Peer], ...]) -> None:
    assert rows
    for row in rows:
        for product in products:
            assert len(_series(row, product.name).values) == 1
            assert row.unit != "msg/s" or _series(row, product.name).median > 0


def test_lines_carry_every_workload(bench: Bench) -> None:
    for workload in (workloads.fan_out, workloads.round_trips, workloads.at_rest):
        _all_measured(list(workload(bench, TINY)), TINY.lines)
    singles, _, batches, _ = workloads.one_way(bench, TINY)
    _all_measured([singles], TINY.lines)
    _all_measured([batches], (Holdfast,))
    assert list(batches.cells) == ["holdfast"]


def test_who_is_made_for_large_messages_carries_those_alone(bench: Bench) -> None:
    large = 4 * workloads.MIB
    plan = replace(
        TINY, lines=(InPlace, Pipe), sizes=(16, large), echo_sizes=(16, large), batch_sizes=(), line_bytes=10 * large
    )
    small_rate, _, rate, _ = workloads.one_way(bench, plan)
    small_trip, _, trip, _ = workloads.round_trips(bench, plan)
    _all_measured([small_rate, small_trip], (Pipe,))
    assert [list(row.cells) for row in (small_rate, small_trip)] == [["pipe"]] * 2
    _all_measured([rate, trip], (InPlace, Pipe))


def test_logs_carry_every_workload(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    touched: list[int] = []
    monkeypatch.setattr(link, "touch_memory", touched.append)
    rows = list(workloads.persistent(bench, TINY))
    assert len(rows) == 2 * 2 * 3 + 2 * 2
    _all_measured(rows, TINY.logs)
    assert len(touched) == 2 * len(TINY.logs) * (bench.runs + WARM_UP), (
        "before each reading of two cases, and of no other"
    )
    assert min(touched) > link.TOUCHED_MIN


def test_a_new_process_replays_a_store(bench: Bench) -> None:
    _all_measured(list(workloads.replay(bench, replace(TINY, logs=(HoldfastLog,)))), (HoldfastLog,))


# Tables -----------------------------------------------------------------------------------------------------


def _row(*, more_is_better: bool = True, **values: list[float]) -> Row:
    cells: dict[str, Series | str] = {
        name: Series("a case", name, [Sample(value, "msg/s", 100, 0, 0, 0, Counter()) for value in those])
        for name, those in values.items()
    }
    return Row("A table", "a case", "msg/s", more_is_better, cells, ours=["ours", "spin"], bare=["bare"])


def test_a_row_compares_the_better_of_ours_with_the_fastest_run_by_run() -> None:
    row = _row(ours=[10, 20, 30], spin=[1, 1, 1], slow=[1, 1, 1], fast=[5, 5, 60], bare=[40, 40, 40])
    assert tables.compared(row) == [("ours", "fast", 2.0), ("ours", "bare", 0.5)]
    row = _row(more_is_better=False, ours=[10, 20, 30], slow=[100, 100, 100], fast=[5, 5, 5])
    assert tables.compared(row) == [("ours", "fast", 0.25)]


def test_what_waits_for_each_commit_has_a_comparison_of_its_own() -> None:
    row = _row(ours=[90], spin=[5], waits=[10], bare=[20])
    row.in_flight = ["ours"]
    beside = [("ours", "waits", 9.0), ("ours", "bare", 4.5)]  # nobody else has many under way
    assert tables.compared(row) == [("spin", "waits", 0.5), ("spin", "bare", 0.25), *beside]
    text = tables.markdown([row], {})
    assert "- A table, a case: 0.50 × waits (spin)" in text
    assert "| 90 msg/s [90 msg/s .. 90 msg/s] |" in text
    assert "| spin: **0.50 × waits**; **0.25 × bare**; ours: 9 × waits; 4.5 × bare |" in text
    row.in_flight = ["ours", "waits"]
    assert tables.compared(row) == [("spin", "bare", 0.25), ("ours", "waits", 9.0)]


def test_rows_of_commits_say_who_does_not_wait(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workloads, "in_turns", lambda *_, **__: [_row(ours=[1]), _row(ours=[1])])
    plan = replace(TINY, logs=(HoldfastLog, HoldfastEach, SqliteWal))
    committed, read = list(workloads.persistent(bench, plan)), list(workloads.replay(bench, plan))
    assert [row.in_flight for row in committed] == [[HoldfastLog.name]] * 16
    assert [row.in_flight for row in read] == [[]] * 2


def test_the_page_is_written_again_from_the_results(tmp_path: Path) -> None:
    rows = [_row(ours=[10], fast=[20], bare=[7]), _row(more_is_better=False, ours=[30], fast=[20])]
    rows[0].in_flight, rows[1].cells["spin"] = ["fast"], "not there"
    tables.write(tmp_path / "lab.json", rows, {"cpu": "one"})
    assert tables.read(tmp_path / "lab.json") == (rows, {"cpu": "one"})


def test_the_committed_pages_are_what_the_committed_results_say() -> None:
    page, machines = main.PAGE.read_text(), []
    for path in sorted(RESULTS.glob("lab-*.json")):
        rows, facts = tables.read(path)
        machines.append(rows)
        assert tables.markdown(rows, facts).strip() in page
    assert first_screen.first_screen(machines) in (ROOT / "README.md").read_text()


def test_the_first_screen_has_ranges_over_the_machines_and_one_row_that_others_win() -> None:
    def rows(slow: float, fast: float) -> list[Row]:
        found = []
        for line in first_screen.LINES:
            row = _row(ours=[4e6], slow=[slow], fast=[fast], bare=[1e9])
            row.cells[line.ours] = row.cells.pop("ours")
            row.table, row.case, row.unit, row.ours, row.bare = line.table, line.case, "msg/s", [line.ours], ["bare"]
            found.append(row)
        return found

    text = first_screen.first_screen([rows(1e6, 2e6), rows(3e6, 1e6)])
    assert "| 4 M msg/s | fast or slow: 2 M msg/s .. 3 M msg/s | 1.3 .. 2 |" in text
    assert "| **0.5** |" in first_screen.first_screen([rows(8e6, 7e6)])
    committed = first_screen.first_screen([tables.read(path)[0] for path in sorted(RESULTS.glob("lab-*.json"))])
    assert "**" in committed
    with pytest.raises(KeyError):
        first_screen.first_screen([[]])


def test_a_table_says_where_holdfast_is_behind(tmp_path: Path) -> None:
    rows = [_row(ours=[10], fast=[20]), _row(ours=[30], fast=[20])]
    text = tables.markdown(rows, {"cpu": "one"})
    assert "- A table, a case: 0.50 × fast (ours)" in text
    assert "**0.50 × fast**" in text
    assert "| 1.5 × fast |" in text
    tables.write(tmp_path / "lab.json", rows, {"cpu": "one"})
    found = json.loads((tmp_path / "lab.json").read_text())
    assert found["rows"][0]["against"] == [{"ours": "ours", "other": "fast", "times": 0.5}]
    assert found["rows"][1]["cells"]["fast"]["values"] == [20]
