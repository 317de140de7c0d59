"""One small local Spark for all tests of DataFrame functions; it needs no Kafka connector."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from replicator.model.errors import ConfigError
from replicator.spark import java
from replicator.spark.session import SparkSettings, session

SECRET = "not for \\ all=eyes: äöü"


@pytest.fixture(scope="package")  # there is one Spark in a process at a time, and others follow
def spark() -> Iterator[SparkSession]:
    """Without Java these tests are skipped; EOS_REQUIRE_JAVA=1 makes that fail."""
    try:
        java.check(os.environ)
    except ConfigError as error:
        if os.environ.get("EOS_REQUIRE_JAVA") == "1":
            pytest.fail(str(error))
        pytest.skip(str(error))
    conf = {
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",  # short: compiling well would not pay
        "spark.test.secret": SECRET,
    }
    with session(SparkSettings("local[2,4]", conf), kafka=False) as running:
        yield running
