"""One Spark session for all tests of it, and topics for it to read.

Starting it costs some seconds once; most of the logic is tested without. Without PySpark, or without a Java,
these tests are left out, and say so.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest
from process.conftest import ThreadStore, own_domain, run_store, start, wipe
from spark.archive_driver import session_settings

import holdfast as hf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession
    from spark.three_stores import House

    from holdfast.spark.stream_reader import StreamReader

__all__ = ["ThreadStore", "own_domain", "run_store", "start", "wipe"]  # fixtures of the process tests, for these, too

SHORT = 90.0


def missing() -> str:
    """Why there can be no session here, or nothing."""
    absent = [name for name in ("pyspark", "pyarrow") if importlib.util.find_spec(name) is None]
    if absent:
        return f"{', '.join(absent)} is not installed: pip install 'holdfast[spark]'"
    try:
        importlib.import_module("holdfast.spark")
    except hf.ConfigError as error:
        return str(error)
    return ""


MISSING = missing()
collect_ignore_glob = ["test_*.py"] if MISSING else []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if MISSING:
        terminalreporter.section("left out: tests/spark", yellow=True)
        terminalreporter.line(MISSING)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session as a user makes one, on two cores, and registered."""
    from pyspark.sql import SparkSession

    import holdfast.spark as hs

    where = tmp_path_factory.mktemp("spark")
    settings = {**session_settings(where), "spark.executorEnv.PYTHONPATH": os.pathsep.join(sys.path)}
    session = SparkSession.builder.config(map=settings).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    hs.register(session)
    yield session
    session.stop()


@pytest.fixture
def publish() -> Callable[..., hf.Source]:
    """Publishes payloads in a topic, waits until they are stable, and closes its source. Returns it."""

    def send(topic: str, payloads: list[bytes], stores: str = "a", **options: Any) -> hf.Source:
        with hf.Context(options={"ume_ack_batching_interval": 5}) as context:
            source = context.source(topic, options={"ume_store_name": list(stores), **options})
            source.wait_registered(SHORT)
            for payload in payloads:
                source.send(payload)
            source.wait_stable(timeout=SHORT)
        return source

    return send


@pytest.fixture
def ctx(own_domain: str) -> Iterator[hf.Context]:
    with hf.Context() as context:
        yield context


@pytest.fixture
def reader(own_domain: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., StreamReader]]:
    """Makes readers of streams (stream_kit.py)."""
    from spark.stream_kit import readers

    yield from readers(monkeypatch)


@pytest.fixture
def store_directory(tmp_path: Path) -> Callable[[str], Path]:
    """Where run_store keeps a store."""
    return lambda name: tmp_path / f"store-{name}"


@pytest.fixture
def house(tmp_path: Path, own_domain: str) -> Iterator[House]:
    """The memory stores a, b and c, in this process."""
    from spark.three_stores import House

    from holdfast.spark import source_cache

    made = House(tmp_path)
    yield made
    source_cache.release()
    made.stop()


@pytest.fixture
def other_house(house: House, own_domain: str, tmp_path: Path) -> Iterator[str]:
    """Three stores of the same names in another domain, which ``$HOLDFAST_DOMAIN`` does not name: its
    name."""
    from spark.three_stores import House
    from support.leftovers import remove_objects

    from holdfast.spark import source_cache

    name = f"{own_domain}-b"
    (tmp_path / "other").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOLDFAST_DOMAIN", name)
        made = House(tmp_path / "other")
    yield name
    source_cache.release()
    made.stop()
    remove_objects(name)
