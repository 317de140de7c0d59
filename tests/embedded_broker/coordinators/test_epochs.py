"""The coordinator and epochs: the last one is nobody's, and the owner of the current one is never fenced."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from kio.schema.errors import ErrorCode

from embedded_broker.coordinators.transactions import _record
from embedded_broker.state.producer_epochs import EPOCH_MAX
from embedded_broker.state.transactions import TxnState
from tests.embedded_broker.coordinators.memory_host import MemoryHost, empty_disk
from tests.embedded_broker.coordinators.transacting import P0, begin, completed, init, until


def test_an_empty_transaction_that_ends_right_behind_the_last_one_waits_for_its_markers() -> None:
    """The owner names the epoch that the last EndTxn has given it: it must not be taken for a zombie."""

    async def main() -> None:
        host = MemoryHost(empty_disk())
        await host.start()
        producer_id, epoch = await begin(host, b"1")
        ended = await host.transactions.end("id", producer_id, epoch, commit=True, bump=True)
        assert host.transactions.all()[0].state is TxnState.PREPARE_COMMIT, "the markers are yet to be written"
        aborted = await host.transactions.end("id", ended.producer_id, ended.epoch, commit=False, bump=True)
        assert (aborted.error_code, aborted.epoch) == (ErrorCode.none, epoch + 2)
        await completed(host)
        assert host.topics["t"].partitions[0].markers() == [True]
        await host.stop()

    asyncio.run(main())


def test_a_client_with_the_last_epoch_can_not_end_the_broker() -> None:
    """It fences a producer in 32766; who names it himself was never given it."""

    async def main() -> None:
        host = MemoryHost(empty_disk())
        await host.start()
        producer_id, _ = await begin(host, b"1", timeout_ms=100)
        entry = host.transactions._entries["id"]
        entry.transaction = replace(entry.transaction, epoch=EPOCH_MAX - 1)
        assert (
            await host.transactions.init_producer_id("id", 100, None)
        ).error_code is ErrorCode.concurrent_transactions
        await completed(host)
        assert host.transactions.all()[0].epoch == EPOCH_MAX
        assert await host.transactions.add_partitions("id", producer_id, EPOCH_MAX, [P0]) is ErrorCode.producer_fenced
        identity = await init(host)
        assert (identity.producer_id != producer_id, identity.epoch) == (True, 0)
        await host.stop()

    asyncio.run(main())


def test_a_transaction_found_open_in_the_last_epoch_times_out() -> None:
    """An earlier version wrote such states, and ended at their deadline, at each start again."""

    async def main() -> None:
        host = MemoryHost(empty_disk())
        await host.start()
        await begin(host, b"1", timeout_ms=100)
        host.transactions._append(_record(replace(host.transactions.all()[0], epoch=EPOCH_MAX)))
        await host.stop()
        again = MemoryHost(host.what_survives(all_appended=True))
        await again.start()
        await until(lambda: again.transactions.all()[0].state is TxnState.COMPLETE_ABORT or bool(again.failures))
        assert (again.transactions.all()[0].epoch, again.failures) == (EPOCH_MAX, [])
        await again.stop()

    asyncio.run(main())
