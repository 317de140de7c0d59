"""A Structured Streaming query that fails in the middle of a batch, and goes on at the other side of a flow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from cli import main
from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.copying import Copying

Batches = dict[int, Counter[str]]
FAILS_IN, A_BATCH = 3, 60


class Stopped(Exception):
    """What a batch fails with."""


def _each(frame: DataFrame) -> Counter[str]:
    return Counter(row.said for row in frame.collect())


def _counts(frame: DataFrame) -> Counter[str]:
    return Counter({row.said: row["count"] for row in frame.collect()})


def run(
    spark: SparkSession, bootstrap: str, topic: str, checkpoint: Path, *, counting: bool, fails_in: int | None
) -> Batches:
    """Read all there is in batches; what each batch that was done has got."""
    done: Batches = {}

    def take(frame: DataFrame, batch: int) -> None:
        found = (_counts if counting else _each)(frame)
        if batch == fails_in:
            raise Stopped
        done[batch] = found

    frame = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", A_BATCH)
        .load()
        .selectExpr("concat_ws('/', partition, hex(key), hex(value)) AS said")
    )
    if counting:
        frame = frame.groupBy("said").count()
    written = frame.writeStream.foreachBatch(take).outputMode("complete" if counting else "append")
    query = written.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    if fails_in is None:
        query.awaitTermination()
    else:
        with pytest.raises(StreamingQueryException, match="Stopped"):
            query.awaitTermination()
    return done


@pytest.mark.tier("full")
@pytest.mark.parametrize(
    "counting",
    [pytest.param(False, id="without state", marks=pytest.mark.tier("long")), pytest.param(True, id="with state")],
)
def test_a_query_that_is_moved_neither_skips_nor_repeats_a_record(
    counting: bool, spark: SparkSession, make_copying: MakeCopying, tmp_path: Path
) -> None:
    copying: Copying = make_copying()
    worker = copying.running()
    copying.load.mixed(150)  # with what is aborted
    worker.wait_event("committed")
    worker.kill()
    copying.load.mixed(150)
    copying.finish(copying.running())
    old, new = tmp_path / "old", tmp_path / "new"
    before = run(spark, copying.source, copying.topic, old, counting=counting, fails_in=FAILS_IN)
    assert list(before) == list(range(FAILS_IN))
    command = ["translate", "-c", str(copying.file.path), "--checkpoint", str(old), "--out", str(new)]
    assert main.invoke(command) == 0
    after = run(spark, copying.target, copying.copy, new, counting=counting, fails_in=None)
    assert min(after) == FAILS_IN
    found = after[max(after)] if counting else sum((*before.values(), *after.values()), Counter[str]())
    assert found == Counter(said(copying))
    assert found.total() == copying.load.committed
    assert main.invoke(command) == 2  # the new one is there


def said(copying: Copying) -> Iterator[str]:
    """What the query makes of each record of the source."""
    for number in range(copying.partitions):
        for message in clients.read(copying.source, copying.topic, number):
            parts = [None if part is None else bytes(part).hex().upper() for part in (message.key(), message.value())]
            yield "/".join(part for part in (str(number), *parts) if part is not None)
