"""The flush scheduler writes checkpoints concurrently with rounds of fsyncs; only removals of files wait for them."""

from __future__ import annotations

import asyncio
import errno
import threading
from pathlib import Path

import pytest

from embedded_broker.config.settings import Fsync
from embedded_broker.storage.flush_scheduler import FlushScheduler
from embedded_broker.storage.log.fs import SyncFailed
from embedded_broker.storage.log.memory_fs import MemoryFileSystem
from embedded_broker.storage.partition import Partition
from tests.embedded_broker.served import batch

PATIENCE_S = 20


class Held(MemoryFileSystem):
    """Blocks the writing of checkpoints until `go` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.go = threading.Event(), threading.Event()

    def write_atomically(self, path: Path, data: bytes) -> None:
        """See FileSystem."""
        self.asked.set()
        assert self.go.wait(PATIENCE_S)
        super().write_atomically(path, data)


@pytest.mark.parametrize("fsync", [Fsync.ALWAYS, Fsync.NEVER])
def test_rounds_continue_during_a_checkpoint_and_removal_waits_for_it(fsync: Fsync) -> None:
    fs, failures = Held(), list[BaseException]()

    async def removal(scheduler: FlushScheduler, events: list[str]) -> None:
        async with scheduler.exclusive():
            events.append("removed")

    async def main() -> None:
        partition = Partition.open(fs, Path("/t-0"), "t", 0, leader_epoch=0, segment_bytes=1 << 30)
        scheduler, events = FlushScheduler(fsync, 0, failures.append, 0), list[str]()

        async def write() -> None:
            end = partition.append(batch(b"v")) + 1
            await asyncio.wait_for(scheduler.durable(partition), PATIENCE_S)
            assert partition.high_watermark == end

        await write()
        assert await asyncio.to_thread(fs.asked.wait, PATIENCE_S)
        assert partition.log.checkpoint_end == -1
        for _ in range(3):
            await write()
        removing = asyncio.create_task(removal(scheduler, events))
        await write()
        assert events == []
        assert partition.log.checkpoint_end == -1
        fs.go.set()
        await asyncio.wait_for(removing, PATIENCE_S)
        assert partition.log.checkpoint_end >= 1
        await scheduler.stop()
        assert failures == []
        assert partition.log.checkpoint_end <= partition.log.durable_end
        partition.close()

    asyncio.run(main())


def test_a_checkpoint_is_not_written_again_for_what_came_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round that ends beside it sees the partition as far behind as before."""
    fs, failures, stored = Held(), list[BaseException](), list[int]()

    async def main() -> None:
        partition = Partition.open(fs, Path("/t-0"), "t", 0, leader_epoch=0, segment_bytes=1 << 30)
        store = partition.log.store_checkpoint
        monkeypatch.setattr(partition.log, "store_checkpoint", lambda what: stored.append(0) or store(what))  # type: ignore[func-returns-value]
        scheduler = FlushScheduler(Fsync.ALWAYS, 0, failures.append, 100_000)
        partition.append(batch(bytes(120_000)))
        await scheduler.durable(partition)
        assert await asyncio.to_thread(fs.asked.wait, PATIENCE_S)
        partition.append(batch(b"v"))
        await scheduler.durable(partition)
        fs.go.set()
        await scheduler.stop()
        assert (len(stored), failures) == (1, [])
        partition.close()

    asyncio.run(main())


@pytest.mark.parametrize("errno_", [errno.EIO, errno.ENOSPC])
def test_a_failed_fsync_of_a_checkpoint_is_reported_as_such(errno_: int) -> None:
    """Whatever the system calls it: a full disk can be waited for, this can't."""
    failures: list[BaseException] = []

    async def main() -> None:
        fs = MemoryFileSystem()
        partition = Partition.open(fs, Path("/t-0"), "t", 0, leader_epoch=0, segment_bytes=1 << 30)
        scheduler = FlushScheduler(Fsync.NEVER, 0, failures.append, 0)
        partition.append(batch(b"v"))
        fs.fail("sync", errno_)
        await scheduler.durable(partition)
        await scheduler.stop()
        assert [type(each) for each in failures] == [SyncFailed]
        with pytest.raises(OSError, match="an earlier fsync failed") as refused:
            partition.append(batch(b"v"))
        assert refused.value.errno == errno.EIO

    asyncio.run(main())


def test_a_failed_checkpoint_is_reported() -> None:
    failure, failures = OSError(5, "the disk has gone"), list[BaseException]()

    class Broken(MemoryFileSystem):
        def write_atomically(self, path: Path, data: bytes) -> None:
            raise failure

    async def main() -> None:
        partition = Partition.open(Broken(), Path("/t-0"), "t", 0, leader_epoch=0, segment_bytes=1 << 30)
        scheduler = FlushScheduler(Fsync.ALWAYS, 0, failures.append, 0)
        partition.append(batch(b"v"))
        await scheduler.durable(partition)
        await scheduler.stop()
        assert failures == [failure]
        assert partition.log.checkpoint_end == -1

    asyncio.run(main())
