"""The machine loses power at a random moment: the whole broker on a filesystem that forgets what was not synced."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from errno import EIO, ENOSPC
from pathlib import Path
from random import Random
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.broker import Broker
from embedded_broker.config.settings import BrokerConfig
from embedded_broker.config.thresholds import Thresholds
from embedded_broker.net.server import Server
from embedded_broker.storage.log.memory_fs import MemoryFileSystem
from kafka_records.batch import TRANSACTIONAL, iter_batches
from kafka_records.records import decode
from tests.budget import budget
from tests.embedded_broker.served import Client, Served, batch, fetch, produce, serving

pytestmark = pytest.mark.tier("default")  # a run for every seed

PARTITIONS = 2
NONE = ErrorCode.none


@dataclass
class Outcome:
    """What was acknowledged before the cut."""

    committed: set[bytes] = field(default_factory=set)
    aborted: set[bytes] = field(default_factory=set)
    plain: list[bytes] = field(default_factory=list)
    topics: list[str] = field(default_factory=list)


class DyingDisk(MemoryFileSystem):
    """Does nothing more after a number of operations, wherever in a flush, a creation or an append that is."""

    def __init__(self) -> None:
        super().__init__()
        self.operations_left = 1 << 60

    def _live(self) -> None:
        self.operations_left -= 1
        if self.operations_left < 0:
            raise OSError(EIO, "no power")

    def step(self, *kinds: str) -> None:
        self._live()
        super().step(*kinds)

    def write(self, kind: str, inode: Any, at: int, data: bytes) -> None:
        self._live()
        super().write(kind, inode, at, data)


async def _transactions(client: Client, name: str, outcome: Outcome) -> None:
    """Transactions over all partitions, without an end; every fourth is aborted."""
    init = {"transactional_id": name, "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
    identity = await client.call("init_producer_id", 3, **init)
    assert identity.error_code is NONE
    ids = {"producer_id": identity.producer_id, "producer_epoch": identity.producer_epoch}
    number = 0
    while True:
        topics = [{"name": "t", "partitions": list(range(PARTITIONS))}]
        added = await client.call("add_partitions_to_txn", 3, **_v3_and_below(name, ids, topics))
        codes = {each.partition_error_code for each in added.results_by_topic_v3_and_below[0].results_by_partition}
        if codes == {ErrorCode.concurrent_transactions}:
            await asyncio.sleep(0)
            continue
        if codes != {NONE}:
            return
        value = f"{name}:{number}".encode()
        data = batch(value, attributes=TRANSACTIONAL, base_sequence=number, **ids)
        written = await client.call("produce", 9, **produce("t", *[data] * PARTITIONS, transactional_id=name))
        if {each.error_code for each in written.responses[0].partition_responses} != {NONE}:
            return
        commit = number % 4 != 3
        ended = await client.call("end_txn", 3, transactional_id=name, committed=commit, **ids)
        if ended.error_code is not NONE:
            return
        (outcome.committed if commit else outcome.aborted).add(value)
        number += 1


def _v3_and_below(name: str, ids: dict[str, int], topics: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "v3_and_below_transactional_id": name,
        "v3_and_below_producer_id": ids["producer_id"],
        "v3_and_below_producer_epoch": ids["producer_epoch"],
        "v3_and_below_topics": topics,
    }


async def _plain(client: Client, outcome: Outcome) -> None:
    number = 0
    while True:
        value = b"plain:%d" % number
        written = await client.call("produce", 9, **produce("t", batch(value)))
        if written.responses[0].partition_responses[0].error_code is not NONE:
            return
        outcome.plain.append(value)
        number += 1


async def _topics(client: Client, outcome: Outcome) -> None:
    number = 0
    while True:
        name = f"n{number}"
        topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
        created = await client.call("create_topics", 7, topics=[topic], timeout=1000)
        if created.topics[0].error_code is not NONE:
            return
        outcome.topics.append(name)
        number += 1


async def _until_the_cut(config: BrokerConfig, fs: DyingDisk, random: Random, outcome: Outcome) -> None:
    """Load until the disk is dead and everybody has noticed."""
    broker = Broker(config, fs)
    await broker.start()
    server = Server(broker)
    await server.start()
    served = Served(broker, server)
    await served.topic("t", PARTITIONS)
    clients = [await served.client() for _ in range(4)]
    work = [
        asyncio.create_task(_transactions(clients[0], "a", outcome)),
        asyncio.create_task(_transactions(clients[1], "b", outcome)),
        asyncio.create_task(_plain(clients[2], outcome)),
        asyncio.create_task(_topics(clients[3], outcome)),
    ]
    fs.operations_left = random.randrange(30, 1_000)
    await asyncio.wait_for(broker.failed, 20)
    for task in work:
        task.cancel()
    for failure in await asyncio.gather(*work, return_exceptions=True):
        assert failure is None or isinstance(failure, asyncio.CancelledError | ConnectionError | EOFError), failure
    served.close()
    await server.stop()
    await broker.flush_scheduler.stop()
    broker._lock.release()
    fs.crash(random)
    fs.operations_left = 1 << 60


async def _fence(client: Client, name: str) -> None:
    """End what the cut left open."""
    init = {"transactional_id": name, "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
    code = ErrorCode.concurrent_transactions
    while code is ErrorCode.concurrent_transactions:
        code = (await client.call("init_producer_id", 3, **init)).error_code
    assert code is NONE


async def _visible(client: Client, partition: int) -> list[bytes]:
    """What a read_committed reader sees."""
    offset, found, aborted = 0, list[bytes](), set[int]()
    while True:
        fields = fetch("t", *[offset] * PARTITIONS, committed=True)
        answer = (await client.call("fetch", 12, **fields)).responses[0].partitions[partition]
        assert answer.error_code is NONE
        if not answer.records:
            assert answer.last_stable_offset == answer.high_watermark, "a transaction is left open"
            return found
        starts = {(each.producer_id, each.first_offset) for each in answer.aborted_transactions}
        for header, data in iter_batches(answer.records):
            aborted |= {producer for producer, first in starts if first == header.base_offset}
            if header.is_control:
                aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborted):
                found += [record.value for record in decode(data) if record.value is not None]
            offset = header.last_offset + 1


@pytest.mark.parametrize("seed", range(budget(25, 400)))
def test_what_was_acknowledged_survives_and_transactions_are_whole(tmp_path: Path, seed: int) -> None:
    config = BrokerConfig(tmp_path, port=0)
    if seed % 2:  # a checkpoint every other round
        config = replace(config, scan_bytes_max=50_000, thresholds=Thresholds(checkpoint_worth=0))

    async def main() -> None:
        fs, random, outcome = DyingDisk(), Random(seed), Outcome()
        await _until_the_cut(config, fs, random, outcome)
        async with serving(tmp_path, fs) as served:
            client = await served.client()
            await asyncio.gather(*[_fence(await served.client(), name) for name in ("a", "b")])
            seen = [await _visible(client, partition) for partition in range(PARTITIONS)]
            for values in seen:
                assert len(set(values)) == len(values), "doubled"
                assert outcome.committed <= set(values), "lost"
                assert not outcome.aborted & set(values), "aborted, but visible"
            in_txn = [[value for value in values if not value.startswith(b"plain")] for values in seen]
            assert set(in_txn[0]) == set(in_txn[1]), "a transaction is not whole"
            plain = [value for value in seen[0] if value.startswith(b"plain")]
            assert plain[: len(outcome.plain)] == outcome.plain
            assert all(served.broker.topics.get(name) is not None for name in outcome.topics)

    asyncio.run(main())


def test_the_broker_dies_of_a_failed_fsync_and_acknowledges_nothing_of_it(tmp_path: Path) -> None:
    async def main() -> None:
        fs = MemoryFileSystem()
        async with serving(tmp_path, fs) as served:
            await served.topic("t")
            client = await served.client()
            await client.call("produce", 9, **produce("t", batch(b"before")))
            fs.fail("sync", EIO)
            client.send("produce", 9, **produce("t", batch(b"after")))
            assert await client.closed()
            failure = await asyncio.wait_for(served.broker.failed, 5)
            assert isinstance(failure, OSError)
            served.broker._lock.release()
        fs.crash()
        async with serving(tmp_path, fs) as served:
            partition = served.broker.topics.partition("t", 0)
            assert partition is not None
            assert partition.high_watermark == 1

    asyncio.run(main())


def test_half_a_batch_on_a_full_disk_is_no_batch(tmp_path: Path) -> None:
    async def main() -> None:
        fs = MemoryFileSystem()
        async with serving(tmp_path, fs) as served:
            await served.topic("t")
            client = await served.client()

            async def put() -> tuple[ErrorCode, int]:
                response = await client.call("produce", 9, **produce("t", batch(b"x")))
                answer = response.responses[0].partition_responses[0]
                return answer.error_code, answer.base_offset

            assert await put() == (NONE, 0)
            fs.fail("append", ENOSPC, bytes_written=10)
            assert await put() == (ErrorCode.kafka_storage_error, -1)
            served.broker.disk_space.check()
            assert await put() == (NONE, 1)

    asyncio.run(main())
