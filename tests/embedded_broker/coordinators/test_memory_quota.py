"""What clients leave behind, offsets and transactional ids, is bounded by connection, by address and in all."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.coordinators.memory_quota import MemoryQuota
from embedded_broker.coordinators.transaction_entry import size_of
from embedded_broker.state.owners import SOMEBODY, Owner
from tests.embedded_broker.served import Client, Served, serving

pytestmark = pytest.mark.tier("extended")

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
        assert not quota.fits(owner, 101)
        assert quota.fits(owner, 100)
        quota.note(f"{connection}", {owner: 100})
        assert not quota.fits(owner, 1)
    assert not quota.fits(HERE._replace(connection=4), 1)
    assert quota.fits(THERE, 100)
    quota.note("of another", {THERE: 100})
    assert not quota.fits(Owner("nobody", 1), 1)
    assert quota.fits(THERE, 0)


def test_what_is_kept_counts_for_who_has_brought_it() -> None:
    quota = MemoryQuota(400)
    quota.note("k", {HERE: 50, THERE: 40}, own_bytes=10)
    assert (quota.fits(HERE, 41), quota.fits(HERE, 40)) == (False, True)
    assert (quota.fits(THERE, 61), quota.fits(THERE, 60)) == (False, True)
    quota.note("k", {THERE: 90}, own_bytes=10)
    assert (quota.fits(THERE, 1), quota.fits(HERE, 100)) == (False, True)
    assert quota.total_bytes == 100
    quota.note("k", {})
    assert (quota.total_bytes, quota.has("k")) == (0, False)
    assert quota.fits(THERE, 100)


def test_what_was_there_at_the_start_is_nobodys() -> None:
    quota = MemoryQuota(400)
    quota.note("k", {SOMEBODY: 300}, own_bytes=10)
    assert (quota.fits(HERE, 90), quota.fits(HERE, 91)) == (True, False)
    quota.note("k", {SOMEBODY: 200, HERE: 100})
    assert (quota.fits(HERE, 1), quota.fits(THERE, 100)) == (False, True)


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


def test_a_start_counts_the_last_state_of_each_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted, note = list[str](), MemoryQuota.note

    def noted(quota: MemoryQuota, key: str, held: Mapping[Owner, int], own_bytes: int = 0) -> None:
        counted.append(key)
        note(quota, key, held, own_bytes)

    async def main() -> None:
        async with serving(tmp_path) as served:
            client = await served.client()
            timeout = {"transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
            for _ in range(20):
                await client.call("init_producer_id", 4, transactional_id="x", **timeout)
        monkeypatch.setattr(MemoryQuota, "note", noted)
        async with serving(tmp_path) as served:
            transaction = served.broker.transactions.get("x")
            assert transaction is not None
            assert transaction.epoch == 19
            assert served.broker.transactions._quota.total_bytes == size_of(transaction)

    asyncio.run(main())
    assert counted == ["x"]


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


def test_groups_that_were_there_at_the_start_are_no_way_around_a_quota(tmp_path: Path) -> None:
    limits: dict[str, Any] = {"offsets_bytes_max": MIB, "partitions_max": 400}

    async def main() -> None:
        async with serving(tmp_path, **limits) as served:
            await served.topic("t", 100)
            client = await served.client()
            for number in range(4):
                assert await _errors(client, f"old {number}", "m", 0) == [ErrorCode.none]
        async with serving(tmp_path, **limits) as served:
            greedy, honest = await served.client(), await _elsewhere(served)
            for number in range(4):
                await _errors(greedy, f"old {number}", "m" * 4_096, *range(100))
            assert served.broker.groups.offsets.quota.total_bytes < MIB // 3
            assert await _errors(honest, "old 3", "m" * 100, 0, 1) == [ErrorCode.none] * 2
            assert await _errors(honest, "new", "m" * 4_096, *range(10)) == [ErrorCode.none] * 10
            honest.writer.close()

    asyncio.run(main())


def test_nobody_spends_the_quota_of_another_in_the_group_of_another(tmp_path: Path) -> None:
    limits: dict[str, Any] = {"offsets_bytes_max": MIB, "partitions_max": 400}

    async def main() -> None:
        async with serving(tmp_path, **limits) as served:
            await served.topic("t", 200)
            honest, greedy = await served.client(), await served.client()
            assert await _errors(honest, "shared", "", 0) == [ErrorCode.none]
            assert TOO_MUCH in await _errors(greedy, "shared", "m" * 4_096, *range(100))
            assert await _errors(greedy, "own", "m" * 4_096, 0) == [TOO_MUCH]
            for group in ("shared", "mine"):
                for _ in range(100):
                    assert await _errors(honest, group, "m" * 1_000, 150) == [ErrorCode.none]
            assert await _errors(greedy, "own", "m" * 4_096, 0) == [TOO_MUCH]
            # What is in the place of another's offset counts for who has committed it.
            assert await _errors(honest, "shared", "", *range(60)) == [ErrorCode.none] * 60
            assert await _errors(greedy, "own", "m" * 4_096, 0) == [ErrorCode.none]

    asyncio.run(main())


def _add(identity: Any, transactional_id: str, *partitions: int) -> dict[str, Any]:
    return {
        "v3_and_below_transactional_id": transactional_id, "v3_and_below_producer_id": identity.producer_id,
        "v3_and_below_producer_epoch": identity.producer_epoch,
        "v3_and_below_topics": [{"name": "t", "partitions": partitions}],
    }  # fmt: skip


async def _added(client: Client, identity: Any, transactional_id: str, *partitions: int) -> set[ErrorCode]:
    answer = await client.call("add_partitions_to_txn", 3, **_add(identity, transactional_id, *partitions))
    return {each.partition_error_code for each in answer.results_by_topic_v3_and_below[0].results_by_partition}


def test_transactions_count_for_who_adds_partitions_to_them(tmp_path: Path) -> None:
    """Also those of ids that were there at the start."""
    limits: dict[str, Any] = {"transactional_ids_bytes_max": MIB // 2, "partitions_max": 400}
    ids = [f"old {number}" for number in range(8)]

    async def main() -> None:
        async with serving(tmp_path, **limits) as served:
            await served.topic("t", 200)
            client = await served.client()
            identities = {each: await client.call("init_producer_id", 4, **_init(each)) for each in ids}
        async with serving(tmp_path, **limits) as served:
            greedy, honest = await served.client(), await served.client()
            identities["mine"] = await honest.call("init_producer_id", 4, **_init("mine"))
            assert await _added(honest, identities["mine"], "mine", 0) == {ErrorCode.none}
            found = set[ErrorCode]()
            for each, identity in identities.items():
                found |= await _added(greedy, identity, each, *range(1, 200))
            assert found == {ErrorCode.none, ErrorCode.policy_violation}
            assert await _added(greedy, identities["mine"], "mine", *range(1, 150)) == {ErrorCode.policy_violation}
            assert await _added(honest, identities["mine"], "mine", *range(1, 200)) == {ErrorCode.none}
            for name in ("new", "another"):
                assert (await honest.call("init_producer_id", 4, **_init(name))).error_code is ErrorCode.none
            ended = {"transactional_id": ids[0], "producer_id": identities[ids[0]].producer_id,
                     "producer_epoch": identities[ids[0]].producer_epoch, "committed": False}  # fmt: skip
            assert (await greedy.call("end_txn", 3, **ended)).error_code is ErrorCode.none
            assert await _added(greedy, identities[ids[7]], ids[7], *range(1, 100)) == {ErrorCode.none}

    asyncio.run(main())
