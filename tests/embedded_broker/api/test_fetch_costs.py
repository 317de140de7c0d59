"""What a Fetch request may cost: one read of each partition, whatever it claims and however often it is woken."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from embedded_broker.storage.log.segment import Segment
from embedded_broker.storage.partition import Partition
from tests.embedded_broker.served import Client, Served, batch, fetch, produce, serving

TIMES, BATCHES = 5_000, 60
VALUE = bytes(10_000)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How often a partition has been read, and how many bytes of files."""
    counted = {"reads": 0, "bytes": 0}
    of_partition, of_segment = Partition.read, Segment.read_bytes

    def read(self: Partition, offset: int, bytes_max: int, up_to: int) -> bytes:
        counted["reads"] += 1
        return of_partition(self, offset, bytes_max, up_to)

    def read_bytes(self: Segment, at: int, size: int) -> bytes:
        counted["bytes"] += size
        return of_segment(self, at, size)

    monkeypatch.setattr(Partition, "read", read)
    monkeypatch.setattr(Segment, "read_bytes", read_bytes)
    return counted


async def _waits(served: Served) -> None:
    """Until a fetch waits for partition 0."""
    partition = served.broker.topics.partition("t", 0)
    assert partition is not None
    async with asyncio.timeout(10):
        while not partition.has_waiters:  # noqa: ASYNC110 - no event says so
            await asyncio.sleep(0)


async def _write(client: Client, count: int) -> None:
    for _ in range(count):
        await client.call("produce", 9, **produce("t", batch(VALUE)))


@pytest.mark.parametrize("session_epoch", [-1, 0])
def test_a_partition_that_is_named_again_and_again_is_read_once(
    tmp_path: Path, read: dict[str, int], session_epoch: int
) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t", 2)
            client = await served.client()
            await client.call("produce", 9, **produce("t", batch(b"a"), batch(b"b")))
            request: dict[str, Any] = {**fetch("t", 0), "session_epoch": session_epoch}
            request["topics"][0]["partitions"] *= TIMES
            last = {"partition": 0, "fetch_offset": 1, "partition_max_bytes": 1 << 20}
            other = {"partition": 1, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
            request["topics"][0]["partitions"] += [other, last]
            answer = (await client.call("fetch", 12, **request)).responses[0]
            # As Kafka's FetchRequest: at the place of the first, with what the last says.
            assert [each.partition_index for each in answer.partitions] == [0, 1]
            assert [bool(each.records) for each in answer.partitions] == [False, True]
            assert read["reads"] == 1

    asyncio.run(main())


def test_a_fetch_that_waits_for_many_bytes_reads_them_once(tmp_path: Path, read: dict[str, int]) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t")
            reader, writer = await served.client(), await served.client()
            reader.send("fetch", 12, **fetch("t", 0, max_wait=30_000, min_bytes=BATCHES * len(VALUE)))
            await _waits(served)
            await _write(writer, BATCHES)
            answer = (await reader.receive()).responses[0].partitions[0]
            assert len(answer.records) >= BATCHES * len(VALUE)
            assert read["reads"] == 1
            assert read["bytes"] < 2 * len(answer.records)

    asyncio.run(main())


def test_bytes_are_counted_by_batch_from_within_the_log(tmp_path: Path) -> None:
    """Neither a byte too early nor too late, at an offset that no entry of the index has."""

    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t")
            reader, writer = await served.client(), await served.client()
            for number in range(30):
                await writer.call("produce", 9, **produce("t", batch(b"%d" % number)))
            size = len(batch(b"10"))
            reader.send("fetch", 12, **fetch("t", 29, max_wait=30_000, min_bytes=2 * size))
            await _waits(served)
            await writer.call("produce", 9, **produce("t", batch(b"30")))
            answer = (await reader.receive()).responses[0].partitions[0]
            assert len(answer.records) == 2 * size
            begun = asyncio.get_running_loop().time()
            reader.send("fetch", 12, **fetch("t", 29, max_wait=200, min_bytes=2 * size + 1))
            assert len((await reader.receive()).responses[0].partitions[0].records) == 2 * size
            assert asyncio.get_running_loop().time() - begun >= 0.19

    asyncio.run(main())


def test_a_fetch_does_not_wait_for_more_than_a_segment_has(tmp_path: Path) -> None:
    """A read ends with its segment (Kafka's DelayedFetch: "fetch offset on an older segment")."""

    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t", segment_bytes="20000")
            reader, writer = await served.client(), await served.client()
            await _write(writer, 2)
            reader.send("fetch", 12, **fetch("t", 0, max_wait=30_000, min_bytes=1_000_000))
            answer = (await reader.receive()).responses[0].partitions[0]
            assert len(answer.records) == len(batch(VALUE))

    asyncio.run(main())
