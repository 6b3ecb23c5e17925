"""A batch write belongs to its driver for as long as that lives, whoever looks, and from wherever."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from spark.three_stores import House, published
from spark.writes import OPTIONS, TOPIC_VALUE, batch_tasks, by_topic, rows, write
from support.command_line import SHORT, run

from holdfast.spark.alive import hold, let_go, over
from holdfast.spark.batch_writer import ONCE, BatchWriter
from holdfast.spark.ledger import Ledger
from holdfast.spark.options import parse
from holdfast.spark.writing import make_place, spark_directory

if TYPE_CHECKING:
    from collections.abc import Callable

DRIVER = """
import sys
sys.path[:0] = {path!r}
from spark.writes import OPTIONS, TOPIC_VALUE, batch_tasks, rows
from holdfast.spark.batch_writer import BatchWriter
writer = BatchWriter(OPTIONS, TOPIC_VALUE, overwrite=False)
messages = batch_tasks(writer, [rows(0, 0)])
print(messages[0].directory, flush=True)
sys.stdin.readline()
writer.commit(messages)
print("committed", flush=True)
"""
UNSHARE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
PLAN = "import sys; from pathlib import Path; from holdfast.spark.alive import hold; hold(Path(sys.argv[1]))"


def can_unshare() -> bool:
    try:
        return subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def driver(*within: str) -> subprocess.Popen[str]:
    """A process that has staged the rows of a write, says where, and commits when it gets a line."""
    code = DRIVER.format(path=sys.path)
    command = [*within, sys.executable, "-c", code]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def told(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def is_over(directory: Path) -> bool:
    with over(directory) as dead:
        return dead


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SHORT
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def staging(tmp_path: Path) -> Path:
    directory = tmp_path / f"{ONCE}a"
    make_place(directory)
    return directory


@pytest.mark.parametrize(
    "within",
    [(), pytest.param(UNSHARE, marks=pytest.mark.skipif(not can_unshare(), reason="needs CAP_SYS_ADMIN"))],
    ids=["here", "in a PID namespace of its own"],
)
def test_a_write_whose_driver_lives_is_left_alone(house: House, within: tuple[str, ...]) -> None:
    with driver(*within) as child:
        directory = Path(told(child))
        write(OPTIONS, [rows(1, 0)])
        code, out, err = run("gc")
        assert (code, err) == (0, "")
        assert str(directory) not in out
        assert child.communicate("\n")[0] == "committed\n"
    assert published() == by_topic(rows(1, 0), rows(0, 0))
    assert not directory.exists()


def test_a_write_whose_driver_was_killed_goes_with_the_next_one(house: House) -> None:
    with driver() as child:
        directory = Path(told(child))
        child.kill()
    write(OPTIONS, [rows(1, 0)])
    assert not directory.exists()


def test_a_commit_that_outlives_its_driver_keeps_its_files(house: House) -> None:
    writer = BatchWriter(OPTIONS, TOPIC_VALUE, overwrite=False)
    directory = Path(batch_tasks(writer, [rows(0, 0)])[0].directory)
    let_go(directory)  # the driver is dead
    with Ledger(directory, 0):
        write(OPTIONS, [rows(1, 0)])
        assert run("gc")[1].count(directory.name) == 0
        assert directory.exists()
    write(OPTIONS, [rows(2, 0)])
    assert not directory.exists()


def test_what_an_older_version_has_staged_is_kept_and_told(house: House) -> None:
    """Its name has a process number, which may be of another namespace, and a boot, which may be another
    host's."""
    place = spark_directory(parse(OPTIONS, "write"))
    names = [f"{ONCE}{boot}-1-1-5d9b" for boot in ("0" * 32, Path("/proc/sys/kernel/random/boot_id").read_text()[:32])]
    for name in names:
        make_place(place / name)
    write(OPTIONS, [rows(0, 0)])
    _, out, _ = run("gc")
    for name in names:
        assert f"kept writer {place / name}: whether the driver of this write lives cannot be told" in out
        assert (place / name).exists()


def test_a_directory_that_is_being_made_is_nobodys_to_remove(staging: Path) -> None:
    assert not is_over(staging)
    hold(staging)
    assert sorted(path.name for path in staging.iterdir()) == ["alive", "rows"]
    assert not is_over(staging)
    let_go(staging)
    assert is_over(staging)


# Under a JVM ------------------------------------------------------------------------------------------------


@pytest.fixture
def jvm(tmp_path: Path, staging: Path) -> Callable[[str], subprocess.Popen[str]]:
    """A process called java, in which ``plan`` is done by a child that ends at once; it ends with its
    input."""
    (tmp_path / "java").symlink_to("/bin/bash")

    def start(plan: str) -> subprocess.Popen[str]:
        script = f'"$0" -c "{plan}" "$1" && echo planned; read -r; exit'
        command = [str(tmp_path / "java"), "-c", script, sys.executable, str(staging)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    return start


def test_the_lock_outlives_the_process_that_planned_and_ends_with_the_jvm(
    jvm: Callable[[str], subprocess.Popen[str]], staging: Path
) -> None:
    with jvm(PLAN) as java:
        assert told(java) == "planned"
        assert not is_over(staging)
        java.kill()
    until(lambda: is_over(staging))


def test_the_keeper_ends_with_its_directory(jvm: Callable[[str], subprocess.Popen[str]], staging: Path) -> None:
    def keepers() -> list[Path]:
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().split(b"\0")
            except OSError:
                continue
            found += [path] if b"-S" in words and os.fsencode(staging) in words else []
        return found

    with jvm(PLAN) as java:
        assert told(java) == "planned"
        until(lambda: len(keepers()) == 1)
        staging.rename(staging.with_name("gone"))
        until(lambda: keepers() == [])
        assert java.poll() is None


def test_a_jvm_by_another_name_is_taken_to_live(monkeypatch: pytest.MonkeyPatch, staging: Path) -> None:
    class Spec:
        name = "pyspark.daemon"

    monkeypatch.setattr(sys.modules["__main__"], "__spec__", Spec())
    hold(staging)
    let_go(staging)
    assert not is_over(staging)
    (staging / "alive").unlink()
