"""Spark's Kafka connector: its version is that of the installed Spark, and nothing else works."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Mapping
from pathlib import Path

from replicator.model.errors import ConfigError

PACKAGE = "org.apache.spark:spark-sql-kafka-0-10"
_CORE = re.compile(r"spark-core_(\d+\.\d+)-(\d[\w.-]*)\.jar")
_JAR = re.compile(r"spark-sql-kafka-0-10_(\d+\.\d+)-(\d[\w.-]*)\.jar")
_INSTALL = "install it with: pip install 'eos-replicate[spark]'"


def with_connector(conf: Mapping[str, str]) -> dict[str, str]:
    """Return `conf` with the connector that fits added to `spark.jars.packages`, unless Spark has it already.

    Raises:
        ConfigError: pyspark is not installed, SPARK_HOME holds another Spark than the installed pyspark, or `conf`
            asks for a connector of another version (it would fail later, with a Java stack trace, or worse, not fail).
    """
    scala, version, jars = installed()
    wanted = f"{PACKAGE}_{scala}:{version}"
    packages = [item.strip() for item in conf.get("spark.jars.packages", "").split(",") if item.strip()]
    given = [item for item in packages if item.startswith(PACKAGE)]
    named = [*conf.get("spark.jars", "").split(","), *(path.name for path in jars.glob("spark-sql-kafka-0-10_*.jar"))]
    there = [match.groups() for match in map(_JAR.search, named) if match]
    wrong = [item for item in given if item != wanted]
    wrong += [f"{PACKAGE}_{item[0]}:{item[1]}" for item in there if item != (scala, version)]
    if wrong:
        raise ConfigError(f"the Kafka connector {wrong[0]} does not fit the installed Spark, which needs {wanted}")
    if given or there:
        return dict(conf)
    return {**conf, "spark.jars.packages": ",".join([*packages, wanted])}


def to_download(conf: Mapping[str, str]) -> str:
    """Say what Spark will download before it starts, from where and to where, in one line; nothing if it has it all.

    spark-submit resolves `spark.jars.packages` by Ivy, silently: its output is not shown. The first time that takes
    long, a minute or more.
    """
    given = conf.get("spark.jars.ivy")
    ivies = [Path(given)] if given else [Path.home() / ".ivy2.5.2", Path.home() / ".ivy2"]  # of Spark 4 and 3
    packages = [item.strip() for item in conf.get("spark.jars.packages", "").split(",") if item.strip()]
    missing = [item for item in packages if not any(_there(item, ivy) for ivy in ivies)]
    if not missing:
        return ""
    settings, more = conf.get("spark.jars.ivySettings"), conf.get("spark.jars.repositories")
    where = f"the repositories of {settings}" if settings else f"Maven Central{f' and {more}' if more else ''}"
    return (
        f"Spark (spark-submit) now downloads {', '.join(missing)} with what it depends on from {where} into "
        f"{ivies[0]}. This takes a minute or more, once. Where it can't be had, name its jars with --conf spark.jars=…"
    )


def _there(package: str, ivy: Path) -> bool:
    """Return whether Ivy, or the local Maven repository that Spark asks first, has a package."""
    group, _, rest = package.partition(":")
    artifact, _, version = rest.partition(":")
    cached = ivy / "cache" / group / artifact / "jars" / f"{artifact}-{version}.jar"
    local = Path.home() / ".m2" / "repository" / group.replace(".", "/") / artifact / version
    return cached.exists() or (local / f"{artifact}-{version}.jar").exists()


def installed() -> tuple[str, str, Path]:
    """Return Scala version, Spark version and jars directory of the Spark that will be started.

    Raises:
        ConfigError: as `with_connector`.
    """
    at = home()
    import pyspark

    found = [match.groups() for match in map(_CORE.fullmatch, _names(at / "jars")) if match]
    if len(found) != 1:
        raise ConfigError(f"there is no Spark in {at} (looked for jars/spark-core_*.jar); {_INSTALL}")
    scala, version = found[0]
    if version != pyspark.__version__:
        raise ConfigError(
            f"SPARK_HOME is {at} with Spark {version}, but the installed pyspark is {pyspark.__version__}; "
            "unset SPARK_HOME or install the pyspark of that version"
        )
    return scala, version, at / "jars"


def home() -> Path:
    """Return where the Spark is installed that will be started. Raises ConfigError where there is no pyspark."""
    if importlib.util.find_spec("pyspark") is None:
        raise ConfigError(f"this command needs pyspark, which is not installed; {_INSTALL}")
    import pyspark

    return Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)


def _names(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()] if directory.is_dir() else []
