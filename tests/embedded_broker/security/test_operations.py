"""What clients are told they may do (KIP-430), as Kafka's AuthHelper computes it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from embedded_broker.security.acls import Operation, Permission, Resource
from tests.embedded_broker.security.denials import creation
from tests.embedded_broker.security.guarded import allow, guarded, login
from tests.embedded_broker.served import Client, serving

NOT_ASKED = -(2**31)
TOPIC, GROUP, CLUSTER = 0b110111111000, 0b110101001000, 0b1111110100000
"""Everything that there is to do; the numbers that Kafka 4.3 answers without an authorizer."""
ASK = {"include_cluster_authorized_operations": True, "include_topic_authorized_operations": True}
OFFSET = [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]}]


async def make_group(client: Client) -> ErrorCode:
    """The group g, unless there is an error."""
    answer = await client.call("offset_commit", 5, group_id="g", generation_id_or_member_epoch=-1, topics=OFFSET)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


async def told_rights(client: Client, name: str = "t") -> dict[str, Any]:
    """All that a client can be told."""
    metadata = await client.call("metadata", 8, topics=[{"name": name}], **ASK)
    newer = await client.call("metadata", 12, topics=[{"name": name, "topic_id": UUID(int=0)}],
                              include_topic_authorized_operations=True)  # fmt: skip
    cluster = await client.call("describe_cluster", 1, include_cluster_authorized_operations=True)
    groups = await client.call("describe_groups", 3, groups=["g"], include_authorized_operations=True)
    partitions = await client.call("describe_topic_partitions", 0, topics=[{"name": name}],
                                   response_partition_limit=10)  # fmt: skip
    topics = {each.topics[0].topic_authorized_operations for each in (metadata, newer, partitions)}
    clusters = {each.cluster_authorized_operations for each in (metadata, cluster)}
    assert len(topics) == len(clusters) == 1, (topics, clusters)
    return {"topic": topics.pop(), "cluster": clusters.pop(), "group": groups.groups[0].authorized_operations}


def test_without_an_authorizer_everything_may_be_done(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t")
            client = await served.client()
            assert (await told_rights(client))["group"] == NOT_ASKED, "nobody has made the group yet"
            assert await make_group(client) is ErrorCode.none
            expected = {"topic": TOPIC, "cluster": CLUSTER, "group": GROUP}
            assert await told_rights(client) == expected
            assert await told_rights(client, "missing") == expected, "Kafka doesn't look whether there is one"

    asyncio.run(main())


def test_rights_are_returned_only_on_request(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t")
            client = await served.client()
            metadata = await client.call("metadata", 8, topics=None)
            assert {each.topic_authorized_operations for each in metadata.topics} == {NOT_ASKED}
            assert metadata.cluster_authorized_operations == NOT_ASKED
            assert (await client.call("describe_cluster", 0)).cluster_authorized_operations == NOT_ASKED
            groups = await client.call("describe_groups", 5, groups=["g"])
            assert groups.groups[0].authorized_operations == NOT_ASKED
            missing = await client.call("describe_groups", 6, groups=["g"], include_authorized_operations=True)
            assert missing.groups[0].error_code is ErrorCode.group_id_not_found
            assert missing.groups[0].authorized_operations == NOT_ASKED

    asyncio.run(main())


def test_with_an_authorizer_rights_follow_acls(tmp_path: Path) -> None:
    def bits(*operations: Operation) -> int:
        return sum(1 << each for each in operations)

    async def main() -> None:
        async with guarded(tmp_path) as served:
            await served.topic("t")
            alice, admin = await login(served, "alice"), await login(served, "admin")
            assert await make_group(admin) is ErrorCode.none
            assert await told_rights(admin) == {"topic": TOPIC, "cluster": CLUSTER, "group": GROUP}
            assert await told_rights(alice) == {"topic": NOT_ASKED, "cluster": 0, "group": NOT_ASKED}
            await allow(
                admin,
                creation(Resource.TOPIC, "t", Operation.WRITE),
                creation(Resource.GROUP, "g", Operation.ALL),
                creation(Resource.GROUP, "g", Operation.DELETE, permission_type=int(Permission.DENY)),
                creation(Resource.CLUSTER, "kafka-cluster", Operation.ALTER_CONFIGS),
            )
            told = await told_rights(alice)
            assert told["topic"] == bits(Operation.WRITE, Operation.DESCRIBE)
            assert told["group"] == GROUP - bits(Operation.DELETE)
            assert told["cluster"] == 0, "who may not look at the cluster isn't told"
            await allow(admin, creation(Resource.CLUSTER, "kafka-cluster", Operation.DESCRIBE))
            cluster = (await told_rights(alice))["cluster"]
            assert cluster == bits(Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)

    asyncio.run(main())


def test_of_a_consumer_group(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as served:
            await served.topic("t")
            client = await served.client()
            beat = {"group_id": "c", "member_id": "m", "member_epoch": 0, "rebalance_timeout": 60_000}
            await client.call("consumer_group_heartbeat", 1, **beat, subscribed_topic_names=["t"], topic_partitions=[])
            for asks, expected in ((True, GROUP), (False, NOT_ASKED)):
                answer = await client.call("consumer_group_describe", 0, group_ids=["c", "no"],
                                           include_authorized_operations=asks)  # fmt: skip
                assert [each.authorized_operations for each in answer.groups] == [expected, NOT_ASKED]

    asyncio.run(main())
