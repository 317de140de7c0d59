"""Directories that a user names for results: on the driver's machine, or, by a URI with a scheme (`s3a:`, `hdfs:`), on
a file system of Hadoop that Spark's JVM reaches. Executors need no disk in common with either.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from pyspark.sql import SparkSession

from replicator.model.errors import ConfigError
from replicator.proof.report_directory import check_unused
from replicator.spark.cause import FAILURES, root


class Directory(Protocol):
    """Where the driver writes files, each of which appears when it is complete."""

    def begin(self) -> None:
        """Raise ConfigError if it is there already."""

    def write(self, name: str, content: bytes) -> None:
        """Write one complete file. Raises OSError, or what `FAILURES` lists."""


class LocalDirectory:
    """A directory of the driver's machine."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def begin(self) -> None:
        """Raise ConfigError when it exists, or its parent doesn't."""
        check_unused(self.path)

    def write(self, name: str, content: bytes) -> None:
        """Write one file, created with the directory if need be."""
        self.path.mkdir(exist_ok=True)
        part = self.path / f".{name}"
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.rename(self.path / name)


class HadoopDirectory:
    """A directory of a file system that Spark's JVM knows."""

    def __init__(self, spark: SparkSession, uri: str) -> None:
        self._jvm: Any = spark.sparkContext._jvm
        self._conf: Any = spark.sparkContext._jsc.hadoopConfiguration()
        self._uri = uri

    def begin(self) -> None:
        """Raise ConfigError when it exists, or can't be asked for."""
        try:
            path = self._jvm.org.apache.hadoop.fs.Path(self._uri)
            there = bool(path.getFileSystem(self._conf).exists(path))
        except FAILURES as error:
            raise ConfigError(f"{self._uri} cannot be written: {root(error)}") from error
        if there:
            raise ConfigError(f"{self._uri} exists already; give a directory that does not")

    def write(self, name: str, content: bytes) -> None:
        """Write one file; until it is complete it stands under a name that readers of Parquet pass over."""
        files, part, whole = self._paths(name)
        out = files.create(part, False)
        try:
            out.write(bytearray(content))
        finally:
            out.close()
        self._rename(files, part, whole)

    def put(self, path: Path) -> None:
        """Put a file of this machine there, complete under its name, which may be of any size. Raises as `write`."""
        files, part, whole = self._paths(path.name)
        files.copyFromLocalFile(False, True, self._jvm.org.apache.hadoop.fs.Path(path.absolute().as_uri()), part)
        self._rename(files, part, whole)

    def _paths(self, name: str) -> tuple[Any, Any, Any]:
        """Return the file system, a name that readers of Parquet pass over, and the file's own."""
        made = self._jvm.org.apache.hadoop.fs.Path
        directory = made(self._uri)
        return directory.getFileSystem(self._conf), made(directory, f"_{name}"), made(directory, name)

    def _rename(self, files: Any, part: Any, whole: Any) -> None:
        if not files.rename(part, whole):
            raise OSError(f"{part} cannot be renamed to {whole}")


def directory(given: str, spark: SparkSession | None = None) -> Directory | None:
    """Return the directory that a user named; None for one that only Spark can reach, as long as there is none."""
    url = urlsplit(given)
    if url.scheme in ("", "file"):
        return LocalDirectory(Path(unquote(url.path) if url.scheme else given))
    return None if spark is None else HadoopDirectory(spark, given)
