"""The demo with its pipeline, as a person runs it; and without a Spark."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.command_line import COMMAND

import holdfast as hf
from holdfast.cli import demo_pipeline

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def folder() -> Iterator[Path]:
    """Empty again at the end, except for the chart."""
    path = Path(tempfile.mkdtemp(prefix="hfd", dir="/tmp"))
    yield path
    (path / demo_pipeline.CHART).unlink()
    path.rmdir()


@pytest.mark.spark
@pytest.mark.long  # three Spark starts; make demo is the same with all flights
@pytest.mark.timeout(600)
def test_the_archive_is_killed_and_has_everything_and_audits_find_what_was_planted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(folder))
    done = subprocess.run(
        [*COMMAND, "demo", "--records", "6000", "--rate", "600"], capture_output=True, text=True, timeout=540
    )
    out = done.stdout
    assert done.returncode == 0, out + done.stderr
    assert re.search(r"kill -9 archive \(pid \d+\) at record [1-5],\d{3}: Spark's driver", out)
    assert re.search(r"archive, killed -9 1 x: 6,000 records in \d+ Parquet files, once each, every SHA-256 as", out)
    assert "audit of the stores that live: 12,000 messages read, nothing found" in out
    assert "one byte of record 3,000 flipped at store b; the audit: 1 found" in out
    assert "damaged: number 3000 is damaged at store b" in out
    assert "store repair: 1 records copied from the others" in out
    assert "audit after the repair: 12,000 messages read, nothing found" in out
    assert "delays by carrier, minutes" in out
    assert "delays by origin" not in out
    assert "6,000 flights, " in out
    assert (folder / demo_pipeline.CHART).stat().st_size > 1000
    assert out.endswith("nothing was lost\n")


def test_what_spark_lacks_is_told_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    assert demo_pipeline.missing() == ""

    def no_java(name: str) -> None:
        raise hf.ConfigError(f"{name}: Spark needs Java 17 or newer", hint="install one")

    monkeypatch.setattr("importlib.import_module", no_java)
    assert demo_pipeline.missing() == "holdfast.spark: Spark needs Java 17 or newer; install one"
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: find(name) if name != "pyspark" else None)
    assert demo_pipeline.missing() == "pyspark is not installed: pip install 'holdfast[spark]'"
