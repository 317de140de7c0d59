"""A request that names one thing many times gets one answer for it: else a few bytes would cost the broker seconds."""

from __future__ import annotations

import asyncio
from pathlib import Path

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


def test_partitions_are_told_by_their_topics_in_order(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            for name in ("a", "b"):
                await served.topic(name, 3)
            ids = sorted(topic.topic_id for topic in served.broker.topics.all() if not topic.is_internal)
            found = by_topic(frozenset({(ids[1], 2), (ids[0], 1), (ids[1], 0), (ids[0], 0)}))
            assert list(found.items()) == [(ids[0], [0, 1]), (ids[1], [0, 2])]

    asyncio.run(main())
