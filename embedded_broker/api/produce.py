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

from embedded_broker.api.ports import (
    Client,
    HasBatchChecks,
    HasClock,
    HasDiskSpace,
    HasFairShare,
    HasFlushScheduler,
    HasTopics,
    HasTransactions,
)
from embedded_broker.api.registry import api
from embedded_broker.produce.append_validation import append
from embedded_broker.produce.batch_checks import BatchRejected, refuse_zstd
from embedded_broker.produce.transaction_verification import Verify, verifier
from embedded_broker.storage.disk_space import NoSpace
from embedded_broker.wire.responses import Answer, Fields, Later

if TYPE_CHECKING:
    from embedded_broker.metadata.topics import Topic
    from embedded_broker.storage.partition import Partition
    from kafka_records.batch import BatchHeader

ACKS = frozenset({-1, 0, 1})
ZSTD_SINCE = 7


class Needs(
    HasClock, HasDiskSpace, HasTopics, HasFlushScheduler, HasTransactions, HasBatchChecks, HasFairShare, Protocol
):
    """The parts of the broker that are used here."""


@api(0, "produce", range(3, 14))
async def handle(broker: Needs, conn: Client, request: Any, version: int) -> Answer:
    """Handle Produce: see the behaviour and version notes above."""
    try:
        verify = await verifier(broker, request, version)
    except NoSpace:
        verify = _unverified
    appends = _Appends(broker, request, version, verify)
    try:
        answers = await appends.all()
    except (Exception, asyncio.CancelledError):  # as when the client leaves: what it has appended must become visible
        _flush_unanswered(broker, appends.dirty)
        raise
    if request.acks == 0:
        _flush_unanswered(broker, appends.dirty)
        if any("error_code" in each for answer in answers for each in answer["partition_responses"]):
            conn.refuse("a batch with acks=0 was not accepted")
        return None
    return Later(_when_durable(broker, {"responses": answers}, appends.dirty))


class _Appends:
    """Appends the batches of one request; `dirty` are the partitions that have got one."""

    def __init__(self, broker: Needs, request: Any, version: int, verify: Verify) -> None:
        self._broker, self._request, self._version, self._verify = broker, request, version, verify
        self._share, self._now_ms = broker.fair_share.request(), broker.clock.now_ms()
        self.dirty: list[Partition] = []

    async def all(self) -> list[dict[str, Any]]:
        """The response, by topic."""
        by_id, topics = self._version >= 13, self._broker.topics
        answers: list[dict[str, Any]] = []
        for named in self._request.topic_data:
            taken = []
            for data in named.partition_data:
                topic = topics.by_id(named.topic_id) if by_id else topics.get(named.name)
                answer = await self._take(topic, data)
                if topic is None and by_id:
                    answer["error_code"] = ErrorCode.unknown_topic_id
                taken.append(answer)
            identity = {"topic_id": named.topic_id} if by_id else {"name": named.name}
            answers.append({**identity, "partition_responses": taken})
        return answers

    async def _take(self, topic: Topic | None, data: Any) -> dict[str, Any]:
        """Append one partition's batch and note the partition in `dirty`, or say why not."""
        partition = topic.partition(data.index) if topic is not None else None
        if partition is None or topic is None:
            return _refusal(data.index, ErrorCode.unknown_topic_or_partition, "no such partition")
        if topic.is_internal:
            return _refusal(data.index, ErrorCode.invalid_topic_exception, "an internal topic")
        if self._request.acks not in ACKS:
            return _refusal(data.index, ErrorCode.invalid_required_acks, f"acks={self._request.acks}")
        config = partition.config
        if self._request.acks == -1 and config.insync_min > 1:
            return _refusal(data.index, ErrorCode.not_enough_replicas, f"1 of {config.insync_min} replicas is in sync")
        try:
            if self._version < ZSTD_SINCE:
                refuse_zstd(data.records)
            batch = await self._broker.batch_checks.check(data.records, config, self._now_ms, self._share)
            if partition.closed or partition.config is not config:  # while others had their turn
                return _refusal(data.index, ErrorCode.not_leader_or_follower, "the topic has changed meanwhile")
            appended = append(partition, batch, self._now_ms, self._request.transactional_id, self._verify)
        except BatchRejected as refused:
            errors = [
                {"batch_index": each.place, "batch_index_error_message": each.message} for each in refused.records
            ]
            return {**_refusal(data.index, refused.error_code, str(refused)), "record_errors": errors}
        except OSError as error:
            return _refusal(data.index, ErrorCode.kafka_storage_error, str(error))
        self.dirty.append(partition)
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


def _flush_unanswered(broker: Needs, dirty: list[Partition]) -> None:
    """Fsync behind the client's back."""
    background = asyncio.ensure_future(broker.flush_scheduler.durable(*dirty))
    background.add_done_callback(lambda done: done.cancelled() or done.exception())
