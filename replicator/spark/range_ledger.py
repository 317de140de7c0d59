"""What became of every range, as Parquet, for people: the position on the target decides, this only tells.

One file for each round, appended when all its tasks have answered; `spark.read.parquet(directory)` reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import SparkSession

from replicator.jobs.range_copy import RangeDone
from replicator.jobs.ranges import Range
from replicator.model.errors import Unreachable
from replicator.spark.cause import FAILURES, root

SCHEMA = (
    "round int, topic string, partition int, start long, end long, position long, records long, bytes long, "
    "seconds double, host string, owner string, error string, answered_at timestamp"
)
"""`records` and `bytes` are those of the attempt that answered; `error` is null where it reached the range's end."""


class RangeLedger:
    """Appends to a directory that doesn't exist yet. On a cluster driver and executors must share its path."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self._spark, self._directory = spark, directory

    def append(self, number: int, ranges: Sequence[Range], done: Sequence[RangeDone]) -> None:
        """Round `number`: its ranges, and the answers to them. Raises Unreachable when it can't be written."""
        rows = [_row(number, cut, answer) for cut in ranges for answer in done if answer.at == cut.at]
        if not rows:
            return
        try:
            frame = self._spark.createDataFrame(rows, SCHEMA).coalesce(1)
            frame.write.mode("append").parquet(f"file://{self._directory.absolute()}")
        except FAILURES as error:
            raise Unreachable(f"the ledger {self._directory} cannot be written: {root(error)}") from error


def _row(number: int, cut: Range, done: RangeDone) -> tuple[object, ...]:
    host = done.owner.rpartition(":")[0].rpartition(":")[0]
    error = None if done.error is None else str(done.error)
    counts = (cut.start, cut.end, done.position, done.records, done.bytes)
    return number, *cut.at, *counts, done.seconds, host, done.owner, error, datetime.now(UTC)
