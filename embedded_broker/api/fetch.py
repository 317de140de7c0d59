"""Fetch (1).

Behaviour: long poll; waits until min_bytes can be read, a partition has an error, or max_wait has passed. A request
without partitions is answered at once (`ReplicaManager.fetchMessages`): the Java client ends with one. Whole batches
only, at least one (KIP-74): the first batch of the first partition with data is returned whatever its size.
read_committed readers get data below the last stable offset and its aborted transactions. This handler checks the right
to read by itself, because a session keeps partitions that the client may not read: the client doesn't name them again
when it may.
Version notes: v7 adds sessions (KIP-227; `fetch_sessions`); v10 zstd, which earlier versions get, too; v11 a rack,
which is ignored; v12 the last fetched epoch, which only followers use; v13+ name topics by id; v15+ add tagged fields
only.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from kio.schema.errors import ErrorCode

from embedded_broker.api.fetch_sessions import Asked, Fetching, SessionError, TopicKey
from embedded_broker.api.ports import Client, HasConfig, HasFetchSessions, HasSecurity, HasTopics
from embedded_broker.api.registry import api
from embedded_broker.security.acls import Operation, Resource
from embedded_broker.storage.partition import PartitionStopped
from embedded_broker.wire.responses import Answer

if TYPE_CHECKING:
    from embedded_broker.storage.partition import Partition

READ_COMMITTED = 1


@dataclass(slots=True)
class _Wanted:
    """One partition to read."""

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


class Needs(HasConfig, HasTopics, HasFetchSessions, HasSecurity, Protocol):
    """The parts of the broker that are used here."""


@api(1, "fetch", range(4, 19))
async def handle(broker: Needs, conn: Client, request: Any, version: int) -> Answer:
    """Handle Fetch: see the behaviour and version notes above."""
    loop = asyncio.get_running_loop()
    try:
        fetching = broker.fetch_sessions.begin(request, version, loop.time())
    except SessionError as error:
        return {"error_code": error.error_code, "responses": []}
    wanted = [_find(broker, conn, each, version) for each in fetching.asked]
    committed = request.isolation_level == READ_COMMITTED
    bytes_max = min(request.max_bytes, broker.config.fetch_bytes_max)
    deadline = loop.time() + request.max_wait.total_seconds()
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
    if fetching.session is not None:
        session_id = fetching.session.session_id
    else:
        session_id = broker.fetch_sessions.open(request, version, fetching, answers, loop.time())
    return {"session_id": session_id, "responses": _by_topic(fetching, answers, version)}


async def _woken(wake: _Wake, deadline: float) -> bool:
    """Wait until a partition has moved; False when the time is over."""
    try:
        async with asyncio.timeout_at(deadline):
            await wake.event.wait()
    except TimeoutError:
        return False
    return True


def _find(broker: Needs, conn: Client, each: Asked, version: int) -> _Wanted:
    """The partition that is meant, or why it can't be read. Leader epochs as in KIP-320."""
    data = each.data
    topic = broker.topics.get(each.topic) if isinstance(each.topic, str) else broker.topics.by_id(each.topic)
    name = each.topic if isinstance(each.topic, str) else topic and topic.name
    authorizer = broker.security.authorizer
    if authorizer is not None and name and not authorizer.may(conn.session, Operation.READ, Resource.TOPIC, name):
        return _Wanted(data, None, ErrorCode.topic_authorization_failed)
    if topic is None:
        missing = ErrorCode.unknown_topic_id if version >= 13 else ErrorCode.unknown_topic_or_partition
        return _Wanted(data, None, missing)
    partition = topic.partition(data.partition)
    if partition is None:
        return _Wanted(data, None, ErrorCode.unknown_topic_or_partition)
    return _Wanted(data, partition, partition.check_epoch(getattr(data, "current_leader_epoch", -1)))


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


def _by_topic(fetching: Fetching, answers: list[dict[str, Any]], version: int) -> list[dict[str, Any]]:
    """What the client is told, by topic in the order in which they were read."""
    topics: dict[TopicKey, list[dict[str, Any]]] = {}
    for topic, answer in fetching.tell(answers):
        topics.setdefault(topic, []).append(answer)
    name = "topic_id" if version >= 13 else "topic"
    return [{name: topic, "partitions": partitions} for topic, partitions in topics.items()]
