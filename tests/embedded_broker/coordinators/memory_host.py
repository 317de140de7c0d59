"""A broker in memory around the coordinators, which can crash at any append or fsync."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, cast
from uuid import UUID, uuid4, uuid5

from embedded_broker.config.thresholds import Thresholds
from embedded_broker.coordinators.compose import compose
from embedded_broker.coordinators.groups import GroupCoordinator
from embedded_broker.coordinators.ports import CoordinatorHost, GroupConfig, TransactionConfig
from embedded_broker.coordinators.transactions import TransactionCoordinator
from embedded_broker.metadata.topic_names import OFFSETS_TOPIC, TRANSACTION_TOPIC
from embedded_broker.runtime.fair_share import FairShare
from embedded_broker.state.producers import ACCEPT, PartitionProducers
from kafka_records.batch import TRANSACTIONAL, read_header, stamp
from kafka_records.control import marker_commits
from kafka_records.records import decode, encode

NEVER = 10**9
NAMESPACE = UUID(int=7)


class Crashed(Exception):
    """The process is gone; nobody hears of it."""


class MemoryPartition:
    """A log of batches, of which the first `durable` survive a crash."""

    def __init__(self, host: MemoryHost, batches: list[bytes]) -> None:
        self._host = host
        self.batches = batches
        self.durable = len(batches)
        self.log_start = 0
        self.stopped: str | None = None
        self.log_end = 0
        self.producers = PartitionProducers()
        for batch in batches:
            self._apply(batch)
        if batches:
            self.log_start = read_header(batches[0]).base_offset

    @property
    def high_watermark(self) -> int:
        return read_header(self.batches[self.durable - 1]).last_offset + 1 if self.durable else self.log_start

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.batches))

    def append(self, batch: bytes | bytearray | memoryview, *, now_ms: int | None = None) -> int:
        self._host.event()
        stamped = bytearray(batch)
        stamp(stamped, self.log_end, 0)
        self.batches.append(bytes(stamped))
        base_offset = self.log_end
        self._apply(bytes(stamped))
        return base_offset

    def _apply(self, batch: bytes) -> None:
        header = read_header(batch)
        self.log_end = header.last_offset + 1
        self.producers.apply(header, marker_commits(batch) if header.is_control else None)

    def visible(self) -> list[bytes | None]:
        """Values that a read_committed reader sees."""
        stable = self.producers.last_stable_offset(self.log_end)
        aborted = self.producers.aborted_in(0, self.log_end)
        values: list[bytes | None] = []
        dropping: set[int] = set()
        for batch in self.batches:
            header = read_header(batch)
            dropping |= {producer_id for producer_id, first in aborted if first == header.base_offset}
            if header.is_control:
                dropping.discard(header.producer_id)
            elif header.base_offset < stable and header.producer_id not in dropping:
                values += [record.value for record in decode(batch)]
        return values

    def markers(self) -> list[bool]:
        """Outcome of every marker in the log."""
        return [marker_commits(batch) for batch in self.batches if read_header(batch).is_control]


@dataclass
class MemoryTopic:
    partitions: list[MemoryPartition]
    topic_id: UUID = NAMESPACE


class MemoryTopics(dict[str, MemoryTopic]):
    """Topics by name."""

    @property
    def version(self) -> int:
        return sum(len(topic.partitions) for topic in self.values())

    def names(self) -> Collection[str]:
        return self.keys()


class LoopClock:
    """Milliseconds of the event loop's clock."""

    def now_ms(self) -> int:
        return 1_000_000 + int(asyncio.get_running_loop().time() * 1000)


@dataclass
class MemoryHost:
    """Gives up at event number `crash_at`, counted over appends and fsyncs."""

    disk: Mapping[str, list[list[bytes]]]
    crash_at: int = NEVER
    groups_config: GroupConfig = field(default_factory=lambda: GroupConfig(min_session_timeout_ms=1))
    transactions_config: TransactionConfig = field(default_factory=TransactionConfig)

    has_disk_space = True
    thresholds: ClassVar[Thresholds] = Thresholds()
    new_uuid = staticmethod(uuid4)

    def __post_init__(self) -> None:
        self.clock = LoopClock()
        self.fair_share = FairShare(self.thresholds.slice_steps)
        self.events = 0
        self.crashed = False
        self.failures: list[BaseException] = []
        self.topics = MemoryTopics(
            {
                name: MemoryTopic(
                    [MemoryPartition(self, list(batches)) for batches in partitions], uuid5(NAMESPACE, name)
                )
                for name, partitions in self.disk.items()
            }
        )
        self.groups: GroupCoordinator
        self.transactions: TransactionCoordinator
        self.groups, self.transactions = compose(
            cast(CoordinatorHost, self), self.groups_config, self.transactions_config
        )

    def event(self) -> None:
        if self.events >= self.crash_at:
            self.crashed = True
            raise Crashed
        self.events += 1

    def internal_log(self, name: str) -> MemoryPartition:
        return self.topics[name].partitions[0]

    async def durable(self, partition: MemoryPartition) -> None:
        appended = len(partition.batches)
        await asyncio.sleep(0)
        self.event()
        partition.durable = max(partition.durable, appended)
        await asyncio.sleep(0)

    async def trim(self, partition: MemoryPartition, offset: int) -> None:
        self.event()
        partition.log_start = offset
        kept = [batch for batch in partition.batches if read_header(batch).last_offset >= offset]
        partition.durable -= len(partition.batches) - len(kept)
        partition.batches = kept

    def fail(self, error: BaseException) -> None:
        self.failures.append(error)

    async def start(self) -> None:
        for name, replay in ((TRANSACTION_TOPIC, self.transactions.replay), (OFFSETS_TOPIC, self.groups.replay)):
            for batch in self.internal_log(name).batches:
                replay(read_header(batch), batch)
        await self.groups.start()
        await self.transactions.start()

    def compact(self) -> None:
        """Have both coordinators look at their logs, as they do by themselves every few seconds."""
        self.transactions._compactor.check()
        self.groups._compactor.check()

    async def stop(self) -> None:
        await self.transactions.stop()
        await self.groups.stop()

    def what_survives(self, *, all_appended: bool) -> dict[str, list[list[bytes]]]:
        """The disk after a crash: what was fsynced, or (the system wrote by itself) all that was appended."""
        return {
            name: [
                partition.batches if all_appended else partition.batches[: partition.durable]
                for partition in topic.partitions
            ]
            for name, topic in self.topics.items()
        }

    async def produce(self, name: str, index: int, value: bytes, producer: tuple[int, int], sequence: int) -> None:
        """As the Produce handler does it, with verification; must succeed."""
        partition = self.topics[name].partitions[index]
        batch = encode(
            [(None, value)],
            self.clock.now_ms(),
            attributes=TRANSACTIONAL,
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=sequence,
        )
        assert partition.producers.check(read_header(batch), 0) is ACCEPT
        partition.append(batch)
        await self.durable(partition)


def empty_disk(partitions: int = 2) -> dict[str, list[list[bytes]]]:
    """A topic `t`, and the internal topics."""
    return {"t": [[] for _ in range(partitions)], TRANSACTION_TOPIC: [[]], OFFSETS_TOPIC: [[]]}
