"""DescribeLogDirs (35).

Behaviour: the data directory, the size of each partition's log, and the free space of the volume.
Version notes: v2 is flexible, v3 adds an error for the whole response, v4 the volume's sizes, v5 whether the directory
is cordoned (it never is).
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.ports import Client, Parts
from embedded_broker.api.registry import api
from embedded_broker.wire.responses import ENTRY_BYTES, Answer

if TYPE_CHECKING:
    from embedded_broker.storage.partition import Partition


STORAGE = ErrorCode.kafka_storage_error


@api(35, "describe_log_dirs", range(1, 6))
async def handle(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
    """Handle DescribeLogDirs: see the behaviour and version notes above."""
    if request.topics is None:
        wanted = {topic.name: list(range(len(topic.partitions))) for topic in broker.topics.all()}
    else:
        wanted = {topic.topic: list(topic.partitions) for topic in request.topics}
    topics, share = [], conn.share()
    for name, indexes in wanted.items():
        found = [broker.topics.partition(name, index) for index in indexes]
        partitions = [_partition(partition) for partition in found if partition is not None]
        if partitions:
            topics.append({"name": name, "partitions": partitions})
        await share.spent(2 + 4 * len(indexes), ENTRY_BYTES * len(partitions))
    try:
        volume = shutil.disk_usage(broker.config.data_dir)
    except OSError:
        return {"results": [{"log_dir": str(broker.config.data_dir.absolute()), "error_code": STORAGE, "topics": []}]}
    directory = {
        "log_dir": str(broker.config.data_dir.absolute()),
        "topics": topics,
        "total_bytes": volume.total,
        "usable_bytes": volume.free,
    }
    return {"results": [directory]}


def _partition(partition: Partition) -> dict[str, Any]:
    return {
        "partition_index": partition.index,
        "partition_size": partition.log.size_bytes,
        "offset_lag": partition.log_end - partition.high_watermark,
    }
