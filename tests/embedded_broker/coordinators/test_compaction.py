"""Compaction of the internal logs: shorter, and a replay ends alike."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.config.thresholds import Thresholds
from embedded_broker.coordinators import transactions
from embedded_broker.coordinators.offsets import Committer
from embedded_broker.metadata.topic_names import OFFSETS_PARTITION, OFFSETS_TOPIC, TRANSACTION_TOPIC
from embedded_broker.state.transactions import TopicPartition, TxnState
from embedded_broker.storage.disk_space import NoSpace
from tests.embedded_broker.coordinators.members import commit_of
from tests.embedded_broker.coordinators.memory_host import MemoryHost, MemoryPartition, empty_disk

pytestmark = pytest.mark.tier("default")

P0 = ("t", 0)


@pytest.fixture(autouse=True)
def _few_dead_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryHost, "thresholds", Thresholds(dead_records_max=20))


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine markers take longer than EndTxn waits for them, and the next request would be refused."""
    monkeypatch.setattr(transactions, "ENDING_PATIENCE_S", 60.0)


async def commit(host: MemoryHost, offset: int) -> None:
    results = await host.groups.offsets.commit(Committer("g"), host.groups.get("g"), [commit_of(host, offset, P0)])
    assert results == {P0: ErrorCode.none}


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def records(host: MemoryHost, topic: str) -> int:
    log = host.internal_log(topic)
    return log.log_end - log.log_start


def test_compaction_shortens_the_log_and_keeps_the_state() -> None:
    async def run() -> None:
        host = MemoryHost(empty_disk())
        await host.start()
        for n in range(100):
            identity = await host.transactions.init_producer_id("id", 1_000, None)
            await commit(host, n)
            host.compact()
            await settle()
        assert records(host, TRANSACTION_TOPIC) < 60
        assert records(host, OFFSETS_TOPIC) < 60
        await host.stop()
        restarted = MemoryHost(host.what_survives(all_appended=False))
        await restarted.start()
        again = await restarted.transactions.init_producer_id("id", 1_000, None)
        assert (again.producer_id, again.epoch) == (identity.producer_id, identity.epoch + 1)
        assert restarted.groups.offsets.fetch("g", [P0], True)[P0].offset == 99
        other = await restarted.transactions.init_producer_id(None, 0, None)
        assert other.producer_id >= 1_000
        await restarted.stop()

    asyncio.run(run())


def test_others_go_on_while_a_log_is_compacted_and_what_they_write_stays() -> None:
    async def run() -> None:
        host = MemoryHost(empty_disk())
        await host.start()
        offsets, log = host.groups.offsets, host.internal_log(OFFSETS_TOPIC)
        partitions = [("t", index) for index in range(2_000)]
        for first in range(0, len(partitions), 500):
            some = [commit_of(host, 1, each) for each in partitions[first : first + 500]]
            await offsets.commit(Committer("g"), host.groups.get("g"), some)
        for number in range(50):
            await commit(host, number)
        host.groups._compactor._thresholds = Thresholds(dead_records_max=0)
        begun, before = log.log_end, log.log_end
        host.compact()
        longest, number = 0, 0
        writing: list[asyncio.Task[Any]] = []
        while log.log_start < begun:
            await asyncio.sleep(0)
            longest, before = max(longest, log.log_end - before), log.log_end
            number += 1
            if number % 3 == 0:
                one = [commit_of(host, 1_000 + number, ("t", number * 97 % 2_000))]
                writing.append(asyncio.create_task(offsets.commit(Committer("g"), host.groups.get("g"), one)))
                before += 1
            elif number % 31 == 0:
                writing.append(asyncio.create_task(offsets.delete("g", [("t", number * 89 % 2_000)])))
                before += 1
        await asyncio.gather(*writing)
        assert number > 60, "in many steps"
        assert longest <= MemoryHost.thresholds.compaction_part_records + 1
        expected = offsets.fetch("g", None, False)
        assert len({each.offset for each in expected.values()}) > 10
        await host.stop()
        restarted = MemoryHost(host.what_survives(all_appended=False))
        await restarted.start()
        assert restarted.groups.offsets.fetch("g", None, False) == expected
        await restarted.stop()

    asyncio.run(run())


def test_while_the_disk_is_slow_nothing_is_written_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        host = MemoryHost(empty_disk())
        await host.start()
        for n in range(100):
            await commit(host, n)
        disk, durable = asyncio.Event(), host.durable

        async def slow(partition: MemoryPartition) -> None:
            await disk.wait()
            await durable(partition)

        monkeypatch.setattr(host, "durable", slow)
        log = host.internal_log(OFFSETS_TOPIC)
        lengths = []
        for _ in range(3):
            host.compact()
            await settle()
            lengths.append(log.log_end)
        assert lengths == [101] * 3
        disk.set()
        await settle()
        assert records(host, OFFSETS_TOPIC) == 1
        await host.stop()

    asyncio.run(run())


def _placed(host: MemoryHost) -> list[tuple[bytes, bytes, int]]:
    return [each for part in host.groups.offsets.live() for each in part.placed]


def test_a_snapshot_leaves_out_what_is_on_its_way_and_keeps_what_is_pending() -> None:
    async def run() -> None:
        host = MemoryHost(empty_disk())
        await host.start()
        offsets, log = host.groups.offsets, host.internal_log(OFFSETS_TOPIC)
        producer = await _producer(host, "id")
        assert (_placed(host), offsets.needed_from()) == ([], None)
        committing = asyncio.ensure_future(commit(host, 1))
        await asyncio.sleep(0)
        assert (_placed(host), offsets.needed_from()) == ([], log.log_end - 1)
        await committing
        assert [origin for _, _, origin in _placed(host)] == [log.log_end - 1]
        assert offsets.needed_from() is None
        await offsets.commit_in_transaction(Committer("g"), host.groups.get("g"), *producer, [commit_of(host, 2, P0)])
        assert [origin for _, _, origin in _placed(host)] == [log.log_end - 2]
        assert offsets.needed_from() == log.log_end - 1
        await host.stop()

    asyncio.run(run())


async def _producer(host: MemoryHost, name: str) -> tuple[int, int]:
    """A producer in a transaction that commits offsets."""
    identity = await host.transactions.init_producer_id(name, 60_000, None)
    producer = identity.producer_id, identity.epoch
    assert await host.transactions.add_partitions(name, *producer, [OFFSETS_PARTITION]) is ErrorCode.none
    return producer


def test_transactions_that_always_overlap_do_not_hold_compaction_off() -> None:
    """One is begun before the one before it ends, as several lanes do; nothing of any of them is lost."""

    async def run() -> None:
        host = MemoryHost(empty_disk())
        await host.start()
        offsets, ids = host.groups.offsets, ["a", "b"]
        producers = {name: await _producer(host, name) for name in ids}
        for number in range(200):
            name = ids[number % 2]
            commits = [commit_of(host, number, ("t", number % 2))]
            group = host.groups.get("g")
            await offsets.commit_in_transaction(Committer("g"), group, *producers[name], commits)
            host.compact()
            await settle()
            other = ids[(number + 1) % 2]
            await host.transactions.end(other, *producers[other], True)
            await host.transactions.add_partitions(other, *producers[other], [OFFSETS_PARTITION])
        assert records(host, OFFSETS_TOPIC) < 60
        expected = offsets.fetch("g", None, False)
        await host.stop()
        restarted = MemoryHost(host.what_survives(all_appended=True))
        await restarted.start()
        assert restarted.groups.offsets.fetch("g", None, False) == expected
        await restarted.transactions.end("b", *producers["b"], True)
        await settle()
        assert restarted.groups.offsets.fetch("g", [("t", 1)], True)[("t", 1)].offset == 199
        await restarted.stop()

    asyncio.run(run())


IDS, PARTITIONS = ("a", "b", "c"), [("t", index) for index in range(3)]


@dataclass
class Twin:
    """One of two brokers that are asked for the same, of which one compacts its logs."""

    host: MemoryHost
    compacts: bool
    producers: dict[str, tuple[int, int]] = field(default_factory=dict)

    async def start(self) -> None:
        if not self.compacts:
            self.host.groups._compactor.check = lambda: None  # type: ignore[method-assign]
        await self.host.start()

    async def do(self, what: str, name: str, partition: TopicPartition, number: int) -> None:
        offsets, group = self.host.groups.offsets, self.host.groups.get("g")
        if name not in self.producers:
            self.producers[name] = await _producer(self.host, name)
        producer = self.producers[name]
        if what == "commit":
            await offsets.commit(Committer("g"), group, [commit_of(self.host, number, partition)])
        elif what == "delete":
            await offsets.delete("g", [partition])
        elif what == "transact":
            commits = [commit_of(self.host, number, partition)]
            await offsets.commit_in_transaction(Committer("g"), group, *producer, commits)
        else:
            await self.host.transactions.end(name, *producer, what == "end")
            assert await self.host.transactions.add_partitions(name, *producer, [OFFSETS_PARTITION]) is ErrorCode.none

    def seen(self) -> dict[TopicPartition, int]:
        found = self.host.groups.offsets.fetch("g", PARTITIONS, False)
        return {partition: each.offset for partition, each in found.items()}

    async def restarted(self) -> Twin:
        await self.host.stop()
        again = Twin(MemoryHost(self.host.what_survives(all_appended=True)), self.compacts, self.producers)
        await again.start()
        return again


@pytest.mark.parametrize("seed", range(30))
def test_whatever_happens_a_compacted_log_says_the_same(seed: int) -> None:
    """Plain and transactional commits, deletions, ends and restarts in any order, on a broker that compacts as often as
    it can and on one that never does. Between the two compaction must make no difference that shows."""

    async def run() -> None:
        random = Random(seed)
        twins = [Twin(MemoryHost(empty_disk()), compacts) for compacts in (True, False)]
        for twin in twins:
            await twin.start()
        for number in range(150):
            what = random.choice(("commit", "delete", "transact", "transact", "transact", "end", "abort", "restart"))
            name, partition = random.choice(IDS), random.choice(PARTITIONS)
            if what == "restart":
                twins = [await twin.restarted() for twin in twins]
            else:
                for twin in twins:
                    await twin.do(what, name, partition, number)
            if random.random() < 0.7:
                twins[0].host.groups._compactor.check()
            await settle()
            assert twins[0].seen() == twins[1].seen(), (number, what)
        assert records(twins[0].host, OFFSETS_TOPIC) < records(twins[1].host, OFFSETS_TOPIC)
        for twin in twins:
            await twin.host.stop()

    asyncio.run(run())


def test_a_step_on_its_way_to_the_disk_is_not_undone() -> None:
    async def run() -> None:
        host = MemoryHost(empty_disk())
        await host.start()
        for _ in range(30):
            await host.transactions.init_producer_id("id", 1_000, None)
        bumping = asyncio.ensure_future(host.transactions.init_producer_id("id", 1_000, None))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        host.compact()
        await settle()
        identity = await bumping
        restarted = MemoryHost(host.what_survives(all_appended=False))
        await restarted.start()
        again = await restarted.transactions.init_producer_id("id", 1_000, None)
        assert again.epoch == identity.epoch + 1
        await host.stop()
        await restarted.stop()

    asyncio.run(run())


def test_a_commit_that_there_was_no_space_for_is_not_repeated_as_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compaction comes between the request to commit and the marker, which is the decision and can't be written."""
    monkeypatch.setattr(MemoryHost, "thresholds", Thresholds(dead_records_max=0))

    async def run() -> None:
        host = MemoryHost(empty_disk())
        await host.start()
        identity = await host.transactions.init_producer_id("id", 60_000, None)
        producer = identity.producer_id, identity.epoch
        assert await host.transactions.add_partitions("id", *producer, [P0]) is ErrorCode.none
        await host.produce("t", 0, b"refused", producer, 0)
        written = host.topics["t"].partitions[0]

        def no_space(*args: object, **options: object) -> int:
            raise NoSpace(errno.ENOSPC, "the disk is full")

        monkeypatch.setattr(written, "append", no_space)
        log = host.internal_log(TRANSACTION_TOPIC)
        ending = asyncio.ensure_future(host.transactions.end("id", *producer, True))
        before = log.log_end
        host.transactions._compactor.check()
        with pytest.raises(NoSpace):
            await ending
        await settle()
        assert log.log_start >= before, "it has been compacted"
        restarted = MemoryHost(host.what_survives(all_appended=True))
        await restarted.start()
        await settle()
        assert restarted.topics["t"].partitions[0].visible() == []
        found = restarted.transactions.get("id")
        assert found is not None
        assert found.state is TxnState.ONGOING
        await host.stop()
        await restarted.stop()

    asyncio.run(run())


def test_a_reservation_of_producer_ids_on_its_way_to_the_disk_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    thresholds = Thresholds(dead_records_max=3, producer_ids_block=2, producer_ids_left_min=2)
    monkeypatch.setattr(MemoryHost, "thresholds", thresholds)

    async def run() -> None:
        host = MemoryHost(empty_disk())
        await host.start()
        given = [(await host.transactions.init_producer_id(None, 0, None)).producer_id for _ in range(7)]
        asking = asyncio.ensure_future(host.transactions.init_producer_id(None, 0, None))
        await asyncio.sleep(0)
        host.compact()
        await settle()
        given += [(await asking).producer_id]
        given += [(await host.transactions.init_producer_id(None, 0, None)).producer_id]
        restarted = MemoryHost(host.what_survives(all_appended=False))
        await restarted.start()
        again = await restarted.transactions.init_producer_id(None, 0, None)
        assert again.producer_id > max(given)
        await host.stop()
        await restarted.stop()

    asyncio.run(run())
