"""Fixtures of the tests that run Spark: without Java they are skipped; EOS_REQUIRE_JAVA=1 makes that fail."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cli import main
from integration_tests.harness import machines
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.copying import Copying
from integration_tests.harness.processes import alive, wait_until
from integration_tests.harness.spark_cluster import SparkCluster
from integration_tests.harness.spark_jobs import SparkProcess
from integration_tests.proof.mapped_logs import MappedFlow
from integration_tests.spark.planted import Planted
from integration_tests.spark.seeded_logs import SeededFlow
from replicator.model.errors import ConfigError
from replicator.spark import java
from replicator.spark.session import SparkSettings, session

Start = Callable[..., SparkProcess]
Plant = Callable[..., Planted]
Command = Callable[..., tuple[int, str]]


@pytest.fixture(scope="session")
def with_java() -> None:
    """Java 17 is there."""
    try:
        java.check(os.environ)
    except ConfigError as error:
        if os.environ.get("EOS_REQUIRE_JAVA") == "1":
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def spark(with_java: None) -> Iterator[SparkSession]:
    """Spark with its Kafka connector."""
    conf = {
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",  # short: compiling well would not pay
    }
    with session(SparkSettings("local[2,4]", conf)) as running:
        yield running


@pytest.fixture
def plant(source: BrokerHandle, target: BrokerHandle, tmp_path: Path) -> Plant:
    """Makes a flow's topic on both sides: records, and what stands where its copy should."""
    return lambda records, copies, **how: Planted(source, target, tmp_path, records, copies, **how)


@pytest.fixture
def command(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs the command as on the command line, except that Spark is started already; exit code and what it said."""

    @contextmanager
    def running(chosen: SparkSettings) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr("replicator.spark.session.session", running)

    def invoke(planted: Planted | Copying | SeededFlow | MappedFlow, *arguments: str) -> tuple[int, str]:
        code = main.invoke(["reconcile", "-c", str(planted.file.path), *arguments])
        said = capsys.readouterr()
        return code, said.out + said.err

    return invoke


@pytest.fixture(scope="session")
def cluster(with_java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A standalone cluster with two executors for each application, shared by both kinds of broker. Where there can't
    be machines for it tests are skipped; EOS_REQUIRE_JAVA=1 makes that fail."""
    problem = machines.problem(tmp_path_factory.mktemp("machine") / "probe")
    if problem is not None:
        if os.environ.get("EOS_REQUIRE_JAVA") == "1":
            pytest.fail(problem)
        pytest.skip(problem)
    with SparkCluster(tmp_path_factory.mktemp("spark")) as running:
        yield running


@pytest.fixture
def start(with_java: None) -> Iterator[Start]:
    """Starts commands that run on Spark; arguments as of `SparkProcess`. They end with the test."""
    started: list[SparkProcess] = []

    def begin(*arguments: Any, **keywords: Any) -> SparkProcess:
        started.append(SparkProcess(*arguments, **keywords))
        return started[-1]

    yield begin
    for process in started:
        process.close()


def committed_rounds(job: SparkProcess) -> int:
    """How many rounds with records `run --runner spark` has committed."""
    events = (json.loads(line) for line in job.said().splitlines() if line.startswith("{") and line.endswith("}"))
    return sum(event["event"] == "committed" and "round" in event and event["records"] > 0 for event in events)


def wait_rounds(job: SparkProcess, count: int) -> None:
    """Wait until so many rounds with records were committed."""
    wait_until(lambda: committed_rounds(job) >= count or not alive(job.pid), f"{count} rounds", job.said)
    assert alive(job.pid), job.said()
