"""Fixtures of the tests that run Spark: without Java they are skipped; EOS_REQUIRE_JAVA=1 makes that fail."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from integration_tests.harness.spark_cluster import SparkCluster
from integration_tests.harness.spark_jobs import SparkProcess
from replicator.model.errors import ConfigError
from replicator.spark import java

Start = Callable[..., SparkProcess]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests here need Spark."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def with_java() -> None:
    """Java 17 is there."""
    try:
        java.check(os.environ)
    except ConfigError as error:
        if os.environ.get("EOS_REQUIRE_JAVA") == "1":
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def cluster(with_java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A standalone cluster with two executors for each application, shared by both kinds of broker."""
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
