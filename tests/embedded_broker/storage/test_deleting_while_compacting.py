"""Compaction works in a thread: whoever deletes the partition, or stops the broker, ends it first."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from embedded_broker.storage import cleaner
from embedded_broker.storage.cleaner import Compaction
from embedded_broker.storage.disk_space import DiskSpace
from embedded_broker.storage.log.format import CLEANED_SUFFIX
from embedded_broker.storage.log.fs import File, RealFileSystem
from embedded_broker.storage.log.memory_fs import MemoryFileSystem
from embedded_broker.storage.partition import Partition
from kafka_records.batch import CorruptBatch
from tests.embedded_broker.served import Served, batch, change, serving
from tests.embedded_broker.storage.test_compacting import Host, P, fill, opened

pytestmark = pytest.mark.tier("default")

LARGE = b"x" * 700_000
CONFIGS = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0", "segment_bytes": str(1 << 20)}
PATIENCE_S = 30.0


class HoldingFileSystem(RealFileSystem):
    """Holds the thread in which compaction opens its first file."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.release = threading.Event(), threading.Event()
        self.opened: list[Path] = []

    def open(self, path: Path) -> File:
        if path.name.endswith(CLEANED_SUFFIX):
            self.reached.set()
            assert self.release.wait(PATIENCE_S)
            self.opened.append(path)
        return super().open(path)


async def _filled(served: Served) -> None:
    partition = served.broker.topics.partition("t", 0)
    assert partition is not None
    for _ in range(4):
        partition.append(batch(LARGE))
        await served.broker.durable(partition)


async def compacting(served: Served, fs: HoldingFileSystem) -> Partition:
    """A partition that is being compacted: the thread is held."""
    await served.topic("t", 1, **CONFIGS)
    partition = served.broker.topics.partition("t", 0)
    assert partition is not None
    await _filled(served)
    assert await asyncio.to_thread(fs.reached.wait, PATIENCE_S)
    return partition


async def released_meanwhile(work: Coroutine[Any, Any, None], fs: HoldingFileSystem) -> None:
    """Let something end, and release the thread when that has come as far as it can without it."""
    task = asyncio.ensure_future(work)
    await asyncio.wait([task], timeout=0.1)
    fs.release.set()
    await task


def test_a_topic_is_deleted_while_it_is_compacted(tmp_path: Path) -> None:
    async def main() -> None:
        fs = HoldingFileSystem()
        async with serving(tmp_path, fs, retention_check_interval_ms=10) as served:
            directory = (await compacting(served, fs)).log.directory
            topic = served.broker.topics.get("t")
            assert topic is not None
            await released_meanwhile(change(served.broker, lambda: served.broker.topics.delete(topic)), fs)
            assert not directory.exists()
            await served.topic("t", 1, **CONFIGS)
            await _filled(served)
            async with asyncio.timeout(PATIENCE_S):
                while len(fs.opened) == 1 and not served.broker.failed.done():  # noqa: ASYNC110 - nobody is told
                    await asyncio.sleep(0.01)
            assert not served.broker.failed.done()
            assert served.broker.errors == 0

    asyncio.run(main())


def test_a_broker_stops_while_it_compacts(tmp_path: Path) -> None:
    async def main() -> None:
        fs = HoldingFileSystem()
        async with serving(tmp_path, fs, retention_check_interval_ms=10) as served:
            directory = (await compacting(served, fs)).log.directory
            await released_meanwhile(served.broker._retention.stop(), fs)
            assert len(fs.opened) == 1  # the thread has ended, too
            assert not list(directory.glob(f"*{CLEANED_SUFFIX}"))
        assert not served.broker.failed.done()

    asyncio.run(main())


def test_what_can_not_be_compacted_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    host = Host(fs := MemoryFileSystem(), opened(fs))
    fill(host.partition)
    tried: list[None] = []

    def fail(*_: object) -> object:
        tried.append(None)
        raise CorruptBatch("no records")

    monkeypatch.setattr(cleaner, "latest_offsets", fail)
    compaction = Compaction(host.fs, host.flush_scheduler, DiskSpace(fs, P, print), host.clock)
    for _ in range(2):
        asyncio.run(compaction.run_for(host.partition))
    assert "partition t-0 can't be compacted: no records" in caplog.text
    assert len(tried) == 1
    assert not host.partition.cleaning.is_allowed


@pytest.mark.parametrize(("kind", "after"), [("write", 0), ("rename", 0), ("rename", 1)])
def test_what_can_not_be_put_in_place_on_a_full_disk_is_removed(kind: str, after: int) -> None:
    host = Host(fs := MemoryFileSystem(), opened(fs))
    fill(host.partition)
    kept = [segment.base_offset for segment in host.partition.log.segments]
    exchange = host.partition.exchange

    def on_a_full_disk(*args: Any) -> None:
        fs.fail(kind, errno.ENOSPC, after=after)
        exchange(*args)

    host.partition.exchange = on_a_full_disk  # type: ignore[method-assign, assignment]
    host.compact()
    assert not [name for name in fs.names(P) if name.endswith(CLEANED_SUFFIX)]
    assert [segment.base_offset for segment in host.partition.log.segments] == kept
    host.partition.exchange = exchange  # type: ignore[method-assign]
    host.compact()
    assert [segment.base_offset for segment in host.partition.log.segments] != kept
