"""The disk is full: what clients want to write is refused with the right error, reads go on, what was begun ends, and
when there is disk space again all is as before."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.config.thresholds import DEFAULTS
from embedded_broker.coordinators import group_registry
from embedded_broker.storage import disk_space
from embedded_broker.storage.disk_space import DiskSpace, NoSpace
from embedded_broker.storage.log.fs import RealFileSystem
from embedded_broker.storage.log.memory_fs import MemoryFileSystem
from kafka_records.batch import TRANSACTIONAL
from tests.embedded_broker.served import Client, Served, batch, fetch, produce, serving

NONE, STORAGE, COORDINATOR = ErrorCode.none, ErrorCode.kafka_storage_error, ErrorCode.not_coordinator
INIT = {"transactional_id": "tx", "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
SEGMENT_BYTES = 1 << 20


@pytest.fixture(autouse=True)
def _check_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_space, "RETRY_MS", 5)


class Scene:
    """A broker with a topic that has a record, and a transaction that is open there."""

    def __init__(self, served: Served, client: Client, fs: MemoryFileSystem, ids: dict[str, int]) -> None:
        self.served, self.client, self.fs, self.ids = served, client, fs, ids

    async def put(self, data: bytes) -> tuple[ErrorCode, int]:
        answer = (await self.client.call("produce", 9, **produce("t", data))).responses[0].partition_responses[0]
        return answer.error_code, answer.base_offset

    async def fill(self) -> None:
        """Leave no disk space for another record, and let the broker notice."""
        self.fs.size_bytes_max = self.fs.size_bytes + 10
        assert await self.put(batch(b"x")) == (STORAGE, -1)
        assert not self.served.broker.has_disk_space

    async def free(self) -> None:
        self.fs.size_bytes_max = None
        await _until(lambda: self.served.broker.has_disk_space)


async def _until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not reached():  # noqa: ASYNC110 - the broker tells nobody
            await asyncio.sleep(0.001)


@asynccontextmanager
async def _scene(directory: Path, fs: MemoryFileSystem | None = None) -> AsyncIterator[Scene]:
    fs = fs or MemoryFileSystem()
    async with serving(directory, fs) as served:
        await served.topic("t", segment_bytes=str(SEGMENT_BYTES))
        client = await served.client()
        identity = await client.call("init_producer_id", 3, **INIT)
        ids = {"producer_id": identity.producer_id, "producer_epoch": identity.producer_epoch}
        scene = Scene(served, client, fs, ids)
        assert await scene.put(batch(b"first")) == (NONE, 0)
        v3 = {f"v3_and_below_{name}": value for name, value in ids.items()}
        topics = [{"name": "t", "partitions": [0]}]
        added = {**v3, "v3_and_below_transactional_id": "tx", "v3_and_below_topics": topics}
        await client.call("add_partitions_to_txn", 3, **added)
        data = batch(b"in tx", attributes=TRANSACTIONAL, base_sequence=0, **ids)
        await client.call("produce", 9, **produce("t", data, transactional_id="tx"))
        yield scene
        assert not served.broker.failed.done()


Ask = Callable[[Scene], Awaitable[Any]]
TOPIC = {"name": "n", "num_partitions": 1, "replication_factor": 1}
CONFIG = {"resource_type": 2, "resource_name": "t", "configs": [{"name": "retention.ms", "value": "1"}]}
ADDED = {
    "v3_and_below_transactional_id": "tx",
    "v3_and_below_producer_id": 0,
    "v3_and_below_producer_epoch": 0,
    "v3_and_below_topics": [{"name": "t", "partitions": [0]}],
}
OFFSET = [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]}]
MEMBER = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": ""}
TXN = {"transactional_id": "tx", "producer_id": 0, "producer_epoch": 0}
REFUSED: list[tuple[str, int, dict[str, Any], Callable[[Any], ErrorCode], ErrorCode]] = [
    ("init_producer_id", 3, INIT, lambda a: a.error_code, COORDINATOR),
    (
        "add_partitions_to_txn",
        3,
        ADDED,
        lambda a: a.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
        COORDINATOR,
    ),
    ("add_offsets_to_txn", 3, {**TXN, "group_id": "g"}, lambda a: a.error_code, COORDINATOR),
    ("end_txn", 3, {**TXN, "committed": True}, lambda a: a.error_code, COORDINATOR),
    (
        "txn_offset_commit",
        2,
        {**TXN, "group_id": "g", "topics": OFFSET},
        lambda a: a.topics[0].partitions[0].error_code,
        COORDINATOR,
    ),
    ("offset_commit", 5, {**MEMBER, "topics": OFFSET}, lambda a: a.topics[0].partitions[0].error_code, COORDINATOR),
    ("create_topics", 5, {"topics": [TOPIC], "timeout": 1000}, lambda a: a.topics[0].error_code, STORAGE),
    (
        "create_partitions",
        2,
        {"topics": [{"name": "t", "count": 2, "assignments": None}], "timeout": 1000},
        lambda a: a.results[0].error_code,
        STORAGE,
    ),
    ("alter_configs", 1, {"resources": [CONFIG]}, lambda a: a.responses[0].error_code, STORAGE),
]


def test_writes_are_refused_and_taken_again_when_there_is_disk_space(tmp_path: Path) -> None:
    async def main() -> None:
        async with _scene(tmp_path) as scene:
            await scene.fill()
            for name, version, fields, found, wanted in REFUSED:
                assert found(await scene.client.call(name, version, **fields)) is wanted, name
            answer = await scene.client.call("fetch", 9, **fetch("t", 0))
            assert answer.responses[0].partitions[0].records
            assert await scene.put(batch(b"y")) == (STORAGE, -1)
            await scene.free()
            assert await scene.put(batch(b"y")) == (NONE, 2)
            ended = await scene.client.call("end_txn", 3, transactional_id="tx", committed=True, **scene.ids)
            assert ended.error_code is NONE
            assert (await scene.client.call("create_topics", 5, topics=[TOPIC], timeout=1)).topics[0].error_code is NONE

    asyncio.run(main())


def test_a_producer_without_transactions_gets_a_retriable_error(tmp_path: Path) -> None:
    """And not, by NOT_COORDINATOR, to look for the coordinator of a transactional id that it doesn't have."""

    async def main() -> None:
        async with _scene(tmp_path) as scene:
            await scene.fill()
            answer = await scene.client.call("init_producer_id", 3, **{**INIT, "transactional_id": None})
            assert answer.error_code is ErrorCode.coordinator_load_in_progress
            await scene.free()
            answer = await scene.client.call("init_producer_id", 3, **{**INIT, "transactional_id": None})
            assert answer.error_code is NONE

    asyncio.run(main())


def test_a_refused_batch_adds_nothing_to_its_transaction(tmp_path: Path) -> None:
    """In transaction version 2 the first batch opens the transaction: a record, which the reserve isn't for."""

    async def main() -> None:
        async with _scene(tmp_path) as scene:
            init = {**INIT, "transactional_id": "other"}
            identity = await scene.client.call("init_producer_id", 3, **init)
            await scene.fill()
            ids = {"producer_id": identity.producer_id, "producer_epoch": identity.producer_epoch}
            data = batch(b"x", attributes=TRANSACTIONAL, base_sequence=0, **ids)
            wanted = produce("t", data, transactional_id="other")
            taken = (await scene.client.call("produce", 12, **wanted)).responses[0].partition_responses[0]
            assert taken.error_code is STORAGE
            opened = scene.served.broker.transactions.get("other")
            assert opened is not None
            assert not opened.partitions
            await scene.free()
            taken = (await scene.client.call("produce", 12, **wanted)).responses[0].partition_responses[0]
            assert taken.error_code is NONE

    asyncio.run(main())


def test_what_was_decided_before_is_finished_from_the_reserve(tmp_path: Path) -> None:
    """The commit is the first to find the disk full: marker and completion are written nevertheless."""

    async def main() -> None:
        async with _scene(tmp_path) as scene:
            scene.fs.size_bytes_max = scene.fs.size_bytes + 10
            ended = await scene.client.call("end_txn", 3, transactional_id="tx", committed=True, **scene.ids)
            assert ended.error_code is NONE
            assert not scene.served.broker.has_disk_space
            partition = scene.served.broker.topics.partition("t", 0)
            assert partition is not None
            await _until(lambda: partition.last_stable == 3)
            assert await scene.put(batch(b"y")) == (STORAGE, -1)
            await scene.free()
            assert await scene.put(batch(b"y")) == (NONE, 3)

    asyncio.run(main())


def test_deleting_frees_disk_space(tmp_path: Path) -> None:
    async def main() -> None:
        async with _scene(tmp_path) as scene:
            await scene.served.topic("large")
            for _ in range(20):
                await scene.client.call("produce", 9, **produce("large", batch(b"x" * 700_000)))
            await scene.fill()
            deleted = await scene.client.call("delete_topics", 5, topic_names=["large"], timeout=1000)
            assert deleted.responses[0].error_code is NONE
            await _until(lambda: scene.served.broker.has_disk_space)
            assert await scene.put(batch(b"y")) == (NONE, 2)

    asyncio.run(main())


def test_retention_frees_disk_space(tmp_path: Path) -> None:
    async def main() -> None:
        async with _scene(tmp_path) as scene:
            await scene.client.call("end_txn", 3, transactional_id="tx", committed=True, **scene.ids)
            for _ in range(20):
                assert (await scene.put(batch(b"x" * 700_000)))[0] is NONE
            await scene.fill()
            partition = scene.served.broker.topics.partition("t", 0)
            assert partition is not None
            partition.configure(replace(partition.config, retention_bytes=1_000_000))
            await scene.served.broker._retention.enforce()
            await _until(lambda: scene.served.broker.has_disk_space)
            assert (await scene.put(batch(b"y")))[0] is NONE

    asyncio.run(main())


def test_a_start_on_a_full_disk_serves_reads(tmp_path: Path) -> None:
    async def main() -> None:
        fs = MemoryFileSystem()
        async with _scene(tmp_path, fs) as scene:
            await scene.fill()
        async with serving(tmp_path, fs) as served:
            client = await served.client()
            answer = await client.call("fetch", 9, **fetch("t", 0))
            assert answer.responses[0].partitions[0].records
            fs.size_bytes_max = None
            await _until(lambda: served.broker.has_disk_space)

    asyncio.run(main())


def test_the_reserve_of_the_real_filesystem_takes_up_disk_space(tmp_path: Path) -> None:
    async def main() -> None:
        DiskSpace(RealFileSystem(), tmp_path, lambda _: None).start()
        assert os.stat(tmp_path / "reserve").st_blocks * 512 >= DEFAULTS.reserve_bytes
        assert os.listdir(tmp_path) == ["reserve"]

    asyncio.run(main())


@pytest.mark.parametrize("left_bytes", [0, DEFAULTS.reserve_bytes - 1])
def test_a_reserve_of_which_a_power_cut_has_left_a_part_is_made_whole(tmp_path: Path, left_bytes: int) -> None:
    fs = MemoryFileSystem()
    fs.allocate(tmp_path / "reserve", left_bytes)

    async def run() -> None:
        DiskSpace(fs, tmp_path, lambda _: None).start()

    asyncio.run(run())
    assert fs.size_bytes == DEFAULTS.reserve_bytes


def test_other_errors_are_not_taken_for_a_full_disk(tmp_path: Path) -> None:
    async def main() -> None:
        failures: list[BaseException] = []
        fs = MemoryFileSystem()
        disk = DiskSpace(fs, tmp_path, failures.append)
        disk.start()

        def fails(number: int) -> None:
            raise OSError(number, "")

        for write in (disk.write_internal, disk.write_for_client):
            with pytest.raises(OSError, match=str(errno.EIO)) as caught:
                write(lambda: fails(errno.EIO))
            assert not isinstance(caught.value, NoSpace)
        assert not disk.full
        with pytest.raises(NoSpace):
            disk.write_internal(lambda: fails(errno.ENOSPC))
        assert disk.full
        fs.fail("write", errno.EIO)
        await _until(lambda: len(failures) == 1)
        await disk.stop()

    asyncio.run(main())


def _beat(member_id: str, member_epoch: int) -> dict[str, Any]:
    member = {"group_id": "g", "member_id": member_id, "member_epoch": member_epoch, "rebalance_timeout": 1_000}
    return {**member, "subscribed_topic_names": ["t"], "topic_partitions": []}


def test_records_of_groups_that_wait_for_disk_space_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members that come and go while not even the reserve has space: at first what they change is written later; then
    nothing more is taken on."""
    monkeypatch.setattr(group_registry, "OWED_BYTES_MAX", 5_000)
    monkeypatch.setattr(group_registry, "NO_SPACE_RETRY_MS", 5)

    async def run() -> None:
        async with _scene(tmp_path) as scene:
            registry, refused = scene.served.broker.groups._registry, set()
            asked = {"group_id": "classic", "session_timeout": 60_000, "rebalance_timeout": 60_000, "member_id": ""}
            asked |= {"protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}]}
            leader = await scene.client.call("join_group", 3, **asked)
            scene.fs.size_bytes_max = 0
            for number in range(100):
                for member_epoch in (0, -1):
                    beat = _beat(f"member {number}", member_epoch)
                    refused.add((await scene.client.call("consumer_group_heartbeat", 1, **beat)).error_code)
            assert refused == {COORDINATOR}
            assert 5_000 <= registry.owed_bytes < 6_000
            for version in (0, 9):
                assert (await scene.client.call("join_group", version, **asked)).error_code is COORDINATOR
            synced = {"group_id": "classic", "generation_id": 1, "member_id": leader.member_id, "assignments": []}
            assert (await scene.client.call("sync_group", 3, **synced)).error_code is COORDINATOR
            members = [{"member_id": leader.member_id}]
            left = await scene.client.call("leave_group", 3, group_id="classic", members=members)
            assert left.error_code is COORDINATOR
            scene.fs.size_bytes_max = None
            await _until(lambda: registry.is_settled)
            beat = _beat("later", 0)
            assert (await scene.client.call("consumer_group_heartbeat", 1, **beat)).error_code is NONE
            assert (await scene.client.call("sync_group", 3, **synced)).error_code is NONE

    asyncio.run(run())
