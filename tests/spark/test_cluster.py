"""A real standalone cluster of PySpark: a Master, and two Workers that are two hosts. A task on the wrong one
ends before its first byte, whatever it was to do; on the right one everything works.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from spark.cluster_driver import ATTEMPTS, ROWS
from spark.hosts import Host, cluster_environment, why_no_hosts

if TYPE_CHECKING:
    from pathlib import Path

HOME, AWAY = "127.0.0.2", "127.0.0.3"

PUBLISH = """
import holdfast as hf
with hf.Context() as context:
    source = context.source("orders", options={"ume_store_name": ["a", "b", "c"]})
    source.wait_registered(90)
    for number in range(400):
        source.send(b"%d" % number)
    source.wait_stable(timeout=90)
print("done")
"""
KEPT = """
import json
from holdfast.engine.log.catalog import topic_sources
counts = {}
for source in topic_sources(None):
    counts[source.topic] = counts.get(source.topic, 0) + source.any_next
print(json.dumps(counts))
print("done")
"""


def kept(host: Host, **environment: str) -> dict[str, int]:
    """Topic -> messages in the stores of a host."""
    found = host.run(KEPT, **environment).splitlines()[-2]
    counts = json.loads(found)
    assert isinstance(counts, dict)
    return counts


def attempts(said: str, phase: int) -> dict[str, dict[str, Any]]:
    lines = [json.loads(line) for line in said.splitlines() if line.startswith('{"attempt"')]
    return {line["attempt"]: line for line in lines if line["phase"] == phase}


@pytest.mark.spark
def test_a_task_on_another_host_ends_before_its_first_byte(tmp_path: Path) -> None:
    if reason := why_no_hosts():
        pytest.skip(reason)
    shared = tmp_path / "s"
    spark = {**cluster_environment(tmp_path / "local"), "HOLDFAST_DIR": str(shared / "run")}
    daemon = [f"{spark['SPARK_HOME']}/bin/spark-class", "org.apache.spark.deploy"]
    with Host("home", tmp_path / "home", shared) as home, Host("away", tmp_path / "away", shared) as away:
        for host in (home, away):
            for name in "abc":
                command = ["store", "run", "--name", name, "--directory", str(shared / name), "--type", "memory"]
                host.start(sys.executable, "-m", "holdfast", *command, **spark).wait_line("is ready")
        home.run(PUBLISH, **spark)
        ports = ["--port", "0", "--webui-port", "0"]
        master = home.start(daemon[0], f"{daemon[1]}.master.Master", "--host", "127.0.0.1", *ports, **spark)
        url = master.wait_line(r"spark://127\.0\.0\.1:\d+")[0]

        def join(host: Host, address: str) -> None:
            worker = [f"{daemon[1]}.worker.Worker", "--host", address, "--cores", "1", "--memory", "700m", *ports]
            host.start(daemon[0], *worker, "--work-dir", str(tmp_path / f"work-{host.name}"), url, **spark)

        join(home, HOME)
        settings = {"master": url, "scratch": str(shared / "scratch"), "hosts": [[HOME], [HOME, AWAY]]}
        driver = home.start(sys.executable, "-m", "spark.cluster_driver", json.dumps(settings), **spark)
        driver.wait_line("^phase 0$")
        right = attempts(driver.said, 0)
        assert {name: found.get("error") for name, found in right.items()} == dict.fromkeys(ATTEMPTS)
        before = kept(home, **spark)
        assert [before[topic] for topic in ("once", "least", "published", "orders")] == [ROWS, ROWS, ROWS, 400]
        assert (right["read"]["counted"], right["map_ranges"]["counted"]) == (400, 400)

        join(away, AWAY)
        driver.tell("go on")
        driver.wait_line("^phase 1$")
        wrong = attempts(driver.said, 1)
        assert {name for name, found in wrong.items() if "HF_PLACEMENT" in found.get("error", "")} == set(ATTEMPTS), (
            wrong
        )
        assert kept(away, **spark) == {}, "nothing went into the domain of the other host"
        after = kept(home, **spark)
        assert (after["once"], after["stream_exactly_once"]) == (before["once"], before["stream_exactly_once"])
        assert f"executors run on {HOME}, {AWAY}, and the driver on 127.0.0.1" in driver.said
