"""Both sides as Spark's own Kafka connector reads them: a reader that this program did not write.

A task of the connector reads one range of one partition in the order of its offsets, read_committed. Span that hold
no record (commit markers, aborted records, compacted ones) it passes over, also at the end of the range, and so it does
with what retention removes while it reads (`failOnDataLoss`): that is seen by the records that were read, see
`retention`.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterable, Mapping
from functools import reduce

from pyspark.sql import DataFrame, SparkSession

from replicator.config import Cluster, Flow
from replicator.model import reading_over
from replicator.model.partition import Partition, Span
from replicator.spark.reconcile import java_client

FETCH_BYTES_MIN, FETCH_BYTES_MAX = 1 << 16, 1 << 22
HEAP_PARTS = 8
FETCHES = 2
"""That a consumer holds: one that is being given away, and the next one."""
EXECUTOR_SLOTS = 8
"""Of an executor that doesn't say how many it has."""


def read(
    spark: SparkSession, flow: Flow, cluster: Cluster, ranges: Mapping[Partition, Span], *, tasks: int = 0
) -> DataFrame | None:
    """Read the records of these ranges, with the columns of the Kafka source and headers; None when all are empty.

    Args:
        tasks: how many tasks read them at least; long ranges are divided among several. 0: one task for each range.
    """
    wanted = {at: offsets for at, offsets in ranges.items() if offsets[0] < offsets[1]}
    if not wanted:
        return None
    options = {
        "assign": _partitions_json(wanted),
        "startingOffsets": _offsets_json({at: offsets[0] for at, offsets in wanted.items()}),
        "endingOffsets": _offsets_json({at: offsets[1] for at, offsets in wanted.items()}),
        "includeHeaders": "true",
        "failOnDataLoss": "false",
        **({"minPartitions": str(tasks)} if tasks else {}),
        "groupIdPrefix": f"eos-replicate.{flow.name}.reconcile",
        "kafkaConsumer.pollTimeoutMs": str(flow.limits.request_timeout_ms + flow.limits.transaction_timeout_ms),
        **{f"kafka.{name}": value for name, value in _consumer(flow, cluster, fetch_bytes(_conf(spark))).items()},
    }
    return spark.read.format("kafka").options(**options).load()


def _conf(spark: SparkSession) -> dict[str, str]:
    return dict(spark.sparkContext.getConf().getAll())


def fetch_bytes(conf: Mapping[str, str]) -> int:
    """Decide how much a consumer fetches ahead, so that all that one JVM may have open take an eighth of its heap at
    most. A batch that is larger is fetched all the same, alone.

    Args:
        conf: Spark's properties; those that are not set have Spark's defaults.
    """
    local = conf.get("spark.master", "").startswith("local")
    heap = _bytes(conf.get("spark.driver.memory" if local else "spark.executor.memory", "1g"))
    slots = os.cpu_count() or 1 if local else int(conf.get("spark.executor.cores", EXECUTOR_SLOTS))
    idle = int(conf.get("spark.kafka.consumer.cache.capacity", 64))
    return max(FETCH_BYTES_MIN, min(FETCH_BYTES_MAX, heap // (HEAP_PARTS * FETCHES * (slots + idle))))


def _bytes(size: str) -> int:
    """Read a size of memory as Spark takes it: 512m, 2g; a plain number counts MiB."""
    number, unit = size.lower().rstrip("ib"), 2
    if number[-1:] in "kmgt":
        number, unit = number[:-1], "kmgt".index(number[-1]) + 1
    return int(number) << 10 * unit


def _consumer(flow: Flow, cluster: Cluster, fetched: int) -> dict[str, str]:
    limits = flow.limits
    return {
        **java_client.properties(cluster),
        "client.id": f"eos-replicate.{flow.name}.reconcile",
        "isolation.level": "read_committed",
        "allow.auto.create.topics": "false",
        "check.crcs": "true",
        "max.poll.records": "5000",
        "fetch.max.wait.ms": "5",  # each partition is read to an end at which nothing more comes: the default waits 500
        "max.partition.fetch.bytes": str(fetched),
        "receive.buffer.bytes": "-1",
        "request.timeout.ms": str(limits.request_timeout_ms),
        "default.api.timeout.ms": str(max(limits.request_timeout_ms, limits.connect_timeout_ms)),
    }


def _offsets_json(offsets: Mapping[Partition, int]) -> str:
    """Write Spark's JSON of offsets: topic → partition → offset."""
    found: dict[str, dict[str, int]] = {}
    for at, offset in sorted(offsets.items()):
        found.setdefault(at.topic, {})[str(at.partition)] = offset
    return json.dumps(found)


def _partitions_json(partitions: Iterable[Partition]) -> str:
    """Write Spark's JSON of partitions: topic → [partition]."""
    found: dict[str, list[int]] = {}
    for at in sorted(partitions):
        found.setdefault(at.topic, []).append(at.partition)
    return json.dumps(found)


def put_together(wanted: Iterable[Span], ranges_max: int, size: Callable[[int, int], int]) -> list[Span]:
    """Return at most `ranges_max` ranges of offsets that hold all of the wanted ones: those with the fewest bytes
    between them are read together. They are in order, and may be empty.

    Args:
        size: about how many bytes the records at offsets from the first number to before the second have.
    """
    spans = [(first, end) for first, end in wanted if first < end]
    if not spans:
        return []
    far = sorted(
        (size(first, end), end - first, index)
        for index, ((_, first), (end, _)) in enumerate(itertools.pairwise(spans), 1)
        if end - first > reading_over.OFFSETS_MAX or size(first, end) > reading_over.BYTES_MAX
    )
    cuts = sorted(index for _, _, index in far[len(far) - min(len(far), ranges_max - 1) :])
    return [(spans[first][0], spans[end - 1][1]) for first, end in itertools.pairwise([0, *cuts, len(spans)])]


def union(frames: list[DataFrame]) -> DataFrame | None:
    """Put together all rows of frames with the same columns; None of none."""
    return reduce(DataFrame.unionByName, frames) if frames else None
