"""A flush that fails in one partition, though not because of the disk, concerns those that wait for this partition."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.config.settings import Fsync
from embedded_broker.simulation.loop import SimulatedThreads
from embedded_broker.storage.failures import is_disk_failure
from embedded_broker.storage.flush_scheduler import PART, RETRY_S, FlushScheduler, OwnLogFailed
from embedded_broker.storage.log.memory_fs import MemoryFileSystem
from embedded_broker.storage.partition import Partition
from tests.embedded_broker.served import Client, Served, batch, produce, serving
from tests.embedded_broker.simulated import simulated

NO_FILE = OSError(errno.EMFILE, "too many open files")
INIT = {"transactional_id": "tx", "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}


def fail_once(patch: pytest.MonkeyPatch, partition: Partition, error: Exception) -> None:
    """Let the next flush of a partition raise `error`."""
    flush = partition.log.flush

    def fail() -> int:
        patch.setattr(partition.log, "flush", flush)
        raise error

    patch.setattr(partition.log, "flush", fail)


class Scene:
    """Partitions in memory, and an internal one."""

    def __init__(self, fsync: Fsync = Fsync.ALWAYS) -> None:
        fs = MemoryFileSystem()
        self.partitions = [
            Partition.open(fs, Path(f"/t-{n}"), "t", n, leader_epoch=0, segment_bytes=1 << 30) for n in range(3 * PART)
        ]
        self.own = Partition.open(fs, Path("/o-0"), "o", 0, leader_epoch=0, segment_bytes=1 << 30, internal=True)
        self.failed = list[BaseException]()
        self.scheduler = FlushScheduler(fsync, 0, self.failed.append, 1 << 30, SimulatedThreads)

    async def written(self, *requests: list[Partition]) -> list[BaseException | None]:
        """Requests of one round, and how each ends."""
        for partition in {each for request in requests for each in request}:
            partition.append(batch(b"v"))
        return await asyncio.gather(*(self.scheduler.durable(*each) for each in requests), return_exceptions=True)


def in_a_scene(work: Callable[[Scene], Awaitable[None]]) -> None:
    async def main() -> None:
        scene = Scene()
        await work(scene)
        await scene.scheduler.stop()

    simulated(main())


def test_requests_for_other_partitions_of_the_round_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(scene: Scene) -> None:
        broken, whole, error = scene.partitions[0], scene.partitions[1], ValueError("bug")
        fail_once(monkeypatch, broken, error)
        assert await scene.written([whole], [broken], [whole, broken]) == [None, error, error]
        assert scene.scheduler.rounds == 1
        assert whole.high_watermark == whole.log_end
        assert broken.stopped == "bug"
        assert whole.stopped is None
        assert scene.failed == [error]

    in_a_scene(work)


def test_a_large_request_gets_the_failures_of_its_own_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(scene: Scene) -> None:
        broken, *others = scene.partitions
        fail_once(monkeypatch, broken, ValueError("bug"))
        assert await scene.written(others, [broken]) == [None, scene.failed[0]]
        assert all(each.high_watermark == each.log_end for each in others)
        fail_once(monkeypatch, others[-1], ValueError("another bug"))
        assert await scene.written(others, [others[0]]) == [scene.failed[1], None]

    in_a_scene(work)


def test_without_an_open_file_a_partition_is_flushed_later(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(scene: Scene) -> None:
        crowded, whole = scene.partitions[0], scene.partitions[1]
        fail_once(monkeypatch, crowded, NO_FILE)
        assert await scene.written([whole], [crowded]) == [None, NO_FILE]
        assert crowded.stopped is None
        assert crowded.high_watermark == 0
        await asyncio.sleep(2 * RETRY_S)
        assert crowded.high_watermark == 1
        assert scene.failed == [NO_FILE]

    in_a_scene(work)


def test_memory_that_follows_a_log_waits_until_there_is_an_open_file(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(scene: Scene) -> None:
        fail_once(monkeypatch, scene.own, NO_FILE)
        scene.own.append(batch(b"v"))
        await scene.scheduler.until_durable(scene.own)
        assert scene.own.high_watermark == 1
        assert scene.own.stopped is None

    in_a_scene(work)


@pytest.mark.parametrize("fsync", [Fsync.ALWAYS, Fsync.INTERVAL])
def test_one_of_the_brokers_own_logs_ends_it(fsync: Fsync, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        scene = Scene(fsync)
        fail_once(monkeypatch, scene.own, ValueError("bug"))
        scene.own.append(batch(b"v"))
        waiting = asyncio.ensure_future(scene.scheduler.until_durable(scene.own))
        await asyncio.sleep(1)
        assert any(isinstance(each, OwnLogFailed) and is_disk_failure(each) for each in scene.failed)
        if fsync is Fsync.ALWAYS:
            with pytest.raises(OwnLogFailed, match="o-0: the flush failed: ValueError"):
                await waiting
        await scene.scheduler.stop()

    simulated(main())


async def _in_one_round(scheduler: FlushScheduler, partitions: int) -> None:
    while len(scheduler._dirty) < partitions:  # noqa: ASYNC110
        await asyncio.sleep(0)


async def _initialised(client: Client) -> None:
    while (await client.call("init_producer_id", 3, **INIT)).error_code is not ErrorCode.none:  # noqa: ASYNC110
        await asyncio.sleep(0)


async def _open_transaction(served: Served, client: Client) -> dict[str, int]:
    """In two partitions, so that its end takes a record of the decision; its producer."""
    await served.topic("t", 2)
    identity = await client.call("init_producer_id", 3, **INIT)
    ids = {"producer_id": identity.producer_id, "producer_epoch": identity.producer_epoch}
    added = {f"v3_and_below_{name}": value for name, value in {**ids, "transactional_id": "tx"}.items()}
    topics = [{"name": "t", "partitions": [0, 1]}]
    await client.call("add_partitions_to_txn", 3, **added, v3_and_below_topics=topics)
    return ids


def test_a_transaction_and_a_deletion_in_a_round_in_which_another_partition_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        async with serving(tmp_path, MemoryFileSystem()) as served:
            for name in ("before", "broken", "gone"):
                await served.topic(name)
            clients = [await served.client() for _ in range(4)]
            ids = await _open_transaction(served, clients[0])
            broken = served.broker.topics.partition("broken", 0)
            assert broken is not None
            fail_once(monkeypatch, broken, ValueError("bug"))
            scheduler = served.broker.flush_scheduler
            async with asyncio.timeout(20):
                async with scheduler.exclusive():
                    clients[3].send("produce", 9, **produce("before", batch(b"v")))
                    while scheduler._task is None or scheduler._next is not None:  # noqa: ASYNC110
                        await asyncio.sleep(0)  # a round has begun, and waits
                    clients[0].send("end_txn", 3, transactional_id="tx", committed=True, **ids)
                    clients[1].send("delete_topics", 5, topic_names=["gone"], timeout=1_000)
                    clients[2].send("produce", 9, **produce("broken", batch(b"v")))
                    await _in_one_round(scheduler, 3)
                assert (await clients[0].receive()).error_code is ErrorCode.none
                assert (await clients[1].receive()).responses[0].error_code is ErrorCode.none
                assert await clients[2].closed()
                assert served.broker.topics.get("gone") is None
                await _initialised(clients[0])
            assert served.broker.errors == 2  # of the flush, and of the request that waited for it
            assert not served.broker.failed.done()

    asyncio.run(main())
