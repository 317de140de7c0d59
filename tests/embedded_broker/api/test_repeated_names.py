"""A request that names one thing many times gets one answer for it: else a few bytes would cost the broker seconds."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kio.schema.errors import ErrorCode

from embedded_broker.metadata.topic_names import OFFSETS_TOPIC
from embedded_broker.state.consumer_types import by_topic
from tests.embedded_broker.served import serving

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
