"""A transaction's deadline beside requests: whichever comes first decides, and the other finds it decided."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.coordinators.transactions import Identity
from embedded_broker.state.transactions import COMPLETED, IllegalTransactionStep, TxnState, fence
from tests.embedded_broker.coordinators.memory_host import MemoryHost, empty_disk
from tests.embedded_broker.coordinators.transacting import P0, TIMEOUT_MS, begin, until

Request = Callable[[MemoryHost, tuple[int, int]], Coroutine[Any, Any, Identity]]


class LateClock:
    """Every transaction's deadline is over."""

    def now_ms(self) -> int:
        return 10**14


def end(commit: bool, bump: bool) -> Request:
    return lambda host, producer: host.transactions.end("id", *producer, commit, bump)


async def init(host: MemoryHost, producer: tuple[int, int]) -> Identity:
    return await host.transactions.init_producer_id("id", TIMEOUT_MS, None)


def fire(host: MemoryHost) -> None:
    """The timer's callback, in the iteration of the event loop in which it is called."""
    host.transactions._deadlines._time_out(host.transactions._entries["id"])


async def at_the_deadline(request: Request, *, request_first: bool) -> tuple[MemoryHost, tuple[int, int], Identity]:
    """Let a request and the timer come in one iteration of the event loop: sockets are looked at before timers."""
    host = MemoryHost(empty_disk())
    await host.start()
    producer = await begin(host, b"a")
    host.clock = LateClock()  # type: ignore[assignment]
    if request_first:
        handling = asyncio.ensure_future(request(host, producer))
        fire(host)
    else:
        fire(host)
        handling = asyncio.ensure_future(request(host, producer))
    answer = await handling
    await ended(host)
    assert not host.failures
    return host, producer, answer


async def ended(host: MemoryHost) -> None:
    await until(lambda: all(transaction.state in COMPLETED for transaction in host.transactions.all()))


def outcomes(host: MemoryHost) -> list[list[bool]]:
    return [partition.markers() for partition in host.topics["t"].partitions]


@pytest.mark.parametrize("bump", [False, True])
def test_a_commit_right_before_the_deadline_stays_a_commit(bump: bool) -> None:
    async def run() -> None:
        host, producer, answer = await at_the_deadline(end(True, bump), request_first=True)
        assert answer == Identity(ErrorCode.none, producer[0], producer[1] + bump)
        assert outcomes(host) == [[True], [True]]
        known = host.transactions.get("id")
        assert known is not None
        assert (known.state, known.epoch) == (TxnState.COMPLETE_COMMIT, answer.epoch)
        following = answer.producer_id, answer.epoch
        assert await host.transactions.add_partitions("id", *following, [P0]) is ErrorCode.none
        await host.stop()

    asyncio.run(run())


def test_an_initialisation_right_before_the_deadline_aborts_once() -> None:
    async def run() -> None:
        host, producer, answer = await at_the_deadline(init, request_first=True)
        assert answer.error_code is ErrorCode.concurrent_transactions
        assert outcomes(host) == [[False], [False]]
        known = host.transactions.get("id")
        assert known is not None
        assert (known.state, known.epoch) == (TxnState.COMPLETE_ABORT, producer[1] + 1)
        assert (await init(host, producer)).epoch == producer[1] + 2
        await host.stop()

    asyncio.run(run())


@pytest.mark.parametrize("request_", [end(True, False), end(True, True), init], ids=["end", "end_v5", "init"])
def test_a_request_right_behind_the_deadline_finds_an_abort(request_: Request) -> None:
    async def run() -> None:
        host, _, answer = await at_the_deadline(request_, request_first=False)
        assert answer.error_code is not ErrorCode.none
        assert outcomes(host) == [[False], [False]]
        await host.stop()

    asyncio.run(run())


def test_a_second_step_cannot_be_made_while_one_is_being_written() -> None:
    async def run() -> None:
        host = MemoryHost(empty_disk())
        await host.start()
        producer = await begin(host, b"a")
        entry = host.transactions._entries["id"]
        stale = fence(entry.transaction, 0)
        ending = asyncio.ensure_future(host.transactions.end("id", *producer, True))
        await asyncio.sleep(0)
        with pytest.raises(IllegalTransactionStep, match="to PrepareAbort while PrepareCommit is being written"):
            await host.transactions._make(entry, stale)
        assert (await ending).error_code is ErrorCode.none
        await ended(host)
        assert outcomes(host) == [[True], [True]]
        await host.stop()

    asyncio.run(run())


def test_an_id_made_anew_while_its_end_waits_for_producer_ids_stays() -> None:
    """Between the sweep that forgets an id and an EndTxn that waited meanwhile, a client may have brought it again."""

    async def run() -> None:
        host = MemoryHost(empty_disk())
        await host.start()
        old = await host.transactions.init_producer_id("id", TIMEOUT_MS, None)
        ids, ensured = host.transactions._producer_ids, asyncio.Event()
        ensure = ids.ensure
        ids.ensure = ensured.wait  # type: ignore[method-assign, assignment]
        ending = asyncio.ensure_future(host.transactions.end("id", old.producer_id, old.epoch, False, bump=True))
        await asyncio.sleep(0)
        ids.ensure = ensure  # type: ignore[method-assign]
        host.clock = LateClock()  # type: ignore[assignment]
        host.transactions._sweep()
        new = await host.transactions.init_producer_id("id", TIMEOUT_MS, None)
        assert new.producer_id != old.producer_id
        ensured.set()
        assert (await ending).error_code is ErrorCode.invalid_producer_id_mapping
        known = host.transactions.get("id")
        assert known is not None
        assert (known.producer_id, known.epoch) == (new.producer_id, new.epoch)
        await host.stop()

    asyncio.run(run())
