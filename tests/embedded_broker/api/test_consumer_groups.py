"""ConsumerGroupHeartbeat and ConsumerGroupDescribe over the wire, and offsets named by topic ids."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from tests.embedded_broker.served import Client, Served, serving

NONE = ErrorCode.none
STRANGER = UUID(int=99)


async def beat(client: Client, member_id: str = "a", epoch: int = 0, version: int = 1, **fields: Any) -> Any:
    """A heartbeat; the first one says everything."""
    request: dict[str, Any] = {"group_id": "g", "member_id": member_id, "member_epoch": epoch}
    request |= {"topic_partitions": None, "rebalance_timeout": -1}
    if epoch == 0:
        request |= {"topic_partitions": [], "rebalance_timeout": 5_000, "subscribed_topic_names": ["t"]}
    return await client.call("consumer_group_heartbeat", version, **(request | fields))


def topic_id(served: Served, name: str = "t") -> UUID:
    topic = served.broker.topics.get(name)
    assert topic is not None
    return topic.topic_id


async def describe(client: Client, group_id: str = "g", version: int = 1) -> Any:
    return (await client.call("consumer_group_describe", version, group_ids=[group_id])).groups[0]


def test_a_member_joins_is_described_and_leaves(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t", 2)
            client = await served.client()
            answer = await beat(client, instance_id="i", rack_id="r")
            assert (answer.error_code, answer.member_id, answer.member_epoch) == (NONE, "a", 1)
            assert answer.heartbeat_interval.total_seconds() == 5
            (assigned,) = answer.assignment.topic_partitions
            assert (assigned.topic_id, assigned.partitions) == (topic_id(served), (0, 1))
            assert (await beat(client, epoch=1, instance_id="i")).assignment is None
            group = await describe(client)
            assert (group.error_code, group.group_state, group.group_epoch) == (NONE, "Stable", 1)
            assert (group.assignment_epoch, group.assignor_name) == (1, "uniform")
            (member,) = group.members
            assert (member.member_id, member.instance_id, member.rack_id) == ("a", "i", "r")
            assert (member.subscribed_topic_names, member.client_id, member.member_type) == (("t",), "raw", 1)
            assert member.assignment == member.target_assignment
            assert member.assignment.topic_partitions[0].topic_name == "t"
            assert (await describe(client, version=0)).members[0].member_epoch == 1
            await beat(client, epoch=-1, instance_id="i")
            assert (await describe(client)).group_state == "Empty"

    asyncio.run(main())


def test_version_0_makes_the_member_id_and_knows_no_patterns(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t")
            client = await served.client()
            answer = await beat(client, "", version=0)
            assert len(answer.member_id) == 36
            assert (await beat(client, answer.member_id, 1, version=0)).error_code is NONE
            assert (await beat(client, "", version=1)).error_code is ErrorCode.invalid_request

    asyncio.run(main())


def test_a_pattern_over_the_wire(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("orders-1")
            await served.topic("other")
            client = await served.client()
            answer = await beat(client, subscribed_topic_names=[], subscribed_topic_regex="^orders-.*")
            assert [each.topic_id for each in answer.assignment.topic_partitions] == [topic_id(served, "orders-1")]
            assert (await describe(client)).members[0].subscribed_topic_regex == "^orders-.*"

    asyncio.run(main())


def test_each_kind_of_group_is_described_by_its_own_api(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t")
            client = await served.client()
            await beat(client)
            topics = [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 1}]}]
            await client.call("offset_commit", 8, group_id="old", member_id="", generation_id_or_member_epoch=-1,
                              topics=topics)  # fmt: skip
            for group_id, text in (("old", "is not a consumer group"), ("none", "not found")):
                missing = await describe(client, group_id)
                assert (missing.error_code, missing.members) == (ErrorCode.group_id_not_found, ())
                assert text in missing.error_message
            for version, error_code in ((5, NONE), (6, ErrorCode.group_id_not_found)):
                described = (await client.call("describe_groups", version, groups=["g"])).groups[0]
                assert (described.error_code, described.group_state) == (error_code, "Dead")
            listed = (await client.call("list_groups", 5, states_filter=[], types_filter=["Consumer"])).groups
            assert [(each.group_id, each.group_type, each.protocol_type) for each in listed] == [
                ("g", "consumer", "consumer")
            ]
            listed = (await client.call("list_groups", 5, states_filter=["empty"], types_filter=[])).groups
            assert [(each.group_id, each.group_type) for each in listed] == [("old", "classic")]
            deleted = (await client.call("delete_groups", 2, groups_names=["g"])).results[0]
            assert deleted.error_code is ErrorCode.non_empty_group

    asyncio.run(main())


async def commit(client: Client, version: int, epoch: int, topics: list[tuple[Any, int]], member: str = "a") -> Any:
    key = "topic_id" if version >= 10 else "name"
    named = [{key: name, "partitions": [{"partition_index": index, "committed_offset": 7}]} for name, index in topics]
    return await client.call(
        "offset_commit", version, group_id="g", member_id=member, generation_id_or_member_epoch=epoch, topics=named
    )


async def fetch(client: Client, version: int, topics: Any, member_id: str | None = None, epoch: int = -1) -> Any:
    group = {"group_id": "g", "member_id": member_id, "member_epoch": epoch, "topics": topics}
    return (await client.call("offset_fetch", version, groups=[group], require_stable=True)).groups[0]


def test_offsets_by_topic_id_and_member_epoch(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t", 2)
            client = await served.client()
            await beat(client)
            here = topic_id(served)
            answer = await commit(client, 10, 1, [(here, 0), (here, 5), (STRANGER, 0)])
            found = [(each.topic_id, each.partitions[0].error_code) for each in answer.topics]
            assert found == [
                (here, NONE), (here, ErrorCode.unknown_topic_or_partition), (STRANGER, ErrorCode.unknown_topic_id)
            ]  # fmt: skip
            for version, epoch, member, expected in (
                (9, 1, "a", NONE),
                (9, 0, "a", ErrorCode.stale_member_epoch),
                (9, 1, "b", ErrorCode.unknown_member_id),
                (8, 1, "a", ErrorCode.unsupported_version),
            ):
                answer = await commit(client, version, epoch, [("t", 1)], member)
                assert answer.topics[0].partitions[0].error_code is expected
            asked = [{"topic_id": here, "partition_indexes": [0, 1]}, {"topic_id": STRANGER, "partition_indexes": [0]}]
            known, unknown = (await fetch(client, 10, asked, "a", 1)).topics
            assert [each.committed_offset for each in known.partitions] == [7, 7]
            assert unknown.partitions[0].error_code is ErrorCode.unknown_topic_id
            assert [each.topic_id for each in (await fetch(client, 10, None)).topics] == [here]
            assert (await fetch(client, 10, None, "a", 0)).error_code is ErrorCode.stale_member_epoch
            assert (await fetch(client, 9, None, "b", 1)).error_code is ErrorCode.unknown_member_id
            assert [each.name for each in (await fetch(client, 9, None, "a", 1)).topics] == ["t"]

    asyncio.run(main())


def test_offsets_of_topics_that_members_read_are_not_deleted(tmp_path: Path) -> None:
    async def delete(client: Client, *names: str) -> list[ErrorCode]:
        topics = [{"name": name, "partitions": [{"partition_index": 0}]} for name in names]
        answer = await client.call("offset_delete", 0, group_id="g", topics=topics)
        assert answer.error_code is NONE
        return [topic.partitions[0].error_code for topic in answer.topics]

    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t")
            await served.topic("u")
            client = await served.client()
            await beat(client)
            await commit(client, 9, 1, [("t", 0), ("u", 0)])
            assert await delete(client, "t", "u", "none") == [
                ErrorCode.group_subscribed_to_topic, NONE, ErrorCode.unknown_topic_or_partition
            ]  # fmt: skip
            assert [each.name for each in (await fetch(client, 9, None)).topics] == ["t"]
            await beat(client, epoch=-1)
            assert await delete(client, "t") == [NONE]
            assert (await fetch(client, 9, None)).topics == ()

    asyncio.run(main())
