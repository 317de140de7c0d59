"""Produce (0).

Behaviour: one batch per partition; validated, appended, and answered once it is durable (with acks=-1 and acks=1),
while the connection's next request is handled during the fsync. acks=0 has no response; an error then closes the
connection, as in Kafka. A duplicate is answered with its first offset.
Version notes: v7 adds zstd; v8 returns the records that are invalid; v10 leader hints, which one broker never needs;
from v12 on a transaction's first batch in a partition adds it to the transaction (transaction version 2, KIP-890); v13
names topics by id.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

from kio.schema.errors import ErrorCode

from embedded_broker.api.ports import Client, HasClock, HasDiskSpace, HasFlushScheduler, HasTopics, HasTransactions
from embedded_broker.api.registry import api
from embedded_broker.produce.append_validation import BatchRejected, append, refuse_zstd
from embedded_broker.produce.transaction_verification import Verify, verifier
from embedded_broker.storage.disk_space import NoSpace
from embedded_broker.wire.responses import Answer, Fields, Later

if TYPE_CHECKING:
    from embedded_broker.metadata.topics import Topic
    from embedded_broker.storage.partition import Partition
    from embedded_broker.wire.batch import BatchHeader

ACKS = frozenset({-1, 0, 1})
ZSTD_SINCE = 7


class Needs(HasClock, HasDiskSpace, HasTopics, HasFlushScheduler, HasTransactions, Protocol):
    """The parts of the broker that are used here."""


@api(0, "produce", range(3, 14))
async def handle(broker: Needs, conn: Client, request: Any, version: int) -> Answer:
    """Handle Produce: see the behaviour and version notes above."""
    now_ms = broker.clock.now_ms()
    by_id = version >= 13
    try:
        verify = await verifier(broker, request, version)
    except NoSpace:
        verify = _unverified
    answers: list[dict[str, Any]] = []
    dirty: list[Partition] = []
    for named in request.topic_data:
        topic = broker.topics.by_id(named.topic_id) if by_id else broker.topics.get(named.name)
        taken = []
        for data in named.partition_data:
            answer = _take(topic, data, request, version, verify, now_ms, dirty)
            if topic is None and by_id:
                answer["error_code"] = ErrorCode.unknown_topic_id
            taken.append(answer)
        identity = {"topic_id": named.topic_id} if by_id else {"name": named.name}
        answers.append({**identity, "partition_responses": taken})
    if request.acks == 0:
        _end_unanswered(broker, conn, answers, dirty)
        return None
    return Later(_when_durable(broker, {"responses": answers}, dirty))


def _take(
    topic: Topic | None, data: Any, request: Any, version: int, verify: Verify, now_ms: int, dirty: list[Partition]
) -> dict[str, Any]:
    """Append one partition's batch and note the partition in `dirty`, or say why not."""
    partition = topic.partition(data.index) if topic is not None else None
    if partition is None or topic is None:
        return _refusal(data.index, ErrorCode.unknown_topic_or_partition, "no such partition")
    if topic.is_internal:
        return _refusal(data.index, ErrorCode.invalid_topic_exception, "an internal topic")
    if request.acks not in ACKS:
        return _refusal(data.index, ErrorCode.invalid_required_acks, f"acks={request.acks}")
    try:
        if version < ZSTD_SINCE:
            refuse_zstd(data.records)
        appended = append(partition, data.records, now_ms, request.transactional_id, verify)
    except BatchRejected as refused:
        records = [{"batch_index": each.place, "batch_index_error_message": each.message} for each in refused.records]
        return {**_refusal(data.index, refused.error_code, str(refused)), "record_errors": records}
    except OSError as error:
        return _refusal(data.index, ErrorCode.kafka_storage_error, str(error))
    dirty.append(partition)
    return {
        "index": data.index,
        "base_offset": appended.base_offset,
        "log_append_time": appended.append_time_ms if appended.append_time_ms >= 0 else None,
        "log_start_offset": partition.log_start,
    }


def _unverified(partition: Partition, header: BatchHeader) -> ErrorCode:
    """The disk is full: the coordinator could not note that a partition is part of a transaction."""
    return ErrorCode.kafka_storage_error


def _refusal(index: int, error_code: ErrorCode, detail: str) -> dict[str, Any]:
    return {"index": index, "error_code": error_code, "base_offset": -1, "error_message": detail}


async def _when_durable(broker: Needs, answer: Fields, dirty: list[Partition]) -> Fields:
    await broker.flush_scheduler.durable(*dirty)
    return answer


def _end_unanswered(broker: Needs, conn: Client, answers: list[dict[str, Any]], dirty: list[Partition]) -> None:
    """acks=0: fsync behind the client's back; an error can only be shown by closing the connection."""
    background = asyncio.ensure_future(broker.flush_scheduler.durable(*dirty))
    background.add_done_callback(lambda done: done.cancelled() or done.exception())
    if any("error_code" in each for answer in answers for each in answer["partition_responses"]):
        conn.refuse("a batch with acks=0 was not accepted")
