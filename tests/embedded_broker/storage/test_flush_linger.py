"""Rounds of fsyncs linger, and so get fewer and larger, while producers are faster than the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from embedded_broker.config.settings import Fsync
from embedded_broker.config.thresholds import DEFAULTS
from embedded_broker.simulation.loop import SimulatedThreads
from embedded_broker.storage.flush_scheduler import LINGER_S, LINGER_WINDOW_S, FlushScheduler
from embedded_broker.storage.log.memory_fs import MemoryFileSystem
from embedded_broker.storage.partition import Partition
from tests.embedded_broker.served import batch
from tests.embedded_broker.simulated import simulated

LARGE, SMALL = DEFAULTS.linger_bytes_min // 2, 100


class Scene:
    """A partition in memory, on a disk that takes no time."""

    def __init__(self) -> None:
        self.partition = Partition.open(MemoryFileSystem(), Path("/t-0"), "t", 0, leader_epoch=0, segment_bytes=1 << 30)
        self.scheduler = FlushScheduler(Fsync.ALWAYS, 0, self._failed, 1 << 30, SimulatedThreads)

    def _failed(self, error: BaseException) -> None:
        raise error

    async def write(self, size: int) -> None:
        """One producer's request."""
        end = self.partition.append(batch(bytes(size))) + 1
        await self.scheduler.durable(self.partition)
        assert self.partition.high_watermark >= end

    async def took_s(self, *requests: int) -> float:
        """Until all of these, which come together, are answered."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.gather(*(self.write(size) for size in requests))
        return loop.time() - began


def in_a_scene(work: Callable[[Scene], Awaitable[None]]) -> None:
    async def main() -> None:
        scene = Scene()
        await work(scene)
        await scene.scheduler.stop()

    simulated(main())


def test_rounds_linger_when_producers_are_faster_than_the_disk() -> None:
    async def work(scene: Scene) -> None:
        assert await scene.took_s(LARGE, LARGE) == 0
        first = asyncio.ensure_future(scene.took_s(LARGE))
        await asyncio.sleep(LINGER_S / 2)
        second = asyncio.ensure_future(scene.took_s(LARGE))
        assert await first == pytest.approx(LINGER_S)
        assert await second == pytest.approx(LINGER_S / 2)
        assert scene.scheduler.rounds == 2

    in_a_scene(work)


@pytest.mark.parametrize("requests", [(SMALL, SMALL, SMALL), (LARGE * 3,)], ids=["small ones", "one at a time"])
def test_rounds_do_not_linger_otherwise(requests: tuple[int, ...]) -> None:
    async def work(scene: Scene) -> None:
        for _ in range(3):
            assert await scene.took_s(*requests) == 0

    in_a_scene(work)


def test_lingering_ends_soon_after_the_last_large_round() -> None:
    async def work(scene: Scene) -> None:
        await scene.took_s(LARGE, LARGE)
        assert await scene.took_s(SMALL) == pytest.approx(LINGER_S)
        await asyncio.sleep(LINGER_WINDOW_S)
        assert await scene.took_s(SMALL) == 0

    in_a_scene(work)
