"""The transaction coordinator: crashes at every step, fencing, timeouts."""

from __future__ import annotations

import asyncio

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.config.thresholds import Thresholds
from embedded_broker.coordinators.ports import TransactionConfig
from embedded_broker.metadata.topic_names import OFFSETS_TOPIC
from embedded_broker.produce.transaction_verification import verification_error
from embedded_broker.state.transactions import PREPARED, TopicPartition, Transaction, TxnState
from tests.embedded_broker.coordinators.memory_host import Crashed, MemoryHost, empty_disk
from tests.embedded_broker.coordinators.transacting import (
    P0,
    TIMEOUT_MS,
    add_and_write,
    begin,
    completed,
    init,
    until,
)
from tests.embedded_broker.simulated import simulated


def seen(host: MemoryHost) -> tuple[list[bytes | None], list[bytes | None], int | None]:
    """What a read_committed reader sees of both partitions, and the committed offset."""
    found = host.groups.offsets.fetch("g", [P0], False)[P0]
    return host.topics["t"].partitions[0].visible(), host.topics["t"].partitions[1].visible(), found.offset


async def two_transactions(host: MemoryHost, answered: list[str]) -> None:
    """One committed, one aborted, one committed; notes which answers the client got."""
    await host.start()
    producer = await begin(host, b"a", 0)
    for sequence, (value, commit) in enumerate(((b"a", True), (b"b", False), (b"c", True))):
        if value != b"a":
            await add_and_write(host, producer, value, sequence)
        identity = await host.transactions.end("id", *producer, commit)
        assert identity.error_code is ErrorCode.none
        answered.append(value.decode())
        host.compact()


OUTCOMES = [([], [], -1), ([b"a"], [b"a"], 1), ([b"a", b"c"], [b"a", b"c"], 3)]
"""What may be seen after any crash: whole transactions, and the offset that belongs to them."""


async def run_until_crash(host: MemoryHost, answered: list[str]) -> None:
    work = asyncio.ensure_future(two_transactions(host, answered))
    await until(lambda: work.done() or host.crashed)
    if work.done():
        for _ in range(50):
            await asyncio.sleep(0)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.gather(work, return_exceptions=True)


def events_of_a_whole_run() -> int:
    async def run() -> int:
        host = MemoryHost(empty_disk())
        await run_until_crash(host, [])
        assert seen(host) == OUTCOMES[2]
        return host.events

    return asyncio.run(run())


@pytest.mark.tier("default")
@pytest.mark.parametrize("all_appended", [False, True])
@pytest.mark.parametrize("dead_records_max", [0, 50_000])
def test_after_a_crash_at_any_step_transactions_are_whole(
    all_appended: bool, dead_records_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemoryHost, "thresholds", Thresholds(dead_records_max=dead_records_max))
    total = events_of_a_whole_run()
    assert total > 40
    reached = set()
    for crash_at in range(total):
        answered, state, after = asyncio.run(crash_and_restart(crash_at, all_appended))
        reached.add(state)
        assert after in OUTCOMES, f"crash at {crash_at}: {after}"
        if "c" in answered:
            assert after == OUTCOMES[2], f"crash at {crash_at}: an answered commit is lost"
        elif "a" in answered:
            assert after in OUTCOMES[1:], f"crash at {crash_at}: an answered commit is lost"
    assert {TxnState.ONGOING, TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT} <= reached


async def crash_and_restart(
    crash_at: int, all_appended: bool
) -> tuple[list[str], TxnState | None, tuple[list[bytes | None], list[bytes | None], int | None]]:
    host = MemoryHost(empty_disk(), crash_at)
    answered: list[str] = []
    await run_until_crash(host, answered)
    restarted = MemoryHost(host.what_survives(all_appended=all_appended))
    found: TxnState | None = None
    original = restarted.transactions.replay

    def replay(header: object, batch: bytes) -> None:
        nonlocal found
        original(header, batch)  # type: ignore[arg-type]
        transaction = restarted.transactions.get("id")
        found = None if transaction is None else transaction.state

    restarted.transactions.replay = replay  # type: ignore[method-assign, assignment]
    await restarted.start()
    assert not any(t.state in PREPARED for t in restarted.transactions.all())
    await init(restarted)
    after = seen(restarted)
    assert all(not p.producers.open_transactions() for p in restarted.topics["t"].partitions)
    assert restarted.groups.offsets.state.first_pending() is None
    assert not restarted.failures
    await restarted.stop()
    return answered, found, after


def test_producer_ids_are_never_handed_out_twice() -> None:
    async def run() -> None:
        disk = empty_disk()
        seen_ids: set[int] = set()
        for _ in range(3):
            host = MemoryHost(disk)
            await host.start()
            for _ in range(700):
                identity = await host.transactions.init_producer_id(None, 0, None)
                assert (identity.error_code, identity.epoch) == (ErrorCode.none, 0)
                assert identity.producer_id not in seen_ids
                seen_ids.add(identity.producer_id)
            await host.stop()
            disk = host.what_survives(all_appended=False)
        assert len(seen_ids) == 2_100

    asyncio.run(run())


def test_a_successor_aborts_the_open_transaction_and_fences_its_producer() -> None:
    async def run() -> None:
        host = MemoryHost(empty_disk())
        await host.start()
        old = await begin(host, b"lost")
        first = await host.transactions.init_producer_id("id", TIMEOUT_MS, None)
        assert first.error_code is ErrorCode.concurrent_transactions
        identity = await init(host)
        assert identity.producer_id == old[0]
        assert identity.epoch > old[1] + 1
        assert seen(host) == ([], [], -1)
        assert (await host.transactions.end("id", *old, True)).error_code is ErrorCode.producer_fenced
        assert await host.transactions.add_partitions("id", *old, [P0]) is ErrorCode.producer_fenced
        assert host.transactions.verify("id", *old, P0) is ErrorCode.producer_fenced
        await host.stop()

    asyncio.run(run())


def test_a_transaction_ends_at_its_timeout_and_a_late_commit_is_refused() -> None:
    async def run() -> None:
        host = MemoryHost(empty_disk())
        await host.start()
        producer = await begin(host, b"late", timeout_ms=80)
        assert host.topics["t"].partitions[0].producers.open_transactions()
        await asyncio.sleep(0.2)
        await completed(host)
        assert (await host.transactions.end("id", *producer, True)).error_code is ErrorCode.producer_fenced
        assert seen(host) == ([], [], -1)
        await host.stop()

    simulated(run())


def test_the_timeout_counts_from_the_start_over_a_restart() -> None:
    async def run() -> None:
        host = MemoryHost(empty_disk())
        await host.start()
        await begin(host, b"late", timeout_ms=150)
        await asyncio.sleep(0.1)
        await host.stop()
        restarted = MemoryHost(host.what_survives(all_appended=False))
        await restarted.start()
        transaction = restarted.transactions.get("id")
        assert transaction is not None
        assert transaction.state is TxnState.ONGOING
        await asyncio.sleep(0.12)
        await completed(restarted)
        assert not restarted.topics["t"].partitions[0].producers.open_transactions()
        await restarted.stop()

    simulated(run())


def test_a_committed_transaction_does_not_time_out() -> None:
    async def run() -> None:
        host = MemoryHost(empty_disk())
        await host.start()
        producer = await begin(host, b"a", timeout_ms=60)
        assert (await host.transactions.end("id", *producer, True)).error_code is ErrorCode.none
        await asyncio.sleep(0.1)
        transaction = host.transactions.get("id")
        assert transaction is not None
        assert (transaction.state, transaction.epoch) == (TxnState.COMPLETE_COMMIT, producer[1])
        assert [p.markers() for p in host.topics["t"].partitions] == [[True], [True]]
        await host.stop()

    simulated(run())


def test_a_step_completes_although_its_client_disconnects() -> None:
    async def run() -> None:
        host = MemoryHost(empty_disk())
        await host.start()
        producer = await begin(host, b"a")
        ending = asyncio.ensure_future(host.transactions.end("id", *producer, True))
        await asyncio.sleep(0)
        ending.cancel()
        await asyncio.gather(ending, return_exceptions=True)
        await completed(host)
        assert (await host.transactions.end("id", *producer, True)).error_code is ErrorCode.none
        assert seen(host) == ([b"a"], [b"a"], 1)
        await host.stop()

    asyncio.run(run())


def test_an_end_while_another_is_on_its_way_to_the_disk_must_come_back() -> None:
    async def run() -> None:
        host = MemoryHost(empty_disk())
        await host.start()
        producer = await begin(host, b"a")
        first = asyncio.ensure_future(host.transactions.end("id", *producer, True))
        await asyncio.sleep(0)
        again = await host.transactions.end("id", *producer, False)
        assert again.error_code is ErrorCode.concurrent_transactions
        stranger = await host.transactions.end("id", producer[0], producer[1] + 1, False)
        assert stranger.error_code is ErrorCode.producer_fenced
        assert (await first).error_code is ErrorCode.none
        await host.stop()
        assert seen(host) == ([b"a"], [b"a"], 1)

    asyncio.run(run())


def test_markers_skip_topics_that_are_gone() -> None:
    async def run() -> None:
        host = MemoryHost(empty_disk())
        await host.start()
        producer = await begin(host, b"a")
        del host.topics["t"]
        assert (await host.transactions.end("id", *producer, True)).error_code is ErrorCode.none
        await completed(host)
        assert host.groups.offsets.fetch("g", [P0], True)[P0].offset == 1
        await host.stop()

    asyncio.run(run())


def test_a_failing_disk_stops_the_broker() -> None:
    async def run() -> None:
        host = MemoryHost(empty_disk())
        await host.start()
        producer = await begin(host, b"a")
        host.crash_at = host.events + 1
        with pytest.raises(Crashed):
            await host.transactions.end("id", *producer, True)
        assert [type(error) for error in host.failures] == [Crashed]

    asyncio.run(run())


def test_limits_of_init() -> None:
    async def run() -> None:
        host = MemoryHost(empty_disk(), transactions_config=TransactionConfig(max_timeout_ms=1_000))
        await host.start()
        for timeout_ms in (0, -1, 1_001):
            identity = await host.transactions.init_producer_id("id", timeout_ms, None)
            assert identity.error_code is ErrorCode.invalid_transaction_timeout
        assert (await host.transactions.init_producer_id("", 1_000, None)).error_code is ErrorCode.invalid_request
        assert host.transactions.get("id") is None
        await host.stop()

    asyncio.run(run())


def test_version_two_ends_bump_the_epoch() -> None:
    async def run() -> None:
        host = MemoryHost(empty_disk())
        await host.start()
        producer = await begin(host, b"a")
        identity = await host.transactions.end("id", *producer, True, bump=True)
        assert (identity.producer_id, identity.epoch) == (producer[0], producer[1] + 1)
        await completed(host)
        assert await host.transactions.end("id", *producer, True, bump=True) == identity
        await add_and_write(host, (identity.producer_id, identity.epoch), b"b", 0)
        late = await host.transactions.end("id", *producer, True, bump=True)
        assert late.error_code is ErrorCode.producer_fenced
        await host.stop()

    asyncio.run(run())


def test_idle_ids_are_forgotten_for_good() -> None:
    async def run() -> None:
        host = MemoryHost(empty_disk(), transactions_config=TransactionConfig(id_expiration_ms=0))
        await host.start()
        await init(host)
        host.transactions._sweep()
        assert host.transactions.get("id") is None
        await host.durable(host.internal_log("__transaction_state"))
        await host.stop()
        restarted = MemoryHost(host.what_survives(all_appended=False))
        await restarted.start()
        assert restarted.transactions.get("id") is None
        await restarted.stop()

    asyncio.run(run())


def test_errors_for_unverified_batches() -> None:
    for abortable, expected in ((False, ErrorCode.invalid_txn_state), (True, ErrorCode.transaction_abortable)):
        assert verification_error(ErrorCode.transaction_abortable, abortable=abortable) is expected
    assert verification_error(ErrorCode.producer_fenced, abortable=True) is ErrorCode.invalid_producer_epoch
    assert verification_error(ErrorCode.none, abortable=True) is ErrorCode.none


def test_a_pending_offset_holds_off_readers_that_require_stable_ones() -> None:
    async def run() -> None:
        host = MemoryHost(empty_disk())
        await host.start()
        producer = await begin(host, b"a")
        unstable = host.groups.offsets.fetch("g", [P0], True)[P0]
        assert (unstable.offset, unstable.error_code) == (-1, ErrorCode.unstable_offset_commit)
        assert host.groups.offsets.fetch("g", [P0], False)[P0].error_code is ErrorCode.none
        await host.transactions.end("id", *producer, True)
        await completed(host)
        assert host.groups.offsets.fetch("g", [P0], True)[P0].offset == 1
        assert host.internal_log(OFFSETS_TOPIC).markers() == [True]
        await host.stop()

    asyncio.run(run())


def test_a_transaction_right_behind_the_last_one_waits_for_its_markers() -> None:
    async def main() -> None:
        host = MemoryHost(empty_disk())
        await host.start()
        producer = await begin(host, b"a")
        ended = await host.transactions.end("id", *producer, True, bump=True)
        assert host.transactions.all()[0].state in PREPARED
        following = ended.producer_id, ended.epoch
        assert await host.transactions.add_partitions("id", *following, [P0]) is ErrorCode.none
        assert await host.transactions.add_partitions("id", *producer, [P0]) is ErrorCode.producer_fenced
        assert (
            await host.transactions.add_partitions("nobody", *producer, [P0]) is ErrorCode.invalid_producer_id_mapping
        )
        await host.stop()

    asyncio.run(main())


def test_waiting_for_markers_ends_after_a_timeout() -> None:
    async def main() -> None:
        host = MemoryHost(empty_disk())
        await host.start()
        producer = await begin(host, b"a")
        release, write = asyncio.Event(), host.transactions.markers.write

        async def held(prepared: Transaction) -> frozenset[TopicPartition]:
            await release.wait()
            return await write(prepared)

        host.transactions.markers.write = held  # type: ignore[method-assign]
        ended = await host.transactions.end("id", *producer, True, bump=True)
        following = ended.producer_id, ended.epoch
        assert await host.transactions.add_partitions("id", *following, [P0]) is ErrorCode.concurrent_transactions
        release.set()
        assert await host.transactions.add_partitions("id", *following, [P0]) is ErrorCode.none
        await host.stop()

    asyncio.run(main())
