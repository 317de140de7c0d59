"""Rows as Arrow's columns, by the schema that Spark is told. Used wherever Python hands rows to Spark or to Parquet, or
is given batches of records by Spark.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import NoneType
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from replicator.model.partition import Partition

Task = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]
"""What a task makes of all that it reads."""
_TYPES = {
    "string": pa.string(),
    "int": pa.int32(),
    "long": pa.int64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "array<long>": pa.list_(pa.int64()),
}


def types(columns: str) -> pa.Schema:
    """Return Arrow's schema of columns that are written as Spark takes them: `topic string, partition int`."""
    return pa.schema([(name, _TYPES[kind]) for name, kind in (column.split() for column in columns.split(", "))])


_COLUMN_OF = {str: "string", int: "long", bool: "boolean", bytes: "binary"}


def columns(of: type[tuple[object, ...]], *only: str) -> str:
    """Return the fields of a named tuple, or of another class with annotations, as columns that `types` takes; all, or
    these of them."""
    kinds = typing.get_type_hints(of)
    return ", ".join(f"{name} {_COLUMN_OF[_without_none(kinds[name])]}" for name in only or kinds)


def _without_none(kind: Any) -> type:
    """Return the type of what may be None besides."""
    (found,) = [one for one in typing.get_args(kind) or (kind,) if one is not NoneType]
    assert isinstance(found, type)
    return found


def record_batch(rows: Iterable[Sequence[object]], schema: pa.Schema) -> pa.RecordBatch:
    """Make a batch of the rows; there may be none."""
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def table(rows: Iterable[Sequence[object]], schema: pa.Schema) -> pa.Table:
    """Make a table as `record_batch` makes a batch, for what takes one."""
    return pa.Table.from_batches([record_batch(rows, schema)], schema)


def signed(word: int) -> int:
    """Return an unsigned word as the long that Spark has for it."""
    return word - (1 << 64) if word >= 1 << 63 else word


def by_partition(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Partition, pa.RecordBatch]]:
    """Yield batches that have records, each with whose these are. Raises ValueError when one has those of two
    partitions: no order would be known."""
    for batch in batches:
        if batch.num_rows:
            topics, numbers = batch.column("topic"), batch.column("partition")
            first, last = (Partition(topics[at].as_py(), numbers[at].as_py()) for at in (0, batch.num_rows - 1))
            if first != last:
                raise ValueError(f"one task reads {first} and {last}")
            yield first, batch


def of_one_partition(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Partition, pa.RecordBatch]]:
    """Yield the same, of a task that reads one partition. Raises ValueError when it reads others."""
    before: Partition | None = None
    for at, batch in by_partition(batches):
        if before not in (None, at):
            raise ValueError(f"one task reads {before} and {at}")
        before = at
        yield at, batch


def frame(spark: SparkSession, rows: Iterable[Sequence[object]], columns: str) -> DataFrame:
    """Return a few rows as a DataFrame whose rows are part of the plan: to send them to executors takes no job. Spark
    makes an RDD of a list of rows, and each join with it a job (`ArrowConverters.toDataFrame`,
    `spark.sql.execution.arrow.localRelationThreshold`).

    Args:
        columns: as `types` takes them.
    """
    return spark.createDataFrame(table(rows, types(columns)))


def on_driver(found: DataFrame) -> DataFrame:
    """Return the rows of a frame, computed now and kept by the driver. They are one partition, which is what every
    window, group and join asks of its input: whatever is computed from them alone takes one stage, and no shuffle.

    Args:
        found: so few rows that a task may be sent all of them.
    """
    return found.sparkSession.createDataFrame(found.toArrow()).coalesce(1)
