"""What the broker does for itself: locks its directory, forgets by retention, rewrites metadata, clears left-overs."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from embedded_broker.broker import Broker, DataDirInUse
from embedded_broker.config.settings import BrokerConfig, Fsync
from embedded_broker.config.thresholds import Thresholds
from embedded_broker.storage.partition import Partition
from embedded_broker.storage.retention import keep_from
from kafka_records.batch import TRANSACTIONAL
from tests.embedded_broker.process import BrokerProcess
from tests.embedded_broker.served import Served, batch, change, serving

NOW_MS = 1_800_000_000_000
LARGE = b"x" * 700_000
SEGMENT_BYTES = str(1 << 20)  # one large batch each


def _partition(served: Served) -> Partition:
    partition = served.broker.topics.partition("t", 0)
    assert partition is not None
    return partition


async def _append(served: Served, *batches: bytes) -> None:
    for data in batches:
        _partition(served).append(data)
        await served.broker.durable(_partition(served))


def test_a_data_dir_serves_one_broker_at_a_time(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path):
            with pytest.raises(DataDirInUse):
                await Broker(BrokerConfig(tmp_path, port=0)).start()
        async with serving(tmp_path):
            pass

    asyncio.run(main())


@pytest.mark.tier("default")
def test_the_command_refuses_a_data_dir_in_use_and_stops_on_sigterm(tmp_path: Path) -> None:
    first, second = BrokerProcess(tmp_path), BrokerProcess(tmp_path)
    first.start()
    with pytest.raises(AssertionError):
        second.start()
    assert second.process.wait(10) == 1
    assert first.terminate() == 0


def test_retention_by_time_takes_whole_segments_and_the_last_one_too(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t", segment_bytes=SEGMENT_BYTES, retention_ms="1000")
            await _append(served, *(batch(LARGE, timestamp_ms=NOW_MS - age_ms) for age_ms in (5_000, 4_000, 500, 0)))
            assert keep_from(_partition(served), NOW_MS) == 2
            assert keep_from(_partition(served), NOW_MS + 10_000) == 4
            _partition(served).delete_before(2)
            assert (_partition(served).log_start, len(_partition(served).log.segments)) == (2, 2)
            _partition(served).delete_before(4)
            assert (_partition(served).log_start, _partition(served).log.size_bytes) == (4, 0)
            await _append(served, batch(b"more", timestamp_ms=NOW_MS))
        async with serving(tmp_path) as served:
            assert (_partition(served).log_start, _partition(served).log_end) == (4, 5)

    asyncio.run(main())


def test_records_without_a_timestamp_are_as_old_as_their_file(tmp_path: Path) -> None:
    """Over a restart, too: as LogSegment.largestTimestamp."""

    async def main() -> None:
        before_ms = time.time_ns() // 1_000_000
        async with serving(tmp_path) as served:
            await served.topic("t", retention_ms="60000")
            await _append(served, batch(b"x", timestamp_ms=-1), batch(b"y", timestamp_ms=-1))
            assert keep_from(_partition(served), before_ms + 60_000) == 0
        async with serving(tmp_path, retention_check_interval_ms=10) as served:
            await _append(served)
            assert keep_from(_partition(served), before_ms + 60_000) == 0
            assert keep_from(_partition(served), time.time_ns() // 1_000_000 + 60_001) == 2
            old_s = before_ms / 1000 - 61
            for segment in _partition(served).log.segments:
                os.utime(segment.path, (old_s, old_s))
            async with asyncio.timeout(5):
                while _partition(served).log_start < 2:  # noqa: ASYNC110 - nobody is told
                    await asyncio.sleep(0.01)

    asyncio.run(main())


def test_retention_by_size_keeps_at_least_that_much(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t", segment_bytes=SEGMENT_BYTES, retention_bytes="1500000", retention_ms="-1")
            await _append(served, *(batch(LARGE, timestamp_ms=0) for _ in range(5)))
            assert keep_from(_partition(served), NOW_MS) == 2

    asyncio.run(main())


def test_a_segment_is_closed_after_its_time_by_the_clock_of_the_records(tmp_path: Path) -> None:
    """From the first batch on, at the first append behind it; what comes late closes nothing."""

    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t", segment_ms="1000")

            async def bases(*ages_ms: int) -> list[int]:
                await _append(served, *(batch(b"x", timestamp_ms=NOW_MS + age_ms) for age_ms in ages_ms))
                return [segment.base_offset for segment in _partition(served).log.segments]

            assert await bases(0, 1_000, -9_000) == [0]
            assert await bases(1_001) == [0, 3]
            topic = served.broker.topics.get("t")
            assert topic is not None
            configs = {"cleanup.policy": "compact", "max.compaction.lag.ms": "5"}
            await change(served.broker, lambda: served.broker.topics.configure(topic, configs))
            assert await bases(1_006) == [0, 3]
            assert await bases(1_007) == [0, 3, 5]
        async with serving(tmp_path) as served:
            assert await bases(1_012) == [0, 3, 5]
            assert await bases(1_013) == [0, 3, 5, 7]

    asyncio.run(main())


def test_both_policies_together(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, retention_check_interval_ms=10) as served:
            both = {"cleanup_policy": "compact,delete", "min_cleanable_dirty_ratio": "0", "retention_ms": "-1"}
            await served.topic("t", 1, segment_bytes=SEGMENT_BYTES, **both)
            await _append(served, *(batch(LARGE, timestamp_ms=0) for _ in range(4)))
            partition = _partition(served)
            async with asyncio.timeout(5):
                while partition.log.size_bytes > 2 * len(batch(LARGE)):  # noqa: ASYNC110 - nobody is told
                    await asyncio.sleep(0.01)
            assert partition.log.log_start == 0
            partition.configure(replace(partition.config, retention_ms=1))
            async with asyncio.timeout(5):
                while partition.log.log_start < 4:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert not served.broker.failed.done()

    asyncio.run(main())


def test_retention_stops_below_an_open_transaction(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t", segment_bytes=SEGMENT_BYTES, retention_ms="1")
            producer = {"attributes": TRANSACTIONAL, "producer_id": 1, "producer_epoch": 0, "base_sequence": 0}
            plain = batch(LARGE, timestamp_ms=0)
            await _append(served, plain, batch(LARGE, timestamp_ms=0, **producer), plain)
            assert keep_from(_partition(served), NOW_MS) == 1

    asyncio.run(main())


def test_the_task_enforces_retention(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, retention_check_interval_ms=20) as served:
            await served.topic("t", segment_bytes=SEGMENT_BYTES, retention_ms="1000")
            await _append(served, *(batch(LARGE, timestamp_ms=0) for _ in range(3)))
            moved = asyncio.Event()

            class Mover:
                def wake(self) -> None:
                    if _partition(served).log_start == 3:
                        moved.set()

            mover = Mover()
            _partition(served).add_waiter(mover)
            mover.wake()
            await asyncio.wait_for(moved.wait(), 5)

    asyncio.run(main())


def test_retention_lets_others_go_on_between_partitions(tmp_path: Path) -> None:
    """One request can give thousands of partitions something to delete, and each waits for the disk."""

    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t", 20, retention_ms="1")
            topic = served.broker.topics.get("t")
            assert topic is not None
            for partition in topic.partitions:
                partition.append(batch(b"v", timestamp_ms=0))
            await served.broker.flush_scheduler.durable(*topic.partitions)
            turns, seen = 0, []

            async def others() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            class Deleted:
                def wake(self) -> None:
                    seen.append(turns)

            waiters = [Deleted() for _ in topic.partitions]
            for partition, waiter in zip(topic.partitions, waiters, strict=True):
                partition.add_waiter(waiter)
            task = asyncio.create_task(others())
            await served.broker._retention.enforce()
            task.cancel()
            assert [partition.log_start for partition in topic.partitions] == [1] * 20
            assert len(set(seen)) == 20

    asyncio.run(main())


def test_the_metadata_log_is_rewritten_when_it_is_long(tmp_path: Path) -> None:
    thresholds = Thresholds(metadata_dead_records_max=20)

    async def main() -> None:
        async with serving(tmp_path, thresholds=thresholds) as served:
            await served.topic("t")
            topic = served.broker.topics.get("t")
            assert topic is not None
            for number in range(40):
                configs = {"retention.ms": str(number)}
                await change(served.broker, partial(served.broker.topics.configure, topic, configs))
            cluster_id = served.broker.metadata.cluster_id
        async with serving(tmp_path, thresholds=thresholds) as served:
            log = served.broker._metadata_log
            assert log.log_end - log.log_start < 10
        async with serving(tmp_path, thresholds=thresholds) as served:
            topic = served.broker.topics.get("t")
            assert topic is not None
            assert topic.configs == {"retention.ms": "39"}
            assert served.broker.metadata.cluster_id == cluster_id
            assert served.broker.metadata.boot_epoch == 2

    asyncio.run(main())


def test_directories_that_no_topic_has_are_removed(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t")
            names = {path.name for path in (tmp_path / "partitions").iterdir()}
        left_over = tmp_path / "partitions" / "0123456789abcdef0123456789abcdef-0"
        left_over.mkdir()
        (left_over / "00000000000000000000.log").write_bytes(b"half a topic")
        async with serving(tmp_path):
            assert {path.name for path in (tmp_path / "partitions").iterdir()} == names

    asyncio.run(main())


@pytest.mark.parametrize("fsync", [Fsync.INTERVAL, Fsync.NEVER])
def test_without_fsync_before_the_answer_records_are_visible_at_once(tmp_path: Path, fsync: Fsync) -> None:
    async def main() -> None:
        async with serving(tmp_path, fsync=fsync, fsync_interval_ms=10) as served:
            await served.topic("t")
            await _append(served, batch(b"x"))
            assert _partition(served).high_watermark == 1
        async with serving(tmp_path, fsync=fsync) as served:
            assert _partition(served).high_watermark == 1

    asyncio.run(main())
