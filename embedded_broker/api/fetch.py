"""Fetch (1).

Behaviour: the request waits until min_bytes can be read, a partition has an error, or max_wait has passed. While it
waits, bytes are only counted; they are read once, for the response. A request without partitions is answered at once
(`ReplicaManager.fetchMessages`); the Java client sends one when it closes its session. The response has whole batches,
and at least one (KIP-74): the first batch of the first partition with data is returned whatever its size. A
read_committed reader gets the data below the last stable offset, with the list of its aborted transactions. This
handler checks the right to read by itself, because a session keeps partitions that the client may not read: the client
does not name them again when it gets the right later.
Version notes: v7 adds sessions (KIP-227; `fetch_sessions`); v10 allows zstd, which is returned to earlier versions,
too; v11 adds a rack, which is ignored; v12 the last fetched epoch, which only followers use; v13+ name topics by id;
v15+ add tagged fields only.
"""

from __future__ import annotations

import asyncio
from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.fetch_partitions import FetchedPartition
from embedded_broker.api.fetch_sessions import Answers, Asked, Fetching, SessionError, TopicKey, named
from embedded_broker.api.ports import Client, Parts
from embedded_broker.api.registry import api
from embedded_broker.runtime.fair_share import Share
from embedded_broker.security.acls import Operation, Resource
from embedded_broker.wire.responses import Answer

READ_COMMITTED = 1
FIND_STEPS, COUNT_STEPS, READ_STEPS, BYTES_A_STEP = 3, 10, 30, 2_000


@api(1, "fetch", range(4, 19))
async def handle(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
    """Handle Fetch: see the behaviour and version notes above."""
    loop, share = asyncio.get_running_loop(), conn.share()
    try:
        asked = await named(request, version, share)
        fetching = broker.fetch_sessions.begin(request, version, asked, loop.time())
    except SessionError as error:
        return {"error_code": error.error_code, "responses": []}
    committed = request.isolation_level == READ_COMMITTED
    bytes_max = min(request.max_bytes, broker.config.fetch_bytes_max)
    deadline = loop.time() + request.max_wait.total_seconds()
    partitions = []
    for each in fetching.asked:
        partitions.append(_find(broker, conn, each, version, committed))
        await share.spent(FIND_STEPS)
    waiting = _Waiting(partitions, min(request.min_bytes, bytes_max), share)
    if partitions and not await waiting.has_enough():
        await waiting.wait(deadline)
    await _pay(partitions, bytes_max, share)
    answers = await _read(partitions, bytes_max, share)
    if fetching.session is not None:
        session_id = fetching.session.session_id
    else:
        session_id = broker.fetch_sessions.open(request, version, fetching, answers, loop.time())
    return {"session_id": session_id, "responses": _by_topic(fetching, answers, version)}


class _Waiting:
    """Waits until there is enough to read, or something is wrong with a partition.

    While it waits, only those partitions are counted again that have moved.
    """

    def __init__(self, partitions: list[FetchedPartition], min_bytes: int, share: Share) -> None:
        self._partitions, self._min_bytes, self._share = partitions, min_bytes, share
        self._moved: dict[FetchedPartition, None] = {}
        self._event = asyncio.Event()

    async def has_enough(self) -> bool:
        """Return whether there is no need to wait."""
        total_bytes = 0
        for each in self._partitions:
            await self._share.spent(COUNT_STEPS)
            if each.has_failed:
                return True
            total_bytes += each.count(self._min_bytes)
            if total_bytes >= self._min_bytes:
                return True
        return False

    async def wait(self, deadline_s: float) -> None:
        """Wait, but no longer than to `deadline_s` of the event loop's clock."""
        watches = [_Watch(each, self) for each in self._partitions]
        try:
            for watch in watches:  # whatever happened since `has_enough` counts, too
                watch.begin()
                await self._share.spent(COUNT_STEPS)
            async with asyncio.timeout_at(deadline_s):
                total_bytes = sum(each.counted_bytes for each in self._partitions)
                while total_bytes < self._min_bytes:
                    await self._event.wait()
                    self._event.clear()
                    moved, self._moved = self._moved, {}
                    for each in moved:
                        total_bytes -= each.counted_bytes
                        if each.has_failed:
                            return
                        total_bytes += each.count(self._min_bytes)
                        await self._share.spent(COUNT_STEPS)
        except TimeoutError:
            return
        finally:
            for watch in watches:
                watch.end()

    def note(self, moved: FetchedPartition) -> None:
        """Note that a partition has moved."""
        self._moved[moved] = None
        self._event.set()


class _Watch:
    """A `partition.Waiter` for one partition of a request."""

    __slots__ = ("_fetched", "_waiting")

    def __init__(self, fetched: FetchedPartition, waiting: _Waiting) -> None:
        self._fetched, self._waiting = fetched, waiting

    def begin(self) -> None:
        """Begin to watch, and wake once at first."""
        if self._fetched.partition is not None:
            self._fetched.partition.add_waiter(self)
        self.wake()

    def end(self) -> None:
        """Watch no more."""
        if self._fetched.partition is not None:
            self._fetched.partition.remove_waiter(self)

    def wake(self) -> None:
        """See `partition.Waiter`."""
        self._waiting.note(self._fetched)


def _find(broker: Parts, conn: Client, each: Asked, version: int, committed: bool) -> FetchedPartition:
    """Find the partition that is meant, or why it can't be read. Leader epochs as in KIP-320."""
    data = each.data
    topic = broker.topics.get(each.topic) if isinstance(each.topic, str) else broker.topics.by_id(each.topic)
    name = each.topic if isinstance(each.topic, str) else topic and topic.name
    authorizer = broker.security.authorizer
    if authorizer is not None and name and not authorizer.may(conn.session, Operation.READ, Resource.TOPIC, name):
        return FetchedPartition(data, None, committed, ErrorCode.topic_authorization_failed)
    if topic is None:
        missing = ErrorCode.unknown_topic_id if version >= 13 else ErrorCode.unknown_topic_or_partition
        return FetchedPartition(data, None, committed, missing)
    partition = topic.partition(data.partition)
    if partition is None:
        return FetchedPartition(data, None, committed, ErrorCode.unknown_topic_or_partition)
    return FetchedPartition(
        data, partition, committed, partition.check_epoch(getattr(data, "current_leader_epoch", -1))
    )


async def _pay(partitions: list[FetchedPartition], bytes_max: int, share: Share) -> None:
    """Have memory for what `_read` will find; it is counted only if there isn't enough for as much as it can be."""
    with_data = [each for each in partitions if each.has_data]
    if not with_data:
        return
    first_bytes = with_data[0].batch_bytes_max  # the first batch is read whatever its size
    most_bytes = max(min(sum(each.bytes_max for each in with_data), bytes_max), first_bytes)
    if share.account.has_room(most_bytes):
        await share.account.reserve(most_bytes)
        return
    total_bytes = 0
    for each in with_data:
        total_bytes += each.count(bytes_max)
        await share.spent(COUNT_STEPS)
    first_bytes = with_data[0].unread_bytes(first_bytes)
    await share.account.reserve(max(min(total_bytes, bytes_max), first_bytes), whole=True)


async def _read(partitions: list[FetchedPartition], bytes_max: int, share: Share) -> Answers:
    """Read what all partitions have, in order, up to `bytes_max`."""
    answers: Answers = []
    got_bytes = 0
    for each in partitions:
        answer = each.read(max(bytes_max - got_bytes, 0), first=got_bytes == 0)
        size = len(answer["records"])
        got_bytes += size
        answers.append(answer)
        await share.spent(READ_STEPS + size // BYTES_A_STEP)
    return answers


def _by_topic(fetching: Fetching, answers: list[dict[str, Any]], version: int) -> list[dict[str, Any]]:
    """Return what the client is told, by topic in the order in which they were read."""
    topics: dict[TopicKey, list[dict[str, Any]]] = {}
    for topic, answer in fetching.tell(answers):
        topics.setdefault(topic, []).append(answer)
    name = "topic_id" if version >= 13 else "topic"
    return [{name: topic, "partitions": partitions} for topic, partitions in topics.items()]
