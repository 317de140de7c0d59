"""When no more files can be opened: refused, and nothing else; timestamps that clients choose don't open files."""

from __future__ import annotations

import asyncio
import resource
from functools import partial
from pathlib import Path
from typing import IO, Any

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker import broker as broker_module
from embedded_broker.config.thresholds import Thresholds
from kafka_records.records import encode
from tests.embedded_broker.process import BrokerProcess
from tests.embedded_broker.served import Client, Served, batch, change, fetch, produce, serving
from tests.kafka_records.sealed import seal

FILES = 256
WEEK_MS = 7 * 86_400_000


class LimitedProcess(BrokerProcess):
    """Under `ulimit -n`, hard and soft."""

    def start(self, stderr: IO[bytes] | int | None = None) -> None:
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, before[1]))
        try:
            super().start(stderr)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def _create(client: Client, name: str, partitions: int, **configs: str) -> Any:
    wanted = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": 1,
        "assignments": (),
        "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
    }
    return (await client.call("create_topics", 5, topics=[wanted], timeout=10_000, validate_only=False)).topics[0]


async def _produced(client: Client, topic: str, data: bytes) -> ErrorCode:
    found: ErrorCode = (await client.call("produce", 9, **produce(topic, data))).responses[0].partition_responses[0]
    return found.error_code  # type: ignore[attr-defined, no-any-return]


@pytest.mark.tier("default")
def test_more_partitions_than_files_are_refused_and_the_broker_goes_on(tmp_path: Path) -> None:
    async def main(process: BrokerProcess) -> None:
        host, _, port = process.address.rpartition(":")
        client = Client(*await asyncio.open_connection(host, int(port)))
        assert (await _create(client, "before", 1)).error_code is ErrorCode.none
        assert (await _create(client, "many", 2 * FILES)).error_code is ErrorCode.kafka_storage_error
        assert await _produced(client, "before", batch(b"v")) is ErrorCode.none
        assert (await _create(client, "after", 1)).error_code is ErrorCode.none
        assert (await client.call("fetch", 12, **fetch("before", 0))).responses[0].partitions[0].records
        client.writer.close()

    process = LimitedProcess(tmp_path)
    process.start()
    try:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.prlimit(process.process.pid, resource.RLIMIT_NOFILE, (FILES, hard))  # whatever it has raised it to
        asyncio.run(main(process))
        assert process.terminate() == 0
    finally:
        process.kill()


def test_a_log_that_can_open_no_segment_refuses_the_batch_and_the_broker_keeps_its_reserve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_module, "open_files_for_logs", lambda: 20)

    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t", segment_bytes="2000")
            client = await served.client()
            found = [await _produced(client, "t", batch(bytes(1_500))) for _ in range(30)]
            assert ErrorCode.none in found
            assert found[-1] is ErrorCode.kafka_storage_error
            assert (await client.call("fetch", 12, **fetch("t", 0))).responses[0].partitions[0].records
            fields = {"transactional_id": "x", "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
            assert (await client.call("init_producer_id", 4, **fields)).error_code is ErrorCode.none
            with served.broker.disk_space.open_files.for_itself():
                await served.topic("internal, as it were")
            assert not served.broker.failed.done()
            topic = served.broker.topics.get("t")
            assert topic is not None
            await change(served.broker, partial(served.broker.topics.delete, topic))
            await served.topic("t")
            assert await _produced(client, "t", batch(b"there is room again")) is ErrorCode.none

    asyncio.run(main())


def _segments(served: Served) -> list[int]:
    partition = served.broker.topics.partition("t", 0)
    assert partition is not None
    return [segment.max_timestamp for segment in partition.log.segments]


def _claiming(max_timestamp_ms: int, base_timestamp_ms: int, true_ms: int) -> bytes:
    """A batch whose header says something else than its one record."""
    body = bytes(encode([(b"k", b"v")], true_ms))[61:]
    delta = (true_ms - base_timestamp_ms) << 1 ^ ((true_ms - base_timestamp_ms) >> 63)
    out = bytearray()
    while delta > 0x7F:
        out.append(delta & 0x7F | 0x80)
        delta >>= 7
    out.append(delta)
    record = body[1:2] + bytes(out) + body[3:]
    record = bytes([2 * len(record)]) + record
    return bytes(seal(record, count=1, base_timestamp=base_timestamp_ms, max_timestamp=max_timestamp_ms))


def test_segments_are_closed_by_the_records_timestamps_not_by_what_the_header_claims(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t")
            client = await served.client()
            true_ms = 1_000_000
            for number in range(20):
                claimed = true_ms + (number + 1) * 2 * WEEK_MS
                base = true_ms if number % 2 else claimed
                assert await _produced(client, "t", _claiming(claimed, base, true_ms)) is ErrorCode.none
            assert _segments(served) == [true_ms]
            partition = served.broker.topics.partition("t", 0)
            assert partition is not None
            latest = partition.latest_batch()
            assert latest is not None
            assert (latest.base_offset, latest.max_timestamp) == (0, true_ms)

    asyncio.run(main())


def test_a_partition_has_a_bounded_number_of_small_segments(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, thresholds=Thresholds(segments_max=5)) as served:
            await served.topic("t")
            client = await served.client()
            for number in range(20):
                data = batch(b"v", timestamp_ms=number * 2 * WEEK_MS)
                assert await _produced(client, "t", data) is ErrorCode.none
            assert len(_segments(served)) == 5

    asyncio.run(main())
