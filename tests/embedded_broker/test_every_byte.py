"""The broker stops in the middle of any write, at any byte: what it had acknowledged is there, transactions are whole,
and producers' retries are recognised."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.broker import Broker
from embedded_broker.config.settings import BrokerConfig
from embedded_broker.state.producers import ACCEPT, Duplicate
from embedded_broker.storage.log.memory_fs import MemoryFileSystem
from embedded_broker.storage.log.partition_log import PartitionLog
from embedded_broker.storage.partition import Partition
from kafka_records.batch import TRANSACTIONAL, iter_batches, read_header
from kafka_records.records import decode
from tests.embedded_broker.cuts import Journal, Write, cuts
from tests.embedded_broker.served import Client, batch, produce, serving

pytestmark = pytest.mark.tier("extended")  # a run for every byte

NONE = ErrorCode.none
LONG = "7777777777777"  # a retention in ms that keeps records of any time
PLAIN_ID = 999_999
KEPT = range(6)  # sequences that were sent before the writes that are cut
INIT = {"transactional_id": "tx", "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}


@dataclass
class Acked:
    """What clients had been told at some moment."""

    sequences: dict[int, int] = field(default_factory=dict)
    """Of the idempotent producer: sequence → offset."""
    committed: list[int] = field(default_factory=list)
    aborted: list[int] = field(default_factory=list)
    position: int = -1
    configs: dict[str, str] = field(default_factory=lambda: {"retention.ms": "-1"})
    created: bool = False
    deleted: bool = False


def plain(sequence: int) -> bytes:
    return batch(b"plain", producer_id=PLAIN_ID, producer_epoch=0, base_sequence=sequence)


async def send(client: Client, acked: Acked, sequence: int) -> None:
    response = await client.call("produce", 9, **produce("t", plain(sequence)))
    answer = response.responses[0].partition_responses[0]
    assert answer.error_code is NONE
    acked.sequences[sequence] = answer.base_offset


@dataclass
class NumberedTransactions:
    """Transactions that write their number to both partitions, and commit it as an offset."""

    client: Client
    acked: Acked
    ids: dict[str, int]

    async def one(self, number: int, commit: bool) -> None:
        both = [{"name": "t", "partitions": [0, 1]}]
        v3 = {f"v3_and_below_{name}": value for name, value in self.ids.items()}
        request = {**v3, "v3_and_below_transactional_id": "tx", "v3_and_below_topics": both}
        while True:
            added = await self.client.call("add_partitions_to_txn", 3, **request)
            code = added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            if code is NONE:
                break
            assert code is ErrorCode.concurrent_transactions
        data = batch(b"%d" % number, attributes=TRANSACTIONAL, base_sequence=number, **self.ids)
        await self.client.call("produce", 9, **produce("t", data, data, transactional_id="tx"))
        await self.client.call("add_offsets_to_txn", 3, transactional_id="tx", group_id="g", **self.ids)
        committed = {"partition_index": 0, "committed_offset": number, "committed_metadata": ""}
        topics = [{"name": "t", "partitions": [committed]}]
        request = {"transactional_id": "tx", "group_id": "g", "topics": topics, **self.ids}
        answer = await self.client.call("txn_offset_commit", 3, **request)
        assert answer.topics[0].partitions[0].error_code is NONE
        ended = await self.client.call("end_txn", 3, transactional_id="tx", committed=commit, **self.ids)
        assert ended.error_code is NONE
        (self.acked.committed if commit else self.acked.aborted).append(number)


async def _life(directory: Path, fs: Journal) -> None:
    """What is written from `begin` on is what is cut."""
    acked = Acked()
    async with serving(directory, fs) as served:
        await served.topic("t", 2)
        await served.topic("old")
        client = await served.client()
        for sequence in KEPT:
            await send(client, acked, sequence)
        identity = await client.call("init_producer_id", 3, **INIT)
        ids = {"producer_id": identity.producer_id, "producer_epoch": identity.producer_epoch}
        transactions = NumberedTransactions(client, acked, ids)
        fs.begin(acked)
        await send(client, acked, len(KEPT))
        await transactions.one(0, commit=True)
        await transactions.one(1, commit=False)
        await transactions.one(2, commit=True)
        committed = {"partition_index": 1, "committed_offset": 7, "committed_metadata": ""}
        await client.call("offset_commit", 5, group_id="g", generation_id_or_member_epoch=-1, member_id="",
                          topics=[{"name": "t", "partitions": [committed]}])  # fmt: skip
        acked.position = 7
        change = {"name": "retention.ms", "config_operation": 0, "value": LONG}
        resource = {"resource_type": 2, "resource_name": "t", "configs": [change]}
        await client.call("incremental_alter_configs", 1, resources=[resource], validate_only=False)
        acked.configs = {"retention.ms": LONG}
        topic = {"name": "new", "num_partitions": 1, "replication_factor": 1}
        await client.call("create_topics", 7, topics=[topic], timeout=1000)
        acked.created = True
        await client.call("delete_topics", 5, topic_names=["old"], timeout=1000)
        acked.deleted = True
        partition = served.broker.topics.partition("t", 0)
        assert partition is not None
        partition.log.write_checkpoint(partition.capture())
        await send(client, acked, len(KEPT) + 1)


def _visible(partition: Partition) -> list[bytes]:
    """What a read_committed reader sees."""
    found: list[bytes] = []
    offset, aborted = partition.log_start, dict(partition.producers.aborted_in(0, partition.last_stable))
    first = {(producer, start) for producer, start in partition.producers.aborted_in(0, partition.last_stable)}
    dropping: set[int] = set()
    while data := partition.log.read(offset, 1 << 20, partition.last_stable):
        for header, view in iter_batches(data):
            if (header.producer_id, header.base_offset) in first:
                dropping.add(header.producer_id)
            if header.is_control:
                dropping.discard(header.producer_id)
            elif header.producer_id not in dropping:
                found += [record.value or b"" for record in decode(view)]
            offset = header.last_offset + 1
    assert aborted or not dropping
    return found


async def _check(directory: Path, fs: MemoryFileSystem, acked: Acked) -> None:
    broker = Broker(BrokerConfig(directory, port=0), fs)
    await broker.start()
    try:
        for _ in range(10_000):
            if (await broker.transactions.init_producer_id("tx", 60_000, None)).error_code is NONE:
                break
            await asyncio.sleep(0)  # the markers of what was left open are on their way
        _check_producer(broker, acked)
        partitions = [broker.topics.partition("t", index) for index in range(2)]
        seen = []
        for partition in partitions:
            assert partition is not None
            assert partition.last_stable == partition.high_watermark, "a transaction is left open"
            seen.append([int(value) for value in _visible(partition) if value != b"plain"])
        assert seen[0] == seen[1], "half a transaction"
        assert seen[0] == sorted(set(seen[0])), "doubled, or out of order"
        assert set(acked.committed) <= set(seen[0]), "lost"
        assert 1 not in seen[0], "aborted, but visible"
        fetched = broker.groups.offsets.fetch("g", [("t", 0), ("t", 1)], True)
        assert fetched["t", 0].offset == max(seen[0], default=-1), "position and records differ"
        assert fetched["t", 1].offset in (acked.position, 7)
        topic = broker.topics.get("t")
        assert topic is not None
        assert topic.configs in (acked.configs, {"retention.ms": LONG})
        assert broker.topics.get("new") is not None or not acked.created
        assert broker.topics.get("old") is None or not acked.deleted
    finally:
        await broker.stop()


def _check_producer(broker: Broker, acked: Acked) -> None:
    """Each of the last five batches is known, whether the producer had heard of it or not; the next one fits."""
    partition = broker.topics.partition("t", 0)
    assert partition is not None
    last = max(acked.sequences)
    if isinstance(partition.producers.check(read_header(plain(last + 1)), 0), Duplicate):
        last += 1  # it was being acknowledged
    verdicts: list[Any] = [partition.producers.check(read_header(plain(sequence)), 0) for sequence in range(last + 2)]
    assert verdicts[-1] is ACCEPT
    known = [verdict.base_offset for verdict in verdicts[last - 4 : last + 1]]
    told = [acked.sequences.get(sequence) for sequence in range(last - 4, last + 1)]
    assert [offset for offset, other in zip(known, told, strict=True) if other not in (None, offset)] == []
    assert not isinstance(verdicts[last - 5], Duplicate)


def _recovered(fs: MemoryFileSystem, directory: Path) -> tuple[bytes, ...]:
    """What recovery makes of a log."""
    shown: list[bytes] = []
    PartitionLog.open(fs, directory, 1 << 30, lambda _, batch: shown.append(bytes(batch))).close()
    return tuple(shown)


async def _cut_everywhere(directory: Path, write: Write) -> int:
    """All cuts of a write. Those that recover to the same log are the same to the broker, which then starts once."""
    outcomes, number = set(), 0
    for image in cuts(write):
        number += 1
        log = () if write.path is None else _recovered(image(write.path.parent), write.path.parent)
        if (image.power_cut, log) not in outcomes:
            outcomes.add((image.power_cut, log))
            await _check(directory, image(), write.acked)
    return number


def test_cut_at_every_byte_of_every_write(tmp_path: Path) -> None:
    async def main() -> int:
        fs, number = Journal(), 0
        await _life(tmp_path, fs)
        assert fs.writes is not None
        for write in fs.writes:
            number += await _cut_everywhere(tmp_path, write)
        return number

    assert asyncio.run(main()) > 10_000
