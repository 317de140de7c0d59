"""While no file can be opened for one partition, all others go on, and the broker can be stopped."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.broker import Broker
from embedded_broker.config.settings import BrokerConfig
from embedded_broker.metadata.topic_names import TRANSACTION_TOPIC
from embedded_broker.net.server import Server
from embedded_broker.runtime.workers import NoThread
from embedded_broker.storage.flush_scheduler import RETRY_S
from embedded_broker.storage.log.memory_fs import MemoryFileSystem
from embedded_broker.storage.partition import Partition
from tests.embedded_broker.served import Served, batch, change
from tests.embedded_broker.simulated import simulated
from tests.embedded_broker.storage.test_flush_failures import NO_FILE, Scene, in_a_scene

QUICK_S = 0.1
STOP_S = 3 * RETRY_S


class Crowded:
    """No file can be opened for a partition until `free`."""

    def __init__(self, patch: pytest.MonkeyPatch, partition: Partition) -> None:
        self.tries, self.partition, self.is_free = 0, partition, False
        flush = partition.log.flush

        def crowded() -> int:
            self.tries += 1
            if self.is_free:
                return flush()
            raise OSError(errno.EMFILE, "too many open files")

        patch.setattr(partition.log, "flush", crowded)


async def hold(scene: Scene) -> None:
    async with scene.scheduler.exclusive():
        pass


def test_others_do_not_wait_for_a_partition_without_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(scene: Scene) -> None:
        crowded, whole = Crowded(monkeypatch, scene.partitions[0]), scene.partitions[1]
        (failure,) = await scene.written([crowded.partition])
        assert isinstance(failure, OSError)
        loop = asyncio.get_running_loop()
        began = loop.time()
        while loop.time() < began + 3.5 * RETRY_S:
            at = loop.time()
            assert await scene.written([whole]) == [None]
            await hold(scene)
            assert loop.time() - at < QUICK_S
            await asyncio.sleep(RETRY_S / 4)
        assert crowded.tries == 4, "at first, and then after each RETRY_S"
        assert len(scene.failed) == 1, "a shortage is reported once"
        crowded.is_free = True
        await asyncio.sleep(RETRY_S)
        assert crowded.partition.high_watermark == 1
        crowded.is_free = False
        assert len([each for each in await scene.written([crowded.partition]) if each is not None]) == 1
        assert len(scene.failed) == 2, "it is another shortage"
        crowded.is_free = True

    in_a_scene(work)


def test_a_partition_without_a_file_that_is_closed_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(scene: Scene) -> None:
        crowded = Crowded(monkeypatch, scene.partitions[0])
        await scene.written([crowded.partition])
        crowded.partition.closed = True
        await asyncio.sleep(3 * RETRY_S)
        assert crowded.tries == 1
        assert scene.scheduler._timer is None

    in_a_scene(work)


def test_memory_that_waits_for_a_file_tries_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(scene: Scene) -> None:
        crowded = Crowded(monkeypatch, scene.own)
        scene.own.append(batch(b"v"))
        waiting = [asyncio.ensure_future(scene.scheduler.until_durable(scene.own)) for _ in range(3)]
        await asyncio.sleep(2.5 * RETRY_S)
        assert crowded.tries == 3
        crowded.is_free = True
        await asyncio.gather(*waiting)
        assert scene.own.high_watermark == 1

    in_a_scene(work)


def test_a_wait_that_begins_while_it_is_tried_again_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another partition has had no file for a while when the own log has none, for once."""

    async def work(scene: Scene) -> None:
        crowded = Crowded(monkeypatch, scene.own)
        scene.own.append(batch(b"v"))
        waiting = asyncio.ensure_future(scene.scheduler.until_durable(scene.own))
        while crowded.tries == 0 or scene.scheduler._timer is None:  # noqa: ASYNC110
            await asyncio.sleep(0)
        scene.scheduler._timer.cancel()
        scene.scheduler._try_again()  # before the one that waits knows that it has failed
        crowded.is_free = True
        async with asyncio.timeout(STOP_S):
            await waiting

    in_a_scene(work)


@pytest.mark.parametrize("error", [NO_FILE, NoThread("no thread")], ids=["no file", "no thread"])
def test_the_scheduler_stops_without_a_file(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        scene = Scene()

        def fail(*arguments: object) -> None:
            raise error

        if isinstance(error, NoThread):
            monkeypatch.setattr(scene.scheduler._flushers, "all", fail)
        else:
            monkeypatch.setattr(scene.own.log, "flush", fail)
        scene.own.append(batch(b"v"))
        waiting = asyncio.ensure_future(scene.scheduler.until_durable(scene.own))
        await asyncio.sleep(RETRY_S / 2)
        async with asyncio.timeout(STOP_S):
            await scene.scheduler.stop()
            with pytest.raises(type(error)):
                await waiting
        assert scene.failed == [error]

    simulated(main())


async def _decided(served: Served) -> tuple[int, int]:
    """A transaction in two partitions, so that its end takes a record of the decision; its producer."""
    await served.topic("t", 2)
    identity = await served.broker.transactions.init_producer_id("tx", 60_000, None)
    producer = identity.producer_id, identity.epoch
    added = await served.broker.transactions.add_partitions("tx", *producer, [("t", 0), ("t", 1)])
    assert added is ErrorCode.none
    return producer


@pytest.mark.parametrize("crowded_log", [TRANSACTION_TOPIC, "__cluster_metadata"])
def test_a_broker_stops_without_a_file(crowded_log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has not been acknowledged is not flushed, all else is, and the directory is free."""

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        fs = MemoryFileSystem()
        broker = Broker(BrokerConfig(tmp_path, port=0), fs)
        await broker.start()
        served = Served(broker, Server(broker))
        producer = await _decided(served)
        last = broker.topics.partitions()[-1]
        last.append(batch(b"v"))
        own = broker._metadata_log if crowded_log != TRANSACTION_TOPIC else broker.internal_log(crowded_log)
        crowded = Crowded(monkeypatch, own)
        ending: asyncio.Future[Any]
        if crowded_log == TRANSACTION_TOPIC:
            ending = asyncio.ensure_future(broker.transactions.end("tx", *producer, commit=True))
        else:
            ending = asyncio.ensure_future(change(broker, lambda: broker.topics.create("u", 1, {})))
        while not crowded.tries:  # noqa: ASYNC110
            await asyncio.sleep(0)
        async with asyncio.timeout(STOP_S):
            with pytest.raises(OSError, match="too many open files"):
                await broker.stop()
        with pytest.raises(OSError, match="too many open files"):
            await ending
        assert last.log.durable_end == last.log_end
        fs.lock(tmp_path).release()

    asyncio.run(main())
