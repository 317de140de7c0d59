"""Compaction of the internal logs: shorter, and a replay ends alike."""

from __future__ import annotations

import asyncio

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.coordinators import compaction
from embedded_broker.coordinators.offsets import Commit, Committer
from embedded_broker.metadata.topic_names import OFFSETS_PARTITION, OFFSETS_TOPIC, TRANSACTION_TOPIC
from tests.embedded_broker.coordinators.memory_host import MemoryHost, empty_disk

P0 = ("t", 0)


@pytest.fixture(autouse=True)
def _few_dead_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "RECORDS_DEAD_MAX", 20)


async def commit(host: MemoryHost, offset: int) -> None:
    results = await host.groups.offsets.commit(Committer("g"), host.groups.get("g"), [Commit(P0, offset, -1, "")])
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


def test_offsets_wait_while_some_are_pending_or_under_way() -> None:
    async def run() -> None:
        host = MemoryHost(empty_disk())
        await host.start()
        identity = await host.transactions.init_producer_id("id", 1_000, None)
        producer = identity.producer_id, identity.epoch
        await host.transactions.add_partitions("id", *producer, [OFFSETS_PARTITION])
        assert host.groups.offsets.live() == []
        committing = asyncio.ensure_future(commit(host, 1))
        await asyncio.sleep(0)
        assert host.groups.offsets.live() is None
        await committing
        live = host.groups.offsets.live()
        assert live is not None
        assert len(live) == 1
        offsets = host.groups.offsets
        await offsets.commit_in_transaction(Committer("g"), host.groups.get("g"), *producer, [Commit(P0, 2, -1, "")])
        assert host.groups.offsets.live() is None
        await host.stop()

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
