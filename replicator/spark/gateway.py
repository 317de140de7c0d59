"""Spark's JVM: started with properties that nobody else sees, and gone with the block that needs it. Used by `session`.

pyspark would put every property into the JVM's command line, which all users of a machine can read. So they go into a
file that only this user can read.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from replicator.model.errors import Unreachable

_STOP_S_MAX = 20
_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_SHELL = "pyspark-shell"  # what pyspark takes for an application
_ARTIFACTS = "artifacts"
"""Spark 4.0 makes this directory where it is started, whether or not it needs one, and leaves it there."""


@contextmanager
def jvm(conf: Mapping[str, str], directory: Path) -> Iterator[Any]:
    """Start Spark's JVM, which ends with the block, or with this process, whichever comes first.

    Args:
        conf: all of Spark's properties; spark-defaults.conf isn't looked at any more.
        directory: which only this user can read. Takes `launch.log` and the properties.

    Raises Unreachable when it doesn't start.
    """
    from pyspark import SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    here = Path.cwd()
    kept = (here / _ARTIFACTS).exists()
    # Where that can't be made Spark fails; relative paths in properties then mean another place, but nothing is lost.
    place = here if os.access(here, os.W_OK) else directory
    with (directory / "launch.log").open("wb") as log, _arguments(conf, directory):
        try:
            options = {"stdout": log, "stderr": subprocess.STDOUT, "cwd": place}
            gateway = launch_gateway(None, options)  # type: ignore[no-untyped-call]
        except PySparkRuntimeError as error:
            raise Unreachable("Spark did not start") from error
    try:
        yield gateway
    finally:
        SparkContext._gateway = SparkContext._jvm = None  # the next session starts a JVM with its own properties
        gateway.shutdown()
        process = gateway.proc
        process.stdin.close()  # what the JVM waits for in order to leave
        try:
            process.wait(_STOP_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if not kept:
            with suppress(OSError):  # there is none, or somebody has put something into it: then it stays
                (place / _ARTIFACTS).rmdir()


@contextmanager
def _arguments(conf: Mapping[str, str], directory: Path) -> Iterator[None]:
    """Tell pyspark the arguments of spark-submit, in the only way that it takes them."""
    path = directory / "spark.properties"
    path.write_text(properties_text(conf), encoding="utf-8")
    before = os.environ.get(_ARGUMENTS)
    os.environ[_ARGUMENTS] = f"--properties-file {path} {before or _SHELL}"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_ARGUMENTS]
        else:
            os.environ[_ARGUMENTS] = before


def properties_text(conf: Mapping[str, str]) -> str:
    """Write a file that `java.util.Properties` reads. Spark itself cuts off blanks around values."""
    return "".join(f"{_escaped(name)}={_escaped(value)}\n" for name, value in conf.items())


def _escaped(text: str) -> str:
    special = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "=": "\\=", ":": "\\:", "#": "\\#", "!": "\\!"}
    return "".join(special.get(letter, letter) for letter in text)
