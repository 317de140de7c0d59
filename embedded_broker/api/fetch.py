"""Fetch (1).

Behaviour: long poll; waits until min_bytes can be read, something is wrong with a partition, or max_wait has passed.
A request without partitions is answered at once (`ReplicaManager.fetchMessages`): the Java client ends with one.
Whole batches only, at least one (KIP-74): the first batch of the first partition with data is given whatever its size.
read_committed readers get data below the last stable offset and the list of aborted transactions in it.
Fetch sessions are not kept: session id 0 tells the client to send whole requests, as KIP-227 allows.
Version notes: v12 fetched epochs are for followers; v13+ name topics by id; v15+ add tagged fields only.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.registry import Answer, api
from embedded_broker.partition import PartitionStopped

if TYPE_CHECKING:
    from embedded_broker.broker import Broker
    from embedded_broker.connection import Connection
    from embedded_broker.partition import Partition

READ_COMMITTED = 1
FIRST_EPOCHS = frozenset({-1, 0})


@dataclass(slots=True)
class _Wanted:
    """One partition of a request."""

    number: int  # of its topic in the request
    data: Any
    partition: Partition | None
    error_code: ErrorCode


class _Wake:
    """A `partition.Waiter` over an event."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    def wake(self) -> None:
        """See `partition.Waiter`."""
        self.event.set()


@api(1, "fetch", range(4, 18))
async def handle(broker: Broker, conn: Connection, request: Any, version: int) -> Answer:
    """See the module."""
    if version >= 7 and request.session_epoch not in FIRST_EPOCHS:
        return {"error_code": ErrorCode.fetch_session_id_not_found, "responses": []}
    wanted = [
        _find(broker, topic, data, number, version)
        for number, topic in enumerate(request.topics)
        for data in topic.partitions
    ]
    committed = request.isolation_level == READ_COMMITTED
    bytes_max = min(request.max_bytes, broker.config.fetch_bytes_max)
    deadline = asyncio.get_running_loop().time() + request.max_wait.total_seconds()
    wake = _Wake()
    live = [each.partition for each in wanted if each.partition is not None]
    for partition in live:
        partition.add_waiter(wake)
    try:
        while True:
            wake.event.clear()
            answers, got_bytes, failed = _read(wanted, bytes_max, committed)
            if got_bytes >= request.min_bytes or failed or not wanted or not await _woken(wake, deadline):
                break
    finally:
        for partition in live:
            partition.remove_waiter(wake)
    return {"responses": _by_topic(request, wanted, answers, version)}


async def _woken(wake: _Wake, deadline: float) -> bool:
    """Wait until a partition has moved; False when the time is over."""
    try:
        async with asyncio.timeout_at(deadline):
            await wake.event.wait()
    except TimeoutError:
        return False
    return True


def _find(broker: Broker, named: Any, data: Any, number: int, version: int) -> _Wanted:
    """The partition that is meant, or why it can't be read. Leader epochs as in KIP-320."""
    topic = broker.topics.by_id(named.topic_id) if version >= 13 else broker.topics.get(named.topic)
    if topic is None:
        missing = ErrorCode.unknown_topic_id if version >= 13 else ErrorCode.unknown_topic_or_partition
        return _Wanted(number, data, None, missing)
    partition = topic.partition(data.partition)
    if partition is None:
        return _Wanted(number, data, None, ErrorCode.unknown_topic_or_partition)
    return _Wanted(number, data, partition, partition.check_epoch(getattr(data, "current_leader_epoch", -1)))


def _read(wanted: list[_Wanted], bytes_max: int, committed: bool) -> tuple[list[dict[str, Any]], int, bool]:
    """(answers, bytes read, whether something is wrong with a partition)."""
    answers: list[dict[str, Any]] = []
    got_bytes, failed = 0, False
    for each in wanted:
        error_code = _wrong(each)
        if error_code is not ErrorCode.none or each.partition is None:
            failed = True
            answers.append(_nothing(each, error_code))
            continue
        try:
            answer = _one(each.partition, each.data, max(bytes_max - got_bytes, 0), committed, first=got_bytes == 0)
        except PartitionStopped:
            failed = True
            answer = _nothing(each, ErrorCode.kafka_storage_error)
        got_bytes += len(answer["records"])
        answers.append(answer)
    return answers, got_bytes, failed


def _wrong(each: _Wanted) -> ErrorCode:
    """Why a partition can't be read now."""
    if each.error_code is not ErrorCode.none or each.partition is None:
        return each.error_code
    if each.partition.closed:
        return ErrorCode.unknown_topic_or_partition
    if each.partition.stopped is not None:
        return ErrorCode.kafka_storage_error
    if not each.partition.log_start <= each.data.fetch_offset <= each.partition.log_end:
        return ErrorCode.offset_out_of_range
    return ErrorCode.none


def _nothing(each: _Wanted, error_code: ErrorCode) -> dict[str, Any]:
    known = each.partition if error_code is ErrorCode.offset_out_of_range else None
    return {
        "partition_index": each.data.partition,
        "error_code": error_code,
        "high_watermark": -1 if known is None else known.high_watermark,
        "log_start_offset": -1 if known is None else known.log_start,
        "records": b"",
        "aborted_transactions": None,
    }


def _one(partition: Partition, data: Any, left_bytes: int, committed: bool, first: bool) -> dict[str, Any]:
    """What can be read of a partition. Only the first batch of a response may be larger than what is left."""
    offset, limit = data.fetch_offset, partition.limit(committed)
    size = min(data.partition_max_bytes, left_bytes)
    records = b""
    if offset < limit and (size > 0 or first):
        records = partition.read(offset, max(size, 1), limit)
        if not first and len(records) > size:
            records = b""
    aborted = None
    if committed:
        found = partition.aborted_in(offset, records)
        aborted = [{"producer_id": producer_id, "first_offset": since} for producer_id, since in found]
    return {
        "partition_index": data.partition,
        "high_watermark": partition.high_watermark,
        "last_stable_offset": partition.last_stable,
        "log_start_offset": partition.log_start,
        "aborted_transactions": aborted,
        "records": records,
    }


def _by_topic(request: Any, wanted: list[_Wanted], answers: list[dict[str, Any]], version: int) -> list[dict[str, Any]]:
    """Answers in the request's order of topics."""
    topics: list[dict[str, Any]] = [
        {"topic_id": topic.topic_id, "partitions": []} if version >= 13 else {"topic": topic.topic, "partitions": []}
        for topic in request.topics
    ]
    for each, answer in zip(wanted, answers, strict=True):
        topics[each.number]["partitions"].append(answer)
    return topics
