"""Produce (0).

Behaviour: the request has one batch per partition. The batch is validated and appended, and answered once it is durable
(with acks=-1 and acks=1); the connection's next request is handled during the fsync. acks=0 has no response; an error
then closes the connection, as in Kafka. A duplicate is answered with its first offset.
Version notes: v7 adds zstd; v8 returns the records that are invalid; v10 adds hints at new leaders (KIP-951), which a
single broker never gives; from v12 on a transaction's first batch in a partition adds it to the transaction
(transaction version 2, KIP-890); v13 names topics by id.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kio.schema.errors import ErrorCode

from embedded_broker.api.owner import owner_of
from embedded_broker.api.ports import Client, Parts
from embedded_broker.api.registry import api
from embedded_broker.produce.append_validation import Verify, append
from embedded_broker.produce.batch_checks import BatchRejected, whole
from embedded_broker.produce.transaction_verification import verifier
from embedded_broker.storage.disk_space import NoSpace
from embedded_broker.wire.responses import Answer, Fields, Later

if TYPE_CHECKING:
    from embedded_broker.metadata.topics import Topic
    from embedded_broker.storage.partition import Partition
    from kafka_records.batch import BatchHeader, Buffer

ACKS = frozenset({-1, 0, 1})
ZSTD_SINCE, ID_SINCE = 7, 13
LOOK_STEPS = 6


@api(0, "produce", range(3, 14))
async def handle(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
    """Handle Produce: see the behaviour and version notes above."""
    appends = _Appends(broker, conn, request, version)
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


class _Data(NamedTuple):
    """One partition's records in a request: where they go, and the header of their batch, which is read once."""

    number: int
    records: Buffer
    partition: Partition
    header: BatchHeader


class _Appends:
    """Appends the batches of one request; `dirty` are the partitions that have got one."""

    def __init__(self, broker: Parts, conn: Client, request: Any, version: int) -> None:
        self._broker, self._request, self._version = broker, request, version
        self._share, self._now_ms = conn.share(), broker.clock.now_ms()
        self._verify: Verify | None = None
        self._owner = partial(owner_of, conn)
        self.dirty: list[Partition] = []

    async def all(self) -> list[dict[str, Any]]:
        """Append all, and return the response, by topic."""
        looked_up = [await self._topic(named) for named in self._request.topic_data]
        if self._request.transactional_id is not None:
            batches = [each for _, data in looked_up for each in data if isinstance(each, _Data)]
            await self._verify_transaction(self._request.transactional_id, batches)
        return [
            {
                **identity,
                "partition_responses": [await self._append(each) if isinstance(each, _Data) else each for each in data],
            }
            for identity, data in looked_up
        ]

    async def _topic(self, named: Any) -> tuple[dict[str, Any], list[_Data | dict[str, Any]]]:
        """Return what the response calls the topic, and what the request has for its partitions."""
        if self._version >= ID_SINCE:
            identity, unknown = {"topic_id": named.topic_id}, ErrorCode.unknown_topic_id
            topic = self._broker.topics.by_id(named.topic_id)
        else:
            identity, unknown = {"name": named.name}, ErrorCode.unknown_topic_or_partition
            topic = self._broker.topics.get(named.name)
        if topic is None:
            return identity, [_refusal(data.index, unknown, "no such topic") for data in named.partition_data]
        found = list[_Data | dict[str, Any]]()
        for data in named.partition_data:
            await self._share.spent(LOOK_STEPS)
            found.append(self._looked_up(topic, data))
        return identity, found

    def _looked_up(self, topic: Topic, data: Any) -> _Data | dict[str, Any]:
        partition = topic.partition(data.index)
        if partition is None:
            return _refusal(data.index, ErrorCode.unknown_topic_or_partition, "no such partition")
        if topic.is_internal:
            return _refusal(data.index, ErrorCode.invalid_topic_exception, "an internal topic")
        if self._request.acks not in ACKS:
            return _refusal(data.index, ErrorCode.invalid_required_acks, f"acks={self._request.acks}")
        if partition.stopped is not None:  # before it is added to a transaction, which it would hold up
            return _refusal(data.index, ErrorCode.kafka_storage_error, partition.stopped)
        insync_min = partition.config.insync_min
        if self._request.acks == -1 and insync_min > 1:
            return _refusal(data.index, ErrorCode.not_enough_replicas, f"1 of {insync_min} replicas is in sync")
        try:
            header = whole(data.records, zstd=self._version >= ZSTD_SINCE)
        except BatchRejected as refused:
            return _rejected(data.index, refused)
        return _Data(data.index, data.records, partition, header)

    async def _verify_transaction(self, transactional_id: str, batches: list[_Data]) -> None:
        try:
            self._verify = await verifier(self._broker, transactional_id, self._version, batches, self._owner())
        except NoSpace:
            self._verify = _unverified

    async def _append(self, data: _Data) -> dict[str, Any]:
        """Append one partition's batch and note the partition in `dirty`, or say why not."""
        number, records, partition, header = data
        config = partition.config
        try:
            batch = await self._broker.batch_checks.check(header, records, config, self._now_ms, self._share)
            if partition.closed or partition.config is not config:  # while others had their turn
                return _refusal(number, ErrorCode.not_leader_or_follower, "the topic has changed meanwhile")
            appended = append(partition, batch, self._now_ms, self._verify, self._owner)
        except BatchRejected as refused:
            return _rejected(number, refused)
        except OSError as error:
            return _refusal(number, ErrorCode.kafka_storage_error, str(error))
        self.dirty.append(partition)
        return {
            "index": number,
            "base_offset": appended.base_offset,
            "log_append_time": appended.append_time_ms if appended.append_time_ms >= 0 else None,
            "log_start_offset": partition.log_start,
        }


def _unverified(partition: Partition, header: BatchHeader) -> ErrorCode:
    """Return the error of a full disk: the coordinator could not note that a partition is part of a transaction."""
    return ErrorCode.kafka_storage_error


def _refusal(index: int, error_code: ErrorCode, detail: str) -> dict[str, Any]:
    return {"index": index, "error_code": error_code, "base_offset": -1, "error_message": detail}


def _rejected(index: int, refused: BatchRejected) -> dict[str, Any]:
    errors = [{"batch_index": each.place, "batch_index_error_message": each.message} for each in refused.records]
    return {**_refusal(index, refused.error_code, str(refused)), "record_errors": errors}


async def _when_durable(broker: Parts, answer: Fields, dirty: list[Partition]) -> Fields:
    await broker.flush_scheduler.durable(*dirty)
    return answer


def _flush_unanswered(broker: Parts, dirty: list[Partition]) -> None:
    """Flush behind the client's back."""
    background = asyncio.ensure_future(broker.flush_scheduler.durable(*dirty))
    background.add_done_callback(lambda done: done.cancelled() or done.exception())
