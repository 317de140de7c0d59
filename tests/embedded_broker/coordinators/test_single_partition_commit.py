"""A commit that has written to one partition: its marker is the decision."""

from __future__ import annotations

import asyncio

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.config.thresholds import Thresholds
from embedded_broker.metadata.topic_names import OFFSETS_PARTITION, TRANSACTION_TOPIC
from embedded_broker.state import transaction_log
from embedded_broker.state.transactions import TxnState
from kafka_records.records import decode
from tests.embedded_broker.coordinators.memory_host import MemoryHost, empty_disk
from tests.embedded_broker.coordinators.transacting import P0, P1, TIMEOUT_MS, completed, init, until


async def begun() -> tuple[MemoryHost, tuple[int, int]]:
    """A broker, and a producer with its id and epoch."""
    host = MemoryHost(empty_disk())
    await host.start()
    identity = await init(host)
    return host, (identity.producer_id, identity.epoch)


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


async def crash_and_restart(crash_at: int, all_appended: bool) -> tuple[list[bytes], MemoryHost]:
    host, answered = MemoryHost(empty_disk(), crash_at), list[bytes]()
    work = asyncio.ensure_future(three_transactions(host, answered))
    await until(lambda: work.done() or host.crashed)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.gather(work, return_exceptions=True)
    return answered, MemoryHost(host.what_survives(all_appended=all_appended))


def last_state_on_disk(host: MemoryHost) -> TxnState | None:
    found = [
        transaction_log.decode(record.key or b"", record.value)
        for batch in host.internal_log(TRANSACTION_TOPIC).batches
        for record in decode(batch)
    ]
    known = [each.transaction for each in found if isinstance(each, transaction_log.TransactionRecord)]
    return known[-1].state if known and known[-1] else None


def events_of_a_whole_run() -> int:
    async def run() -> int:
        host = MemoryHost(empty_disk())
        await three_transactions(host, [])
        assert host.topics["t"].partitions[0].visible() == [b"a", b"c"]
        await host.stop()
        return host.events

    return asyncio.run(run())


@pytest.mark.tier("default")
@pytest.mark.parametrize("all_appended", [False, True])
@pytest.mark.parametrize("again", ["init", "commit", "abort"])
@pytest.mark.parametrize("dead_records_max", [0, 50_000])
def test_after_a_crash_at_any_step_it_is_committed_or_not(
    all_appended: bool, again: str, dead_records_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what its client, or a successor, asks for after the crash doesn't change what has been decided."""
    monkeypatch.setattr(MemoryHost, "thresholds", Thresholds(dead_records_max=dead_records_max))

    async def run(crash_at: int) -> bool:
        answered, host = await crash_and_restart(crash_at, all_appended)
        on_disk = last_state_on_disk(host)
        await host.start()
        partition = host.topics["t"].partitions[0]
        before = partition.visible()
        open_before = bool(partition.producers.open_transactions())
        transaction = host.transactions.get("id")
        if again != "init" and transaction is not None and on_disk is TxnState.ONGOING:
            producer = transaction.producer_id, transaction.epoch
            ended = await host.transactions.end("id", *producer, again == "commit")
            decided = transaction.state is TxnState.COMPLETE_COMMIT and again == "abort"
            assert ended.error_code is (ErrorCode.invalid_txn_state if decided else ErrorCode.none)
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
        return on_disk is TxnState.ONGOING and transaction is not None and transaction.state is not on_disk

    decided_but_not_completed = [asyncio.run(run(crash_at)) for crash_at in range(events_of_a_whole_run())]
    assert any(decided_but_not_completed)


def test_a_transaction_waits_for_three_fsyncs() -> None:
    async def run() -> None:
        host, producer = await begun()
        log, data = host.internal_log(TRANSACTION_TOPIC), host.topics["t"].partitions[0]
        records, fsyncs = len(log.batches), list[str]()
        durable = host.durable

        async def counted(partition: object) -> None:
            fsyncs.append("decisions" if partition is log else "records")
            await durable(partition)  # type: ignore[arg-type]

        host.durable = counted  # type: ignore[method-assign]
        await write(host, producer, b"a", 0)
        assert (await host.transactions.end("id", *producer, True)).error_code is ErrorCode.none
        assert fsyncs == ["decisions", "records", "records"]
        assert len(log.batches) == records + 2
        assert data.visible() == [b"a"]
        await host.stop()

    asyncio.run(run())


def test_nothing_enters_the_partition_between_the_marker_and_the_completion() -> None:
    async def run() -> None:
        host, producer = await begun()
        await write(host, producer, b"a", 0)
        ending = asyncio.ensure_future(host.transactions.end("id", *producer, True))
        await until(lambda: bool(host.topics["t"].partitions[0].markers()))
        assert host.transactions.verify("id", *producer, P0) is ErrorCode.concurrent_transactions
        assert (await ending).error_code is ErrorCode.none
        assert host.transactions.verify("id", *producer, P0) is ErrorCode.transaction_abortable
        await host.stop()

    asyncio.run(run())


@pytest.mark.parametrize("other", [P1, OFFSETS_PARTITION])
def test_a_transaction_with_two_partitions_needs_a_prepared_record(other: tuple[str, int]) -> None:
    async def run() -> None:
        host, producer = await begun()
        await write(host, producer, b"a", 0)
        assert await host.transactions.add_partitions("id", *producer, [other]) is ErrorCode.none
        log = host.internal_log(TRANSACTION_TOPIC)
        records = len(log.batches)
        assert (await host.transactions.end("id", *producer, True)).error_code is ErrorCode.none
        await completed(host)
        assert len(log.batches) == records + 2  # prepared and completed
        await host.stop()

    asyncio.run(run())


def test_a_partition_that_has_gone_is_left_out() -> None:
    async def run() -> None:
        host, producer = await begun()
        await write(host, producer, b"a", 0)
        del host.topics["t"]
        assert (await host.transactions.end("id", *producer, True)).error_code is ErrorCode.none
        await completed(host)
        found = host.transactions.get("id")
        assert found is not None
        assert found.state is TxnState.COMPLETE_COMMIT
        await host.stop()

    asyncio.run(run())


async def answered_then_power_cut(host: MemoryHost) -> tuple[tuple[int, int], MemoryHost]:
    """A single-partition commit is answered; then the power fails before its completion has reached the disk."""
    await host.start()
    identity = await init(host)
    producer = identity.producer_id, identity.epoch
    await write(host, producer, b"a", 0)
    assert (await host.transactions.end("id", *producer, True)).error_code is ErrorCode.none
    disk = host.what_survives(all_appended=False)
    assert len(disk[TRANSACTION_TOPIC][0]) < len(host.internal_log(TRANSACTION_TOPIC).batches)
    await host.stop()
    return producer, MemoryHost(disk)


def test_what_the_marker_decided_is_known_after_a_power_cut() -> None:
    """Else an abort would be answered with success, and what its client then sends again is doubled."""

    async def run() -> None:
        producer, host = await answered_then_power_cut(MemoryHost(empty_disk()))
        await host.start()
        found = host.transactions.get("id")
        assert found is not None
        assert found.state is TxnState.COMPLETE_COMMIT
        assert (await host.transactions.end("id", *producer, False)).error_code is ErrorCode.invalid_txn_state
        assert (await host.transactions.end("id", *producer, True)).error_code is ErrorCode.none
        assert host.topics["t"].partitions[0].markers() == [True]
        await host.stop()

    asyncio.run(run())


def test_a_producer_with_an_answered_commit_continues_after_a_power_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long ago the transaction began that was answered: it isn't open any more, so it can't time out."""

    async def run() -> None:
        producer, host = await answered_then_power_cut(MemoryHost(empty_disk()))
        now_ms = host.clock.now_ms()
        monkeypatch.setattr(host.clock, "now_ms", lambda: now_ms + 2 * TIMEOUT_MS)
        await host.start()
        await asyncio.sleep(0.01)
        await completed(host)
        await write(host, producer, b"b", 1)
        found = host.transactions.get("id")
        assert found is not None
        assert found.start_ms == now_ms + 2 * TIMEOUT_MS
        assert (await host.transactions.end("id", *producer, True)).error_code is ErrorCode.none
        assert host.topics["t"].partitions[0].visible() == [b"a", b"b"]
        await host.stop()

    asyncio.run(run())


def test_a_transaction_that_has_begun_and_written_nothing_is_not_taken_for_decided() -> None:
    """The marker of the one before stands in its partition, too."""

    async def run() -> None:
        host, producer = await begun()
        await write(host, producer, b"a", 0)
        assert (await host.transactions.end("id", *producer, True)).error_code is ErrorCode.none
        assert await host.transactions.add_partitions("id", *producer, [P0]) is ErrorCode.none
        restarted = MemoryHost(host.what_survives(all_appended=False))
        await host.stop()
        await restarted.start()
        found = restarted.transactions.get("id")
        assert found is not None
        assert found.state is TxnState.ONGOING
        assert restarted.transactions.verify("id", *producer, P0) is ErrorCode.none
        assert (await restarted.transactions.end("id", *producer, False)).error_code is ErrorCode.none
        await completed(restarted)
        await restarted.stop()

    asyncio.run(run())


def test_an_abort_by_an_operator_is_not_taken_for_a_commit() -> None:
    async def run() -> None:
        host, producer = await begun()
        await write(host, producer, b"a", 0)
        assert await host.transactions.markers.write_one(P0, *producer, False) is ErrorCode.none
        restarted = MemoryHost(host.what_survives(all_appended=False))
        await host.stop()
        await restarted.start()
        found = restarted.transactions.get("id")
        assert found is not None
        assert found.state is TxnState.ONGOING
        await restarted.stop()

    asyncio.run(run())


@pytest.mark.tier("default")
@pytest.mark.parametrize("all_appended", [False, True])
@pytest.mark.parametrize("compact_after", range(4))
def test_the_log_is_compacted_while_the_marker_is_on_its_way(
    compact_after: int, all_appended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the decision is written all the same; whatever of both a crash leaves says one thing."""
    monkeypatch.setattr(MemoryHost, "thresholds", Thresholds(dead_records_max=0))

    async def run(crash_after: int) -> bool:
        host, producer = await begun()
        await write(host, producer, b"a", 0)
        ending = asyncio.ensure_future(host.transactions.end("id", *producer, True))
        for step in range(crash_after):
            if step == compact_after:
                host.compact()
            await asyncio.sleep(0)
        answered = ending.done()
        restarted = MemoryHost(host.what_survives(all_appended=all_appended))
        await host.stop()
        await restarted.start()
        partition = restarted.topics["t"].partitions[0]
        committed = partition.visible() == [b"a"]
        assert committed or not answered
        found = restarted.transactions.get("id")
        assert found is not None
        assert found.state is (TxnState.COMPLETE_COMMIT if committed else TxnState.ONGOING)
        assert bool(partition.producers.open_transactions()) is not committed
        await restarted.stop()
        return answered

    assert [asyncio.run(run(crash_after)) for crash_after in range(14)][-1]


def test_the_topic_is_deleted_while_the_marker_is_on_its_way() -> None:
    async def run() -> None:
        host, producer = await begun()
        await write(host, producer, b"a", 0)
        partition = host.topics["t"].partitions[0]
        ending = asyncio.ensure_future(host.transactions.end("id", *producer, True))
        await until(lambda: bool(partition.markers()))
        host.topics["t"] = type(host.topics["t"])([type(partition)(host, [])])  # and there is another one
        assert (await ending).error_code is ErrorCode.none
        await write(host, producer, b"b", 0)
        restarted = MemoryHost(host.what_survives(all_appended=False))
        await host.stop()
        await restarted.start()
        found = restarted.transactions.get("id")
        assert found is not None
        assert found.state is TxnState.ONGOING
        assert (await restarted.transactions.end("id", *producer, True)).error_code is ErrorCode.none
        assert restarted.topics["t"].partitions[0].visible() == [b"b"]
        await restarted.stop()

    asyncio.run(run())


def test_a_transaction_of_version_two_ended_by_an_older_request_is_known_after_a_power_cut() -> None:
    async def run() -> None:
        host, producer = await begun()
        assert await host.transactions.add_partitions("id", *producer, [P0], client_version=2) is ErrorCode.none
        await host.produce(*P0, b"a", producer, 0)
        assert (await host.transactions.end("id", *producer, True)).error_code is ErrorCode.none
        restarted = MemoryHost(host.what_survives(all_appended=False))
        await host.stop()
        await restarted.start()
        coordinator = restarted.transactions
        assert (await coordinator.end("id", *producer, True, bump=True)).error_code is ErrorCode.invalid_txn_state
        bumped = await coordinator.end("id", *producer, False, bump=True)
        assert (bumped.error_code, bumped.producer_id, bumped.epoch) == (ErrorCode.none, producer[0], producer[1] + 1)
        await completed(restarted)
        assert restarted.topics["t"].partitions[0].visible() == [b"a"]
        await restarted.stop()

    asyncio.run(run())
