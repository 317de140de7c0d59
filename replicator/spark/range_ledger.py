"""What became of every range, as Parquet, for people: the position on the target decides, this only tells.

The driver writes it (`directories`): a file appears under its name only when it is complete, every few seconds while
ranges are answered; `spark.read.parquet(directory)` reads them.
"""

from __future__ import annotations

import io
import time
import uuid
from datetime import UTC, datetime

from replicator.jobs.range_copy import RangeDone
from replicator.jobs.ranges import Range
from replicator.model.errors import ConfigError, Unreachable
from replicator.spark.cause import FAILURES, root
from replicator.spark.directories import Directory, directory

COLUMNS = {
    "topic": "string",
    "partition": "int32",
    "start": "int64",
    "end": "int64",
    "position": "int64",
    "records": "int64",
    "bytes": "int64",
    "seconds": "float64",
    "host": "string",
    "owner": "string",
    "error": "string",
    "answered_at": "timestamp",
}
"""`records` and `bytes` are those of the attempt that answered; `error` is null where it failed in nothing."""
WRITTEN_S, ROWS_MAX = 10.0, 10_000  # a file is written at the latest after so long, or with so many rows


def check(given: str) -> None:
    """Check what can be known before Spark starts. Raises ConfigError: it exists already, or pyarrow is missing."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise ConfigError("--out needs pyarrow; install it with: pip install 'eos-replicate[spark]'") from error
    here = directory(given)
    if here is not None:
        here.begin()


class RangeLedger:
    """Writes files into a directory that doesn't exist yet. Used from one thread; closed at the end."""

    def __init__(self, name: str, directory: Directory) -> None:
        """`name` is the directory's, for messages. Raises ConfigError when it exists."""
        directory.begin()
        self._name, self._directory = name, directory
        self._id = uuid.uuid4().hex[:12]
        self._rows: list[tuple[object, ...]] = []
        self._files, self._written_s = 0, time.monotonic()
        self.written = 0
        """Rows that can be read by now."""

    def append(self, cut: Range, done: RangeDone) -> None:
        """Append a range, and the answer to it. Raises Unreachable when it can't be written."""
        self._rows.append(_row(cut, done))
        if len(self._rows) >= ROWS_MAX or time.monotonic() >= self._written_s + WRITTEN_S:
            self.flush()

    def flush(self) -> None:
        """Write what isn't written yet. Raises Unreachable when it can't be."""
        if not self._rows:
            return
        try:
            self._directory.write(f"part-{self._files:05}-{self._id}.parquet", _parquet(self._rows))
        except FAILURES as error:
            reason = root(error) if not isinstance(error, OSError) else error.strerror or str(error)
            raise Unreachable(f"the list of ranges {self._name} cannot be written: {reason}") from error
        self.written += len(self._rows)
        self._files, self._written_s = self._files + 1, time.monotonic()
        self._rows = []


def _parquet(rows: list[tuple[object, ...]]) -> bytes:
    import pyarrow
    from pyarrow import parquet

    types = {"timestamp": pyarrow.timestamp("us", "UTC"), "float64": pyarrow.float64()}
    fields = [(name, types.get(kind) or pyarrow.type_for_alias(kind)) for name, kind in COLUMNS.items()]
    columns = dict(zip(COLUMNS, map(list, zip(*rows, strict=True)), strict=True))
    out = io.BytesIO()
    parquet.write_table(pyarrow.table(columns, schema=pyarrow.schema(fields)), out)
    return out.getvalue()


def _row(cut: Range, done: RangeDone) -> tuple[object, ...]:
    host = done.owner.rpartition(":")[0].rpartition(":")[0]
    error = None if done.error is None else str(done.error)
    counts = (cut.start, cut.end, done.position, done.records, done.bytes)
    return *cut.at, *counts, done.seconds, host, done.owner, error, datetime.now(UTC)
