"""What clients leave behind, offsets and transactional ids, is bounded by connection, by address and in all."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.coordinators.memory_quota import MemoryQuota
from embedded_broker.state.owners import SOMEBODY, Owner
from tests.embedded_broker.served import Client, Served, serving

MIB = 1024 * 1024
HERE, THERE = Owner("here", 1), Owner("there", 1)


async def _elsewhere(served: Served) -> Client:
    """A client with another address."""
    return Client(
        *await asyncio.open_connection("127.0.0.1", served.broker.port, local_addr=("127.0.0.2", 0), limit=1 << 26)
    )


def test_a_connection_has_a_quarter_and_an_address_three() -> None:
    quota = MemoryQuota(400)
    for connection in range(3):
        owner = HERE._replace(connection=connection)
        assert not quota.fits(f"{connection}", owner, 101)
        assert quota.fits(f"{connection}", owner, 100)
        quota.note(f"{connection}", 100, owner)
        assert not quota.fits("more", owner, 1)
    assert not quota.fits("of this address", HERE._replace(connection=4), 1)
    assert quota.fits("of another", THERE, 100)
    quota.note("of another", 100, THERE)
    assert not quota.fits("of nobody", Owner("nobody", 1), 1)
    assert quota.fits("0", THERE, 0)


@pytest.mark.parametrize("owner", [HERE, SOMEBODY])
def test_what_is_kept_counts_for_who_has_brought_the_first_of_it(owner: Owner) -> None:
    quota = MemoryQuota(400)
    quota.note("k", 50, owner)
    quota.note("k", 90, THERE)
    assert quota.fits("k", THERE, 10)
    assert quota.fits("other", THERE, 100)
    assert quota.total_bytes == 90
    quota.note("k", 0)
    assert (quota.total_bytes, quota.has("k")) == (0, False)
    assert quota.fits("other", owner, 100)


def _commit(group: str, metadata: str, *partitions: int) -> dict[str, Any]:
    offsets = [{"partition_index": n, "committed_offset": 7, "committed_metadata": metadata} for n in partitions]
    return {"group_id": group, "generation_id_or_member_epoch": -1, "topics": [{"name": "t", "partitions": offsets}]}


async def _errors(client: Client, group: str, metadata: str, *partitions: int) -> list[ErrorCode]:
    answer = await client.call("offset_commit", 8, **_commit(group, metadata, *partitions))
    return [each.error_code for each in answer.topics[0].partitions]


TOO_MUCH = ErrorCode.invalid_commit_offset_size


def test_offsets_are_refused_before_those_of_others_are_touched(tmp_path: Path) -> None:
    async def main() -> None:
        limits: dict[str, Any] = {"offsets_bytes_max": MIB, "partitions_max": 400}
        async with serving(tmp_path, **limits) as served:
            await served.topic("t", 100)
            honest = await served.client()
            assert await _errors(honest, "honest", "m" * 100, 0) == [ErrorCode.none]
            for number in range(8):
                greedy = await served.client()
                answers = await _errors(greedy, f"greedy {number}", "m" * 4_096, *range(100))
                assert answers.count(TOO_MUCH) >= 40
                assert answers[0] is (ErrorCode.none if number < 3 else answers[0])
            assert served.broker.groups.offsets.quota.total_bytes <= MIB * 3 // 4
            assert await _errors(greedy, "new", "m" * 4_096, *range(10)) == [TOO_MUCH] * 10
            assert await _errors(honest, "honest", "n" * 100, 0) == [ErrorCode.none]
            other = await _elsewhere(served)
            assert await _errors(other, "other", "m", 0) == [ErrorCode.none]
            other.writer.close()
        async with serving(tmp_path, **limits) as served:
            client = await served.client()
            held = served.broker.groups.offsets.quota.total_bytes
            assert MIB // 2 < held <= MIB
            assert await _errors(client, "honest", "m" * 100, 0) == [ErrorCode.none]
            assert TOO_MUCH in await _errors(client, "more", "m" * 4_096, *range(100))
            answer = await client.call("delete_groups", 2, groups_names=["greedy 0", "greedy 1", "greedy 2", "more"])
            assert {each.error_code for each in answer.results} == {ErrorCode.none}
            assert served.broker.groups.offsets.quota.total_bytes < 10_000
            assert await _errors(client, "new", "m" * 4_096, *range(10)) == [ErrorCode.none] * 10

    asyncio.run(main())


def test_commits_on_their_way_to_the_disk_count(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, offsets_bytes_max=4 * MIB) as served:
            await served.topic("t", 100)
            clients = [await served.client() for _ in range(4)]
            for client in clients:
                for number in range(20):
                    client.send("offset_commit", 8, **_commit(f"{number}", "m" * 4_096, *range(100)))
            for client in clients:
                for _ in range(20):
                    await client.receive()
            assert served.broker.groups.offsets.quota.total_bytes <= 3 * MIB

    asyncio.run(main())


def _init(transactional_id: str) -> dict[str, Any]:
    timeout = {"transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
    return {"transactional_id": transactional_id, **timeout}


def test_transactional_ids_are_refused_before_those_of_others_are_touched(tmp_path: Path) -> None:
    async def main() -> None:
        limits: dict[str, Any] = {"transactional_ids_bytes_max": MIB}
        async with serving(tmp_path, **limits) as served:
            honest = await served.client()
            assert (await honest.call("init_producer_id", 4, **_init("honest"))).error_code is ErrorCode.none
            taken = 0
            for number in range(8):
                greedy = await served.client()
                for each in range(10):
                    answer = await greedy.call("init_producer_id", 4, **_init(f"{number} {each} " + "x" * 30_000))
                    assert answer.error_code in (ErrorCode.none, ErrorCode.policy_violation)
                    taken += answer.error_code is ErrorCode.none
            assert taken == 12
            for client, name in ((honest, "honest"), (await _elsewhere(served), "other")):
                again = await client.call("init_producer_id", 4, **_init(name))
                assert again.error_code is ErrorCode.none
        async with serving(tmp_path, **limits) as served:
            assert len(served.broker.transactions.all()) == taken + 2
            client = await served.client()
            for name in ("honest", "other"):
                assert (await client.call("init_producer_id", 4, **_init(name))).error_code is ErrorCode.none
            codes = [
                (await client.call("init_producer_id", 4, **_init(f"{n} " + "y" * 30_000))).error_code
                for n in range(10)
            ]
            assert codes[-1] is ErrorCode.policy_violation

    asyncio.run(main())


def test_partitions_of_open_transactions_count(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, transactional_ids_bytes_max=400_000) as served:
            await served.topic("t", 1_000)
            client = await served.client()
            mine = await client.call("init_producer_id", 4, **_init("x"))

            async def add(*partitions: int) -> set[ErrorCode]:
                added = await client.call(
                    "add_partitions_to_txn", 3, v3_and_below_transactional_id="x",
                    v3_and_below_producer_id=mine.producer_id, v3_and_below_producer_epoch=mine.producer_epoch,
                    v3_and_below_topics=[{"name": "t", "partitions": list(partitions)}])  # fmt: skip
                return {
                    each.partition_error_code for each in added.results_by_topic_v3_and_below[0].results_by_partition
                }

            assert await add(*range(1_000)) == {ErrorCode.policy_violation}
            assert await add(*range(100)) == {ErrorCode.none}
            assert await add(*range(100)) == {ErrorCode.none}
            ended = await client.call("end_txn", 3, transactional_id="x", producer_id=mine.producer_id,
                                      producer_epoch=mine.producer_epoch, committed=False)  # fmt: skip
            assert ended.error_code is ErrorCode.none

    asyncio.run(main())
