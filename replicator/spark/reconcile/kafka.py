"""Both sides as Spark's own Kafka connector reads them: a reader that this program did not write.

A task of the connector reads one range of one partition in the order of its offsets, read_committed. Offsets that hold
no record (commit markers, aborted records, compacted ones) it passes over, also at the end of the range, and so it does
with what retention removes while it reads (`failOnDataLoss`): that is seen by the records that were read, see
`retention`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import reduce

from pyspark.sql import DataFrame, SparkSession

from replicator.config import Cluster, Flow
from replicator.model.partition import Partition
from replicator.spark.reconcile import java_client

Offsets = tuple[int, int]
"""[first, end)"""


def read(
    spark: SparkSession, flow: Flow, cluster: Cluster, ranges: Mapping[Partition, Offsets], *, tasks: int = 0
) -> DataFrame | None:
    """Records of these ranges, with the columns of the Kafka source and headers; None when all are empty.

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
        **{f"kafka.{name}": value for name, value in _consumer(flow, cluster).items()},
    }
    return spark.read.format("kafka").options(**options).load()


def _consumer(flow: Flow, cluster: Cluster) -> dict[str, str]:
    limits = flow.limits
    return {
        **java_client.properties(cluster),
        "client.id": f"eos-replicate.{flow.name}.reconcile",
        "isolation.level": "read_committed",
        "allow.auto.create.topics": "false",
        "check.crcs": "true",
        "max.poll.records": "5000",
        "fetch.max.wait.ms": "5",  # each partition is read to an end at which nothing more comes: the default waits 500
        "max.partition.fetch.bytes": str(max(4_194_304, min(limits.record_bytes_max, limits.fetch_queue_bytes_max))),
        "receive.buffer.bytes": "-1",
        "request.timeout.ms": str(limits.request_timeout_ms),
        "default.api.timeout.ms": str(max(limits.request_timeout_ms, limits.connect_timeout_ms)),
    }


def _offsets_json(offsets: Mapping[Partition, int]) -> str:
    """Spark's JSON of offsets: topic → partition → offset."""
    found: dict[str, dict[str, int]] = {}
    for at, offset in sorted(offsets.items()):
        found.setdefault(at.topic, {})[str(at.partition)] = offset
    return json.dumps(found)


def _partitions_json(partitions: Iterable[Partition]) -> str:
    """Spark's JSON of partitions: topic → [partition]."""
    found: dict[str, list[int]] = {}
    for at in sorted(partitions):
        found.setdefault(at.topic, []).append(at.partition)
    return json.dumps(found)


def union(frames: list[DataFrame]) -> DataFrame | None:
    """All rows of frames with the same columns; None of none."""
    return reduce(DataFrame.unionByName, frames) if frames else None
