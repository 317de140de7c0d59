"""What a team has put into spark-defaults.conf holds, unless the flow file or the command line says otherwise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from replicator.config import SparkSection
from replicator.model.errors import ConfigError
from replicator.spark import connector, defaults, session
from replicator.spark.session import SparkSettings

Configure = Callable[[str], None]
FILE = """\
# a comment
spark.master            spark://team:7077
spark.eventLog.enabled=true
spark.eventLog.dir : hdfs:///logs
  spark.ui.enabled   true
spark.executor.extraJavaOptions -Xss2m \\
    -XX:+UseZGC
spark.empty
not.spark 1
"""


@pytest.fixture
def configure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Configure:
    """Writes a spark-defaults.conf."""
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))

    def write(text: str) -> None:
        (tmp_path / defaults.NAME).write_text(text)

    return write


def test_the_file_is_read_as_java_reads_it() -> None:
    assert defaults.parse(FILE) == {
        "spark.master": "spark://team:7077",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": "hdfs:///logs",
        "spark.ui.enabled": "true",
        "spark.executor.extraJavaOptions": "-Xss2m -XX:+UseZGC",
        "spark.empty": "",
    }


def test_it_stands_where_spark_submit_looks_for_it(tmp_path: Path) -> None:
    for directory in ("conf", "team"):
        (tmp_path / directory).mkdir()
        (tmp_path / directory / defaults.NAME).write_text(f"spark.x {directory}")
    assert defaults.load({}, tmp_path) == {"spark.x": "conf"}
    assert defaults.load({"SPARK_CONF_DIR": str(tmp_path / "team")}, tmp_path) == {"spark.x": "team"}
    assert defaults.load({"SPARK_CONF_DIR": str(tmp_path)}, tmp_path) == {}


def test_it_wins_over_our_defaults_and_gives_way_to_what_is_said(configure: Configure, tmp_path: Path) -> None:
    configure(FILE)
    chosen = session.settings(SparkSection(conf={"spark.eventLog.enabled": "false"}))
    assert chosen.master == "spark://team:7077"
    conf = session.properties(chosen, tmp_path)
    assert (conf["spark.ui.enabled"], conf["spark.eventLog.dir"]) == ("true", "hdfs:///logs")
    assert conf["spark.eventLog.enabled"] == "false"
    assert session.settings(SparkSection(master="local[1]")).master == "local[1]"
    assert session.settings(SparkSection(), "local[2]").master == "local[2]"


def test_its_packages_and_java_options_are_kept(configure: Configure, tmp_path: Path) -> None:
    configure("spark.jars.packages com.example:other:1\nspark.driver.extraJavaOptions -Dteam=1\n")
    conf = session.properties(SparkSettings(), tmp_path)
    assert conf["spark.jars.packages"].startswith(f"com.example:other:1,{connector.PACKAGE}")
    assert conf["spark.driver.extraJavaOptions"].endswith("-Dteam=1")


def test_a_connector_of_another_version_there_is_refused(configure: Configure, tmp_path: Path) -> None:
    configure(f"spark.jars.packages {connector.PACKAGE}_2.12:3.5.1\n")
    with pytest.raises(ConfigError, match="does not fit the installed Spark"):
        session.properties(SparkSettings(), tmp_path)
