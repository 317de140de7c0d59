"""DeleteRecords (21).

Behaviour: raises the log start durably; -1 means the high watermark. Never above it.
Version notes: none that matter here.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.ports import Client, Parts
from embedded_broker.api.registry import api
from embedded_broker.storage.disk_space import NoSpace
from embedded_broker.wire.responses import Answer

DELETE_STEPS, REFUSE_STEPS = 1_500, 5
"""The log start is written to the disk, and perhaps a checkpoint; a segment begins, and others go."""


@api(21, "delete_records", range(3), changes=True)
async def handle(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
    """Handle DeleteRecords: see the behaviour and version notes above."""
    share, answers = conn.share(), list[dict[str, Any]]()
    for topic in request.topics:
        partitions = []
        for each in topic.partitions:
            partitions.append(await _delete(broker, topic.name, each))
            is_done = partitions[-1]["low_watermark"] >= 0
            await share.spent(DELETE_STEPS if is_done else REFUSE_STEPS)
        answers.append({"name": topic.name, "partitions": partitions})
    return {"topics": answers}


async def _delete(broker: Parts, name: str, wanted: Any) -> dict[str, Any]:
    answer: dict[str, Any] = {"partition_index": wanted.partition_index, "low_watermark": -1}
    broker.metadata.changes.go_on()
    topic = broker.topics.get(name)
    partition = topic.partition(wanted.partition_index) if topic is not None else None
    if topic is None or partition is None:
        return {**answer, "error_code": ErrorCode.unknown_topic_or_partition}
    if topic.is_internal:
        return {**answer, "error_code": ErrorCode.invalid_topic_exception}
    if not broker.topics.config_of(topic).deletes:
        return {**answer, "error_code": ErrorCode.policy_violation}
    if partition.stopped is not None:
        return {**answer, "error_code": ErrorCode.kafka_storage_error}
    async with broker.flush_scheduler.exclusive():
        if partition.closed:
            return {**answer, "error_code": ErrorCode.unknown_topic_or_partition}
        offset = partition.high_watermark if wanted.offset == -1 else wanted.offset
        if not partition.log_start <= offset <= partition.high_watermark:
            # Kafka answers an offset below the log start with the log start, and one above the end with an error.
            if not 0 <= offset < partition.log_start:
                return {**answer, "error_code": ErrorCode.offset_out_of_range}
        else:
            try:
                partition.delete_before(offset)
            except NoSpace:
                return {**answer, "error_code": ErrorCode.kafka_storage_error}
    return {**answer, "low_watermark": partition.log_start}
