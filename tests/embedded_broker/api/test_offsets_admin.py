"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from kio.schema.errors import ErrorCode

from kafka_records.batch import TRANSACTIONAL
from kafka_records.control import marker
from tests.embedded_broker.served import Client, Served, batch, fetch, produce, serving

NONE = ErrorCode.none
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3


async def _fill(served: Served, *batches: bytes | bytearray) -> None:
    partition = served.broker.topics.partition("t", 0)
    assert partition is not None
    for data in batches:
        partition.append(data)
    await served.broker.durable(partition)


async def _offset(client: Client, timestamp: int, committed: bool = False, version: int = 7) -> tuple[int, int]:
    partitions = [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}]
    topics = [{"name": "t", "partitions": partitions}]
    response = await client.call("list_offsets", version, isolation_level=int(committed), topics=topics)
    found = response.topics[0].partitions[0]
    assert found.error_code is NONE
    return found.offset, found.timestamp


def test_offsets_by_place_and_by_time(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t")
            client = await served.client()
            assert await _offset(client, LATEST) == (0, -1)
            assert await _offset(client, MAX_TIMESTAMP) == (-1, -1)
            assert await _offset(client, 5) == (-1, -1)
            await _fill(served, *(batch(b"v", timestamp_ms=time_ms) for time_ms in (100, 300, 200)))
            assert await _offset(client, EARLIEST) == (0, -1)
            assert await _offset(client, LATEST) == (3, -1)
            assert await _offset(client, MAX_TIMESTAMP) == (1, 300)
            assert await _offset(client, 0) == (0, 100)
            assert await _offset(client, 101) == (1, 300)
            assert await _offset(client, 301) == (-1, -1)
            for version in range(1, 11):
                assert await _offset(client, LATEST, version=version) == (3, -1)

    asyncio.run(main())


def test_the_latest_offset_is_the_last_stable_one_for_who_reads_committed(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t")
            client = await served.client()
            in_txn = batch(b"v", attributes=TRANSACTIONAL, producer_id=1, producer_epoch=0, base_sequence=0)
            await _fill(served, batch(b"0"), in_txn)
            assert await _offset(client, LATEST) == (2, -1)
            assert await _offset(client, LATEST, committed=True) == (1, -1)
            await _fill(served, marker(1, 0, commit=True, timestamp_ms=1))
            assert await _offset(client, LATEST, committed=True) == (3, -1)

    asyncio.run(main())


def test_each_start_is_an_epoch_that_ends_where_the_next_begins(tmp_path: Path) -> None:
    async def main() -> None:
        for start in range(3):
            async with serving(tmp_path) as served:
                if start == 0:
                    await served.topic("t")
                await _fill(served, *(batch(b"v") for _ in range(start + 1)))
        async with serving(tmp_path) as served:
            client = await served.client()
            assert [await _end(client, epoch) for epoch in range(5)] == [(0, 1), (1, 3), (2, 6), (3, 6), (-1, -1)]

    async def _end(client: Client, epoch: int) -> tuple[int, int]:
        partition = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": epoch}
        topics = [{"topic": "t", "partitions": [partition]}]
        found = (await client.call("offset_for_leader_epoch", 4, topics=topics)).topics[0].partitions[0]
        return found.leader_epoch, found.end_offset

    asyncio.run(main())


def test_deleted_records_are_gone_also_after_a_restart(tmp_path: Path) -> None:
    async def delete(client: Client, offset: int, name: str = "t") -> Any:
        topics = [{"name": name, "partitions": [{"partition_index": 0, "offset": offset}]}]
        found = (await client.call("delete_records", 2, topics=topics, timeout=1000)).topics[0].partitions[0]
        return found.error_code, found.low_watermark

    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t")
            client = await served.client()
            await client.call("produce", 9, **produce("t", batch(*[b"v"] * 10)))
            assert await delete(client, 4) == (NONE, 4)
            assert await delete(client, 2) == (NONE, 4)
            assert await delete(client, 11) == (ErrorCode.offset_out_of_range, -1)
            assert await delete(client, -2) == (ErrorCode.offset_out_of_range, -1)
            assert (await delete(client, 0, "none"))[0] is ErrorCode.unknown_topic_or_partition
            assert (await delete(client, 0, "__consumer_offsets"))[0] is ErrorCode.invalid_topic_exception
        async with serving(tmp_path) as served:
            client = await served.client()
            assert await _offset(client, EARLIEST) == (4, -1)
            response = await client.call("fetch", 12, **fetch("t", 3))
            found = response.responses[0].partitions[0]
            assert (found.error_code, found.log_start_offset) == (ErrorCode.offset_out_of_range, 4)
            assert await delete(client, -1) == (NONE, 10)
            assert await _offset(client, EARLIEST) == (10, -1)

    asyncio.run(main())
