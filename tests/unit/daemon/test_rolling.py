"""When the daemon's log file is rolled, and what the rolled file is called. The clock is a value."""

from __future__ import annotations

import errno
import logging
import os
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast.daemon.config import LogConfig
from holdfast.daemon.log_file import DaemonLog
from holdfast.daemon.rolling import Rolling

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MEGA = 1_000_000
START = "2017-08-20 10:00:00"


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def run(config: LogConfig, size: int, writes: list[tuple[str, int]]) -> list[str]:
    """Names of the rolled files, in order; ``writes``: when, and how many bytes."""
    rolling = Rolling(config, 9867, size, at(START))
    names = []
    for when, length in writes:
        if rolling.due(at(when)):
            names.append(rolling.next_name(at(when)))
            rolling.rolled()
        rolling.wrote(length)
    return names


SIZE = LogConfig("umestoredlog", 10)
DAILY = LogConfig("umestoredlog", 0, "daily")
HOURLY = LogConfig("umestoredlog", 0, "hourly")
MINUTES = LogConfig("umestoredlog", 0, "test")
BOTH = LogConfig("store.log", 23, "daily")


@pytest.mark.parametrize(
    ("config", "size", "writes", "names"),
    [
        # Size: in millions of bytes, what was there before counts, and the roll is on the write after the one
        # that reached it.
        (SIZE, 0, [("2017-08-20 11:00", 10 * MEGA - 1), ("2017-08-20 11:01", 1)], []),
        (SIZE, 0, [("2017-08-20 11:00", 10 * MEGA), ("2017-08-20 11:01", 1)], ["2017-08-20.1"]),
        (SIZE, 0, [("2017-08-20 11:00", 99 * MEGA)], []),
        (SIZE, 10 * MEGA, [("2017-08-20 11:00", 1)], ["2017-08-20.1"]),
        (
            SIZE, 0, [("2017-08-20 11:00", 10 * MEGA), ("2017-08-20 23:00", 10 * MEGA), ("2017-08-21 01:00", 1)],
            ["2017-08-20.1", "2017-08-21.2"],
        ),
        (LogConfig("umestoredlog", 0), 0, [("2017-08-20 11:00", 999 * MEGA), ("2018-08-20 11:00", 1)], []),
        # Daily and hourly: on the first write of the new day or hour, once, however many have passed.
        (DAILY, 1, [("2017-08-20 23:59:59", 1), ("2017-08-21 00:00:00", 1)], ["2017-08-21.1"]),
        (DAILY, 0, [("2017-08-20 12:00", 1), ("2017-08-24 12:00", 1), ("2017-08-24 13:00", 1)], ["2017-08-24.1"]),
        (DAILY, 0, [("2017-08-21 12:00", 1), ("2017-08-21 13:00", 1)], []),  # it was empty at midnight
        (HOURLY, 1, [("2017-08-20 10:59", 1), ("2017-08-20 11:00", 1), ("2017-08-20 11:30", 1)], ["2017-08-20.1"]),
        (HOURLY, 1, [("2017-08-21 10:00", 1)], ["2017-08-21.1"]),  # the same hour of another day
        (MINUTES, 1, [("2017-08-20 10:00:59", 1), ("2017-08-20 10:01:00", 1)], ["2017-08-20.1"]),
        # The specification's example: 23 million bytes at 23:00, then the day ends, and both roll.
        (
            BOTH, 0, [("2017-08-20 22:59", 23 * MEGA), ("2017-08-20 23:00", MEGA), ("2017-08-21 00:00", 1)],
            ["2017-08-20.1", "2017-08-21.2"],
        ),
        # Both at once are one roll.
        (BOTH, 0, [("2017-08-20 23:59", 23 * MEGA), ("2017-08-21 00:00", 1), ("2017-08-21 00:01", 1)], ["2017-08-21.1"]),
    ],
)  # fmt: skip
def test_when_a_log_is_rolled(config: LogConfig, size: int, writes: list[tuple[str, int]], names: list[str]) -> None:
    assert run(config, size, writes) == [f"{config.path}_9867.{name}" for name in names]


def test_a_rolled_file_is_called_as_the_specification_says() -> None:
    writes = [("2017-08-20 11:00", 10 * MEGA), ("2017-08-20 12:00", 10 * MEGA), ("2017-08-20 13:00", 1)]
    assert run(SIZE, 0, writes)[1] == "umestoredlog_9867.2017-08-20.2"


def test_a_roll_that_is_asked_for_waits_for_the_next_write_and_for_contents() -> None:
    rolling = Rolling(LogConfig("a", 0), 1, 0, at(START))
    rolling.ask()
    assert not rolling.due(at(START))
    rolling.wrote(1)
    assert not rolling.due(at(START))
    rolling.ask()
    assert rolling.due(at(START))


class Clock:
    """Goes on when it is told."""

    def __init__(self) -> None:
        self.now = at(START)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def log(tmp_path: Path) -> Iterator[tuple[DaemonLog, Clock, Path]]:
    """A log file that rolls daily and by size, keeps two, and has an old line."""
    path, clock = tmp_path / "s.log", Clock()
    path.write_text("an old line\n")
    handler = DaemonLog(LogConfig(str(path), 1, "daily", 2), clock)
    yield handler, clock, path
    handler.close()


def say(handler: DaemonLog, text: str, level: int = logging.INFO) -> None:
    handler.handle(logging.LogRecord("holdfast.store", level, "", 0, text, None, None))


def test_lines_are_appended_with_date_severity_and_module(log: tuple[DaemonLog, Clock, Path]) -> None:
    handler, _, path = log
    say(handler, "careful", logging.WARNING)
    assert path.read_text() == "an old line\n2017-08-20 10:00:00.000 [WARNING]: holdfast.store: careful\n"


def test_a_rolled_file_has_everything_up_to_the_roll_and_a_new_one_begins(log: tuple[DaemonLog, Clock, Path]) -> None:
    handler, clock, path = log
    clock.now += timedelta(days=1)
    say(handler, "next day")
    say(handler, "x" * MEGA)
    say(handler, "next size")
    rolled = [path.with_name(f"s.log_{os.getpid()}.2017-08-21.{sequence}") for sequence in (1, 2)]
    assert rolled[0].read_text() == "an old line\n"
    assert rolled[1].read_text().startswith("2017-08-21 10:00:00.000 [INFO]: holdfast.store: next day\n")
    assert path.read_text().endswith("next size\n")
    assert path.read_text().count("\n") == 1


def test_a_file_of_an_earlier_process_with_this_pid_is_not_overwritten(log: tuple[DaemonLog, Clock, Path]) -> None:
    handler, clock, path = log
    before = path.with_name(f"s.log_{os.getpid()}.2017-08-21.1")
    before.write_text("precious")
    clock.now += timedelta(days=1)
    say(handler, "next day")
    assert before.read_text() == "precious"
    assert path.with_name(f"s.log_{os.getpid()}.2017-08-21.2").read_text() == "an old line\n"


def test_only_so_many_rolled_files_are_kept_and_nothing_else_is_touched(log: tuple[DaemonLog, Clock, Path]) -> None:
    handler, clock, path = log
    others = [path.with_name(name) for name in ("s.log_1.2017-08-20.x", "t.log_1.2017-08-20.1", "s.log.1")]
    for other in others:
        other.write_text("")
    for _ in range(5):
        clock.now += timedelta(days=1)
        say(handler, "a day")
    kept = sorted(each.name for each in path.parent.iterdir() if each not in others)
    assert kept == ["s.log", f"s.log_{os.getpid()}.2017-08-24.4", f"s.log_{os.getpid()}.2017-08-25.5"]
    assert all(other.exists() for other in others)


def test_a_roll_that_fails_loses_no_line(log: tuple[DaemonLog, Clock, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    handler, clock, path = log
    real = os.rename
    clock.now += timedelta(days=1)

    def refuse(*_: object) -> None:
        raise OSError(errno.EACCES, "no")

    monkeypatch.setattr(os, "rename", refuse)
    say(handler, "stays here")
    monkeypatch.setattr(os, "rename", real)
    say(handler, "and this")
    assert path.read_text().count("\n") == 3


def test_a_full_disk_stops_nobody_and_is_told_when_it_is_over(
    log: tuple[DaemonLog, Clock, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    handler, _, path = log
    real = os.write

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "write", full)
    say(handler, "lost")
    say(handler, "lost as well")
    monkeypatch.setattr(os, "write", real)
    say(handler, "again")
    lines = path.read_text().splitlines()
    assert [line.partition("]: ")[2] for line in lines[1:]] == [
        "holdfast.daemon.log_file: 2 lines were lost here",
        "holdfast.store: again",
    ]
