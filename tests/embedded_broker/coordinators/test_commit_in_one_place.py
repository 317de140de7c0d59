"""A commit that has written to one partition: its marker is the decision."""

from __future__ import annotations

import asyncio

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.coordinators.ports import OFFSETS_PARTITION, TRANSACTION_TOPIC
from embedded_broker.state.transactions import TxnState
from tests.embedded_broker.coordinators.memory_host import MemoryHost, empty_disk
from tests.embedded_broker.coordinators.test_transactions import P0, P1, completed, init, until


async def write(host: MemoryHost, producer: tuple[int, int], value: bytes, sequence: int) -> None:
    assert await host.transactions.add_partitions("id", *producer, [P0]) is ErrorCode.none
    await host.produce(*P0, value, producer, sequence)


async def three_transactions(host: MemoryHost, answered: list[bytes]) -> None:
    """Committed, aborted, committed; notes what the client got answers for."""
    await host.start()
    identity = await init(host)
    producer = identity.producer_id, identity.epoch
    for sequence, (value, commit) in enumerate(((b"a", True), (b"b", False), (b"c", True))):
        await write(host, producer, value, sequence)
        assert (await host.transactions.end("id", *producer, commit)).error_code is ErrorCode.none
        answered.append(value)
        host.compact()
    await completed(host)


async def crash_and_restart(crash_at: int, all_appended: bool) -> tuple[list[bytes], TxnState | None, MemoryHost]:
    host, answered = MemoryHost(empty_disk(), crash_at), list[bytes]()
    work = asyncio.ensure_future(three_transactions(host, answered))
    await until(lambda: work.done() or host.crashed)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.gather(work, return_exceptions=True)
    restarted = MemoryHost(host.what_survives(all_appended=all_appended))
    await restarted.start()
    found = restarted.transactions.get("id")
    return answered, None if found is None else found.state, restarted


def events_of_a_whole_run() -> int:
    async def run() -> int:
        host = MemoryHost(empty_disk())
        await three_transactions(host, [])
        assert host.topics["t"].partitions[0].visible() == [b"a", b"c"]
        await host.stop()
        return host.events

    return asyncio.run(run())


@pytest.mark.parametrize("all_appended", [False, True])
@pytest.mark.parametrize("again", ["init", "commit", "abort"])
def test_after_a_crash_at_any_step_it_is_committed_or_not(all_appended: bool, again: str) -> None:
    """And what its client, or a successor, asks for after the crash doesn't change what has been decided."""

    async def run(crash_at: int) -> bool:
        answered, state, host = await crash_and_restart(crash_at, all_appended)
        partition = host.topics["t"].partitions[0]
        before = partition.visible()
        open_before = bool(partition.producers.open_transactions())
        transaction = host.transactions.get("id")
        if again != "init" and transaction is not None and state is TxnState.ONGOING:
            producer = transaction.producer_id, transaction.epoch
            ended = await host.transactions.end("id", *producer, again == "commit")
            assert ended.error_code is ErrorCode.none
            await completed(host)
        await init(host)
        after = partition.visible()
        assert after in ([], [b"a"], [b"a", b"c"]) or (again == "commit" and open_before), f"crash at {crash_at}"
        assert set(answered) - {b"b"} <= set(after), f"crash at {crash_at}: an answered commit is lost"
        if not open_before:
            assert after == before, f"crash at {crash_at}: what was decided has changed"
        assert not partition.producers.open_transactions()
        assert not host.failures
        await host.stop()
        return state is TxnState.ONGOING and b"a" in before and not open_before

    decided_but_not_completed = [asyncio.run(run(crash_at)) for crash_at in range(events_of_a_whole_run())]
    assert any(decided_but_not_completed)


def test_it_waits_for_the_disk_three_times() -> None:
    async def run() -> None:
        host = MemoryHost(empty_disk())
        await host.start()
        identity = await init(host)
        producer = identity.producer_id, identity.epoch
        log, data = host.internal_log(TRANSACTION_TOPIC), host.topics["t"].partitions[0]
        records, fsyncs = len(log.batches), list[str]()
        durable = host.durable

        async def counted(partition: object) -> None:
            fsyncs.append("decisions" if partition is log else "records")
            await durable(partition)  # type: ignore[arg-type]

        host.durable = counted  # type: ignore[method-assign, assignment]
        await write(host, producer, b"a", 0)
        assert (await host.transactions.end("id", *producer, True)).error_code is ErrorCode.none
        assert fsyncs == ["decisions", "records", "records"]
        assert len(log.batches) == records + 2
        assert data.visible() == [b"a"]
        await host.stop()

    asyncio.run(run())


def test_nothing_enters_the_partition_between_the_marker_and_the_completion() -> None:
    async def run() -> None:
        host = MemoryHost(empty_disk())
        await host.start()
        identity = await init(host)
        producer = identity.producer_id, identity.epoch
        await write(host, producer, b"a", 0)
        ending = asyncio.ensure_future(host.transactions.end("id", *producer, True))
        await until(lambda: bool(host.topics["t"].partitions[0].markers()))
        assert host.transactions.verify("id", *producer, P0) is ErrorCode.concurrent_transactions
        assert (await ending).error_code is ErrorCode.none
        assert host.transactions.verify("id", *producer, P0) is ErrorCode.transaction_abortable
        await host.stop()

    asyncio.run(run())


@pytest.mark.parametrize("other", [P1, OFFSETS_PARTITION])
def test_with_a_second_place_the_decision_is_a_record_of_its_own(other: tuple[str, int]) -> None:
    async def run() -> None:
        host = MemoryHost(empty_disk())
        await host.start()
        identity = await init(host)
        producer = identity.producer_id, identity.epoch
        await write(host, producer, b"a", 0)
        assert await host.transactions.add_partitions("id", *producer, [other]) is ErrorCode.none
        log = host.internal_log(TRANSACTION_TOPIC)
        records = len(log.batches)
        assert (await host.transactions.end("id", *producer, True)).error_code is ErrorCode.none
        await completed(host)
        assert len(log.batches) == records + 2  # prepared and completed
        await host.stop()

    asyncio.run(run())


def test_a_partition_that_has_gone_or_is_damaged_is_left_out() -> None:
    async def run(damaged: bool) -> None:
        host = MemoryHost(empty_disk())
        await host.start()
        identity = await init(host)
        producer = identity.producer_id, identity.epoch
        await write(host, producer, b"a", 0)
        if damaged:
            host.topics["t"].partitions[0].stopped = "damaged"
        else:
            del host.topics["t"]
        assert (await host.transactions.end("id", *producer, True)).error_code is ErrorCode.none
        await completed(host)
        found = host.transactions.get("id")
        assert found is not None
        assert found.state is TxnState.COMPLETE_COMMIT
        await host.stop()

    for damaged in (True, False):
        asyncio.run(run(damaged))
