"""The warning that executors run elsewhere."""

from __future__ import annotations

import logging
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.spark import executors
from holdfast.spark.executors import executor_hosts, warn_of_executors


def session(*hosts: str, driver: str = "10.0.0.1") -> Any:
    """A session with executors there, and the driver, which Spark's list holds, too."""
    infos = [SimpleNamespace(host=lambda host=host: host) for host in (driver, *hosts)]
    tracker = SimpleNamespace(getExecutorInfos=lambda: infos)
    jvm = SimpleNamespace(sc=lambda: SimpleNamespace(statusTracker=lambda: tracker))
    conf = SimpleNamespace(get=lambda name, default="": driver if name == "spark.driver.host" else default)
    return SimpleNamespace(sparkContext=SimpleNamespace(_jsc=jvm), conf=conf)


@pytest.fixture(autouse=True)
def nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "_told", set())


def test_executors_elsewhere_are_named_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "holdfast"):
        for _ in range(2):
            warn_of_executors(session("node8", "node7", "node7", "10.0.0.1"))
    (record,) = caplog.records
    assert "executors run on node7, node8, and the driver on 10.0.0.1" in record.getMessage()
    assert "HF_PLACEMENT" in record.getMessage()


@pytest.mark.parametrize("hosts", [(), ("10.0.0.1",), ("localhost",), (socket.gethostname(),)])
def test_executors_of_this_host_are_no_reason(hosts: tuple[str, ...], caplog: pytest.LogCaptureFixture) -> None:
    warn_of_executors(session(*hosts))
    assert caplog.records == []


def test_a_session_that_does_not_tell_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    remote = session()
    del remote.sparkContext
    assert executor_hosts(remote) == []
    warn_of_executors(remote)
    assert caplog.records == []
