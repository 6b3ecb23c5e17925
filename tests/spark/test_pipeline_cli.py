"""``holdfast pipeline``: the real program, its words and exit codes; where it would start a Spark, mostly
that of the tests."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from support.command_line import run
from support.handmade_stores import Shelves

from holdfast.cli import pipeline
from holdfast.cli.demo_data import flights
from holdfast.engine.log.catalog import topic_sources
from holdfast.engine.memory.domain import Domain
from holdfast.engine.printable import printable
from holdfast.extras import needed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession
    from support.command_line import Program

NASTY = "a\x1b]0;owned\x07\n\u202ec"
LONG = 240.0
"""A Java and its workers start in that time, on a busy machine too."""


@pytest.fixture
def shelves(tmp_path: Path) -> Iterator[Shelves]:
    """Three stores of which b lacks one number, and c has something else under another one."""
    made = Shelves(tmp_path, stores=list("abc"))
    for name in "abc":
        log = made.store(name)
        assert log is not None
        log.begin(1, 0)
        log.plain(0, 9)
        log.append(10, [b"other" if name == "c" else b"10"])
        if name == "b":
            log.lost(11, 11)
        else:
            log.plain(11, 11)
        log.plain(12, 49)
    yield made
    made.close()


def where(shelves: Shelves) -> list[str]:
    return [word for directory in shelves.directories for word in ("--directory", str(directory))]


# audit ------------------------------------------------------------------------------------------------------


def test_an_audit_says_what_it_found_and_exits_with_1(shelves: Shelves) -> None:
    code, out, err = run("pipeline", "audit", *where(shelves))
    assert (code, err) == (1, "")
    lines = out.splitlines()
    assert "lost: topic quotes, source 7/" in out
    assert any(line.endswith("number 11 is lost at store b, and there at another one") for line in lines)
    assert any(line.endswith("number 10 differs at c (payload): not what a, b have") for line in lines)
    assert lines[-1].startswith("2 findings: 149 messages read in ")


def test_an_audit_of_a_topic_that_a_terminal_would_obey_shows_it_escaped(tmp_path: Path) -> None:
    shelves = Shelves(tmp_path, stores=["a", "b"], topic=NASTY)
    for name in "ab":
        log = shelves.store(name)
        assert log is not None
        log.begin(1, 0)
        log.append(0, [name.encode()])
    shelves.close()
    code, out, _ = run("pipeline", "audit", *where(shelves))
    assert (code, out.count(printable(NASTY))) == (1, 3), "in the table of both stores, and in the finding"
    assert all(line.isprintable() for line in out.split("\n"))
    code, out, _ = run("pipeline", "audit", "--json", *where(shelves))
    assert {each["topic"] for each in json.loads(out)["findings"]} == {NASTY}
    assert all(line.isprintable() for line in out.split("\n"))


def test_an_audit_as_json(shelves: Shelves) -> None:
    code, out, _ = run("pipeline", "audit", "quotes", "--json", *where(shelves))
    found = json.loads(out)
    assert code == 1
    assert [(each["kind"], each["store"], each["first"], each["next"]) for each in found["findings"]] == [
        ("divergence", "c", 10, 11), ("lost", "b", 11, 12),
    ]  # fmt: skip
    (source,) = found["sources"]
    assert [(at["store"], at["messages"], at["lacks"], at["diverges"]) for at in source["stores"]] == [
        ("a", 50, [], []), ("b", 49, [[11, 12]], []), ("c", 50, [], [[10, 11]]),
    ]  # fmt: skip
    assert {"domain", "receivers", "samples", "seconds", "messages"} <= found.keys()


def test_a_domain_in_order_is_clean(run_store: Callable[..., Any], publish: Callable[..., Any], tmp_path: Path) -> None:
    for name in "ab":
        run_store(name)
    publish("orders", [b"one", b"two"], "ab")
    checkpoint = str(tmp_path / "audit.json")
    for read in (4, 0):
        code, out, err = run("pipeline", "audit", "--checkpoint", checkpoint)
        assert (code, err) == (0, "")
        assert out.splitlines()[-1].startswith(f"clean: {read} messages read in ")


def test_the_picture_shows_what_was_found(shelves: Shelves, tmp_path: Path) -> None:
    import matplotlib.image

    picture = tmp_path / "audit.png"
    code, _, err = run("pipeline", "audit", *where(shelves), "--picture", str(picture))
    assert (code, err) == (1, "")
    pixels = (matplotlib.image.imread(picture)[:, :, :3] * 255).round().astype(int)

    def count(color: str) -> int:
        """Below the legend."""
        wanted = [int(color[at : at + 2], 16) for at in (1, 3, 5)]
        return int((pixels[40:] == wanted).all(axis=2).sum())

    from holdfast.spark.pipeline.chart import DIVERGES, HAS, LACKS

    assert count(HAS) > 10 * count(LACKS) > 0
    assert count(DIVERGES) > 0


def test_what_was_found_is_told_also_where_it_cannot_be_drawn(shelves: Shelves, tmp_path: Path) -> None:
    code, out, err = run("pipeline", "audit", *where(shelves), "--picture", str(tmp_path / "x.tiff2"))
    assert code == 2
    assert "2 findings" in out
    assert err.startswith("error: cannot draw ")


# replay -----------------------------------------------------------------------------------------------------


def test_a_replay_of_a_log(run_store: Callable[..., Any], publish: Callable[..., Any], tmp_path: Path) -> None:
    for name in "ab":
        run_store(name)
    publish("orders", [b"%d" % i for i in range(300)], "ab")
    arguments = ["pipeline", "replay", "again", "--of", "orders", "--at", "b", "--checkpoint", str(tmp_path / "r")]
    code, out, err = run(*arguments, "--speed", "0")
    assert (code, err) == (0, "")
    assert out.startswith("published 300 messages in 'again' in ")
    assert out.endswith("they are numbers 0..299 there\n")
    code, out, _ = run(*arguments, "--json", "--speed", "0")
    found = json.loads(out)
    assert (code, found["messages"], found["before"], found["next"]) == (0, 0, 300, 300)
    assert run("pipeline", "audit", "again")[0] == 0, "at all stores that run"
    code, out, _ = run("recv", "again", "-e")
    assert out.splitlines() == [str(i) for i in range(300)]


def test_a_replay_that_is_interrupted_goes_on(
    run_store: Callable[..., Any], start: Callable[..., Program], tmp_path: Path
) -> None:
    run_store("a")
    hour = 3_600 * 10**9
    table = pa.table(
        {
            "source_reg_id": pa.array([7] * 4, pa.int64()),
            "sequence_number": pa.array(range(4), pa.int64()),
            "timestamp_ns": pa.array([0, 1, hour, hour + 1], pa.int64()),
            "value": pa.array([b"0", b"1", b"2", b"3"], pa.binary()),
        }
    )
    there = tmp_path / "archive"
    there.mkdir()
    pq.write_table(table, there / "part-0-0.parquet")
    arguments = ["pipeline", "replay", "again", "--archive", str(there), "--checkpoint", str(tmp_path / "r.json")]
    program = start(*arguments)
    deadline = time.monotonic() + LONG
    while not any(source.any_next == 2 for source in topic_sources(None)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    program.signal(signal.SIGINT)
    assert program.end() == (128 + signal.SIGINT, "", "")
    code, out, err = run(*arguments, "--speed", "0")
    assert (code, err) == (0, "")
    assert out.startswith("published 2 messages in 'again' after 2 that were out before in ")
    assert run("recv", "again", "-e")[1].splitlines() == ["0", "1", "2", "3"]


# What is wrong ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["audit", "nothing"], 2, "no store keeps topic 'nothing'"),
        (["audit", "--directory", "/", "-d", "x"], 2, "--directory and --domain exclude each other"),
        (["audit", "--directory", "/proc"], 2, "/proc"),
        (["audit", "--max-lag", "-1"], 2, "--max-lag"),
        (["replay", "x"], 2, "nothing says what to replay"),
        (["replay", "x", "-s", "a", "--archive", "/nowhere"], 2, "there is no archive at /nowhere"),
        (["replay", "x", "-s", "a", "--archive", "/", "--at", "b"], 2, "--at and --read are about logs"),
        (["audit", "-d", "nowhere"], 2, "there is no domain 'nowhere'"),
        (["replay", "x", "--of", "y", "-d", "nowhere"], 2, "there is no domain 'nowhere'"),
        (["replay", "x", "--of", "y"], 3, "no store runs"),
        (
            ["replay", "x", "-s", "a", "--of", "y", "--read", "startingOffset=1"],
            2,
            "there is no option 'startingOffset'",
        ),
        (["replay", "x", "-s", "a", "--of", "y", "-o", "fragment"], 2, "is not NAME=VALUE"),
        (["report"], 2, "a report is of a topic, or of an archive"),
    ],
)
def test_errors_are_one_line_and_an_exit_code(arguments: list[str], code: int, said: str) -> None:
    place = Domain(join=False).path
    got, out, err = run("pipeline", *arguments)
    assert (got, out) == (code, "")
    assert not place.with_name("nowhere").exists()
    assert said in err
    assert "Traceback" not in err


def test_what_is_not_installed_is_named_with_what_brings_it() -> None:
    from holdfast.engine.errors import ConfigError

    def absent(name: str) -> None:
        with needed():
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    for name, extra in (("pyspark.sql", "spark"), ("pyarrow", "spark"), ("matplotlib.figure", "plot")):
        with pytest.raises(ConfigError, match=name.partition(".")[0]) as caught:
            absent(name)
        assert caught.value.hint == f"pip install 'holdfast[{extra}]'"
    with pytest.raises(ModuleNotFoundError):
        absent("holdfast.no_such_module")


def test_without_pyspark_the_program_says_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "pyspark.py").write_text("raise ModuleNotFoundError('No module named pyspark', name='pyspark')")
    code, out, err = run("pipeline", "audit", PYTHONPATH=str(tmp_path))
    assert (code, out) == (2, "")
    assert err == "error: this needs pyspark, which is not installed\nhint: pip install 'holdfast[spark]'\n"


# Spark ------------------------------------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.long  # Spark starts twice in programs of its own; test_archive.py and test_report.py have the functions
@pytest.mark.timeout(2 * LONG)
def test_an_archive_and_a_report_of_it(
    run_store: Callable[..., Any], publish: Callable[..., Any], tmp_path: Path, spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    run_store("a")
    publish("flights", flights(1500))
    there = tmp_path / "archive"
    words = [
        "pipeline",
        "archive",
        "flights",
        str(there),
        "--once",
        "--json",
        "--master",
        "local[1]",
        "--session",
        "0x51",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", *words],
        capture_output=True,
        text=True,
        timeout=LONG,
        env=os.environ,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), "Spark is quiet"
    assert json.loads(done.stdout)["rows"] == 1500
    values = ds.dataset(there, partitioning="hive").to_table(columns=["value"])["value"].to_pylist()
    assert sorted(values) == sorted(flights(1500))
    assert run("pipeline", "audit")[0] == 0, "and everything is acknowledged"

    @contextlib.contextmanager
    def session(_: str) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(pipeline, "spark_session", session)
    picture = tmp_path / "report.png"
    given = pipeline.ReportArguments(None, str(there), str(picture), "", [], json=False, domain=None)
    assert pipeline.report_flights(given) == 0
    out = capsys.readouterr().out
    assert "delays by carrier, minutes" in out
    assert out.splitlines()[-1].startswith("1,500 flights, ")
    assert picture.stat().st_size > 1000


@pytest.mark.spark
def test_an_audit_by_spark(
    shelves: Shelves, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextlib.contextmanager
    def session(master: str) -> Iterator[SparkSession]:
        assert master == "local[7]"
        yield spark

    monkeypatch.setattr(pipeline, "spark_session", session)
    directories = [str(directory) for directory in shelves.directories]
    given = pipeline.AuditArguments([], directories, None, 0, 0.0, None, "local[7]", json=True, domain=None)
    assert pipeline.audit_topics(given) == 1
    assert len(json.loads(capsys.readouterr().out)["findings"]) == 2
