"""Fetch: long poll, sizes, isolation levels, epochs and errors."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.storage.partition import Partition
from kafka_records.batch import TRANSACTIONAL, iter_batches
from kafka_records.control import marker
from tests.embedded_broker.served import Client, Served, batch, fetch, produce, serving

NONE = ErrorCode.none


def _partition(served: Served, index: int = 0) -> Partition:
    partition = served.broker.topics.partition("t", index)
    assert partition is not None
    return partition


async def _append(served: Served, *batches: bytes | bytearray) -> None:
    for data in batches:
        _partition(served).append(data)
    await served.broker.durable(_partition(served))


def _in_txn(producer_id: int, sequence: int, value: bytes = b"v") -> bytes:
    return batch(value, attributes=TRANSACTIONAL, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)


async def _one(client: Client, version: int = 12, **fields: Any) -> Any:
    return (await client.call("fetch", version, **fields)).responses[0].partitions[0]


def _bases(records: bytes) -> list[int]:
    return [header.base_offset for header, _ in iter_batches(records)]


def test_a_waiting_fetch_is_woken_by_a_produce(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t")
            reader, writer = await served.client(), await served.client()
            reader.send("fetch", 12, **fetch("t", 0, max_wait=30_000))
            await asyncio.sleep(0.02)
            await writer.call("produce", 9, **produce("t", batch(b"x")))
            answer = (await reader.receive()).responses[0].partitions[0]
            assert (answer.error_code, answer.high_watermark, _bases(answer.records)) == (NONE, 1, [0])

    asyncio.run(main())


def test_a_fetch_of_no_partition_is_answered_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            client = await served.client()
            client.send("fetch", 12, **{**fetch("t", 0, max_wait=30_000), "topics": ()})
            async with asyncio.timeout(5):
                assert (await client.receive()).responses == ()

    asyncio.run(main())


def test_a_fetch_waits_for_its_bytes_but_no_longer_than_asked(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t")
            client = await served.client()
            begun = asyncio.get_running_loop().time()
            client.send("fetch", 12, **fetch("t", 0, max_wait=300, min_bytes=1_000))
            await _append(served, batch(b"too little"))
            answer = (await client.receive()).responses[0].partitions[0]
            assert asyncio.get_running_loop().time() - begun >= 0.29
            assert _bases(answer.records) == [0]

    asyncio.run(main())


def test_nothing_is_read_that_is_not_durable(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t")
            client = await served.client()
            async with served.broker.flush_scheduler.exclusive():  # no fsync can end
                _partition(served).append(batch(b"x"))
                waiting = asyncio.ensure_future(served.broker.durable(_partition(served)))
                answer = await _one(client, **fetch("t", 0, max_wait=50))
                assert (answer.high_watermark, answer.records) == (0, b"")
            await waiting
            assert _bases((await _one(client, **fetch("t", 0))).records) == [0]

    asyncio.run(main())


def test_whole_batches_within_the_limits_but_always_one(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t", 2)
            large = batch(b"x" * 10_000)
            await _append(served, large, large, large)
            _partition(served, 1).append(large)
            await served.broker.durable(_partition(served, 1))
            client = await served.client()
            size = len(large)
            assert _bases((await _one(client, **fetch("t", 0, partition_max_bytes=1))).records) == [0]
            assert _bases((await _one(client, **fetch("t", 1, partition_max_bytes=2 * size))).records) == [1, 2]
            assert _bases((await _one(client, **fetch("t", 0, partition_max_bytes=2 * size - 1))).records) == [0]
            for bytes_max in (1, size, size + 10):  # the second partition's batch doesn't fit any more
                response = await client.call("fetch", 12, **fetch("t", 0, 0, max_bytes=bytes_max))
                first, second = response.responses[0].partitions
                assert (_bases(first.records), second.records) == ([0], b"")

    asyncio.run(main())


def test_a_fetch_from_inside_a_batch_gets_the_whole_batch(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t")
            await _append(served, batch(b"0", b"1", b"2"), batch(b"3"))
            client = await served.client()
            assert _bases((await _one(client, **fetch("t", 2))).records) == [0, 3]
            assert (await _one(client, **fetch("t", 4))).error_code is NONE
            answer = await _one(client, **fetch("t", 5))
            assert answer.error_code is ErrorCode.offset_out_of_range

    asyncio.run(main())


def test_read_committed_ends_at_the_first_open_transaction(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t")
            await _append(served, batch(b"0"), _in_txn(1, 0), batch(b"2"))
            client = await served.client()
            answer = await _one(client, **fetch("t", 0, committed=True))
            assert (answer.last_stable_offset, answer.high_watermark) == (1, 3)
            assert (_bases(answer.records), answer.aborted_transactions) == ([0], ())
            plain = await _one(client, **fetch("t", 0))
            assert (_bases(plain.records), plain.aborted_transactions) == ([0, 1, 2], None)
            client.send("fetch", 12, **fetch("t", 1, committed=True, max_wait=30_000))
            await asyncio.sleep(0.02)
            await _append(served, marker(1, 0, commit=True, timestamp_ms=1))
            woken = (await client.receive()).responses[0].partitions[0]
            assert (woken.last_stable_offset, _bases(woken.records)) == (4, [1, 2, 3])

    asyncio.run(main())


def test_aborted_transactions_are_named_for_the_range_that_is_read(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t")
            await _append(
                served,
                _in_txn(1, 0),
                marker(1, 0, commit=False, timestamp_ms=1),
                _in_txn(2, 0),
                _in_txn(1, 1),
                marker(2, 0, commit=True, timestamp_ms=1),
                marker(1, 0, commit=False, timestamp_ms=1),
                batch(b"6"),
            )
            client = await served.client()

            async def aborted(offset: int, size: int) -> list[tuple[int, int]]:
                fields = fetch("t", offset, committed=True, partition_max_bytes=size)
                found = (await _one(client, **fields)).aborted_transactions
                return sorted((each.producer_id, each.first_offset) for each in found)

            assert await aborted(0, 1 << 20) == [(1, 0), (1, 3)]
            assert await aborted(0, 1) == [(1, 0)]
            assert await aborted(2, 1) == []
            assert await aborted(2, 1 << 20) == [(1, 3)]
            assert await aborted(5, 1 << 20) == [(1, 3)]
            assert await aborted(6, 1 << 20) == []

    asyncio.run(main())


def test_epochs_sessions_and_missing_partitions_have_different_errors(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t")
        async with serving(tmp_path) as served:  # a second start has another leader epoch
            client = await served.client()

            async def code(**changes: Any) -> ErrorCode:
                fields = fetch("t", 0)
                fields["topics"][0]["partitions"][0].update(changes)
                return (await _one(client, **fields)).error_code  # type: ignore[no-any-return]

            assert await code(current_leader_epoch=1) is NONE
            assert await code(current_leader_epoch=0) is ErrorCode.fenced_leader_epoch
            assert await code(current_leader_epoch=2) is ErrorCode.unknown_leader_epoch
            assert await code(partition=1) is ErrorCode.unknown_topic_or_partition
            response = await client.call("fetch", 12, **fetch("t", 0, session_id=5, session_epoch=1))
            assert response.error_code is ErrorCode.fetch_session_id_not_found
            response = await client.call("fetch", 12, **fetch("t", 0, session_id=0, session_epoch=0))
            assert response.error_code is NONE
            assert response.session_id > 0

    asyncio.run(main())


def test_deleting_a_topic_ends_its_waiting_fetches(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t")
            reader, admin = await served.client(), await served.client()
            reader.send("fetch", 12, **fetch("t", 0, max_wait=30_000))
            await asyncio.sleep(0.02)
            await admin.call("delete_topics", 5, topic_names=["t"], timeout=1000)
            answer = (await reader.receive()).responses[0].partitions[0]
            assert answer.error_code is ErrorCode.unknown_topic_or_partition

    asyncio.run(main())


def test_every_version_is_answered(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t")
            topic = served.broker.topics.get("t")
            assert topic is not None
            await _append(served, batch(b"x"))
            client = await served.client()
            for version in range(4, 19):
                fields = fetch("t", 0)
                fields["topics"][0]["topic_id"] = topic.topic_id
                assert _bases((await _one(client, version, **fields)).records) == [0]

    asyncio.run(main())
