"""A damaged segment stops its partition with a message that names file and byte; no wrong byte is served, and all other
partitions go on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.metadata.topic_names import OFFSETS_TOPIC
from embedded_broker.storage.log.format import segment_name
from embedded_broker.storage.log.memory_fs import MemoryFileSystem
from embedded_broker.storage.log.segment import CorruptLog
from kafka_records.batch import TRANSACTIONAL
from tests.embedded_broker.served import Client, Served, batch, fetch, produce, serving

NONE, STORAGE = ErrorCode.none, ErrorCode.kafka_storage_error
FIRST = segment_name(0)


async def _put(client: Client, *batches: bytes) -> list[ErrorCode]:
    response = await client.call("produce", 9, **produce("t", *batches))
    return [answer.error_code for answer in response.responses[0].partition_responses]


async def _fetch(client: Client, *offsets: int) -> list[tuple[ErrorCode, bool]]:
    response = await client.call("fetch", 9, **fetch("t", *offsets))
    return [(answer.error_code, bool(answer.records)) for answer in response.responses[0].partitions]


def _segment(served: Served, topic: str, index: int) -> Path:
    partition = served.broker.topics.partition(topic, index)
    assert partition is not None
    return partition.log.directory / FIRST


async def _written(directory: Path, fs: MemoryFileSystem) -> Path:
    """Three batches in each of two partitions; the segment of the second."""
    async with serving(directory, fs) as served:
        await served.topic("t", 2)
        client = await served.client()
        for _ in range(3):
            assert await _put(client, batch(b"x"), batch(b"x")) == [NONE, NONE]
        return _segment(served, "t", 1)


def test_damage_that_a_start_finds(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        fs = MemoryFileSystem()
        path = await _written(tmp_path, fs)
        size = len(batch(b"x"))
        fs.corrupt(path, size + 66)
        before = fs.read_small(path)
        async with serving(tmp_path, fs) as served:
            assert f"partition t-1 is stopped: {path} at byte {size}: CRC" in caplog.text
            assert "offsets 1 to 2 were durable" in caplog.text
            client = await served.client()
            assert await _fetch(client, 0, 0) == [(NONE, True), (STORAGE, False)]
            assert await _put(client, batch(b"y"), batch(b"y")) == [NONE, STORAGE]
            for time in (-1, -2, -3, 5):
                asked = [{"partition_index": index, "timestamp": time} for index in range(2)]
                listed = await client.call("list_offsets", 7, topics=[{"name": "t", "partitions": asked}])
                assert [each.error_code for each in listed.topics[0].partitions] == [NONE, STORAGE]
            known = (await client.call("metadata", 9, topics=[{"name": "t"}])).topics[0].partitions
            assert [(each.leader_id, each.offline_replicas) for each in known] == [(1, ()), (-1, (1,))]
            await served.broker._retention.enforce()
        assert fs.read_small(path) == before, "nothing is changed before somebody has looked at it"
        async with serving(tmp_path, fs) as served:
            client = await served.client()
            deleted = await client.call("delete_topics", 5, topic_names=["t"], timeout=1000)
            assert deleted.responses[0].error_code is NONE
            assert fs.read_small(path) is None

    asyncio.run(main())


def test_damage_that_a_reader_finds(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        fs = MemoryFileSystem()
        path = await _written(tmp_path, fs)
        async with serving(tmp_path, fs) as served:
            client, waiting = await served.client(), await served.client()
            waiting.send("fetch", 9, **fetch("t", 3, 3, max_wait=9_000))
            size = len(batch(b"x"))
            fs.corrupt(path, size + 66)
            assert await _fetch(client, 0, 1) == [(NONE, True), (STORAGE, False)]
            assert f"partition t-1 is stopped: {path} at byte {size}: the CRC" in caplog.text
            answers = (await waiting.receive()).responses[0].partitions
            assert [each.error_code for each in answers] == [NONE, STORAGE]
            assert await _fetch(client, 0, 0) == [(NONE, True), (STORAGE, False)]
            assert await _put(client, batch(b"y"), batch(b"y")) == [NONE, STORAGE]

    asyncio.run(main())


def test_a_transaction_over_a_damaged_partition_ends_in_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its transactional id waits until the topic is deleted."""

    async def main() -> None:
        fs = MemoryFileSystem()
        await _written(tmp_path, fs)
        async with serving(tmp_path, fs) as served:
            client = await served.client()
            init = {"transactional_id": "tx", "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
            identity = await client.call("init_producer_id", 3, **init)
            ids = {"producer_id": identity.producer_id, "producer_epoch": identity.producer_epoch}
            v3 = {f"v3_and_below_{name}": value for name, value in ids.items()}
            topics = [{"name": "t", "partitions": [0, 1]}]
            added = {**v3, "v3_and_below_transactional_id": "tx", "v3_and_below_topics": topics}
            await client.call("add_partitions_to_txn", 3, **added)
            data = batch(b"in tx", attributes=TRANSACTIONAL, base_sequence=0, **ids)
            await client.call("produce", 9, **produce("t", data, data, transactional_id="tx"))
            damaged = served.broker.topics.partition("t", 1)
            whole = served.broker.topics.partition("t", 0)
            assert damaged is not None
            assert whole is not None
            damaged.stop(CorruptLog("damaged"))
            await client.call("end_txn", 3, transactional_id="tx", committed=True, **ids)
            async with asyncio.timeout(5):
                while whole.last_stable < 5:  # noqa: ASYNC110 - the marker is on its way
                    await asyncio.sleep(0)
                while "until each of these partitions has its marker: t-1" not in caplog.text:  # noqa: ASYNC110
                    await asyncio.sleep(0)
            assert (await client.call("init_producer_id", 3, **init)).error_code is ErrorCode.concurrent_transactions
            deleted = await client.call("delete_topics", 5, topic_names=["t"], timeout=1000)
            assert deleted.responses[0].error_code is NONE
            async with asyncio.timeout(5):
                while (await client.call("init_producer_id", 3, **init)).error_code is not NONE:  # noqa: ASYNC110
                    await asyncio.sleep(0)
            assert not served.broker.failed.done()

    asyncio.run(main())


def test_without_an_internal_topic_the_broker_does_not_start(tmp_path: Path) -> None:
    async def main() -> None:
        fs = MemoryFileSystem()
        async with serving(tmp_path, fs) as served:
            client = await served.client()
            await served.topic("t")
            offset = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
            topics = [{"name": "t", "partitions": [offset]}]
            member = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": ""}
            await client.call("offset_commit", 5, **member, topics=topics)
            path = _segment(served, OFFSETS_TOPIC, 0)
        fs.corrupt(path, 70)
        with pytest.raises(CorruptLog, match=f"{path} at byte 0: CRC"):
            async with serving(tmp_path, fs):
                pass

    asyncio.run(main())
