"""A decision outlasts a stopped partition: its marker is written once a start finds the files sound."""

from __future__ import annotations

import asyncio

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.coordinators.ports import TransactionConfig
from embedded_broker.metadata.topic_names import TRANSACTION_TOPIC
from embedded_broker.state.transactions import PREPARED, TxnState
from tests.embedded_broker.coordinators.memory_host import MemoryHost, MemoryPartition, MemoryTopic, empty_disk
from tests.embedded_broker.coordinators.transacting import (
    P0,
    TIMEOUT_MS,
    add_and_write,
    begin,
    completed,
    init,
    until,
)

HELD_UP = "transactional id id is in state {} until each of these partitions has its marker: t-0. They are stopped."


async def begun_in_one(host: MemoryHost) -> tuple[int, int]:
    """A transaction with a record in t-0 alone; not ended."""
    identity = await init(host)
    producer = identity.producer_id, identity.epoch
    assert await host.transactions.add_partitions("id", *producer, [P0]) is ErrorCode.none
    await host.produce(*P0, b"a", producer, 0)
    return producer


def state(host: MemoryHost) -> TxnState:
    found = host.transactions.get("id")
    assert found is not None
    return found.state


def t(host: MemoryHost, index: int) -> MemoryPartition:
    return host.topics["t"].partitions[index]


async def init_code(host: MemoryHost) -> ErrorCode:
    return (await host.transactions.init_producer_id("id", TIMEOUT_MS, None)).error_code


async def held_up_or_completed(host: MemoryHost, caplog: pytest.LogCaptureFixture) -> None:
    await until(lambda: HELD_UP.format(state(host).label) in caplog.text or state(host) not in PREPARED)


async def ended_while_stopped(
    host: MemoryHost, caplog: pytest.LogCaptureFixture, *, commit: bool = True, bump: bool = False, single: bool = False
) -> None:
    """A transaction whose end is answered although t-0 is stopped, and that t-0 holds up."""
    await host.start()
    producer = await (begun_in_one(host) if single else begin(host, b"a"))
    t(host, 0).stopped = "cannot be read"
    assert (await host.transactions.end("id", *producer, commit, bump=bump)).error_code is ErrorCode.none
    await held_up_or_completed(host, caplog)


@pytest.mark.parametrize("aborts_hanging", [False, True])
@pytest.mark.parametrize("commit", [False, True])
@pytest.mark.parametrize(("bump", "single"), [(False, False), (True, False), (False, True), (True, True)])
def test_the_next_start_carries_out_what_was_decided(
    bump: bool, single: bool, commit: bool, aborts_hanging: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        host = MemoryHost(empty_disk())
        await ended_while_stopped(host, caplog, commit=commit, bump=bump, single=single)
        disk = host.what_survives(all_appended=True)
        await host.stop()
        caplog.clear()
        host = MemoryHost(disk, transactions_config=TransactionConfig(aborts_hanging=aborts_hanging))
        await host.start()
        assert t(host, 0).visible() == ([b"a"] if commit else [])
        assert t(host, 0).markers() == [commit]
        assert not t(host, 0).producers.open_transactions()
        assert state(host) is (TxnState.COMPLETE_COMMIT if commit else TxnState.COMPLETE_ABORT)
        assert not caplog.text
        await host.stop()

    asyncio.run(run())


def test_the_other_partitions_go_on_and_the_id_waits(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        host = MemoryHost(empty_disk())
        await ended_while_stopped(host, caplog)
        assert t(host, 1).visible() == [b"a"]
        assert host.groups.offsets.fetch("g", [P0], True)[P0].offset == 1
        assert await init_code(host) is ErrorCode.concurrent_transactions
        assert state(host) is TxnState.PREPARE_COMMIT
        assert not host.failures
        await host.stop()
        assert len(caplog.records) == 1

    asyncio.run(run())


def test_the_next_transaction_decides_over_its_own_records_only(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        host = MemoryHost(empty_disk())
        await ended_while_stopped(host, caplog)
        disk = host.what_survives(all_appended=True)
        await host.stop()
        host = MemoryHost(disk)
        await host.start()
        identity = await init(host)
        producer = identity.producer_id, identity.epoch
        await add_and_write(host, producer, b"b", 0)
        assert (await host.transactions.end("id", *producer, False)).error_code is ErrorCode.none
        await completed(host)
        assert t(host, 0).visible() == [b"a"]
        await host.stop()

    asyncio.run(run())


def test_a_partition_that_stays_stopped_over_two_starts(caplog: pytest.LogCaptureFixture) -> None:
    """The first of them comes after a kill between the decision and its markers."""

    async def run() -> None:
        host = MemoryHost(empty_disk())
        await host.start()
        producer = await begin(host, b"a")
        open_in = {name: [list(each) for each in logs] for name, logs in host.what_survives(all_appended=True).items()}
        assert (await host.transactions.end("id", *producer, True)).error_code is ErrorCode.none
        decided = list(host.internal_log(TRANSACTION_TOPIC).batches)[: len(open_in[TRANSACTION_TOPIC][0]) + 1]
        await host.stop()
        disk = {**open_in, TRANSACTION_TOPIC: [decided]}
        for _ in range(2):
            sound, disk = disk["t"][0], {**disk, "t": [[], disk["t"][1]]}  # of t-0 nothing can be read
            host = MemoryHost(disk, transactions_config=TransactionConfig(aborts_hanging=True))
            t(host, 0).stopped = "cannot be read"
            caplog.clear()
            await host.start()
            assert HELD_UP.format("PrepareCommit") in caplog.text
            assert await init_code(host) is ErrorCode.concurrent_transactions
            assert t(host, 1).visible() == [b"a"]
            disk = host.what_survives(all_appended=True)
            disk["t"][0] = sound
            await host.stop()
        host = MemoryHost(disk, transactions_config=TransactionConfig(aborts_hanging=True))
        await host.start()
        assert t(host, 0).visible() == [b"a"]
        assert not t(host, 0).producers.open_transactions()
        assert state(host) is TxnState.COMPLETE_COMMIT
        await host.stop()

    asyncio.run(run())


def test_the_id_goes_on_when_the_topic_is_deleted(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        host = MemoryHost({**empty_disk(), "u": [[]]})
        await host.start()
        producer = await begin(host, b"a")
        assert await host.transactions.add_partitions("id", *producer, [("u", 0)]) is ErrorCode.none
        await host.produce("u", 0, b"a", producer, 0)
        for topic in ("t", "u"):
            host.topics[topic].partitions[0].stopped = "cannot be read"
        assert (await host.transactions.end("id", *producer, True)).error_code is ErrorCode.none
        await until(lambda: "has its marker: t-0, u-0." in caplog.text or state(host) not in PREPARED)
        for topic in ("t", "u"):
            assert await init_code(host) is ErrorCode.concurrent_transactions
            del host.topics[topic]
            host.transactions.on_topic_deleted(topic)
            host.transactions.on_topic_deleted("unknown")
        await completed(host)
        assert state(host) is TxnState.COMPLETE_COMMIT
        assert await init_code(host) is ErrorCode.none
        await host.stop()

    asyncio.run(run())


def test_a_topic_that_is_deleted_while_the_markers_are_written_holds_up_nothing() -> None:
    async def run() -> None:
        host = MemoryHost(empty_disk())
        await host.start()
        producer = await begin(host, b"a")
        t(host, 0).stopped = "cannot be read"
        whole = t(host, 1)
        assert (await host.transactions.end("id", *producer, True)).error_code is ErrorCode.none
        await until(lambda: bool(whole.markers()))
        host.topics["t"] = MemoryTopic([MemoryPartition(host, [])])  # and there is another one
        host.transactions.on_topic_deleted("t")
        await completed(host)
        await host.stop()

    asyncio.run(run())


@pytest.mark.parametrize("single", [False, True])
def test_the_flush_of_the_marker_stops_the_partition(
    single: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the marker is on disk is unknown then; the decision must be."""

    async def run() -> None:
        host = MemoryHost(empty_disk())
        await host.start()
        producer = await (begun_in_one(host) if single else begin(host, b"a"))
        durable = host.durable

        async def stopping(partition: MemoryPartition) -> None:
            if partition is not t(host, 0):
                return await durable(partition)
            partition.stopped = "bug"
            raise ValueError(partition.stopped)

        monkeypatch.setattr(host, "durable", stopping)
        assert (await host.transactions.end("id", *producer, True)).error_code is ErrorCode.none
        await held_up_or_completed(host, caplog)
        assert state(host) is TxnState.PREPARE_COMMIT
        assert not host.failures
        disk = host.what_survives(all_appended=True)
        await host.stop()
        host = MemoryHost(disk)
        await host.start()
        assert t(host, 0).visible() == [b"a"]
        assert state(host) not in PREPARED
        await host.stop()

    asyncio.run(run())
