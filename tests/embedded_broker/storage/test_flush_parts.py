"""A request with many partitions is flushed in parts: others don't wait for all of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from embedded_broker.config.settings import Fsync
from embedded_broker.simulation.loop import SimulatedThreads
from embedded_broker.storage.flush_scheduler import PART, FlushScheduler
from embedded_broker.storage.log.memory_fs import MemoryFileSystem
from embedded_broker.storage.partition import Partition
from tests.embedded_broker.served import batch
from tests.embedded_broker.simulated import simulated

PARTITIONS = 10 * PART + 3


class Scene:
    """Many partitions in memory; counts their fsyncs."""

    def __init__(self) -> None:
        fs = MemoryFileSystem()
        self.partitions = [
            Partition.open(fs, Path(f"/t-{n}"), "t", n, leader_epoch=0, segment_bytes=1 << 30)
            for n in range(PARTITIONS)
        ]
        self.failed = list[BaseException]()
        self.scheduler = FlushScheduler(Fsync.ALWAYS, 0, self.failed.append, 1 << 30, SimulatedThreads)

    async def write(self, *partitions: Partition) -> int:
        """One producer's request; returns after which round it is answered."""
        ends = [each.append(batch(b"v")) + 1 for each in partitions]
        await self.scheduler.durable(*partitions)
        assert all(each.high_watermark >= end for each, end in zip(partitions, ends, strict=True))
        return self.scheduler.rounds


def in_a_scene(work: Callable[[Scene], Awaitable[None]]) -> None:
    async def main() -> None:
        scene = Scene()
        await work(scene)
        await scene.scheduler.stop()
        assert all(each.high_watermark == each.log_end for each in scene.partitions if not each.stopped)

    simulated(main())


def test_a_small_request_does_not_wait_for_all_of_a_large_one() -> None:
    async def work(scene: Scene) -> None:
        large = asyncio.ensure_future(scene.write(*scene.partitions[1:]))
        others = [asyncio.ensure_future(scene.write(*scene.partitions[1:])) for _ in range(9)]
        await asyncio.sleep(0)
        assert await scene.write(scene.partitions[0]) <= 2
        assert not large.done()
        parts = -(-(PARTITIONS - 1) // PART)
        # What the others have appended is flushed with it.
        assert parts <= min(await large, *await asyncio.gather(*others))
        assert scene.scheduler.rounds <= parts + 2

    in_a_scene(work)


def test_what_a_client_that_left_has_appended_is_flushed() -> None:
    async def work(scene: Scene) -> None:
        large = asyncio.ensure_future(scene.write(*scene.partitions))
        await scene.write(scene.partitions[-1])
        large.cancel()
        assert await scene.write(scene.partitions[0])

    in_a_scene(work)


def test_the_other_parts_are_flushed_when_one_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(scene: Scene) -> None:
        broken = scene.partitions[2 * PART]

        def fail() -> int:
            raise ValueError("bug")

        monkeypatch.setattr(broken.log, "flush", fail)
        with pytest.raises(ValueError, match="bug"):
            await scene.write(*scene.partitions)
        assert broken.stopped is not None
        assert len(scene.failed) == 1

    in_a_scene(work)


def test_partitions_that_are_removed_meanwhile_are_left_out() -> None:
    async def work(scene: Scene) -> None:
        for each in scene.partitions:
            each.append(batch(b"v"))
        large = asyncio.ensure_future(scene.scheduler.durable(*scene.partitions))
        await scene.write(scene.partitions[-1])
        async with scene.scheduler.exclusive():
            for each in scene.partitions[PART * 2 :]:
                each.close()
        await large
        scene.partitions = scene.partitions[: PART * 2]

    in_a_scene(work)
