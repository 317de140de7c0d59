"""A request that names one thing many times gets one answer for it: else a few bytes would cost the broker seconds."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.api.registry import load_all
from embedded_broker.metadata.topic_names import OFFSETS_TOPIC
from embedded_broker.state.consumer_types import by_topic
from tests.embedded_broker import generated
from tests.embedded_broker.generated import Filling
from tests.embedded_broker.served import batch, serving

TIMES = 400
TOPIC = 2


def test_topics_resources_and_groups_are_answered_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t", 5)
            topic = served.broker.topics.get("t")
            assert topic is not None
            client = await served.client()
            for version in (1, 9):
                named = await client.call("metadata", version, topics=[{"name": "t"}, {"name": "other"}] * TIMES)
                assert [each.name for each in named.topics] == ["t", "other"]
            named = await client.call(
                "metadata", 12, topics=[{"name": f"{n}", "topic_id": topic.topic_id} for n in range(TIMES)]
            )
            assert [(each.name, len(each.partitions)) for each in named.topics] == [("t", 5)]
            resources = [
                {"resource_type": TOPIC, "resource_name": "t", "configuration_keys": [f"{n}", "retention.ms"]}
                for n in range(TIMES)
            ]
            (described,) = (await client.call("describe_configs", 4, resources=resources)).results
            assert [each.name for each in described.configs] == ["retention.ms"]
            groups = [{"group_id": "g", "member_id": f"{n}", "topics": None} for n in range(TIMES)]
            assert len((await client.call("offset_fetch", 9, groups=groups)).groups) == 1
            assert len((await client.call("describe_groups", 5, groups=["g"] * TIMES)).groups) == 1
            described = await client.call("consumer_group_describe", 0, group_ids=["g", "h"] * TIMES)
            assert [each.group_id for each in described.groups] == ["g", "h"]

    asyncio.run(main())


def test_what_producers_and_transactions_do_is_described_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t", 5)
            client = await served.client()
            topics = [
                {"name": name, "partition_indexes": [n % 3 for n in range(TIMES)]} for name in ("t", "other", "t")
            ]
            described = (await client.call("describe_producers", 0, topics=topics)).topics
            found = [(topic.name, [each.partition_index for each in topic.partitions]) for topic in described]
            assert found == [("t", [0, 1, 2]), ("other", [0, 1, 2])]
            told = await client.call("describe_transactions", 0, transactional_ids=["x", "y"] * TIMES)
            assert [each.transactional_id for each in told.transaction_states] == ["x", "y"]
            resources = (await client.call("list_config_resources", 1, resource_types=[TOPIC] * TIMES)).config_resources
            assert [each.resource_name for each in resources if not each.resource_name.startswith("__")] == ["t"]

    asyncio.run(main())


def test_parts_of_what_is_named_again_are_put_together(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t", 5)
            client = await served.client()
            groups = [
                {"group_id": "g", "topics": [{"name": "t", "partition_indexes": [n % 4, n % 4]}]} for n in range(TIMES)
            ]
            (group,) = (await client.call("offset_fetch", 9, groups=groups)).groups
            assert [each.partition_index for each in group.topics[0].partitions] == [0, 1, 2, 3]
            (group,) = (
                await client.call("offset_fetch", 9, groups=[*groups, {"group_id": "g", "topics": None}])
            ).groups
            assert group.topics == ()

    asyncio.run(main())


def test_one_offset_is_written_for_a_partition_that_is_named_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t", 5)
            client = await served.client()
            log = served.broker.internal_log(OFFSETS_TOPIC)
            before = log.log_end
            partitions = [{"partition_index": n % 2, "committed_offset": n} for n in range(TIMES)]
            committed = await client.call(
                "offset_commit", 8, group_id="g", generation_id_or_member_epoch=-1,
                topics=[{"name": "t", "partitions": partitions}] * 2,
            )  # fmt: skip
            assert {(each.partition_index, each.error_code) for each in committed.topics[1].partitions} == {
                (0, ErrorCode.none),
                (1, ErrorCode.none),
            }
            assert [len(topic.partitions) for topic in committed.topics] == [TIMES, TIMES]
            assert log.log_end - before == 2
            wanted = [{"name": "t", "partition_indexes": [0, 1]}]
            fetched = await client.call("offset_fetch", 7, group_id="g", topics=wanted)
            assert [each.committed_offset for each in fetched.topics[0].partitions] == [TIMES - 2, TIMES - 1]

    asyncio.run(main())


def test_partitions_are_told_by_their_topics_in_order(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            for name in ("a", "b"):
                await served.topic(name, 3)
            ids = sorted(topic.topic_id for topic in served.broker.topics.all() if not topic.is_internal)
            found = by_topic(frozenset({(ids[1], 2), (ids[0], 1), (ids[1], 0), (ids[0], 0)}))
            assert list(found.items()) == [(ids[0], [0, 1]), (ids[1], [0, 2])]

    asyncio.run(main())


@pytest.mark.parametrize("others", [("",), ("t",)])
def test_an_empty_name_may_stand_beside_another(tmp_path: Path, others: tuple[str, ...]) -> None:
    """Answered as Kafka 4.3 answers: once for each name, and none of them is taken for another."""
    unknown, none = ErrorCode.unknown_topic_or_partition, ErrorCode.none
    expected = {"": unknown, **{name: none for name in others if name}}

    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t")
            client = await served.client()
            for version in (9, 12):
                data = [
                    {"name": name, "partition_data": [{"index": 0, "records": batch(b"v")}]} for name in ("", *others)
                ]
                produced = await client.call("produce", version, acks=-1, timeout=1_000, topic_data=data)
                assert {each.name: each.partition_responses[0].error_code for each in produced.responses} == expected
            topics = [{"name": name, "partitions": [{"partition_index": 0, "offset": 0}]} for name in ("", *others)]
            deleted = await client.call("delete_records", 2, topics=topics, timeout=1_000)
            assert {each.name: each.partitions[0].error_code for each in deleted.topics} == expected

    asyncio.run(main())


def test_topics_without_an_id_are_answered_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            client = await served.client()
            for ids in ([None, None], [None, uuid4()]):
                data = [{"topic_id": each, "partition_data": [{"index": 0, "records": batch(b"v")}]} for each in ids]
                produced = await client.call("produce", 13, acks=-1, timeout=1_000, topic_data=data)
                found = {each.topic_id: each.partition_responses[0].error_code for each in produced.responses}
                assert found == dict.fromkeys(ids, ErrorCode.unknown_topic_id)

    asyncio.run(main())


@pytest.mark.tier("long")
def test_no_api_fails_over_names_that_are_empty_or_absent_and_repeated(tmp_path: Path) -> None:
    """Every API in every version, with an authorizer and without."""
    ways = [Filling(text, items=items) for text in ("", None) for items in (1, 2)]

    async def main() -> None:
        for authorizer in (False, True):
            settings: dict[str, Any] = {"authorizer": authorizer, "super_users": frozenset({"User:other"})}
            async with serving(tmp_path / str(authorizer), **settings) as served:
                told: list[str] = []
                for _, api in sorted(load_all().items()):
                    for version in api.versions:
                        for way in ways:
                            before = served.broker.errors
                            client = await served.client()
                            client.send_bytes(generated.frame(generated.request(api.name, version, filling=way)))
                            client.writer.write_eof()
                            await client.reader.read()
                            client.writer.close()
                            if served.broker.errors > before:
                                told.append(f"{api.name} v{version} {way}")
                assert told == []

    asyncio.run(main())
