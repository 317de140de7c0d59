"""Hanging transactions: open in a partition although the coordinator has ended them, or doesn't know them."""

from __future__ import annotations

import asyncio

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.coordinators.ports import TransactionConfig
from embedded_broker.metadata.topic_names import OFFSETS_PARTITION, OFFSETS_TOPIC, TRANSACTION_TOPIC
from tests.embedded_broker.coordinators.memory_host import MemoryHost, empty_disk
from tests.embedded_broker.coordinators.transacting import P0, add_and_write, completed, init


async def disk_without_markers(*, without_the_beginning: bool) -> dict[str, list[list[bytes]]]:
    """As a power cut may leave it where fsync isn't waited for: the end is on disk, the markers aren't."""
    host = MemoryHost(empty_disk())
    await host.start()
    identity = await init(host)
    producer = identity.producer_id, identity.epoch
    await add_and_write(host, producer, b"a", 0)
    written = host.what_survives(all_appended=True)
    data, offsets = [list(batches) for batches in written["t"]], [list(written[OFFSETS_TOPIC][0])]
    assert (await host.transactions.end("id", *producer, True)).error_code is ErrorCode.none
    await completed(host)
    ended = [] if without_the_beginning else list(host.internal_log(TRANSACTION_TOPIC).batches)
    await host.stop()
    return {"t": data, OFFSETS_TOPIC: offsets, TRANSACTION_TOPIC: [ended]}


@pytest.mark.parametrize("without_the_beginning", [False, True])
def test_a_start_aborts_hanging_transactions_without_fsync_always(
    without_the_beginning: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        disk = await disk_without_markers(without_the_beginning=without_the_beginning)
        host = MemoryHost(disk, transactions_config=TransactionConfig(aborts_hanging=True))
        await host.start()
        for partition in (*host.topics["t"].partitions, host.topics[OFFSETS_TOPIC].partitions[0]):
            assert not partition.producers.open_transactions()
            assert partition.markers() == [False]
            assert partition.durable == len(partition.batches)
        assert host.groups.offsets.fetch("g", [P0], True)[P0].offset == -1
        assert "t-1: a transaction of producer 0, open since offset 0, is unknown" in caplog.text
        await host.stop()

    asyncio.run(run())


def test_a_start_only_reports_hanging_transactions_with_fsync_always(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        host = MemoryHost(await disk_without_markers(without_the_beginning=False))
        await host.start()
        assert host.topics["t"].partitions[0].producers.open_transactions() == {0: 0}
        assert "t-0: a transaction of producer 0, open since offset 0" in caplog.text
        assert "kafka-transactions.sh abort" in caplog.text
        await host.stop()

    asyncio.run(run())


def test_a_start_leaves_open_transactions_that_the_coordinator_knows(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        host = MemoryHost(empty_disk())
        await host.start()
        identity = await init(host)
        producer = identity.producer_id, identity.epoch
        await add_and_write(host, producer, b"a", 0)
        disk = host.what_survives(all_appended=False)
        await host.stop()
        host = MemoryHost(disk, transactions_config=TransactionConfig(aborts_hanging=True))
        await host.start()
        assert host.topics["t"].partitions[0].producers.open_transactions() == {0: 0}
        assert host.topics[OFFSETS_PARTITION[0]].partitions[0].producers.open_transactions() == {0: 0}
        assert not caplog.text
        await host.stop()

    asyncio.run(run())
