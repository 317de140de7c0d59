"""Where Spark runs and with what: file, command line and defaults; the connector fits the installed Spark."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession, functions

from replicator import config
from replicator.config import SparkSection
from replicator.model.errors import ConfigError
from replicator.spark import connector, gateway, session
from replicator.spark.session import SparkSettings
from tests.replicator.spark.conftest import SECRET

FITS = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
FILE = """\
clusters: {a: {properties: {bootstrap.servers: "a:1"}}, b: {properties: {bootstrap.servers: "b:1"}}}
flows: {f: {source: a, target: b, topics: [t]}}
"""


def test_the_command_line_wins_over_the_file() -> None:
    section = SparkSection(master="spark://one:7077", conf={"spark.cores.max": "4", "spark.executor.memory": "2g"})
    merged = session.settings(section, "local[2,4]", ["spark.cores.max=8", "spark.x=a=b"])
    assert merged == SparkSettings(
        "local[2,4]", {"spark.cores.max": "8", "spark.executor.memory": "2g", "spark.x": "a=b"}
    )
    assert session.settings(section).master == "spark://one:7077"
    assert session.settings(section, "x", ["spark.master=y"]) == SparkSettings("y", section.conf)


@pytest.mark.parametrize("item", ["spark.x", "=1", "memory=2g"])
def test_a_property_that_is_none(item: str) -> None:
    with pytest.raises(ConfigError, match=r"expected spark\.NAME=VALUE"):
        session.settings(SparkSection(), conf=[item])


def test_the_file_has_a_spark_section() -> None:
    text = FILE + 'spark: {master: "local[1]", conf: {spark.cores.max: 4, spark.eventLog.enabled: true}}\n'
    read = config.load_text(text, env={}).spark
    assert (read.master, read.conf) == ("local[1]", {"spark.cores.max": "4", "spark.eventLog.enabled": "true"})
    assert config.load_text(FILE, env={}).spark.master == "local[*,4]"
    with pytest.raises(ConfigError, match=r"spark\.mster"):
        config.load_text(FILE + "spark: {mster: local}\n", env={})


def test_defaults_give_way(tmp_path: Path) -> None:
    ours = session.properties(SparkSettings(), tmp_path)
    assert ours["spark.master"] == "local[*,4]"
    assert ours["spark.jars.packages"] == FITS
    assert ours["spark.pyspark.python"] == sys.executable
    theirs = session.properties(
        SparkSettings("spark://h:1", {"spark.ui.enabled": "true", "spark.driver.extraJavaOptions": "-Xss2m"}), tmp_path
    )
    assert theirs["spark.ui.enabled"] == "true"
    assert theirs["spark.driver.extraJavaOptions"].endswith(" -Xss2m")
    assert "spark.pyspark.python" not in theirs, "a path of this machine says nothing about executors elsewhere"
    assert "spark.driver.host" not in theirs
    assert int(ours["spark.sql.shuffle.partitions"]) < 200
    assert "spark.sql.shuffle.partitions" not in theirs


@pytest.mark.parametrize(
    ("master", "given", "steady"),
    [("local[2,4]", "-Xss2m", True), ("local[2,4]", "-XX:+UseZGC", False), ("spark://h:1", "", False)],
)
def test_a_local_jvm_collects_early_unless_told_how(master: str, given: str, steady: bool, tmp_path: Path) -> None:
    found = session.properties(SparkSettings(master, {"spark.driver.extraJavaOptions": given}), tmp_path)
    assert ("-XX:+UseSerialGC" in found["spark.driver.extraJavaOptions"]) == steady
    assert found["spark.driver.extraJavaOptions"].endswith(given)


def test_a_connector_that_is_given_is_not_added_again() -> None:
    packages = {"spark.jars.packages": f"com.example:other:1,{FITS}"}
    assert connector.with_connector(packages) == packages
    jars = {"spark.jars": f"/opt/spark-sql-kafka-0-10_2.13-{pyspark.__version__}.jar"}
    assert connector.with_connector(jars) == jars
    added = connector.with_connector({"spark.jars.packages": "com.example:other:1"})
    assert added == {"spark.jars.packages": f"com.example:other:1,{FITS}"}


def test_what_spark_downloads_is_said_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    conf = {"spark.jars.packages": f"com.example:other:1, {FITS}"}
    told = connector.to_download(conf)
    assert f"downloads com.example:other:1, {FITS} " in told
    assert f"from Maven Central into {tmp_path / '.ivy2.5.2'}" in told
    ivy = tmp_path / "ivy"
    conf |= {"spark.jars.ivy": str(ivy), "spark.jars.repositories": "https://repo.example"}
    assert "from Maven Central and https://repo.example into " in connector.to_download(conf)
    assert "the repositories of /etc/ivy.xml" in connector.to_download(
        {**conf, "spark.jars.ivySettings": "/etc/ivy.xml"}
    )
    _, artifact, version = FITS.split(":")
    cached = ivy / "cache" / "org.apache.spark" / artifact / "jars"
    cached.mkdir(parents=True)
    (cached / f"{artifact}-{version}.jar").touch()
    assert "downloads com.example:other:1 with" in connector.to_download(conf)
    local = tmp_path / ".m2" / "repository" / "com" / "example" / "other" / "1"
    local.mkdir(parents=True)
    (local / "other-1.jar").touch()
    assert connector.to_download(conf) == ""
    assert connector.to_download({}) == ""


@pytest.mark.parametrize(
    "conf",
    [
        {"spark.jars.packages": "org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.1"},
        {"spark.jars": "a.jar,/opt/spark-sql-kafka-0-10_2.13-4.0.1.jar"},
    ],
)
def test_a_connector_that_does_not_fit_is_refused(conf: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=f"does not fit the installed Spark, which needs {FITS}"):
        connector.with_connector(conf)


def test_another_spark_in_spark_home_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="there is no Spark in"):
        connector.with_connector({})
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core_2.13-4.1.0.jar").touch()
    with pytest.raises(ConfigError, match=r"with Spark 4\.1\.0, but the installed pyspark is"):
        connector.with_connector({})


def test_no_pyspark_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'eos-replicate\[spark\]'"):
        connector.with_connector({})


def test_the_end_of_spark_s_log_is_told_without_frames(tmp_path: Path) -> None:
    (tmp_path / "launch.log").write_text("WARNING: a provider\n")
    (tmp_path / "spark.log").write_text(
        "10:00:00 WARN A: no answer\njava.io.IOException: refused\n\tat a.B.c(B.java:1)\n\t... 4 more\n\n"
        "10:00:01 ERROR A: gone\n"
    )
    told = session._tail(tmp_path).splitlines()
    assert told[1:] == [
        "  WARNING: a provider",
        "  10:00:00 WARN A: no answer",
        "  java.io.IOException: refused",
        "  10:00:01 ERROR A: gone",
    ]


def test_the_jvm_gets_all_properties_as_they_are() -> None:
    """Read by Java's own rules, as far as Python knows them: what is escaped comes back."""
    conf = {"spark.a": "C:\\x=1 #2!", "spark.b": "", "spark.c": "-Dx=y -Dz='a b'", "spark.d": "one\ntwo\tthree"}
    lines = gateway.properties_text(conf).splitlines()
    assert len(lines) == len(conf)
    assert lines[0] == r"spark.a=C\:\\x\=1 \#2\!"
    assert lines[3] == r"spark.d=one\ntwo\tthree"


def test_no_property_stands_in_the_command_line_of_the_jvm(spark: SparkSession) -> None:
    """All users of a machine can read that."""
    context = spark.sparkContext
    said = Path(f"/proc/{context._gateway.proc.pid}/cmdline").read_bytes()  # type: ignore[union-attr]
    assert b"SparkSubmit" in said
    assert b"spark.test.secret" not in said
    assert SECRET.encode() not in said
    assert context.getConf().get("spark.test.secret") == SECRET
    assert context._jvm.System.getProperty("spark.test.secret") == SECRET  # type: ignore[union-attr]
    file = re.search(rb"[^\0]+/spark\.properties", said)
    assert file is not None
    assert os.stat(Path(file[0].decode()).parent).st_mode & 0o077 == 0


def test_spark_does_not_keep_the_text_of_large_plans(spark: SparkSession) -> None:
    for number in range(22):
        spark.range(number + 1).select(functions.lit("x" * 100_000)).collect()
    kept = spark._jsparkSession.sharedState().statusStore().executionsList()
    sizes = [len(kept.apply(number).physicalPlanDescription()) for number in range(kept.size())]
    assert 0 < len(sizes) <= 22
    assert 0 < max(sizes) <= 70_000


DYING = """\
from contextlib import contextmanager
from replicator.model.errors import Unreachable
from replicator.spark import gateway, session

started = gateway.jvm

@contextmanager
def dying(*of):
    with started(*of) as found:
        found.proc.kill()
        found.proc.wait()
        yield found

gateway.jvm = dying
try:
    with session.session(session.SparkSettings("local[1]", {}), kafka=False):
        print("started")
except Unreachable as error:
    print(error)
"""


def test_a_jvm_that_ends_while_spark_starts_is_unreachable(spark: SparkSession) -> None:
    """In a process of its own, as a process has one Spark."""
    done = subprocess.run([sys.executable, "-c", DYING], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Spark (master local[1]) did not start: its JVM has ended"), done.stdout
